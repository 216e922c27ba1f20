//! Where things are: SFM's messages have identifiers and paths of files, and a change has URIs.

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde::Deserialize;

use super::{super::routing::SystemUrl, refused, template::Template};
use crate::{format::Rejection, model::Uri};

/// The dialect's settings.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Settings {
    /// Where SFM is, as in `https://sfm.example.org`.
    base_url: SystemUrl,
    /// Where the files under `files_path` are served; `sfm-data` below `base_url`, where not told.
    files_url: Option<SystemUrl>,
    /// The folder that the paths in messages begin with.
    #[serde(default = "sfm_data")]
    files_path: String,
    /// The templates that are not the default ones.
    #[serde(default)]
    templates: Templates,
}

fn sfm_data() -> String {
    "/sfm-data".to_owned()
}

/// The URI templates, relative to the base URL or absolute. The routes of `warcs` and `collections`
/// are those of sfm-ui's REST API; it has none for the others yet, and theirs are made alike.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Templates {
    harvest: String,
    collection: String,
    collection_set: String,
    seed: String,
    warc: String,
    export: String,
    harvest_type: String,
    export_type: String,
}

impl Default for Templates {
    fn default() -> Self {
        let route = |name: &str, variable: &str| format!("api/v1/{name}/{{{variable}}}/");
        Self {
            harvest: route("harvests", "id"),
            collection: route("collections", "id"),
            collection_set: route("collection_sets", "id"),
            seed: route("seeds", "id"),
            warc: route("warcs", "id"),
            export: route("exports", "id"),
            harvest_type: route("harvest_types", "type"),
            export_type: route("export_types", "type"),
        }
    }
}

/// The templates of everything, and where the files are.
pub(super) struct Address {
    pub(super) harvest: Template,
    pub(super) collection: Template,
    pub(super) collection_set: Template,
    pub(super) seed: Template,
    pub(super) warc: Template,
    pub(super) export: Template,
    pub(super) harvest_type: Template,
    pub(super) export_type: Template,
    pub(super) files: Files,
}

impl Settings {
    /// # Errors
    /// When a template or an address makes no URIs; in a sentence that names the setting.
    pub(super) fn address(self) -> Result<Address, String> {
        let Self { base_url, files_url, files_path, templates } = self;
        let template = |name: &str, raw: &str, variable: &str| {
            Template::parse(raw, variable, &base_url).map_err(|error| format!("templates.{name}: {error}"))
        };
        if !files_path.starts_with('/') {
            return Err(format!("files_path: {files_path:?} is no folder from the root; write it as in /sfm-data"));
        }
        let default_url =
            || SystemUrl::parse(&base_url.join("sfm-data").map_err(|error| error.to_string())?.to_string());
        Ok(Address {
            harvest: template("harvest", &templates.harvest, "id")?,
            collection: template("collection", &templates.collection, "id")?,
            collection_set: template("collection_set", &templates.collection_set, "id")?,
            seed: template("seed", &templates.seed, "id")?,
            warc: template("warc", &templates.warc, "id")?,
            export: template("export", &templates.export, "id")?,
            harvest_type: template("harvest_type", &templates.harvest_type, "type")?,
            export_type: template("export_type", &templates.export_type, "type")?,
            files: Files {
                url: files_url.map_or_else(default_url, Ok)?,
                path: files_path.trim_end_matches('/').to_owned(),
            },
        })
    }
}

/// ASCII characters that no path has: neither a slash nor of a segment (`pchar`, RFC 3986 section 3.3).
const NOT_IN_PATH: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// The files of SFM: a folder, and where it is served.
pub(super) struct Files {
    url: SystemUrl,
    path: String,
}

impl Files {
    /// Where the file at `path` is served; the path stands at `pointer` of a message.
    ///
    /// # Errors
    /// When it is not in the folder.
    pub(super) fn url(&self, path: &str, pointer: &str) -> Result<Uri, Rejection> {
        let within = path.strip_prefix(&self.path).and_then(|rest| rest.strip_prefix('/'));
        let Some(within) = within.filter(|within| !within.is_empty()) else {
            let reason =
                format!("the path {path:?} is not in {}; set files_path in the settings of the source", self.path);
            return Err(refused(pointer, reason));
        };
        if within.split('/').any(|segment| matches!(segment, "." | "..")) {
            return Err(refused(pointer, format!("the path {path:?} leads out of its folder or in circles")));
        }
        self.url
            .join(&utf8_percent_encode(within, NOT_IN_PATH).to_string())
            .map_err(|error| refused(pointer, format!("this makes no URL: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::Settings;

    fn told(settings: Value) -> String {
        let settings: Result<Settings, _> = serde_json::from_value(settings);
        match settings.map_err(|error| error.to_string()).and_then(Settings::address) {
            Ok(address) => address
                .files
                .url("/sfm-data/a b/c:d.warc.gz", "/path")
                .map_or_else(|rejection| rejection.to_string(), |url| url.to_string()),
            Err(error) => error,
        }
    }

    #[test]
    fn files_are_where_the_settings_say() {
        for (settings, url) in [
            (json!({"base_url": "http://h/"}), "http://h/sfm-data/a%20b/c:d.warc.gz"),
            (json!({"base_url": "http://h", "files_url": "http://w/x/"}), "http://w/x/a%20b/c:d.warc.gz"),
            (json!({"base_url": "http://h", "files_path": "/"}), "http://h/sfm-data/sfm-data/a%20b/c:d.warc.gz"),
            (json!({"base_url": "http://h", "files_path": "/data/"}), "is not in /data; set files_path"),
            (json!({"base_url": "http://h", "files_path": "data"}), "files_path: \"data\" is no folder"),
            (json!({"base_url": "http://h", "files_url": "w"}), "it is not an absolute URI"),
            (json!({"base_url": "http://h", "templates": {"warc": "w"}}), "templates.warc: \"w\" has no {id}"),
            (json!({"base_url": "http://h", "templates": {"worc": "w"}}), "unknown field `worc`"),
            (json!({}), "missing field `base_url`"),
        ] {
            let told = told(settings);
            assert!(told.contains(url), "{told}");
        }
    }

    #[test]
    fn no_path_leads_out() {
        let settings: Settings = serde_json::from_value(json!({"base_url": "http://h"})).unwrap();
        let files = settings.address().unwrap().files;
        for path in ["/sfm-data", "/sfm-data/", "/sfm-database/x", "/sfm-data/../etc/passwd", "x", "/sfm-data/./a"] {
            assert!(files.url(path, "/path").is_err(), "{path}");
        }
    }
}
