//! The rules by which fatcat imports results of dataset ingests, or refuses them.

use serde_json::Value;

/// Maximum number of files of a fileset in the catalogue.
const MAX_FILES: usize = 300;

/// Returns "accepted", or the reason of the refusal in fatcat's words.
pub(crate) fn judge(result: &Value) -> &'static str {
    let (request, files) = (&result["request"], result["manifest"].as_array().cloned().unwrap_or_default());
    let source = request["ingest_request_source"].as_str().unwrap_or_default();
    let link_sources = ["arxiv", "pmc", "unpaywall", "doi", "mag", "s2", "doaj", "dblp"];
    let is_single = result["status"] == "success-file";
    let lacks = |file: &Value| {
        let texts =
            ["path", "md5", "sha1", "mimetype"].iter().any(|name| file[name].as_str().is_none_or(str::is_empty));
        texts || file["size"].as_u64().is_none_or(|size| size == 0)
    };
    let is_item = result["ingest_strategy"].as_str().is_some_and(|strategy| strategy.starts_with("archiveorg"));
    let place = match (is_item, is_single) {
        (true, _) => &result["archiveorg_item_name"],
        (false, false) => &result["terminal"]["terminal_url"],
        (false, true) => &result["manifest"][0]["terminal_url"],
    };
    if result["hit"] != true {
        "skip-hit"
    } else if source.is_empty() {
        "skip-ingest_request_source"
    } else if source.starts_with("savepapernow") {
        "skip-savepapernow"
    } else if request["link_source"].as_str().is_some_and(|source| !link_sources.contains(&source)) {
        "skip-link-source"
    } else if request["ingest_type"] != "dataset" {
        "skip-ingest-type"
    } else if files.is_empty() {
        "skip-empty-manifest"
    } else if is_single != (files.len() == 1) {
        "skip-single-file"
    } else if files.len() > MAX_FILES {
        "skip-too-many-files"
    } else if files.iter().any(lacks) {
        "skip-partial-file-info"
    } else if is_single && files[0]["md5"] == files[0]["sha1"] {
        "skip-bad-hashes"
    } else if place.as_str().is_none() {
        "skip-no-access-url"
    } else {
        "accepted"
    }
}
