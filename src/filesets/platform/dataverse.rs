//! Dataverse, at any host: `/dataset.xhtml?persistentId=…` and `/citation?persistentId=…`.
//!
//! Tables are stored in another form than the depositor's. Their original is downloaded, whose size is known; the MD5 is of
//! neither form of the download, so a difference is no failure.

use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::json;
use url::Url;

use super::{
    Dataset, DatasetMetadata, PlatformFile, PlatformHelper, PlatformSettings, below, domain, extra, former_name,
    item_name, out_of_scope, segments, set_digest,
};
use crate::{
    filesets::{
        IngestFailure, LandingPage, PlatformClient,
        json::{self, List, Text, TextOr, TextOrList},
    },
    format::fileset::{message::ManifestFile, status::IngestStatus},
    model::Timestamp,
};

/// Dataverse.
pub(super) struct Dataverse;

pub(super) const NAME: &str = "dataverse";

/// Length of the identifiers of datasets and files at most installations.
const ID_CHARS: usize = 6;

/// Documents of the interface.
pub(super) const DOCUMENTS: &[json::Reads] = &[json::is::<Answer<Version>>, json::is::<Answer<LatestVersion>>];

#[derive(Deserialize)]
struct Answer<T> {
    data: T,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LatestVersion {
    #[serde(default)]
    latest_version: Option<Version>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    #[serde(default)]
    dataset_persistent_id: Option<String>,
    #[serde(default)]
    version_number: Option<u64>,
    #[serde(default)]
    version_minor_number: Option<u64>,
    #[serde(default)]
    version_state: Option<String>,
    #[serde(default)]
    release_time: Option<String>,
    #[serde(default)]
    license: TextOr<License>,
    #[serde(default)]
    metadata_blocks: TextOr<MetadataBlocks>,
    #[serde(default)]
    files: List<File>,
}

#[derive(Deserialize)]
struct License {
    #[serde(default)]
    uri: Text,
}

/// Bibliographic data: blocks of fields.
#[derive(Deserialize)]
struct MetadataBlocks {
    #[serde(default)]
    citation: TextOr<Citation>,
}

#[derive(Deserialize)]
struct Citation {
    #[serde(default)]
    fields: List<TextOr<Field>>,
}

/// A field. Its value is a text, or a list of texts or of objects with further fields.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Field {
    #[serde(default)]
    type_name: Text,
    #[serde(default)]
    value: TextOrList<TextOr<FieldPart>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct FieldPart {
    author_name: TextOr<FieldValue>,
    ds_description_value: TextOr<FieldValue>,
}

#[derive(Deserialize)]
struct FieldValue {
    #[serde(default)]
    value: Text,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    #[serde(default)]
    label: Option<String>,
    #[serde(default)]
    directory_label: Option<String>,
    #[serde(default)]
    restricted: bool,
    #[serde(default)]
    version: Option<u64>,
    data_file: DataFile,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DataFile {
    id: u64,
    #[serde(default)]
    persistent_id: Option<String>,
    #[serde(default)]
    filename: Option<String>,
    #[serde(default)]
    original_file_name: Option<String>,
    #[serde(default)]
    original_file_size: Option<u64>,
    #[serde(default)]
    original_file_format: Option<String>,
    #[serde(default)]
    filesize: Option<u64>,
    #[serde(default)]
    md5: Option<String>,
    #[serde(default)]
    checksum: Option<Checksum>,
    #[serde(default)]
    content_type: Option<String>,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    embargo: Option<Embargo>,
}

#[derive(Deserialize)]
struct Checksum {
    #[serde(rename = "type")]
    algorithm: String,
    value: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Embargo {
    #[serde(default)]
    date_available: Option<String>,
}

impl PlatformHelper for Dataverse {
    fn name(&self) -> &'static str {
        NAME
    }

    fn matches(&self, page: &LandingPage, _: &PlatformSettings) -> bool {
        persistent_id(&page.url).is_some() || is_other_place(&page.url)
    }

    fn dataset<'a>(
        &'a self,
        page: &'a LandingPage,
        settings: &'a PlatformSettings,
        client: &'a PlatformClient,
    ) -> BoxFuture<'a, Result<Dataset, IngestFailure>> {
        Box::pin(async move {
            let pid = persistent_id(&page.url)
                .ok_or_else(|| out_of_scope("the page is a single file or a collection; request a dataset"))?;
            let is_file = || out_of_scope(format!("{pid} is a single file of a dataset; request the dataset"));
            if is_file_page(&page.url) || has_file_part(&pid) {
                return Err(is_file());
            }
            let site = page.url.join("/").map_err(|error| IngestFailure::bad_answer(error.to_string()))?;
            let token = settings.token_for(NAME, &site);
            let of = |url: Url| with_query(url, &[("persistentId", &pid)]);
            let wanted =
                query(&page.url, "version").filter(|version| !version.is_empty() && !version.contains("DRAFT"));
            // A file with an identifier of its own looks like a dataset with a long shoulder, so the interface decides.
            let unknown = |failure: IngestFailure| {
                let is_unknown = failure.status == IngestStatus::PLATFORM_404 && may_be_file(&pid);
                if is_unknown { is_file() } else { failure }
            };
            let version = match wanted {
                Some(version) => {
                    let place = of(below(&site, ["api", "datasets", ":persistentId", "versions", &version]));
                    client.json::<Answer<Version>>(&place, token.as_ref()).await.map_err(unknown)?.data
                }
                None => {
                    let place = of(below(&site, ["api", "datasets", ":persistentId", ""]));
                    let answer = client.json::<Answer<LatestVersion>>(&place, token.as_ref()).await.map_err(unknown)?;
                    let no_version = || out_of_scope(format!("{pid} has no published version"));
                    answer.data.latest_version.ok_or_else(no_version)?
                }
            };
            let (has_token, entries) = (token.is_some(), version.files.len());
            let dataset = move || version.check(has_token).and_then(|()| version.dataset(&pid, &site));
            client.convert(entries, dataset).await
        })
    }
}

/// Returns the persistent identifier of a page.
///
/// Older installations and links write the name and the scheme in other ways, or leave the scheme of a DOI out.
fn persistent_id(url: &Url) -> Option<String> {
    let pid = query(url, "persistentId").or_else(|| query(url, "globalId"))?;
    let pid = match pid.split_once(':') {
        Some((scheme, id)) => format!("{}:{id}", scheme.to_ascii_lowercase()),
        None if pid.starts_with("10.") => format!("doi:{pid}"),
        None => return None,
    };
    let (scheme, id) = pid.split_once(':')?;
    let is_known = matches!(scheme, "doi" | "hdl") && id.contains('/') || scheme == "perma" && !id.is_empty();
    (is_known && !id.ends_with('/') && pid.len() < 500).then_some(pid)
}

/// Returns whether a page of Dataverse is one of a collection, or of a file without an identifier of its own.
fn is_other_place(url: &Url) -> bool {
    let path = segments(url);
    let is_collection = matches!(path.as_slice(), [first, _] if first == "dataverse");
    is_collection || (is_file_page(url) && query(url, "fileId").is_some())
}

fn is_file_page(url: &Url) -> bool {
    segments(url).last().is_some_and(|last| last == "file.xhtml")
}

/// Returns whether a persistent identifier has more parts than authority, shoulder and dataset.
fn has_file_part(pid: &str) -> bool {
    pid.split('/').count() > 3
}

/// Returns whether a persistent identifier without a shoulder would be the one of a file: two parts of the usual length.
fn may_be_file(pid: &str) -> bool {
    let is_id =
        |part: &str| part.len() == ID_CHARS && part.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit());
    let parts: Vec<_> = pid.split('/').skip(1).collect();
    parts.len() == 2 && parts.into_iter().all(is_id)
}

fn query(url: &Url, name: &str) -> Option<String> {
    url.query_pairs().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.into_owned())
}

fn with_query(mut url: Url, parameters: &[(&str, &str)]) -> Url {
    url.query_pairs_mut().extend_pairs(parameters);
    url
}

impl Version {
    /// Checks that the version is published, and open unless a token opens it.
    fn check(&self, has_token: bool) -> Result<(), IngestFailure> {
        if let Some(state) = self.version_state.as_deref().filter(|state| *state != "RELEASED") {
            return Err(out_of_scope(format!("the version is {state}")));
        }
        let today = Timestamp::now().datetime().format("%Y-%m-%d").to_string();
        // The interface keeps embargoes that have ended.
        let is_embargoed = |file: &File| {
            let embargo = file.data_file.embargo.as_ref();
            embargo.is_some_and(|embargo| embargo.date_available.as_ref().is_none_or(|date| *date > today))
        };
        let is_closed = |file: &&File| file.restricted || is_embargoed(file);
        let (closed, all) = (self.files.iter().filter(is_closed).count(), self.files.len());
        if closed == 0 || has_token {
            return Ok(());
        }
        let until =
            self.files.iter().filter_map(|file| file.data_file.embargo.as_ref()?.date_available.as_deref()).max();
        let until = until.filter(|_| !self.files.iter().any(|file| file.restricted));
        Err(IngestFailure::restricted(format!("{closed} of {all} files are restricted"), until))
    }

    fn dataset(mut self, pid: &str, site: &Url) -> Result<Dataset, IngestFailure> {
        // The answer may have the identifier in upper case.
        let own = self.dataset_persistent_id.clone().unwrap_or_else(|| pid.to_owned());
        if !own.eq_ignore_ascii_case(pid) {
            return Err(IngestFailure::bad_answer(format!("the answer is about {own}, not about {pid}")));
        }
        let no_version = || out_of_scope(format!("{pid} has no published version"));
        let (major, minor) = (self.version_number.ok_or_else(no_version)?, self.version_minor_number.unwrap_or(0));
        let (number, host) = (format!("{major}.{minor}"), domain(site));
        let last = own.rsplit('/').next().unwrap_or(&own).to_owned();
        let bundle = below(site, ["api", "access", "dataset", ":persistentId", ""]);
        let metadata = self.bibliography(&own, &number);
        Ok(Dataset {
            platform_name: NAME,
            archiveorg_item_name: item_name(&host, &[&own, &format!("v{number}")]),
            former_item_name: Some(former_name(&[&host, &last, &format!("v{number}")])),
            told_bytes: None,
            platform_domain: host,
            base_url: None,
            bundle_url: Some(with_query(bundle, &[("persistentId", &own), ("format", "original")]).to_string()),
            files: self.files.into_iter().map(|file| file.manifest(site)).collect(),
            metadata,
            platform_id: own,
        })
    }

    fn bibliography(&mut self, pid: &str, number: &str) -> DatasetMetadata {
        let citation = std::mem::take(&mut self.metadata_blocks).object().and_then(|blocks| blocks.citation.object());
        let (mut title, mut creators, mut description) = (None, Vec::new(), None);
        for field in citation.into_iter().flat_map(|citation| citation.fields).filter_map(TextOr::object) {
            let parts = |list: List<TextOr<FieldPart>>| list.into_iter().filter_map(TextOr::object);
            let value = |value: TextOr<FieldValue>| value.object()?.value.0;
            match (field.type_name.0.as_deref(), field.value) {
                (Some("title"), TextOrList::Text(text)) => title = title.or(Some(text)),
                (Some("author"), TextOrList::List(list)) if creators.is_empty() => {
                    creators = parts(list).filter_map(|part| value(part.author_name)).collect();
                }
                (Some("dsDescription"), TextOrList::List(list)) => {
                    description = description.or(parts(list).next().and_then(|part| value(part.ds_description_value)));
                }
                _ => {}
            }
        }
        DatasetMetadata {
            title,
            creators,
            date: self.release_time.as_deref().and_then(|time| time.get(..10)).map(str::to_owned),
            description,
            doi: pid.strip_prefix("doi:").map(str::to_owned),
            license: std::mem::take(&mut self.license).text(|license| license.uri.0),
            version: Some(number.to_owned()),
        }
    }
}

impl File {
    fn manifest(self, site: &Url) -> PlatformFile {
        let Self { label, directory_label, version, data_file: data, .. } = self;
        let is_table = data.original_file_size.is_some() || data.original_file_format.is_some();
        let stored_name = label.or(data.filename).unwrap_or_else(|| data.id.to_string());
        let stored = stored_name.clone();
        let name = match data.original_file_name {
            Some(name) if is_table => name,
            _ if is_table => original_name(stored_name, data.original_file_format.as_deref()),
            _ => stored_name,
        };
        let folder =
            directory_label.as_deref().map(|folder| folder.trim_matches('/')).filter(|folder| !folder.is_empty());
        let mut url = match data.persistent_id.as_deref().filter(|pid| !pid.is_empty()) {
            Some(pid) => {
                with_query(below(site, ["api", "access", "datafile", ":persistentId", ""]), &[("persistentId", pid)])
            }
            None => below(site, ["api", "access", "datafile", &data.id.to_string()]),
        };
        if is_table {
            url = with_query(url, &[("format", "original")]);
        }
        let in_folder = |name: &str| folder.map_or_else(|| name.to_owned(), |folder| format!("{folder}/{name}"));
        let mut file = ManifestFile {
            path: in_folder(&name),
            size: if is_table { data.original_file_size } else { data.filesize },
            mimetype: if is_table { data.original_file_format } else { data.content_type },
            extra: extra([("version", version.map(|v| json!(v))), ("description", data.description.map(|d| json!(d)))]),
            platform_url: Some(url.to_string()),
            ..ManifestFile::default()
        };
        if !is_table {
            let checksum = data.checksum.or(data.md5.map(|value| Checksum { algorithm: "MD5".to_owned(), value }));
            if let Some(Checksum { algorithm, value }) = checksum {
                set_digest(&mut file, &algorithm, &value);
            }
        }
        // The names of the stored forms differ.
        let alternative = is_table.then(|| in_folder(&stored));
        PlatformFile { is_soft: is_table, alternative, ..PlatformFile::new(file) }
    }
}

/// Returns the name of the original of a table whose answer has only the name of the stored form.
fn original_name(stored: String, format: Option<&str>) -> String {
    let extension = match format.unwrap_or_default() {
        "text/csv" | "text/comma-separated-values" => "csv",
        "text/tsv" | "text/tab-separated-values" => "tsv",
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet" => "xlsx",
        "application/x-rlang-transport" => "RData",
        "application/x-spss-sav" => "sav",
        "application/x-spss-por" => "por",
        format if format.starts_with("application/x-stata") => "dta",
        _ => return stored,
    };
    match stored.strip_suffix(".tab") {
        Some(stem) => format!("{stem}.{extension}"),
        None => stored,
    }
}

#[cfg(test)]
mod tests {
    use super::{Url, persistent_id};

    #[test]
    fn persistent_identifiers_have_several_schemes_and_spellings() {
        for (query, pid) in [
            ("persistentId=perma:DANS.ABC-123", Some("perma:DANS.ABC-123")),
            ("persistentId=PERMA:a/b", Some("perma:a/b")),
            ("persistentId=hdl:20.500/X", Some("hdl:20.500/X")),
            ("persistentId=DOI:10.5072/A", Some("doi:10.5072/A")),
            ("persistentid=10.5072/A", Some("doi:10.5072/A")),
            ("globalId=doi:10.5072/A", Some("doi:10.5072/A")),
            ("persistentId=perma:", None),
            ("persistentId=ark:/1/2", None),
            ("persistentId=doi:10.5072", None),
        ] {
            let url = Url::parse(&format!("https://h.example/dataset.xhtml?{query}")).unwrap();
            assert_eq!(persistent_id(&url).as_deref(), pid, "{query}");
        }
    }
}
