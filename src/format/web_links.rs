//! Parses the header `Link` and link sets (RFC 8288, RFC 9264).

/// A link of a `Link` header (RFC 8288 section 3), with the parameters that are used. Their texts are unquoted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebLink<'h> {
    /// Target, which may be relative.
    pub target: &'h str,
    /// Relations, separated by spaces.
    pub relations: String,
    /// Resource that the link is about; `None` for the one of the response.
    pub anchor: Option<String>,
    /// Media type of the target.
    pub media_type: Option<String>,
    /// Title of the target.
    pub title: Option<String>,
}

impl WebLink<'_> {
    /// Returns whether the link has a relation.
    #[must_use]
    pub fn has_relation(&self, relation: &str) -> bool {
        self.relations.split_ascii_whitespace().any(|one| one.eq_ignore_ascii_case(relation))
    }
}

/// Returns the links of a `Link` header, or of a document of the media type `application/linkset` (RFC 9264), which may
/// have line breaks. Text that is no link is skipped up to the next comma.
pub fn web_links(value: &str) -> impl Iterator<Item = WebLink<'_>> {
    let mut rest = value;
    std::iter::from_fn(move || {
        loop {
            let (_, link) = rest.split_once('<')?;
            let (target, parameters) = link.split_once('>')?;
            let mut parser = Parameters { rest: parameters };
            let link = WebLink { target, ..parser.link() };
            rest = parser.rest;
            if !link.relations.is_empty() {
                return Some(link);
            }
        }
    })
}

/// Returns the targets of links with this relation in `Link` headers, which are about the resource of the response.
pub fn link_targets(values: impl IntoIterator<Item: AsRef<str>>, relation: &str) -> Vec<String> {
    let mut targets = Vec::new();
    for value in values {
        let links = web_links(value.as_ref()).filter(|link| link.anchor.is_none() && link.has_relation(relation));
        targets.extend(links.map(|link| link.target.to_owned()));
    }
    targets
}

/// The parameters of a link, up to the comma after them.
struct Parameters<'h> {
    rest: &'h str,
}

impl<'h> Parameters<'h> {
    /// Reads all parameters. The first one of a name counts.
    fn link(&mut self) -> WebLink<'static> {
        let mut link = WebLink::default();
        let mut has_relations = false;
        loop {
            // Text before the next parameter belongs to none.
            let Some(end) = self.rest.find([';', ',', '"']) else {
                self.rest = "";
                return link;
            };
            let separator = self.rest.as_bytes()[end];
            self.rest = &self.rest[end + 1..];
            match separator {
                b',' => return link,
                b'"' => {
                    self.quoted();
                }
                _ => {
                    let Some((name, value)) = self.parameter() else { continue };
                    match name.to_ascii_lowercase().as_str() {
                        "rel" if !has_relations => (link.relations, has_relations) = (value, true),
                        "anchor" if link.anchor.is_none() => link.anchor = Some(value),
                        "type" if link.media_type.is_none() => link.media_type = Some(value),
                        "title" if link.title.is_none() => link.title = Some(value),
                        _ => {}
                    }
                }
            }
        }
    }

    /// Reads a parameter after its semicolon; `None` for one without a value.
    fn parameter(&mut self) -> Option<(&'h str, String)> {
        let (end, equals) = self.rest.char_indices().find(|(_, c)| "=;,\"".contains(*c))?;
        if equals != '=' {
            return None;
        }
        let name = self.rest[..end].trim();
        self.rest = self.rest[end + 1..].trim_start();
        if let Some(rest) = self.rest.strip_prefix('"') {
            self.rest = rest;
            return Some((name, self.quoted()));
        }
        let end = self.rest.find([';', ',']).unwrap_or(self.rest.len());
        let value = self.rest[..end].trim();
        self.rest = &self.rest[end..];
        Some((name, value.to_owned()))
    }

    /// Reads a text after its quotation mark, up to the next one. A backslash stands before a character that is meant.
    fn quoted(&mut self) -> String {
        let (mut text, mut is_escaped) = (String::new(), false);
        for (at, c) in self.rest.char_indices() {
            match c {
                _ if is_escaped => {
                    text.push(c);
                    is_escaped = false;
                }
                '\\' => is_escaped = true,
                '"' => {
                    self.rest = &self.rest[at + 1..];
                    return text;
                }
                c => text.push(c),
            }
        }
        self.rest = "";
        text
    }
}

#[cfg(test)]
mod tests {
    use super::{link_targets, web_links};

    #[test]
    fn links_are_selected_by_relation() {
        let values = [
            r#"<http://www.w3.org/ns/ldp#Resource>;rel="type", <http://www.w3.org/ns/ldp#NonRDFSource>; rel=type"#,
            r#"<http://h/rest/a/fcr:metadata>; title="a, b; rel=\"x\""; rel="describedby""#,
            r#"<http://h/rest/a/fcr:acl>; rel="acl other""#,
            "nonsense; rel=type, <unfinished",
        ];
        let types = ["http://www.w3.org/ns/ldp#Resource", "http://www.w3.org/ns/ldp#NonRDFSource"];
        assert_eq!(link_targets(values, "type"), types);
        assert_eq!(link_targets(values, "other"), ["http://h/rest/a/fcr:acl"]);
        assert_eq!(link_targets(values, "describedby"), ["http://h/rest/a/fcr:metadata"]);
    }

    #[test]
    fn parameters_are_read_with_their_quotation_marks() {
        let header = "<a>; title=\"a; rel=item, \\\"x\\\"\"; REL=\"License item\"; type=text/csv,\n <b> ; rel = item;, <c>; \
                      rel=\"item\"; rel=type; anchor=\"/other\", <d>; rel, <e>; rel=item; title*=UTF-8''x,";
        let links: Vec<_> = web_links(header).collect();
        let targets: Vec<_> = links.iter().map(|link| (link.target, &*link.relations)).collect();
        assert_eq!(targets, [("a", "License item"), ("b", "item"), ("c", "item"), ("e", "item")]);
        assert_eq!(links[0].title.as_deref(), Some("a; rel=item, \"x\""));
        assert_eq!(links[0].media_type.as_deref(), Some("text/csv"));
        assert_eq!(links[2].anchor.as_deref(), Some("/other"));
        assert_eq!(link_targets([header], "item"), ["a", "b", "e"]);
        // The relation of a title is none.
        assert_eq!(link_targets(["<x.csv>; title=\"a; rel=item\"; rel=\"license\""], "item"), [""; 0]);
        assert_eq!(web_links("<a>; title=\"no end, <b>; rel=item").count(), 0);
    }
}
