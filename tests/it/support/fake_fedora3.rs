//! Fake Fedora 3 with the part of its REST API that describes datastreams (fcrepo 3.8, `DefaultSerializer`).
//! Each operation has a time in seconds, on the same clock as its messages
//! ([`crate::support::fedora3_messages::Call`]).

use std::{
    collections::BTreeMap,
    fmt::Write,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
};

use wiremock::ResponseTemplate;

use crate::support::fake_repository::{FakeRepository, RepositoryApi};

/// Path of the repository on its server.
pub(crate) const PATH: &str = "/fedora";

const NAMESPACES: &str =
    r#"xmlns:xsd="http://www.w3.org/2001/XMLSchema" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance""#;

/// Version of a datastream.
#[derive(Clone, Debug)]
struct Version {
    number: usize,
    second: u64,
    media_type: String,
    size: usize,
}

#[derive(Clone, Debug)]
struct Datastream {
    state: char,
    is_versionable: bool,
    made: usize,
    versions: Vec<Version>,
}

#[derive(Clone, Debug, Default)]
struct Object {
    datastreams: BTreeMap<String, Datastream>,
    relations: Vec<(&'static str, String)>,
    embargo: Option<String>,
}

/// Contents of the repository.
#[derive(Default)]
pub(crate) struct Fedora3 {
    objects: Mutex<BTreeMap<String, Object>>,
    /// True if datastreams are listed without their profiles, as before 3.6.
    is_old: bool,
    /// True if the content of RELS-EXT has been lost.
    has_lost_relations: AtomicBool,
    /// End of the paths for which requests fail.
    refused: Mutex<Option<&'static str>>,
}

/// Running fake Fedora 3.
pub(crate) type FakeFedora3 = FakeRepository<Fedora3>;

/// Returns the timestamp for a second, as messages and profiles write it.
pub(crate) fn time(second: u64) -> String {
    format!("2026-03-01T10:{:02}:{:02}.125Z", second / 60 % 60, second % 60)
}

impl Fedora3 {
    fn objects(&self) -> MutexGuard<'_, BTreeMap<String, Object>> {
        self.objects.lock().unwrap()
    }

    pub(crate) fn of_version(is_old: bool) -> Self {
        Self { is_old, ..Self::default() }
    }

    /// Makes the content of RELS-EXT be lost or there from now on. The datastream is there in any case.
    pub(crate) fn lose_relations(&self, has_lost_relations: bool) {
        self.has_lost_relations.store(has_lost_relations, Ordering::Relaxed);
    }

    /// Makes requests fail from now on whose path ends like this.
    pub(crate) fn refuse(&self, ending: &'static str) {
        *self.refused.lock().unwrap() = Some(ending);
    }

    pub(crate) fn ingest(&self, pid: &str) {
        self.objects().insert(pid.to_owned(), Object::default());
    }

    pub(crate) fn purge_object(&self, pid: &str) {
        self.objects().remove(pid);
    }

    /// Adds a relation to RELS-EXT, and creates that datastream with the first relation.
    pub(crate) fn relate(&self, pid: &str, name: &'static str, to: &str, second: u64) {
        self.objects().get_mut(pid).unwrap().relations.push((name, to.to_owned()));
        self.write(pid, "RELS-EXT", "application/rdf+xml", second);
        self.objects().get_mut(pid).unwrap().datastreams.get_mut("RELS-EXT").unwrap().is_versionable = false;
    }

    /// Sets or removes the end of the embargo of an object, as Islandora 7 does in RELS-EXT.
    pub(crate) fn embargo(&self, pid: &str, end: Option<&str>, second: u64) {
        self.objects().get_mut(pid).unwrap().embargo = end.map(str::to_owned);
        self.write(pid, "RELS-EXT", "application/rdf+xml", second);
    }

    /// Adds a version to a datastream, and creates the datastream with the first version.
    pub(crate) fn write(&self, pid: &str, id: &str, media_type: &str, second: u64) {
        let mut objects = self.objects();
        let datastreams = &mut objects.get_mut(pid).unwrap().datastreams;
        let new = || Datastream { state: 'A', is_versionable: true, made: 0, versions: Vec::new() };
        let datastream = datastreams.entry(id.to_owned()).or_insert_with(new);
        if !datastream.is_versionable {
            datastream.versions.clear();
        }
        let (number, size) = (datastream.made, 100 + usize::try_from(second).unwrap());
        datastream.versions.push(Version { number, second, media_type: media_type.to_owned(), size });
        datastream.made += 1;
    }

    pub(crate) fn set_state(&self, pid: &str, id: &str, state: char) {
        self.objects().get_mut(pid).unwrap().datastreams.get_mut(id).unwrap().state = state;
    }

    /// Removes the versions whose times are between `from` and `to`.
    pub(crate) fn purge_versions(&self, pid: &str, id: &str, from: u64, to: u64) {
        let mut objects = self.objects();
        let datastreams = &mut objects.get_mut(pid).unwrap().datastreams;
        let versions = &mut datastreams.get_mut(id).unwrap().versions;
        versions.retain(|version| !(from..=to).contains(&version.second));
        if versions.is_empty() {
            datastreams.remove(id);
        }
    }
}

impl Datastream {
    fn fields(&self, id: &str, version: &Version, prefix: &str) -> String {
        let Version { number, second, media_type, size } = version;
        let digest = format!("{size:032x}");
        let fields = [
            ("dsLabel", "a label".to_owned()),
            ("dsVersionID", format!("{id}.{number}")),
            ("dsCreateDate", time(*second)),
            ("dsState", self.state.to_string()),
            ("dsMIME", media_type.clone()),
            ("dsFormatURI", String::new()),
            ("dsControlGroup", "M".to_owned()),
            ("dsSize", size.to_string()),
            ("dsVersionable", self.is_versionable.to_string()),
            ("dsLocation", format!("demo+{id}+{id}.{number}")),
            ("dsChecksumType", "MD5".to_owned()),
            ("dsChecksum", digest),
        ];
        let mut xml = String::new();
        for (name, value) in fields {
            let _ = write!(xml, "<{prefix}{name}>{value}</{prefix}{name}>");
        }
        xml
    }

    fn at(&self, time_asked: Option<&str>) -> Option<&Version> {
        self.versions.iter().rfind(|version| time_asked.is_none_or(|asked| time(version.second).as_str() <= asked))
    }
}

impl RepositoryApi for Fedora3 {
    fn answer(&self, _: &str, path: &str, query: &[(String, String)]) -> ResponseTemplate {
        if self.refused.lock().unwrap().is_some_and(|ending| path.ends_with(ending)) {
            return ResponseTemplate::new(503);
        }
        let parameter = |name: &str| query.iter().find(|(held, _)| held == name).map(|(_, value)| value.as_str());
        let found = path.strip_prefix(PATH).and_then(|path| self.found(path, &parameter));
        match found {
            Some(xml) => ResponseTemplate::new(200).set_body_raw(xml, "text/xml"),
            None => ResponseTemplate::new(404).set_body_string("no path in db registry"),
        }
    }
}

impl Fedora3 {
    fn found<'q>(&self, path: &str, parameter: &dyn Fn(&str) -> Option<&'q str>) -> Option<String> {
        let objects = self.objects();
        let mut parts = path.strip_prefix("/objects/")?.split('/');
        let pid = parts.next()?;
        let object = objects.get(pid)?;
        assert_eq!(parts.next(), Some("datastreams"), "{path}");
        let Some(id) = parts.next() else {
            let mut list = format!(
                r#"<objectDatastreams xmlns="http://www.fedora.info/definitions/1/0/access/" xmlns:apim="http://www.fedora.info/definitions/1/0/management/" {NAMESPACES} pid="{pid}" baseURL="http://localhost:8080/fedora/" >"#
            );
            for (id, datastream) in &object.datastreams {
                let newest = datastream.at(None)?;
                let _ = if self.is_old || parameter("profiles") != Some("true") {
                    write!(list, r#"<datastream dsid="{id}" label="" mimeType="{}" />"#, newest.media_type)
                } else {
                    let fields = datastream.fields(id, newest, "apim:");
                    write!(list, r#"<datastreamProfile pid="{pid}" dsID="{id}" >{fields}</datastreamProfile>"#)
                };
            }
            return Some(list + "</objectDatastreams>");
        };
        let datastream = object.datastreams.get(id)?;
        let management = r#"xmlns="http://www.fedora.info/definitions/1/0/management/""#;
        match parts.next() {
            None => {
                let fields = datastream.fields(id, datastream.at(parameter("asOfDateTime"))?, "");
                Some(format!(
                    r#"<datastreamProfile  {management}  {NAMESPACES} pid="{pid}" dsID="{id}">{fields}</datastreamProfile>"#
                ))
            }
            Some("history") => {
                let versions = datastream.versions.iter().rev().map(|version| datastream.fields(id, version, ""));
                let each =
                    |fields| format!(r#"<datastreamProfile pid="{pid}" dsID="{id}">{fields}</datastreamProfile>"#);
                let all: String = versions.map(each).collect();
                Some(format!(
                    r#"<datastreamHistory  {management}  {NAMESPACES} pid="{pid}" dsID="{id}">{all}</datastreamHistory>"#
                ))
            }
            Some("content") if id == "RELS-EXT" && self.has_lost_relations.load(Ordering::Relaxed) => None,
            Some("content") if id == "RELS-EXT" => {
                let mut rdf = format!(
                    r#"<rdf:RDF xmlns:fedora="info:fedora/fedora-system:def/relations-external#" xmlns:fedora-model="info:fedora/fedora-system:def/model#" xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"><rdf:Description rdf:about="info:fedora/{pid}">"#
                );
                for (name, to) in &object.relations {
                    let prefix = if *name == "hasModel" { "fedora-model" } else { "fedora" };
                    let _ = write!(rdf, r#"<{prefix}:{name} rdf:resource="info:fedora/{to}"></{prefix}:{name}>"#);
                }
                if let Some(end) = &object.embargo {
                    let namespace = "info:islandora/islandora-system:def/scholar#";
                    let _ = write!(rdf, r#"<e:embargo-until xmlns:e="{namespace}">{end}</e:embargo-until>"#);
                }
                Some(rdf + "</rdf:Description></rdf:RDF>")
            }
            Some(_) => Some("the content".to_owned()),
        }
    }
}
