//! Fake Fedora 6 as a client of the Linked Data Platform sees it: HEAD of a resource, and its description. Each
//! operation has a time in seconds, on the same clock as its messages.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
};

use serde_json::{Map, Value, json};
use wiremock::ResponseTemplate;

use crate::support::fake_repository::{FakeRepository, RepositoryApi};

/// Path of the repository on its server, and the base URL in its own messages.
pub(crate) const PATH: &str = "/rest";
pub(crate) const REST: &str = "http://localhost:8080/rest";

const LDP: &str = "http://www.w3.org/ns/ldp#";

/// SHA-1 of every file.
pub(crate) const SHA1: &str = "da39a3ee5e6b4b0d3255bfef95601890afd80709";

#[derive(Clone, Debug)]
enum Kind {
    Container,
    /// File with a media type and a size. An external file is only referenced.
    File {
        media_type: &'static str,
        size: u64,
        is_elsewhere: bool,
    },
}

/// Contents of the repository.
#[derive(Default)]
pub(crate) struct Fedora6 {
    resources: Mutex<BTreeMap<String, (Kind, u64)>>,
    tombstones: Mutex<BTreeSet<String>>,
    knows_no_digests: AtomicBool,
    statements: Mutex<BTreeMap<String, Map<String, Value>>>,
    /// Paths whose descriptions cannot be read, with the status of the response.
    refused: Mutex<BTreeMap<String, u16>>,
}

/// Running fake Fedora 6.
pub(crate) type FakeFedora6 = FakeRepository<Fedora6>;

impl Fedora6 {
    fn resources(&self) -> MutexGuard<'_, BTreeMap<String, (Kind, u64)>> {
        self.resources.lock().unwrap()
    }

    /// Makes requests for a digest fail from now on.
    pub(crate) fn knows_no_digests(&self) {
        self.knows_no_digests.store(true, Ordering::Relaxed);
    }

    pub(crate) fn container(&self, path: &str, second: u64) {
        self.resources().insert(path.to_owned(), (Kind::Container, second));
    }

    pub(crate) fn file(&self, path: &str, media_type: &'static str, size: u64, second: u64) {
        self.resources().insert(path.to_owned(), (Kind::File { media_type, size, is_elsewhere: false }, second));
    }

    pub(crate) fn file_elsewhere(&self, path: &str, media_type: &'static str, second: u64) {
        self.resources().insert(path.to_owned(), (Kind::File { media_type, size: 0, is_elsewhere: true }, second));
    }

    /// Replaces the statements about a resource besides its types.
    pub(crate) fn describe(&self, path: &str, statements: &Value) {
        let statements = statements.as_object().unwrap().clone();
        self.statements.lock().unwrap().insert(path.to_owned(), statements);
    }

    /// Makes requests for the description of a resource fail from now on.
    pub(crate) fn refuse(&self, path: &str, status: u16) {
        self.refused.lock().unwrap().insert(path.to_owned(), status);
    }

    pub(crate) fn delete(&self, path: &str) {
        self.resources().remove(path);
        self.tombstones.lock().unwrap().insert(path.to_owned());
    }
}

/// Returns the HTTP date for a second.
fn date(second: u64) -> String {
    format!("Sun, 01 Mar 2026 10:{:02}:{:02} GMT", second / 60 % 60, second % 60)
}

impl RepositoryApi for Fedora6 {
    fn refuses_digests(&self) -> Option<u16> {
        self.knows_no_digests.load(Ordering::Relaxed).then_some(409)
    }

    fn answer(&self, method: &str, path: &str, _: &[(String, String)]) -> ResponseTemplate {
        let path = path.strip_prefix(PATH).unwrap_or("/nowhere");
        if self.tombstones.lock().unwrap().contains(path) {
            return ResponseTemplate::new(410).set_body_string("Discovered tombstone resource");
        }
        let described = path.strip_suffix("/fcr:metadata");
        let Some((kind, second)) = self.resources().get(described.unwrap_or(path)).cloned() else {
            return ResponseTemplate::new(404);
        };
        let link = |kind: &str| format!("<{LDP}{kind}>;rel=\"type\"");
        let answer = ResponseTemplate::new(200)
            .insert_header("last-modified", date(second))
            .insert_header("etag", "W/\"a, b\"")
            .append_header("link", link("Resource"))
            .append_header("link", format!("<{REST}{path}/fcr:acl>; rel=\"acl\""));
        if method == "GET" {
            // Only descriptions are requested with GET.
            let name = described.unwrap_or(path);
            if let Some(status) = self.refused.lock().unwrap().get(name) {
                return ResponseTemplate::new(*status).insert_header("location", "http://evil.example/");
            }
            let types = ["http://pcdm.org/models#Object", "http://fedora.info/definitions/v4/repository#Resource"];
            let mut node = json!({ "@id": format!("{REST}{name}"), "@type": types });
            let statements = self.statements.lock().unwrap().get(name).cloned().unwrap_or_default();
            node.as_object_mut().unwrap().extend(statements);
            return answer.set_body_raw(json!([node]).to_string(), "application/ld+json");
        }
        match kind {
            _ if described.is_some() => {
                answer.append_header("link", link("RDFSource")).set_body_raw("", "text/turtle;charset=utf-8")
            }
            Kind::Container => answer
                .append_header("link", format!("{},{}", link("RDFSource"), link("BasicContainer")))
                .set_body_raw("", "text/turtle;charset=utf-8"),
            Kind::File { media_type, size, is_elsewhere } => {
                let answer = answer
                    .append_header("link", link("NonRDFSource"))
                    .append_header("link", format!("<{REST}{path}/fcr:metadata>; rel=\"describedby\""));
                let content = vec![0; usize::try_from(size).unwrap()];
                if is_elsewhere {
                    let moved = ResponseTemplate::new(307).insert_header("location", "http://evil.example/file");
                    let moved =
                        moved.insert_header("content-type", media_type).insert_header("last-modified", date(second));
                    moved.append_header("link", link("NonRDFSource"))
                } else {
                    let answer = if self.refuses_digests().is_some() {
                        answer
                    } else {
                        answer.insert_header("digest", format!("sha={SHA1}"))
                    };
                    answer.set_body_raw(content, media_type)
                }
            }
        }
    }
}
