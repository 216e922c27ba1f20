//! CrawledRepository repositories for crawls: a Fedora 3 and a Fedora 6, with the parts of their REST APIs that list
//! contents. They answer as fcrepo 3.8 and 6 do.

use std::{
    collections::BTreeMap,
    fmt::Write,
    sync::{Mutex, OnceLock},
};

use chrono::{DateTime, Utc};
use wiremock::ResponseTemplate;

use crate::support::fake_repository::{FakeRepository, RepositoryApi};

/// Replacement for the response to a request such as `GET /rest/a?b=c`.
pub(crate) type Replacement = Box<dyn Fn(&str) -> Option<ResponseTemplate> + Send>;

/// Running fake repository.
pub(crate) struct CrawledRepository<T>(FakeRepository<RecordingApi<T>>);

struct RecordingApi<T> {
    contents: Mutex<T>,
    base: OnceLock<String>,
    replacement: Mutex<Option<Replacement>>,
    requests: Mutex<Vec<String>>,
}

/// REST API of a repository.
pub(crate) trait RestApi: Send + 'static {
    /// Path of the REST API.
    const PATH: &'static str;
    fn answer(&mut self, method: &str, path: &str, query: &BTreeMap<String, String>, base: &str) -> ResponseTemplate;
}

impl<T: RestApi> RepositoryApi for RecordingApi<T> {
    fn answer(&self, method: &str, path: &str, query: &[(String, String)]) -> ResponseTemplate {
        let pairs: Vec<_> = query.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let request = format!("{method} {path}?{}", pairs.join("&"));
        let wrong = self.replacement.lock().unwrap().as_ref().and_then(|replacement| replacement(&request));
        self.requests.lock().unwrap().push(request);
        let below = path.strip_prefix(T::PATH).unwrap_or_default();
        let query = query.iter().cloned().collect();
        wrong.unwrap_or_else(|| self.contents.lock().unwrap().answer(method, below, &query, self.base.get().unwrap()))
    }
}

impl<T: RestApi> CrawledRepository<T> {
    pub(crate) async fn start(contents: T) -> Self {
        let (base, replacement, requests) = (OnceLock::new(), Mutex::new(None), Mutex::default());
        let server =
            FakeRepository::start(RecordingApi { contents: Mutex::new(contents), base, replacement, requests }).await;
        server.api.base.set(format!("{}{}", server.url(), T::PATH)).unwrap();
        Self(server)
    }

    /// Returns the URL of the REST API.
    pub(crate) fn url(&self) -> String {
        self.0.api.base.get().unwrap().clone()
    }

    /// Replaces responses from now on.
    pub(crate) fn replace_responses(&self, replacement: impl Fn(&str) -> Option<ResponseTemplate> + Send + 'static) {
        *self.0.api.replacement.lock().unwrap() = Some(Box::new(replacement));
    }

    /// Stops replacing responses.
    pub(crate) fn restore_responses(&self) {
        *self.0.api.replacement.lock().unwrap() = None;
    }

    /// Changes the contents.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        change(&mut self.0.api.contents.lock().unwrap())
    }

    /// Returns the requests since the previous call.
    pub(crate) fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut self.0.api.requests.lock().unwrap())
    }
}

/// Contents of a Fedora 3.
pub(crate) struct Fedora3 {
    /// Objects by PID.
    pub(crate) objects: BTreeMap<String, Object>,
    /// True if lists of datastreams contain profiles (3.6 and later).
    pub(crate) lists_profiles: bool,
    /// Maximum number of objects on a page of the list.
    pub(crate) page: usize,
    /// Newest resumption token and the objects behind it; older tokens have expired.
    session: Option<(String, Vec<String>)>,
    tokens: usize,
}

/// Object of a Fedora 3.
#[derive(Clone)]
pub(crate) struct Object {
    pub(crate) state: char,
    pub(crate) created: String,
    pub(crate) datastreams: Vec<Datastream>,
    /// Statements of RELS-EXT, without the enclosing RDF.
    pub(crate) relations: String,
}

/// Datastream of a Fedora 3.
#[derive(Clone)]
pub(crate) struct Datastream {
    pub(crate) id: &'static str,
    pub(crate) state: char,
    pub(crate) created: String,
}

impl Fedora3 {
    /// Creates a repository with `objects` objects from `demo:1` on. Each has a DC; most have other
    /// datastreams.
    pub(crate) fn with(objects: usize) -> Self {
        let made = (1..=objects).map(|number| (format!("demo:{number}"), Object::numbered(number))).collect();
        Self { objects: made, lists_profiles: true, page: 100, session: None, tokens: 0 }
    }

    fn list(&mut self, query: &BTreeMap<String, String>) -> ResponseTemplate {
        assert_eq!(query["resultFormat"], "xml");
        let mut left: Vec<String> = match query.get("sessionToken") {
            // Fedora lists objects in no particular order; a newer object may precede an older one.
            None => {
                let mut pids: Vec<_> = self.objects.keys().cloned().collect();
                pids.sort_by_key(|pid| pid.bytes().map(usize::from).sum::<usize>() % 17);
                pids
            }
            Some(token) => match self.session.take() {
                Some((newest, left)) if newest == *token => left,
                _ => return ResponseTemplate::new(500).set_body_string("Session token unknown"),
            },
        };
        let request: usize = query["maxResults"].parse().unwrap();
        let rest = left.split_off(left.len().min(self.page.min(request)));
        let mut body = String::from("<result xmlns=\"http://www.fedora.info/definitions/1/0/types/\">");
        if !rest.is_empty() {
            self.tokens += 1;
            let token = format!("{:x}", self.tokens * 7919);
            let _ = write!(body, "<listSession><token>{token}</token><cursor>0</cursor></listSession>");
            self.session = Some((token, rest));
        }
        body += "<resultList>";
        for pid in left {
            let Some(object) = self.objects.get(&pid) else {
                // Fedora answers like this when an object is purged while its list is read.
                return ResponseTemplate::new(404).set_body_string(format!("no path in db registry for [{pid}]"));
            };
            let (state, created) = (object.state, &object.created);
            let _ = write!(
                body,
                "<objectFields><pid>{pid}</pid><state>{state}</state><cDate>{created}</cDate></objectFields>"
            );
        }
        body += "</resultList></result>";
        xml(&body)
    }
}

impl Object {
    fn numbered(number: usize) -> Self {
        let created = format!("2020-01-01T00:00:{:02}.{:03}Z", number / 1000 % 60, number % 1000);
        let datastream = |id, state| {
            let created = format!("2021-01-01T00:00:{:02}.{:03}Z", number / 1000 % 60, number % 1000);
            Datastream { id, state, created }
        };
        let mut datastreams = vec![datastream("DC", 'A')];
        if !number.is_multiple_of(3) {
            datastreams.push(datastream("OBJ", if number.is_multiple_of(5) { 'I' } else { 'A' }));
        }
        let mut relations = String::new();
        if !number.is_multiple_of(2) {
            datastreams.push(datastream("RELS-EXT", 'A'));
            relations = format!(
                "<hasModel xmlns=\"info:fedora/fedora-system:def/model#\" rdf:resource=\"info:fedora/demo:Image\"/>\
                 <isMemberOf xmlns=\"info:fedora/fedora-system:def/relations-external#\" \
                 rdf:resource=\"info:fedora/demo:{}\"/>",
                number + 1
            );
        }
        let state = if number.is_multiple_of(7) { 'I' } else { 'A' };
        Self { state, created, datastreams, relations }
    }
}

impl Datastream {
    fn profile(&self, pid: &str, prefix: &str) -> String {
        let Self { id, state, created } = self;
        let fields = [
            ("dsLabel", ""),
            ("dsVersionID", "X.0"),
            ("dsCreateDate", created),
            ("dsState", &state.to_string()),
            ("dsMIME", "text/xml"),
            ("dsControlGroup", "M"),
            ("dsSize", "17"),
            ("dsChecksumType", "MD5"),
            ("dsChecksum", "d41d8cd98f00b204e9800998ecf8427e"),
        ];
        let fields: String = fields.map(|(name, value)| format!("<{prefix}{name}>{value}</{prefix}{name}>")).concat();
        format!("<datastreamProfile pid=\"{pid}\" dsID=\"{id}\">{fields}</datastreamProfile>")
    }
}

impl RestApi for Fedora3 {
    const PATH: &'static str = "/fedora";

    fn answer(&mut self, _: &str, path: &str, query: &BTreeMap<String, String>, _: &str) -> ResponseTemplate {
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        if parts == ["objects"] {
            return self.list(query);
        }
        let Some(object) = parts.get(1).and_then(|pid| self.objects.get(*pid)) else {
            return ResponseTemplate::new(404);
        };
        let pid = parts[1];
        let one = |id: &str| object.datastreams.iter().find(|datastream| datastream.id.replace('-', "%2D") == id);
        match parts[2..] {
            [] => xml(&format!(
                "<objectProfile xmlns=\"http://www.fedora.info/definitions/1/0/access/\" pid=\"{pid}\">\
                 <objLabel></objLabel><objState>{}</objState><objCreateDate>{}</objCreateDate></objectProfile>",
                object.state, object.created
            )),
            ["datastreams"] if self.lists_profiles => {
                let profiles: String = object.datastreams.iter().map(|held| held.profile(pid, "apim:")).collect();
                xml(&format!(
                    "<objectDatastreams xmlns=\"http://www.fedora.info/definitions/1/0/access/\" \
                     xmlns:apim=\"http://www.fedora.info/definitions/1/0/management/\" pid=\"{pid}\">{profiles}</objectDatastreams>"
                ))
            }
            ["datastreams"] => {
                let names: String = object
                    .datastreams
                    .iter()
                    .map(|held| format!("<datastream dsid=\"{}\" label=\"\" mimeType=\"text/xml\"/>", held.id))
                    .collect();
                xml(&format!("<objectDatastreams pid=\"{pid}\">{names}</objectDatastreams>"))
            }
            ["datastreams", id] => {
                one(id).map_or_else(|| ResponseTemplate::new(404), |held| xml(&held.profile(pid, "")))
            }
            ["datastreams", "RELS-EXT", "content"] => xml(&format!(
                "<rdf:RDF xmlns:rdf=\"http://www.w3.org/1999/02/22-rdf-syntax-ns#\">\
                 <rdf:Description rdf:about=\"info:fedora/{pid}\">{}</rdf:Description></rdf:RDF>",
                object.relations
            )),
            _ => ResponseTemplate::new(404),
        }
    }
}

fn xml(body: &str) -> ResponseTemplate {
    ResponseTemplate::new(200).set_body_raw(body.as_bytes(), "text/xml")
}

/// Contents of a Fedora 6.
pub(crate) struct Fedora6 {
    /// Resources by path; the path of the root is empty. A resource without a size is a container.
    pub(crate) resources: BTreeMap<String, Resource>,
    /// True if headers contain types of Fedora's own vocabulary (Fedora 6); false if they contain only LDP
    /// types.
    pub(crate) sends_fedora_types: bool,
}

/// Resource of a Fedora 6.
#[derive(Clone, Default)]
pub(crate) struct Resource {
    /// Size in bytes, for binaries.
    pub(crate) size: Option<usize>,
    /// True if the resource was deleted and has left a tombstone.
    pub(crate) is_gone: bool,
    /// Time of the last modification; none for a day in 2021.
    pub(crate) modified: Option<DateTime<Utc>>,
    /// Time of the last modification of the description, for binaries.
    pub(crate) description_modified: Option<DateTime<Utc>>,
}

const FEDORA: &str = "http://fedora.info/definitions/v4/repository#";
const LDP: &str = "http://www.w3.org/ns/ldp#";

impl Fedora6 {
    /// Creates a repository with ten containers, each with `binaries` binaries and a container with one more.
    pub(crate) fn with(binaries: usize) -> Self {
        let mut resources = BTreeMap::from([(String::new(), Resource::default())]);
        for container in 0..10 {
            let path = format!("/collection-{container}");
            resources.insert(path.clone(), Resource::default());
            for binary in 0..binaries {
                resources.insert(format!("{path}/image {binary}.jpg").replace(' ', "%20"), Resource::binary(binary));
            }
            resources.insert(format!("{path}/zz"), Resource::default());
            // This path has a parent that is not a resource.
            resources.insert(format!("{path}/zz/ghost/deep"), Resource::binary(1));
        }
        Self { resources, sends_fedora_types: true }
    }

    fn children(&self, path: &str) -> Vec<&String> {
        let within = |child: &&String| {
            let around = self.resources.keys().filter(|held| child.starts_with(&format!("{held}/")));
            !child.is_empty() && around.max_by_key(|held| held.len()).is_some_and(|nearest| nearest == path)
        };
        self.resources.iter().filter(|(_, held)| !held.is_gone).map(|(path, _)| path).filter(within).collect()
    }

    fn types(&self, resource: &Resource) -> Vec<String> {
        let (ldp, own) = match resource.size {
            Some(_) => ("NonRDFSource", "Binary"),
            None => ("BasicContainer", "Container"),
        };
        vec![format!("{LDP}Resource"), format!("{LDP}{ldp}"), format!("{FEDORA}Resource"), format!("{FEDORA}{own}")]
    }
}

impl Resource {
    pub(crate) fn binary(size: usize) -> Self {
        Self { size: Some(size), ..Self::default() }
    }
}

impl RestApi for Fedora6 {
    const PATH: &'static str = "/rest";

    fn answer(&mut self, method: &str, path: &str, _: &BTreeMap<String, String>, base: &str) -> ResponseTemplate {
        let path = path.trim_end_matches('/');
        let (about, is_description) = match path.strip_suffix("/fcr:metadata") {
            Some(about) => (about.to_owned(), true),
            None => (path.to_owned(), false),
        };
        let Some(resource) = self.resources.get(&about) else { return ResponseTemplate::new(404) };
        if resource.is_gone {
            return ResponseTemplate::new(410);
        }
        let modified = if is_description { resource.description_modified } else { resource.modified };
        let modified = modified.map(|time| time.format("%a, %d %b %Y %H:%M:%S GMT").to_string());
        let modified = modified.unwrap_or_else(|| "Wed, 20 Jan 2021 10:11:12 GMT".to_owned());
        let mut answer = ResponseTemplate::new(200).insert_header("Last-Modified", modified.as_str());
        let types = if is_description {
            vec![format!("{LDP}RDFSource"), format!("{FEDORA}NonRdfSourceDescription")]
        } else {
            self.types(resource)
        };
        for kind in types.iter().filter(|kind| self.sends_fedora_types || kind.starts_with(LDP)) {
            answer = answer.append_header("Link", format!("<{kind}>; rel=\"type\"").as_str());
        }
        if let Some(size) = resource.size.filter(|_| !is_description) {
            assert_eq!(method, "HEAD", "a walk needs no content of {path}");
            answer = answer.append_header("Link", format!("<{base}{path}/fcr:metadata>; rel=\"describedby\"").as_str());
            let content = vec![b'x'; size];
            return answer.set_body_raw(content, "image/jpeg");
        }
        let subject = format!("<{base}{about}{}>", if about.is_empty() { "/" } else { "" });
        let mut triples = String::new();
        for kind in self.types(resource) {
            let _ = writeln!(triples, "{subject} <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <{kind}> .");
        }
        if is_description {
            let digest = "ab".repeat(64);
            let _ = writeln!(
                triples,
                "{subject} <http://www.loc.gov/premis/rdf/v1#hasMessageDigest> <urn:sha-512:{digest}> ."
            );
        }
        for child in self.children(path) {
            let _ = writeln!(triples, "{subject} <{LDP}contains> <{base}{child}> .");
        }
        let _ = writeln!(triples, "{subject} <http://purl.org/dc/elements/1.1/title> \"a \\\"title\\\"\" .");
        answer.set_body_raw(triples, "application/n-triples;charset=utf-8")
    }
}
