//! Destination of ResourceSync that follows only the standard, and judges everything that it reads: order, intervals, links,
//! and that a closed list never changes.

use std::collections::{BTreeMap, BTreeSet};

use reqwest::{StatusCode, header::ETAG};
use tidings::model::Timestamp;

use crate::support::{
    feed_reader::Element,
    gateway::{Gateway, PATIENCE},
};

/// Maximum number of entries of a document.
const MAX_ENTRIES: usize = 50_000;

/// A document.
#[derive(Debug)]
pub(crate) struct Document {
    pub(crate) root: Element,
    pub(crate) bytes: String,
}

/// An entry of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) loc: String,
    pub(crate) metadata: BTreeMap<String, String>,
    /// Attributes of its links.
    pub(crate) links: Vec<BTreeMap<String, String>>,
}

impl Document {
    pub(crate) fn parse(bytes: String) -> Self {
        let root = Element::parse(&bytes);
        assert!(root.attributes["xmlns"] == "http://www.sitemaps.org/schemas/sitemap/0.9", "{bytes}");
        assert!(root.attributes["xmlns:rs"] == "http://www.openarchives.org/rs/terms/", "{bytes}");
        // The schema wants all of them before the first entry, and the reference client makes an error of others.
        let begin: Vec<_> = root.children.iter().map(|child| child.name.as_str()).collect();
        assert!(begin.is_sorted_by_key(|name| !name.starts_with("rs:")), "{begin:?}");
        let document = Self { root, bytes };
        assert!(document.entries().len() <= MAX_ENTRIES && document.bytes.len() <= 50_000_000);
        document
    }

    pub(crate) fn is_index(&self) -> bool {
        self.root.name == "sitemapindex"
    }

    /// Returns an attribute of the `rs:md` of the document.
    pub(crate) fn metadata(&self, name: &str) -> Option<&str> {
        self.root.one("rs:md").unwrap().attribute(name)
    }

    pub(crate) fn time(&self, name: &str) -> Option<Timestamp> {
        self.metadata(name).map(time)
    }

    /// Returns the target of the only link with a relation.
    pub(crate) fn link(&self, rel: &str) -> Option<&str> {
        let links: Vec<_> = self.root.all("rs:ln").filter(|link| link.attribute("rel") == Some(rel)).collect();
        assert!(links.len() <= 1, "{rel}: {links:?}");
        links.first().map(|link| link.attribute("href").unwrap())
    }

    pub(crate) fn entries(&self) -> Vec<Entry> {
        let name = if self.is_index() { "sitemap" } else { "url" };
        let entry = |entry: &Element| Entry {
            loc: entry.text_of("loc").to_owned(),
            metadata: entry.one("rs:md").map(|md| md.attributes.clone()).unwrap_or_default(),
            links: entry.all("rs:ln").map(|link| link.attributes.clone()).collect(),
        };
        self.root.all(name).map(entry).collect()
    }
}

/// Parses a time, which has three digits of the second and the zone Z.
pub(crate) fn time(text: &str) -> Timestamp {
    assert!(text.len() == "2026-11-29T08:49:37.123Z".len() && text.ends_with('Z'), "{text}");
    Timestamp::parse(text).unwrap()
}

/// A resource list as it was when its index was read.
#[derive(Clone, Debug)]
pub(crate) struct Baseline {
    pub(crate) at: Timestamp,
    /// URLs of its parts.
    pub(crate) parts: Vec<String>,
    pub(crate) resources: BTreeSet<String>,
}

/// The destination. It remembers the closed lists that it has read.
#[derive(Default)]
pub(crate) struct Destination {
    token: Option<String>,
    /// Query of all documents, with its question mark.
    query: String,
    closed: BTreeMap<String, String>,
}

impl Destination {
    /// Creates a destination with a token and a query.
    pub(crate) fn new(token: Option<&str>, query: &str) -> Self {
        Self { token: token.map(str::to_owned), query: query.to_owned(), closed: BTreeMap::new() }
    }

    /// Requests a URL.
    pub(crate) async fn request(&self, gateway: &Gateway, url: &str) -> reqwest::Response {
        let mut request = gateway.http.get(url);
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        // A list of thousands of changes takes long without optimisation.
        request.timeout(4 * PATIENCE).send().await.unwrap()
    }

    /// Reads a document.
    pub(crate) async fn read(&self, gateway: &Gateway, url: &str) -> Document {
        self.try_read(gateway, url).await.unwrap_or_else(|| panic!("{url} is gone"))
    }

    /// Reads a document; `None` if it is gone.
    async fn try_read(&self, gateway: &Gateway, url: &str) -> Option<Document> {
        let response = self.request(gateway, url).await;
        let status = response.status();
        if status == StatusCode::GONE {
            return None;
        }
        assert_eq!(status, StatusCode::OK, "{url}: {}", response.text().await.unwrap());
        assert_eq!(response.headers()["content-type"], "application/xml");
        assert!(response.headers().contains_key(ETAG));
        Some(Document::parse(response.text().await.unwrap()))
    }

    /// Follows the way from the description to a capability, and returns its document.
    pub(crate) async fn capability(&self, gateway: &Gateway, name: &str) -> Document {
        let description_url = format!("{}/.well-known/resourcesync", gateway.url);
        let description = self.read(gateway, &description_url).await;
        assert_eq!((description.metadata("capability"), description.link("up")), (Some("description"), None));
        let [set] = &description.entries()[..] else { panic!("{}", description.bytes) };
        assert_eq!(set.metadata["capability"], "capabilitylist");
        let list = self.read(gateway, &format!("{}{}", set.loc, self.query)).await;
        assert_eq!(list.metadata("capability"), Some("capabilitylist"));
        assert_eq!(list.link("up"), Some(&*description_url));
        let entries = list.entries();
        let capabilities: BTreeSet<_> = entries.iter().map(|entry| &entry.metadata["capability"]).collect();
        assert_eq!(capabilities.len(), entries.len(), "one entry for each capability");
        let entry = entries.iter().find(|entry| entry.metadata["capability"] == name).unwrap();
        let document = self.read(gateway, &entry.loc).await;
        assert_eq!(document.metadata("capability"), Some(name));
        assert_eq!(document.link("up"), Some(&*format!("{}{}", set.loc, self.query)));
        document
    }

    /// Reads the resource list.
    pub(crate) async fn baseline(&self, gateway: &Gateway) -> Baseline {
        let index = self.capability(gateway, "resourcelist").await;
        assert!(index.is_index() && index.metadata("from").is_none());
        let at = index.time("at").unwrap();
        let parts: Vec<_> = index.entries().into_iter().map(|entry| entry.loc).collect();
        assert!(parts.is_sorted(), "clients read them in the order of their names: {parts:?}");
        let resources = self.parts(gateway, &parts, at).await.expect("the list is new");
        Baseline { at, parts, resources }
    }

    /// Reads the parts of a resource list; `None` if one of them is gone.
    pub(crate) async fn parts(&self, gateway: &Gateway, parts: &[String], at: Timestamp) -> Option<BTreeSet<String>> {
        let mut resources = BTreeSet::new();
        for url in parts {
            let part = self.try_read(gateway, url).await?;
            assert_eq!((part.metadata("capability"), part.time("at")), (Some("resourcelist"), Some(at)), "{url}");
            assert!(!part.is_index() && part.link("index").is_some());
            let mut own = BTreeSet::new();
            for entry in part.entries() {
                assert!(!entry.metadata.contains_key("change"));
                own.insert(entry.loc);
            }
            resources.extend(own);
        }
        Some(resources)
    }

    /// Reads all change lists, and returns their changes. The first time is that since which they have all changes.
    pub(crate) async fn changes(&mut self, gateway: &Gateway) -> (Timestamp, Vec<Entry>) {
        loop {
            // A list that is removed meanwhile is in the next index no more.
            if let Some(changes) = self.try_changes(gateway).await {
                return changes;
            }
        }
    }

    async fn try_changes(&mut self, gateway: &Gateway) -> Option<(Timestamp, Vec<Entry>)> {
        let index = self.capability(gateway, "changelist").await;
        assert!(index.is_index() && index.metadata("at").is_none() && index.metadata("until").is_none());
        let from = index.time("from").unwrap();
        let lists = index.entries();
        let urls: Vec<_> = lists.iter().map(|list| &list.loc).collect();
        assert!(urls.is_sorted(), "clients read them in the order of their names: {urls:?}");
        let (mut all, mut newest) = (Vec::<Entry>::new(), None);
        for (at, listed) in lists.iter().enumerate() {
            let list = self.try_read(gateway, &listed.loc).await?;
            assert_eq!(list.metadata("capability"), Some("changelist"));
            assert!(list.link("index").is_some() && list.link("up").is_some() && !list.is_index());
            let begin = list.time("from").unwrap();
            assert_eq!(listed.metadata["from"], list.metadata("from").unwrap());
            match newest {
                None => assert_eq!(begin, from, "the index begins with its first list"),
                Some(until) => {
                    assert_eq!(begin.millis(), Timestamp::millis(until) + 1, "a gap before {listed:?}");
                }
            }
            let until = list.time("until");
            assert_eq!(until.is_some(), at + 1 < lists.len(), "only the last list is open");
            assert!(until.is_none_or(|until| begin <= until));
            for entry in list.entries() {
                let datetime = time(&entry.metadata["datetime"]);
                assert!(begin <= datetime && until.is_none_or(|until| datetime <= until), "{entry:?} in {listed:?}");
                assert!(["created", "updated", "deleted"].contains(&&*entry.metadata["change"]));
                assert!(all.last().is_none_or(|last| time(&last.metadata["datetime"]) <= datetime), "{entry:?}");
                all.push(entry);
            }
            if until.is_some() {
                assert_eq!(listed.metadata["until"], list.metadata("until").unwrap());
                self.remember(&listed.loc, &list.bytes);
            }
            newest = until;
        }
        Some((from, all))
    }

    /// Remembers a closed list, which must be as it was before.
    fn remember(&mut self, name: &str, bytes: &str) {
        let before = self.closed.entry(name.to_owned()).or_insert_with(|| bytes.to_owned());
        assert_eq!(before, bytes, "{name} was closed");
    }

    /// Returns the number of the closed lists that were read.
    pub(crate) fn closed_lists(&self) -> usize {
        self.closed.len()
    }
}

/// Applies the changes since a time.
pub(crate) fn replay(resources: &BTreeSet<String>, since: Timestamp, changes: &[Entry]) -> BTreeSet<String> {
    let mut resources = resources.clone();
    for change in changes.iter().filter(|change| time(&change.metadata["datetime"]) >= since) {
        match &*change.metadata["change"] {
            "deleted" => resources.remove(&change.loc),
            _ => resources.insert(change.loc.clone()),
        };
    }
    resources
}
