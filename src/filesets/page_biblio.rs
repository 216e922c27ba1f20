//! Bibliographic data of a landing page: the elements `meta` of its head, in the vocabularies that catalogues harvest
//! (Highwire Press as Google Scholar reads it, PRISM, EPrints, bepress, Dublin Core, Open Graph).
//!
//! The members and the order of the vocabularies are those of Sandcrawler (`html_biblio`), as far as they make sense for a
//! dataset. Reference lists, issues and pages are left out.

use serde_json::{Map, Value};

/// Maximum number of names.
const MAX_NAMES: usize = 1000;

/// Maximum size of all texts, in bytes. Later ones are left out.
const MAX_BYTES: usize = 64 << 10;

/// Members with one text, and the names that a page may give it, the best one first.
const TEXTS: [(&str, &[&str]); 8] = [
    (
        "title",
        &[
            "citation_title",
            "eprints.title",
            "prism.title",
            "bepress_citation_title",
            "og:title",
            "dcterms.title",
            "dc.title",
        ],
    ),
    ("subtitle", &["prism.subtitle"]),
    ("doi", &["citation_doi", "doi", "prism.doi", "bepress_citation_doi", "dc.identifier.doi", IDENTIFIER]),
    (
        "abstract",
        &[
            "citation_abstract",
            "bepress_citation_abstract",
            "eprints.abstract",
            "dcterms.abstract",
            "prism.teaser",
            "dc.description",
            "og:description",
        ],
    ),
    (
        "container_name",
        &[
            "citation_journal_title",
            "bepress_citation_journal_title",
            "citation_conference_title",
            "prism.publicationname",
            "eprints.publication",
            "dc.relation.ispartof",
            "dc.source",
            "og:site_name",
        ],
    ),
    (
        "publisher",
        &["citation_publisher", "bepress_citation_publisher", "eprints.publisher", "dcterms.publisher", "dc.publisher"],
    ),
    ("lang", &["citation_language", "bepress_citation_language", "dcterms.language", "dc.language", "og:locale"]),
    (
        DATE,
        &[
            "citation_publication_date",
            "bepress_citation_publication_date",
            "prism.publicationdate",
            "citation_date",
            "bepress_citation_date",
            "citation_online_date",
            "datepublished",
            "eprints.date",
            "dc.date.created",
            "dc.issued",
            "dcterms.date",
            "dc.date",
        ],
    ),
];

/// Names of the authors, the best vocabulary first.
const NAMES: [&str; 6] = [
    "citation_author",
    "bepress_citation_author",
    "eprints.creators_name",
    "dcterms.creator",
    "dc.creator",
    "dc.contributor",
];

/// Name whose text is a DOI on some pages, and something else on others.
const IDENTIFIER: &str = "dc.identifier";

/// Member with the day of the publication.
const DATE: &str = "release_date";

/// Bibliographic data that was found so far: for each member the best text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageBiblio {
    /// Texts in the order of [`TEXTS`], each with the rank of its name.
    texts: [Option<(usize, String)>; TEXTS.len()],
    /// Rank of the vocabulary of the names.
    names_rank: usize,
    names: Vec<String>,
    bytes: usize,
    /// Whether the head has ended.
    has_ended: bool,
}

impl PageBiblio {
    /// Adds an element `meta`.
    pub(super) fn add(&mut self, name: &str, content: &str) {
        let (name, content) = (name.trim().to_ascii_lowercase(), content.trim());
        if self.has_ended || content.is_empty() || self.bytes + content.len() > MAX_BYTES {
            return;
        }
        if let Some(rank) = NAMES.iter().position(|known| *known == name) {
            self.add_name(rank, content);
            return;
        }
        for ((member, names), text) in TEXTS.iter().zip(&mut self.texts) {
            let Some(rank) = names.iter().position(|known| *known == name) else { continue };
            let content = match *member {
                "doi" => doi(content),
                DATE => date(content),
                _ => Some(content.to_owned()),
            };
            if let Some(content) = content.filter(|_| text.as_ref().is_none_or(|(known, _)| rank < *known)) {
                self.bytes += content.len();
                *text = Some((rank, content));
            }
        }
    }

    /// Adds the name of an author. Those of a better vocabulary replace others.
    fn add_name(&mut self, rank: usize, name: &str) {
        if self.names.is_empty() || rank < self.names_rank {
            (self.names_rank, self.names) = (rank, Vec::new());
        }
        if rank == self.names_rank && self.names.len() < MAX_NAMES {
            self.bytes += name.len();
            self.names.push(name.to_owned());
        }
    }

    /// Ends the head of the page. Elements after it are about other things too.
    pub(super) fn end(&mut self) {
        self.has_ended = true;
    }

    /// Returns the member `html_biblio` of a result; `None` for a page without a title, which has no such data.
    pub(super) fn members(&self) -> Option<Map<String, Value>> {
        let texts = TEXTS.iter().zip(&self.texts);
        let mut members: Map<String, Value> = texts
            .filter_map(|((member, _), text)| Some(((*member).to_owned(), text.as_ref()?.1.clone().into())))
            .collect();
        members.get("title")?;
        if !self.names.is_empty() {
            members.insert("contrib_names".to_owned(), self.names.clone().into());
        }
        // Some pages say only the year.
        if let Some(year) = members.get(DATE).and_then(Value::as_str).filter(|date| date.len() == 4) {
            let year = year.parse::<u64>().ok();
            members.remove(DATE);
            members.extend(year.map(|year| ("release_year".to_owned(), year.into())));
        }
        Some(members)
    }
}

/// Returns the DOI of a text that may begin with a scheme or a resolver.
fn doi(text: &str) -> Option<String> {
    let start = text.find("10.")?;
    let prefix = text[..start].to_ascii_lowercase();
    let is_prefix = ["", "doi:", "https://doi.org/", "http://doi.org/", "https://dx.doi.org/", "http://dx.doi.org/"]
        .contains(&prefix.trim_end());
    (is_prefix && text[start..].contains('/')).then(|| text[start..].to_owned())
}

/// Returns a date as `YYYY-MM-DD`, or a year alone. Pages write `2026-01-02`, `2026/1/2`, `2026/01`, a time, or a year.
fn date(text: &str) -> Option<String> {
    let text = text.split(['T', ' ']).next()?;
    let mut parts = text.split(['-', '/']);
    let year = parts.next().filter(|year| year.len() == 4)?.parse::<i32>().ok()?;
    let (month, day) = (parts.next(), parts.next());
    let (Some(month), Some(day)) = (month, day) else { return Some(format!("{year:04}")) };
    let date = chrono::NaiveDate::from_ymd_opt(year, month.parse().ok()?, day.parse().ok()?)?;
    Some(date.format("%Y-%m-%d").to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{MAX_BYTES, MAX_NAMES, PageBiblio, date, doi};

    fn members(metas: &[(&str, &str)]) -> Value {
        let mut biblio = PageBiblio::default();
        metas.iter().for_each(|(name, content)| biblio.add(name, content));
        biblio.members().map_or(Value::Null, Value::from)
    }

    #[test]
    fn better_vocabularies_come_first_in_any_order() {
        let metas = [
            ("DC.title", "no"),
            ("dc.creator", "no"),
            ("citation_title", "A dataset"),
            ("og:title", "no"),
            ("citation_title", "no"),
            ("citation_author", "Author, A."),
            ("citation_author", "Author, B."),
            ("dc.creator", "no"),
            ("citation_doi", "https://doi.org/10.5072/zenodo.17"),
            ("dc.identifier", "oai:x:17"),
            ("citation_publication_date", "2026/1/2"),
            ("description", "no"),
        ];
        assert_eq!(
            members(&metas),
            json!({ "title": "A dataset", "contrib_names": ["Author, A.", "Author, B."], "doi": "10.5072/zenodo.17",
                "release_date": "2026-01-02" })
        );
        assert_eq!(members(&[("og:title", "T"), ("dc.date", "1999")]), json!({ "title": "T", "release_year": 1999 }));
        assert_eq!(members(&[("dc.date", "1999"), ("dc.creator", "A")]), Value::Null, "there is no title");
    }

    #[test]
    fn texts_are_bounded() {
        let mut biblio = PageBiblio::default();
        (0..10 * MAX_NAMES).for_each(|_| biblio.add("citation_author", "A"));
        (0..100).for_each(|_| biblio.add("citation_title", &"t".repeat(MAX_BYTES / 2)));
        biblio.add("dc.publisher", &"p".repeat(MAX_BYTES));
        let members = biblio.members().unwrap();
        assert!(members["contrib_names"].as_array().unwrap().len() == MAX_NAMES && !members.contains_key("publisher"));
        biblio.end();
        biblio.add("dc.publisher", "p");
        assert!(!biblio.members().unwrap().contains_key("publisher"));
    }

    #[test]
    fn identifiers_and_dates_have_one_form() {
        for (text, expected) in [
            ("doi:10.1/a", Some("10.1/a")),
            ("http://dx.doi.org/10.1/a", Some("10.1/a")),
            ("10.1/a", Some("10.1/a")),
            ("hdl:10.1/a", None),
            ("version 10.1", None),
        ] {
            assert_eq!(doi(text).as_deref(), expected, "{text}");
        }
        for (text, expected) in [
            ("2026-01-02T03:04:05Z", Some("2026-01-02")),
            ("2026/12/1", Some("2026-12-01")),
            ("2026/12", Some("2026")),
            ("2026", Some("2026")),
            ("2026-13-01", None),
            ("yesterday", None),
        ] {
            assert_eq!(date(text).as_deref(), expected, "{text}");
        }
    }
}
