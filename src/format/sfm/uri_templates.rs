//! Builds URIs from the identifiers and file paths in SFM's messages.

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde::Deserialize;

use super::{super::routing::SystemUrl, rejection, uri_template::UriTemplate};
use crate::{format::Rejection, model::Uri};

/// Settings of the dialect.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Settings {
    /// Base URL of SFM, as in `https://sfm.example.org`.
    base_url: SystemUrl,
    /// URL of the files under `files_path`; by default `sfm-data` below `base_url`.
    files_url: Option<SystemUrl>,
    /// Folder with which the paths in messages begin; by default that of any version.
    files_path: Option<String>,
    /// Templates that differ from the defaults.
    #[serde(default)]
    templates: Templates,
}

/// Folders of the files: until SFM 2.3, and since SFM 2.4.
const FOLDERS: [&str; 2] = ["/sfm-data", "/sfm-collection-set-data"];

/// URI templates, absolute or relative to the base URL. The routes of `warcs` and `collections` exist in
/// sfm-ui's REST API; the others follow the same pattern.
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

/// Templates of all kinds, and the location of the files.
pub(super) struct UriTemplates {
    pub(super) harvest: UriTemplate,
    pub(super) collection: UriTemplate,
    pub(super) collection_set: UriTemplate,
    pub(super) seed: UriTemplate,
    pub(super) warc: UriTemplate,
    pub(super) export: UriTemplate,
    pub(super) harvest_type: UriTemplate,
    pub(super) export_type: UriTemplate,
    pub(super) files: Files,
}

impl Settings {
    /// Parses the templates and URLs.
    ///
    /// # Errors
    /// Fails with a sentence that names the setting if a template or URL is invalid.
    pub(super) fn uri_templates(self) -> Result<UriTemplates, String> {
        let Self { base_url, files_url, files_path, templates } = self;
        let template = |name: &str, raw: &str, variable: &str| {
            UriTemplate::parse(raw, variable, &base_url).map_err(|error| format!("templates.{name}: {error}"))
        };
        if let Some(relative) = files_path.as_ref().filter(|path| !path.starts_with('/')) {
            return Err(format!("files_path: {relative:?} is not an absolute path; write it as in /sfm-data"));
        }
        let folders = files_path.map_or_else(|| FOLDERS.map(str::to_owned).to_vec(), |path| vec![path]);
        let default_url =
            || SystemUrl::parse(&base_url.join("sfm-data").map_err(|error| error.to_string())?.to_string());
        Ok(UriTemplates {
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
                folders: folders.iter().map(|path| path.trim_end_matches('/').to_owned()).collect(),
            },
        })
    }
}

/// ASCII characters that may not occur in a path: all except `/` and `pchar` (RFC 3986 section 3.3).
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

/// The files of SFM: folders, and the URL at which they are served.
pub(super) struct Files {
    url: SystemUrl,
    folders: Vec<String>,
}

impl Files {
    /// Returns the URL of the file at `path`, which is the value at the JSON pointer `pointer`.
    ///
    /// # Errors
    /// Fails if the path is outside the folders.
    pub(super) fn url(&self, path: &str, pointer: &str) -> Result<Uri, Rejection> {
        let in_folder = |folder: &String| path.strip_prefix(folder.as_str())?.strip_prefix('/');
        let within = self.folders.iter().find_map(in_folder);
        let Some(within) = within.filter(|within| !within.is_empty()) else {
            let reason = format!(
                "the path {path:?} is not in {}; set files_path in the settings of the source",
                self.folders.join(" or ")
            );
            return Err(rejection(pointer, reason));
        };
        if within.split('/').any(|segment| matches!(segment, "." | "..")) {
            return Err(rejection(pointer, format!("the path {path:?} has a segment . or ..")));
        }
        self.url
            .join(&utf8_percent_encode(within, NOT_IN_PATH).to_string())
            .map_err(|error| rejection(pointer, format!("this makes no URL: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::Settings;

    fn file_url(settings: Value) -> String {
        let settings: Result<Settings, _> = serde_json::from_value(settings);
        match settings.map_err(|error| error.to_string()).and_then(Settings::uri_templates) {
            Ok(address) => address
                .files
                .url("/sfm-data/a b/c:d.warc.gz", "/path")
                .map_or_else(|rejection| rejection.to_string(), |url| url.to_string()),
            Err(error) => error,
        }
    }

    #[test]
    fn file_urls_follow_the_settings() {
        for (settings, url) in [
            (json!({"base_url": "http://h/"}), "http://h/sfm-data/a%20b/c:d.warc.gz"),
            (json!({"base_url": "http://h", "files_url": "http://w/x/"}), "http://w/x/a%20b/c:d.warc.gz"),
            (json!({"base_url": "http://h", "files_path": "/"}), "http://h/sfm-data/sfm-data/a%20b/c:d.warc.gz"),
            (json!({"base_url": "http://h", "files_path": "/data/"}), "is not in /data; set files_path"),
            (json!({"base_url": "http://h", "files_path": "data"}), "files_path: \"data\" is not an absolute path"),
            (json!({"base_url": "http://h", "files_url": "w"}), "it is not an absolute URI"),
            (json!({"base_url": "http://h", "templates": {"warc": "w"}}), "templates.warc: \"w\" has no {id}"),
            (json!({"base_url": "http://h", "templates": {"worc": "w"}}), "unknown field `worc`"),
            (json!({}), "missing field `base_url`"),
        ] {
            let result = file_url(settings);
            assert!(result.contains(url), "{result}");
        }
    }

    #[test]
    fn paths_outside_the_folder_are_rejected() {
        let settings: Settings = serde_json::from_value(json!({"base_url": "http://h"})).unwrap();
        let files = settings.uri_templates().unwrap().files;
        for path in ["/sfm-data", "/sfm-data/", "/sfm-database/x", "/sfm-data/../etc/passwd", "x", "/sfm-data/./a"] {
            assert!(files.url(path, "/path").is_err(), "{path}");
        }
    }
}
