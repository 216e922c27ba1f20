//! Repositories of the test's own that can be walked through: a Fedora 3 and a Fedora 6, as far as their REST APIs list
//! what there is. Written from what fcrepo 3.8 and 6 answer.

use std::{
    collections::BTreeMap,
    fmt::Write,
    sync::{Mutex, OnceLock},
};

use wiremock::ResponseTemplate;

use crate::support::fake_repository::{FakeRepository, Knows};

/// What goes wrong: what is answered instead to a request, as in `GET /rest/a?b=c`.
pub(crate) type Trouble = Box<dyn Fn(&str) -> Option<ResponseTemplate> + Send>;

/// A repository that answers.
pub(crate) struct Fake<T>(FakeRepository<Holding<T>>);

struct Holding<T> {
    holds: Mutex<T>,
    base: OnceLock<String>,
    trouble: Mutex<Option<Trouble>>,
    asked: Mutex<Vec<String>>,
}

/// What answers to requests for what a repository holds.
pub(crate) trait Answers: Send + 'static {
    /// Where the REST API is.
    const PATH: &'static str;
    fn answer(&mut self, method: &str, path: &str, query: &BTreeMap<String, String>, base: &str) -> ResponseTemplate;
}

impl<T: Answers> Knows for Holding<T> {
    fn answer(&self, method: &str, path: &str, query: &[(String, String)]) -> ResponseTemplate {
        let pairs: Vec<_> = query.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let asked = format!("{method} {path}?{}", pairs.join("&"));
        let wrong = self.trouble.lock().unwrap().as_ref().and_then(|trouble| trouble(&asked));
        self.asked.lock().unwrap().push(asked);
        let below = path.strip_prefix(T::PATH).unwrap_or_default();
        let query = query.iter().cloned().collect();
        wrong.unwrap_or_else(|| self.holds.lock().unwrap().answer(method, below, &query, self.base.get().unwrap()))
    }
}

impl<T: Answers> Fake<T> {
    pub(crate) async fn start(holds: T) -> Self {
        let (base, trouble, asked) = (OnceLock::new(), Mutex::new(None), Mutex::default());
        let server = FakeRepository::start(Holding { holds: Mutex::new(holds), base, trouble, asked }).await;
        server.knows.base.set(format!("{}{}", server.url(), T::PATH)).unwrap();
        Self(server)
    }

    /// Where it is.
    pub(crate) fn url(&self) -> String {
        self.0.knows.base.get().unwrap().clone()
    }

    /// Has something go wrong from now on.
    pub(crate) fn trouble(&self, trouble: impl Fn(&str) -> Option<ResponseTemplate> + Send + 'static) {
        *self.0.knows.trouble.lock().unwrap() = Some(Box::new(trouble));
    }

    /// Has nothing go wrong any more.
    pub(crate) fn mended(&self) {
        *self.0.knows.trouble.lock().unwrap() = None;
    }

    /// Changes what it holds.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        change(&mut self.0.knows.holds.lock().unwrap())
    }

    /// What was asked for since this was asked last.
    pub(crate) fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.0.knows.asked.lock().unwrap())
    }
}

/// What a Fedora 3 holds.
pub(crate) struct Fedora3 {
    /// Objects by PID.
    pub(crate) objects: BTreeMap<String, Object>,
    /// Whether lists of datastreams have profiles (3.6 and later).
    pub(crate) knows_profiles: bool,
    /// How many objects a page of the list has at the most.
    pub(crate) page: usize,
    /// The newest token, and what it leads to. An older one has expired.
    session: Option<(String, Vec<String>)>,
    tokens: usize,
}

/// An object of a Fedora 3.
#[derive(Clone)]
pub(crate) struct Object {
    pub(crate) state: char,
    pub(crate) created: String,
    pub(crate) datastreams: Vec<Datastream>,
    /// The content of RELS-EXT, without what is around it.
    pub(crate) relations: String,
}

/// A datastream of a Fedora 3.
#[derive(Clone)]
pub(crate) struct Datastream {
    pub(crate) id: &'static str,
    pub(crate) state: char,
    pub(crate) created: String,
}

impl Fedora3 {
    /// With so many objects, `demo:1` and on: each has a DC, and most have other datastreams.
    pub(crate) fn with(objects: usize) -> Self {
        let made = (1..=objects).map(|number| (format!("demo:{number}"), Object::numbered(number))).collect();
        Self { objects: made, knows_profiles: true, page: 100, session: None, tokens: 0 }
    }

    fn list(&mut self, query: &BTreeMap<String, String>) -> ResponseTemplate {
        assert_eq!(query["resultFormat"], "xml");
        let mut left: Vec<String> = match query.get("sessionToken") {
            // Fedora lists in no order; some objects before others that were made later.
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
        let asked: usize = query["maxResults"].parse().unwrap();
        let rest = left.split_off(left.len().min(self.page.min(asked)));
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
                // As Fedora does when an object is purged while its list is read.
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

impl Answers for Fedora3 {
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
            ["datastreams"] if self.knows_profiles => {
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

/// What a Fedora 6 holds.
pub(crate) struct Fedora6 {
    /// Resources by path, the root's being empty. What has no extent is a container.
    pub(crate) resources: BTreeMap<String, Resource>,
    /// Whether headers tell types of Fedora's own (Fedora 6), or representations alone.
    pub(crate) tells_types: bool,
}

/// A resource of a Fedora 6.
#[derive(Clone, Default)]
pub(crate) struct Resource {
    /// Its size, where it is a binary.
    pub(crate) size: Option<usize>,
    /// Whether it was deleted, and has left a tombstone.
    pub(crate) is_gone: bool,
}

const FEDORA: &str = "http://fedora.info/definitions/v4/repository#";
const LDP: &str = "http://www.w3.org/ns/ldp#";

impl Fedora6 {
    /// With ten containers, each of which has so many binaries and a container with one more.
    pub(crate) fn with(binaries: usize) -> Self {
        let mut resources = BTreeMap::from([(String::new(), Resource::default())]);
        for container in 0..10 {
            let path = format!("/collection-{container}");
            resources.insert(path.clone(), Resource::default());
            for binary in 0..binaries {
                resources.insert(format!("{path}/image {binary}.jpg").replace(' ', "%20"), Resource::binary(binary));
            }
            resources.insert(format!("{path}/zz"), Resource::default());
            // Below a path that is no resource of its own.
            resources.insert(format!("{path}/zz/ghost/deep"), Resource::binary(1));
        }
        Self { resources, tells_types: true }
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
        Self { size: Some(size), is_gone: false }
    }
}

impl Answers for Fedora6 {
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
        let mut answer = ResponseTemplate::new(200).insert_header("Last-Modified", "Wed, 20 Jan 2021 10:11:12 GMT");
        let types = if is_description {
            vec![format!("{LDP}RDFSource"), format!("{FEDORA}NonRdfSourceDescription")]
        } else {
            self.types(resource)
        };
        for kind in types.iter().filter(|kind| self.tells_types || kind.starts_with(LDP)) {
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
