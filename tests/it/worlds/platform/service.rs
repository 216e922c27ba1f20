//! Simulated data platform: its datasets, and its answers as an InvenioRDM, as pages with linksets, as OSF, or as a server of
//! bags.

use std::{collections::BTreeMap, fmt::Write as _};

use md5::{Digest, Md5};
use serde_json::{Value, json};
use sha2::Sha256;

use super::behaviour::{Behaviour, Bundle, Kind, Resume};
use crate::{
    support::http_receiver::{ReceivedRequest, Reply},
    worlds::zip_file::{Names, zip},
};

/// A credential that storage puts into redirections.
pub(super) const SECRET: &str = "7c0ffee7";

/// Access token of the platform.
pub(super) const TOKEN: &str = "70ken";

#[derive(Clone, Debug, Default)]
pub(super) struct Dataset {
    pub(super) files: BTreeMap<String, Vec<u8>>,
    pub(super) is_restricted: bool,
    pub(super) is_requested: bool,
    pub(super) is_work_requested: bool,
    /// True if the platform has ever said that the dataset is restricted.
    pub(super) was_restricted: bool,
    /// Files as a list has had them last.
    pub(super) listed: BTreeMap<String, Vec<u8>>,
    /// True if a file has ever been another one than the last list says, because it had changed in between.
    pub(super) has_differed: bool,
    /// Whether a request of the present attempt to archive it has failed.
    pub(super) has_failed: bool,
    /// Number of requests for the landing page.
    pub(super) looks: u32,
    /// Contents that the dataset had at any time.
    pub(super) history: Vec<BTreeMap<String, Vec<u8>>>,
    /// Files at the last time that the dataset was open and quiet, if it was archived then.
    pub(super) archived: Option<BTreeMap<String, Vec<u8>>>,
}

/// The platform with its datasets.
pub(super) struct Platform {
    pub(super) behaviour: Behaviour,
    pub(super) datasets: BTreeMap<u8, Dataset>,
    pub(super) filtered: u8,
    pub(super) busy: u8,
    /// Number of next downloads that break off.
    pub(super) broken: u8,
    /// Number of next lists that lack their last file, but not in their numbers.
    pub(super) partial: u8,
    /// Number of next downloads that are not what the list says.
    pub(super) lies: u8,
    /// Whether there was such a download.
    pub(super) has_lied: bool,
    /// The newest download that broke off and can be continued: dataset, name and content of the file.
    pub(super) continuable: Option<(u8, String, Vec<u8>)>,
    /// Downloads that began again although they could be continued.
    pub(super) restarts: Vec<String>,
    /// Address of the storage, which is another origin.
    pub(super) storage: String,
    /// Requests that have a token without being allowed to.
    pub(super) leaks: Vec<String>,
}

/// Names of files that are legal at platforms: a folder, a colon, characters beyond ASCII, a percent sign.
pub(super) const NAMES: [&str; 5] = ["a.csv", "d/b.csv", "c: x.csv", "ü ß.csv", "50%+(1).csv"];

/// Names of datasets with pages: they agree in the characters that an item can have.
pub(super) const PAGES: [&str; 3] = ["%C3%A4", "%C3%B6", "%C3%BC"];

/// Name that all files of a page have in `Content-Disposition`, if their names clash.
pub(super) const CLASHING_NAME: &str = "data.csv";

/// Manifest of a bag.
const MANIFEST: &str = "manifest-sha256.txt";

pub(super) fn answer(status: u16, media_type: &str, body: impl Into<String>) -> Reply {
    Reply::Answer(status, vec![("content-type", media_type.to_owned())], body.into())
}

pub(super) fn json(document: &Value) -> Reply {
    answer(200, "application/json", document.to_string())
}

pub(super) fn encoded(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}

impl Platform {
    /// Changes the files of a dataset.
    pub(super) fn change(&mut self, dataset: u8, act: impl FnOnce(&mut BTreeMap<String, Vec<u8>>)) {
        let dataset = self.datasets.get_mut(&dataset).unwrap();
        act(&mut dataset.files);
        dataset.history.push(dataset.files.clone());
    }

    pub(super) fn answer(&mut self, request: &ReceivedRequest) -> Reply {
        let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
        let base = format!("http://{}", request.header("host"));
        let is_page = ["/records/", "/d/", "/osf/", "/bag/"].iter().any(|start| path.starts_with(start))
            && !path.ends_with(".txt")
            && !path.contains("/data/");
        let has_token = request.header("authorization") == format!("Bearer {TOKEN}");
        let is_interface = ["/api/", "/osfapi/", "/f/"].iter().any(|start| path.starts_with(start));
        if !request.header("authorization").is_empty() && (!is_interface || !self.behaviour.kind.has_interface()) {
            self.leaks.push(format!("{base}{}", request.path));
        }
        if is_page && let Some(dataset) = self.requested(path) {
            dataset.looks += 1;
        }
        if self.busy > 0 && !is_page {
            self.busy -= 1;
            self.fail_attempts();
            let (status, headers) = self.behaviour.busy;
            let headers = headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
            return Reply::Answer(status, headers, "busy".to_owned());
        }
        if self.filtered > 0 && !is_page {
            self.filtered -= 1;
            self.fail_attempts();
            let (status, media_type) = self.behaviour.filter;
            let page = if status == 202 { "" } else { "<html><title>403 Forbidden</title>unusual traffic" };
            return answer(status, media_type, page);
        }
        if self.behaviour.wants_token && is_interface && self.behaviour.kind.has_interface() && !has_token {
            return answer(401, "application/json", "{\"message\":\"must have current bearer token\"}");
        }
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        match parts.as_slice() {
            ["challenge"] => answer(403, "text/html", "<html>Are you a robot?"),
            ["records", id] if id.starts_with("90") => {
                Reply::Answer(302, vec![("location", format!("/records/{}", &id[2..]))], String::new())
            }
            ["records" | "osf", _] if self.behaviour.challenges => {
                Reply::Answer(302, vec![("location", "/challenge".to_owned())], String::new())
            }
            ["records" | "osf", _] => answer(200, "text/html", "<html>A dataset"),
            ["d", name] => self.page(name),
            ["ls", number] => {
                self.begin_attempt(number.parse().unwrap());
                self.linkset(number.parse().unwrap(), &base)
            }
            ["api", "records", id, "files-archive"] => self.bundle(dataset_of(id)),
            ["api", "records", id] => self.record(id, &base),
            ["bag", number] => {
                answer(200, "text/html", format!("<html><a href=\"/bag/{number}/{MANIFEST}\">A bag</a>"))
            }
            ["bag", number, file @ ("bag-info.txt" | MANIFEST)] => self.tag_file(number.parse().unwrap(), file),
            ["bag", number, "data", path @ ..] => self.file(number.parse().unwrap(), &path.join("/"), request),
            ["osfapi", "nodes", id] => {
                self.open(dataset_of(id), |_| json(&json!({ "data": { "attributes": { "title": "T" } } })))
            }
            ["osfapi", "nodes", id, "files", "osfstorage"] => self.osf_page(id, query, &base),
            ["f", number, name] if self.behaviour.signs => {
                let location =
                    format!("{}/s3/{number}/{name}?temp_url_sig={SECRET}&temp_url_expires=1900000000", self.storage);
                Reply::Answer(302, vec![("location", location)], String::new())
            }
            ["f" | "s3", number, name] => self.file(number.parse().unwrap(), name, request),
            _ => answer(404, "application/json", "{\"message\":\"not here\"}"),
        }
    }

    /// Notes that an attempt to archive a dataset begins, with a request for the list.
    fn begin_attempt(&mut self, number: u8) {
        self.datasets.entry(number).and_modify(|dataset| dataset.has_failed = false);
    }

    /// Notes that a request fails. The first failure ends the attempt, and with it the other downloads, whose last bytes may be
    /// on their way.
    fn fail_attempts(&mut self) {
        self.continuable = None;
        self.datasets.values_mut().for_each(|dataset| dataset.has_failed = true);
    }

    /// Returns the dataset of a landing page, if it is one.
    fn requested(&mut self, path: &str) -> Option<&mut Dataset> {
        let name = path.trim_matches('/').rsplit('/').next()?;
        let page = PAGES.iter().position(|page| *page == name);
        let number = page.map_or_else(|| dataset_of(name), |at| u8::try_from(at).unwrap());
        self.datasets.get_mut(&number)
    }

    /// Returns the answer about a dataset, unless that is restricted or unknown.
    pub(super) fn open(&self, dataset: u8, answer_of: impl FnOnce(&Dataset) -> Reply) -> Reply {
        match self.datasets.get(&dataset) {
            Some(dataset) if !dataset.is_restricted => answer_of(dataset),
            Some(_) => answer(403, "application/json", "{\"message\":\"Permission denied.\"}"),
            None => answer(404, "application/json", "{\"message\":\"not here\"}"),
        }
    }

    /// Returns the files of a dataset as a list has them.
    fn listed(&mut self, number: u8) -> BTreeMap<String, Vec<u8>> {
        self.begin_attempt(number);
        let Some(dataset) = self.datasets.get_mut(&number) else { return BTreeMap::new() };
        let mut files = dataset.files.clone();
        if self.partial > 0 {
            self.partial -= 1;
            files.pop_last();
        }
        dataset.listed.clone_from(&files);
        files
    }

    /// Returns the zip file with all files.
    fn bundle(&self, number: u8) -> Reply {
        self.open(number, |dataset| {
            let mut entries: Vec<_> = dataset.files.iter().map(|(name, content)| (&**name, content.clone())).collect();
            let names = match self.behaviour.bundle {
                Some(Bundle::Refused) => return answer(413, "application/json", "{\"message\":\"too large\"}"),
                Some(Bundle::TimesOut) => return answer(504, "text/html", "<html>Gateway Time-out"),
                Some(Bundle::LeavesOut) => {
                    let left = entries.pop().map_or_else(String::new, |(name, _)| name.to_owned());
                    entries.push(("MANIFEST.TXT", format!("{left} was left out").into_bytes()));
                    Names::Utf8
                }
                Some(Bundle::Renames) => Names::Backslashes,
                Some(Bundle::Whole) | None => Names::Utf8WithoutFlag,
            };
            Reply::Bytes(200, vec![("content-type", "application/zip".to_owned())], zip(&entries, names))
        })
    }

    /// Returns the manifest of a bag, or its numbers.
    fn tag_file(&mut self, number: u8, file: &str) -> Reply {
        let listed = if file == MANIFEST { self.listed(number) } else { BTreeMap::new() };
        self.open(number, |dataset| {
            let bytes: usize = dataset.files.values().map(Vec::len).sum();
            let line = |(name, content): (&String, &Vec<u8>)| {
                let digest = hex::encode(Sha256::digest(content));
                format!("{digest}  data/{}\n", name.replace('%', "%25"))
            };
            let text = match file {
                MANIFEST => listed.iter().map(line).collect(),
                _ => format!("Payload-Oxum: {bytes}.{}\n", dataset.files.len()),
            };
            answer(200, "text/plain; charset=utf-8", text)
        })
    }

    pub(super) fn record(&mut self, id: &str, base: &str) -> Reply {
        let number = dataset_of(id);
        let listed = self.listed(number);
        let counts = self.behaviour.counts;
        self.open(number, |dataset| {
            let entry = |(name, content): (&String, &Vec<u8>)| {
                json!({ "key": name, "size": content.len(), "checksum": format!("md5:{}", hex::encode(Md5::digest(content))),
                    "links": { "content": format!("{base}/f/{number}/{}", encoded(name)) } })
            };
            let mut files = Value::from(listed.iter().map(entry).collect::<Vec<_>>());
            if counts || listed.len() < dataset.files.len() {
                let bytes: usize = dataset.files.values().map(Vec::len).sum();
                files = json!({ "enabled": true, "count": dataset.files.len(), "total_bytes": bytes, "entries": files });
            }
            json(&json!({ "id": id.parse::<u32>().unwrap(), "conceptrecid": format!("90{id}"), "files": files,
                "metadata": { "title": "T", "access_right": "open" } }))
        })
    }

    pub(super) fn page(&self, name: &str) -> Reply {
        let number = PAGES.iter().position(|page| *page == name).unwrap();
        let dataset = &self.datasets[&u8::try_from(number).unwrap()];
        let mut link = format!("</ls/{number}>; rel=\"linkset\"; title=\"a, rel=item\"");
        // The header has no room for more than one.
        if let Some(name) = dataset.files.keys().next() {
            let _ = write!(link, ", </f/{number}/{}>; rel=item", encoded(name));
        }
        let headers = vec![("content-type", "text/html".to_owned()), ("link", link)];
        Reply::Answer(200, headers, "<html>A dataset".to_owned())
    }

    pub(super) fn linkset(&self, number: usize, base: &str) -> Reply {
        let dataset = &self.datasets[&u8::try_from(number).unwrap()];
        let item = |name: &String| json!({ "href": format!("/f/{number}/{}", encoded(name)), "type": "text/csv" });
        let items: Vec<_> = dataset.files.keys().map(item).collect();
        json(&json!({ "linkset": [{ "anchor": format!("{base}/d/{}", PAGES[number]), "item": items }] }))
    }

    pub(super) fn osf_page(&mut self, id: &str, query: &str, base: &str) -> Reply {
        let number = dataset_of(id);
        let listed = self.listed(number);
        let page: usize = url::form_urlencoded::parse(query.as_bytes())
            .find(|(name, _)| name == "page")
            .map_or(1, |(_, page)| page.parse().unwrap());
        let is_sorted = query.contains("sort=");
        self.open(number, |dataset| {
            let all: Vec<_> = listed.iter().collect();
            let start = (page - 1) * 2;
            let mut shown: Vec<_> = all.iter().skip(start).take(2).copied().collect();
            if self.behaviour.overlaps && !is_sorted && start > 0 && !shown.is_empty() {
                shown[0] = all[start - 1];
            }
            let entry = |(name, content): (&String, &Vec<u8>)| {
                json!({ "id": encoded(name), "attributes": { "kind": "file", "name": name, "size": content.len(),
                    "materialized_path": format!("/{name}"), "extra": { "hashes": null } },
                    "links": { "download": format!("{base}/f/{number}/{}", encoded(name)) } })
            };
            let entries: Vec<_> = shown.into_iter().map(entry).collect();
            let next = (start + 2 < all.len()).then(|| format!("{base}{}?page={}", osf_list(id), page + 1));
            json(&json!({ "data": entries, "links": { "next": next, "meta": { "total": dataset.files.len() } } }))
        })
    }

    /// Returns whether no job of a dataset has ended in failure, as it does with other content than the list says, without a
    /// file, and without access. The next job then begins again.
    fn keeps_jobs(&self, number: u8) -> bool {
        let is_open = |dataset: &Dataset| {
            !dataset.was_restricted && !dataset.has_differed && !dataset.history.iter().any(BTreeMap::is_empty)
        };
        !self.has_lied && self.datasets.get(&number).is_some_and(is_open)
    }

    /// Returns a file, or the rest of it.
    pub(super) fn file(&mut self, number: u8, name: &str, request: &ReceivedRequest) -> Reply {
        let decoded = percent_encoding::percent_decode_str(name).decode_utf8().unwrap().into_owned();
        let breaks = self.broken > 0;
        self.broken = self.broken.saturating_sub(1);
        let Behaviour { kind, resume, clashes, .. } = self.behaviour;
        // Nobody can notice a lie about a file of which the list says nothing.
        let lies = self.lies > 0 && kind != Kind::Linkset;
        self.lies = self.lies.saturating_sub(1);
        let content = self.datasets.get(&number).and_then(|dataset| dataset.files.get(&decoded)).cloned();
        if let Some(dataset) = self.datasets.get_mut(&number) {
            let is_other = |listed: &Vec<u8>| content.as_ref() != Some(listed);
            dataset.has_differed |= dataset.listed.get(&decoded).is_some_and(is_other);
            if dataset.has_differed {
                self.continuable.take_if(|former| former.0 == number);
            }
        }
        let this = content.map(|content| (number, decoded.clone(), content));
        if self
            .continuable
            .take_if(|former| (&former.0, &former.1) == (&number, &decoded))
            .is_some_and(|former| this.as_ref() == Some(&former) && request.header("range").is_empty())
        {
            self.restarts.push(format!("{decoded} of dataset {number}"));
        }
        let can_verify = matches!(kind, Kind::Invenio | Kind::Bag);
        let has_etag = matches!(resume, Resume::Etag | Resume::WrongEtag);
        let reply = self.open(number, |dataset| {
            let Some(content) = dataset.files.get(&decoded) else {
                return answer(404, "application/json", "{\"message\":\"no such file\"}");
            };
            if lies {
                // Another size, because OSF tells no digests here.
                return answer(200, "text/csv", "something else".repeat(2));
            }
            let mut headers = vec![("content-type", "text/csv".to_owned())];
            if kind == Kind::Linkset {
                let name = if clashes { CLASHING_NAME } else { name };
                headers.push(("content-disposition", format!("attachment; filename*=UTF-8''{name}")));
            }
            let etag = match resume {
                Resume::WrongEtag if kind == Kind::Invenio => Some("\"1\"".to_owned()),
                Resume::Etag | Resume::WrongEtag => Some(format!("\"{}\"", hex::encode(Md5::digest(content)))),
                Resume::NoValidator | Resume::Whole => None,
            };
            headers.extend(etag.clone().map(|etag| ("etag", etag)));
            let text = String::from_utf8(content.clone()).unwrap();
            let condition = request.header("if-range");
            let is_same = condition.is_empty() || etag.is_some_and(|etag| etag == condition);
            let start = request.header("range").strip_prefix("bytes=").and_then(|range| range.strip_suffix('-'));
            let start: usize = start.map_or(0, |start| start.parse().unwrap());
            if start > 0 && start < text.len() && is_same && resume != Resume::Whole {
                let all = text.len();
                headers.push(("content-range", format!("bytes {start}-{}/{all}", all - 1)));
                // The rest begins at a character, because only names of files are not ASCII.
                return Reply::Answer(206, headers, text[start..].to_owned());
            }
            if breaks { Reply::Cut(200, headers, text) } else { Reply::Answer(200, headers, text) }
        });
        self.has_lied |= lies;
        let is_continuable = has_etag || resume == Resume::NoValidator && can_verify;
        if matches!(reply, Reply::Cut(..)) {
            let is_first = !self.datasets[&number].has_failed;
            self.continuable = this.filter(|_| is_first && is_continuable && self.keeps_jobs(number));
            self.datasets.entry(number).and_modify(|dataset| dataset.has_failed = true);
        }
        reply
    }

    /// Returns the paths of these files in a result, in their order.
    pub(super) fn paths(&self, files: &BTreeMap<String, Vec<u8>>) -> Vec<String> {
        let path = |(at, name): (usize, &String)| match self.behaviour.kind {
            Kind::Linkset if self.behaviour.clashes && at == 0 => CLASHING_NAME.to_owned(),
            Kind::Linkset if self.behaviour.clashes => format!("{}-{CLASHING_NAME}", at + 1),
            Kind::Linkset => name.rsplit('/').next().unwrap().to_owned(),
            Kind::Invenio | Kind::Osf => name.clone(),
            Kind::Bag => format!("data/{name}"),
        };
        files.keys().enumerate().map(path).collect()
    }
}

pub(super) fn osf_list(id: &str) -> String {
    format!("/osfapi/nodes/{id}/files/osfstorage/")
}

/// Returns the number of a dataset from its identifier.
pub(super) fn dataset_of(id: &str) -> u8 {
    let digits: String = id.chars().filter(char::is_ascii_digit).collect();
    digits.parse::<u32>().map_or(u8::MAX, |id| u8::try_from(id % 100).unwrap())
}
