//! URLs of manifests, which a template makes from the URIs of objects.

use percent_encoding::percent_decode_str;
use serde::Serialize;

use crate::{
    model::Uri,
    template::{Facts, Place, Template},
};

/// Template of the URL of a manifest, with `object` (the URI of the object) and `name` (the last part of its path, decoded).
/// Values are percent-encoded, so no value leaves its place.
#[derive(Debug)]
pub struct ManifestTemplate {
    source: String,
    template: Template,
}

#[derive(Serialize)]
struct ObjectFacts<'a> {
    object: &'a str,
    name: &'a str,
}

/// Object with which a template is tried.
const SAMPLE: &str = "https://repository.example.org/objects/1";

impl ManifestTemplate {
    /// Parses a template.
    ///
    /// # Errors
    /// Fails if the template is wrong, or makes no URL.
    pub fn parse(source: &str) -> Result<Self, String> {
        let template = Template::parse(source, Place::Path).map_err(|error| error.to_string())?;
        let template = Self { source: source.to_owned(), template };
        let sample = Uri::parse(SAMPLE).map_err(|error| error.to_string())?;
        let made = template.render(&sample)?;
        if made.is_empty() || web_url(&made).is_some() {
            return Ok(template);
        }
        Err(format!(
            "it makes {made:?} of {SAMPLE}; give one that makes a URL, as in \"https://iiif.example.org/{{{{ name }}}}/manifest\""
        ))
    }

    /// Returns the template as it is configured.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Returns the URL of the manifest of an object; `None` if the template makes no text or no URL for it.
    #[must_use]
    pub fn url(&self, object: &Uri) -> Option<String> {
        match self.render(object) {
            Ok(made) => web_url(&made).map(|_| made),
            Err(reason) => {
                tracing::debug!(%object, reason, "the template of manifests makes no URL for an object");
                None
            }
        }
    }

    fn render(&self, object: &Uri) -> Result<String, String> {
        let uri = object.as_str();
        let path = uri[..uri.find(['?', '#']).unwrap_or(uri.len())].trim_end_matches('/');
        let name = path.rsplit_once('/').or_else(|| path.rsplit_once(':')).map_or(path, |(_, name)| name);
        let name = percent_decode_str(name).decode_utf8_lossy();
        let facts = Facts::new(&ObjectFacts { object: uri, name: &name });
        let made = self.template.render(&facts, Uri::MAX_BYTES).map_err(|error| error.to_string())?;
        Ok(made.trim().to_owned())
    }
}

/// Returns the text if it is a URL of the web.
fn web_url(text: &str) -> Option<Uri> {
    let is_web = text.starts_with("http://") || text.starts_with("https://");
    Uri::parse(text).ok().filter(|_| is_web)
}

#[cfg(test)]
mod tests {
    use super::{ManifestTemplate, Uri};

    #[test]
    fn a_template_makes_urls_and_selects_objects() {
        let made =
            |template: &str, object: &str| ManifestTemplate::parse(template).unwrap().url(&Uri::parse(object).unwrap());
        let of_name = "https://iiif.example.org/{{ name }}/manifest";
        for (object, name) in [
            ("http://h/rest/a/b/", "b"),
            ("http://h/fedora/objects/demo:1", "demo%3A1"),
            ("info:fedora/demo:1", "demo%3A1"),
            ("http://h/x/caf%C3%A9%2F..%2Fy?z=1#w", "caf%C3%A9%2F..%2Fy"),
            ("urn:uuid:296f93e1-7f22-430a-99f6-256cf13d1fa3", "296f93e1-7f22-430a-99f6-256cf13d1fa3"),
        ] {
            assert_eq!(made(of_name, object), Some(format!("https://iiif.example.org/{name}/manifest")), "{object}");
        }
        let of_uri = "https://iiif.example.org{{ object|path }}";
        assert_eq!(made(of_uri, "http://h/a%20b/c").as_deref(), Some("https://iiif.example.org/a%20b/c"));
        let of_some = "{% if object is startingwith 'http://h/maps/' %}https://i/{{ name }}{% endif %}";
        assert_eq!(made(of_some, "http://h/maps/1").as_deref(), Some("https://i/1"));
        assert_eq!(made(of_some, "http://h/texts/1"), None);
    }

    #[test]
    fn a_template_that_makes_no_url_is_refused() {
        for (template, reason) in [
            ("/manifest/{{ name }}", "give one that makes a URL"),
            ("javascript:{{ name }}", "give one that makes a URL"),
            ("https://h/{{ title }}", "it names something that is not there"),
            ("https://h/{{ name", "syntax error"),
        ] {
            let error = ManifestTemplate::parse(template).unwrap_err();
            assert!(error.contains(reason), "{template}: {error}");
        }
    }
}
