//! Gateway with a journal and its feed, and a reader that follows only `docs/feed.md` and reconstructs changes
//! from Atom documents.

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use axum::{Router, routing::get};
use quick_xml::{Reader, XmlVersion, events::Event};
use reqwest::{Method, Response};
use serde_json::{Map, Value, json};
use tidings::{
    journal::{
        DuplicatePolicy, Journal, JournalSettings, JournalThreads, Submission, TailBounds, settle::SourcePolicy,
        store::sqlite,
    },
    model::{Draft, DraftTime, Seq, SourceName, Timestamp},
    view::{
        changes::{self, Changes},
        feed::{self, FeedLabels, FeedView},
        live_readers::{LiveReaders, ReaderLimits},
    },
    web::Spool,
};
use tokio::{net::TcpListener, sync::oneshot, task::JoinHandle};

/// Public URL of the gateway: behind a proxy, under a path.
pub(crate) const PUBLIC: &str = "https://example.org/tidings";

pub(crate) struct Gateway {
    pub(crate) journal: Journal,
    writer: JournalThreads,
    address: String,
    client: reqwest::Client,
    stop: oneshot::Sender<()>,
    server: JoinHandle<()>,
}

impl Gateway {
    pub(crate) async fn open(folder: &Path) -> Self {
        Self::open_at(folder, PUBLIC).await
    }

    pub(crate) async fn open_at(folder: &Path, public: &str) -> Self {
        let store = sqlite::SqliteStore::open(folder, sqlite::SqliteOptions::default()).unwrap();
        let (journal, writer) = Journal::start(
            store,
            JournalSettings {
                tail: TailBounds { changes: 250, ..TailBounds::default() },
                ..JournalSettings::default()
            },
        )
        .unwrap();
        let spool = Spool::new(folder, 64 << 20);
        let limits = ReaderLimits {
            readers: 10,
            per_client: 10,
            wait: Duration::ZERO,
            stream: Duration::ZERO,
            heartbeat: Duration::MAX,
        };
        let (readers, _) = LiveReaders::new(journal.clone(), spool.clone(), limits);
        let changes = Changes { journal: journal.clone(), readers, segments: None, max_page: 1000 };
        let view = FeedView::new(journal.clone(), public, folder, None, spool, FeedLabels::default());
        let routes = Router::new()
            .route("/feed", get(feed::newest))
            .route("/feed/archive/{page}", get(feed::archive))
            .with_state(view)
            .route("/changes", get(changes::page).with_state(changes.clone()))
            .route("/changes/{id}", get(changes::one::change).with_state(changes));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let (stop, stopped) = oneshot::channel::<()>();
        let server = axum::serve(listener, routes).with_graceful_shutdown(async { drop(stopped.await) });
        let server = tokio::spawn(async { server.await.unwrap() });
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
        Self { journal, writer, address, client, stop, server }
    }

    /// Stops in the order of the gateway: first the server, then the journal.
    pub(crate) async fn close(self) {
        drop(self.client);
        let _ = self.stop.send(());
        self.server.await.unwrap();
        drop(self.journal);
        self.writer.join();
    }

    pub(crate) async fn append(&self, source: &str, drafts: Vec<Draft>) {
        append(&self.journal, source, drafts).await;
    }

    /// Requests a link of a document or a path.
    pub(crate) async fn ask(&self, method: Method, link: &str, headers: &[(&str, &str)]) -> Response {
        let path = link.strip_prefix(PUBLIC).unwrap_or(link);
        let mut request = self.client.request(method, format!("{}{path}", self.address));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.send().await.unwrap()
    }

    pub(crate) async fn document(&self, link: &str) -> String {
        let response = self.ask(Method::GET, link, &[]).await;
        assert_eq!(response.status(), 200, "{link}");
        assert_eq!(response.headers()["content-type"], "application/atom+xml;type=feed;charset=utf-8");
        response.text().await.unwrap()
    }

    /// Returns the changes up to `head` by number, as `GET /changes` shows them.
    pub(crate) async fn journaled(&self, head: Seq) -> BTreeMap<u64, Value> {
        let all = self.journal.after(Seq::ZERO, usize::try_from(head.0).unwrap()).await.unwrap();
        all.iter().map(|change| (change.seq().0, serde_json::from_slice(change.json()).unwrap())).collect()
    }
}

pub(crate) async fn append(journal: &Journal, source: &str, drafts: Vec<Draft>) {
    let name = SourceName::parse(source).unwrap();
    let policy = Arc::new(SourcePolicy { name, metadata_changes: true });
    let drafts = drafts.into_iter().map(|draft| (None, draft)).collect();
    journal
        .append(Submission { policy, drafts, duplicate_policy: DuplicatePolicy::RememberChanges, completes: None })
        .await
        .unwrap();
}

pub(crate) fn draft(json: Value) -> Draft {
    serde_json::from_value(json).unwrap()
}

/// Element as an XML processor reports it.
#[derive(Debug, Default)]
pub(crate) struct Element {
    pub(crate) name: String,
    pub(crate) attributes: BTreeMap<String, String>,
    pub(crate) children: Vec<Element>,
    pub(crate) text: String,
}

impl Element {
    pub(crate) fn parse(document: &str) -> Self {
        let mut reader = Reader::from_str(document);
        let mut open = vec![Self::default()];
        loop {
            match reader.read_event().unwrap() {
                Event::Start(start) => open.push(Self::of(&start)),
                Event::Empty(empty) => open.last_mut().unwrap().children.push(Self::of(&empty)),
                Event::End(_) => {
                    let done = open.pop().unwrap();
                    open.last_mut().unwrap().children.push(done);
                }
                Event::Text(text) => open.last_mut().unwrap().text += &text.xml10_content().unwrap(),
                Event::GeneralRef(reference) => {
                    let text = match reference.resolve_char_ref().unwrap() {
                        Some(character) => character.to_string(),
                        None => {
                            let name = reference.decode().unwrap();
                            quick_xml::escape::resolve_predefined_entity(&name).unwrap().to_owned()
                        }
                    };
                    open.last_mut().unwrap().text += &text;
                }
                Event::Eof => return open.pop().unwrap().children.pop().unwrap(),
                Event::Decl(_) | Event::PI(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn of(start: &quick_xml::events::BytesStart<'_>) -> Self {
        let attributes = start.attributes().map(|attribute| {
            let attribute = attribute.unwrap();
            let value = attribute.decoded_and_normalized_value(XmlVersion::Implicit1_0, start.decoder()).unwrap();
            (String::from_utf8(attribute.key.as_ref().to_vec()).unwrap(), value.into_owned())
        });
        let name = String::from_utf8(start.name().as_ref().to_vec()).unwrap();
        Self { name, attributes: attributes.collect(), ..Self::default() }
    }

    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Self> {
        self.children.iter().filter(move |child| child.name == name)
    }

    pub(crate) fn one(&self, name: &str) -> Option<&Self> {
        let mut all = self.children.iter().filter(|child| child.name == name);
        let one = all.next();
        assert!(all.next().is_none(), "more than one {name} in {self:?}");
        one
    }

    pub(crate) fn text_of(&self, name: &str) -> &str {
        &self.one(name).unwrap_or_else(|| panic!("no {name} in {self:?}")).text
    }

    pub(crate) fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.get(name).map(String::as_str)
    }

    /// Returns the target of the link with that relation.
    pub(crate) fn link(&self, rel: &str) -> Option<&str> {
        let mut links = self.all("link").filter(|link| link.attribute("rel") == Some(rel));
        let link = links.next()?.attribute("href");
        assert!(links.next().is_none(), "more than one link {rel}");
        link
    }

    fn terms<'a>(&'a self, scheme: &'a str) -> impl Iterator<Item = &'a str> {
        let of_scheme = move |category: &&Self| category.attribute("scheme") == Some(scheme);
        self.all("category").filter(of_scheme).filter_map(|category| category.attribute("term"))
    }

    /// Returns a text of the change: the verbatim text if there is one, else the text of the element.
    fn verbatim<'a>(&'a self, of: &str, text: &'a str) -> &'a str {
        let mut all = self.all("tidings:verbatim");
        all.find(|verbatim| verbatim.attribute("of") == Some(of)).map_or(text, |found| found.attribute("text").unwrap())
    }
}

/// Returns the changes of a document, in its order, in the shape of `GET /changes`.
pub(crate) fn changes(feed: &Element) -> Vec<Value> {
    let mut changes: Vec<Value> = Vec::new();
    for entry in feed.all("entry") {
        let source = entry.one("source").unwrap();
        let seq = entry.one("tidings:change").unwrap().attribute("seq").unwrap().parse().unwrap();
        if changes.last().is_none_or(|change| change["seq"].as_u64() != Some(seq)) {
            changes.push(change(entry, source));
        }
        assert_eq!(changes.last().unwrap()["id"], source.text_of("id"));
        changes.last_mut().unwrap()["items"].as_array_mut().unwrap().push(item(entry));
    }
    changes
}

fn change(entry: &Element, source: &Element) -> Value {
    let journaled = entry.one("tidings:change").unwrap();
    let author = source.one("author").unwrap();
    let types: Vec<_> = source.terms("changes:CONTENT:OBJECT:TYPE").collect();
    let version = source.terms("info:fedora/fedora-system:def/view#version").next();
    without_nulls(json!({
        "seq": journaled.attribute("seq").unwrap().parse::<u64>().unwrap(),
        "id": source.text_of("id"),
        "source": journaled.attribute("source"),
        "sourceEventId": journaled.attribute("event"),
        "sourceVersion": version.map(|version| entry.verbatim("version", version)),
        "received": journaled.attribute("received"),
        "time": time(source.text_of("updated")),
        "user": without_nulls(json!({
            "name": entry.verbatim("author", author.text_of("name")),
            "uri": author.one("uri").map(|uri| &uri.text),
        })),
        "object": source.link("via"),
        "parent": source.link("related"),
        "types": (!types.is_empty()).then_some(types),
        "description": entry.verbatim("title", source.text_of("title")),
        "purge": journaled.attribute("purge").map(|purge| purge == "true"),
        "filled": journaled.attribute("filled").map(aspects),
        "late": journaled.attribute("late").map(aspects),
        "asOf": journaled.attribute("as-of"),
        "lookup": journaled.attribute("lookup"),
        "items": [],
    }))
}

fn item(entry: &Element) -> Value {
    let via = entry.all("link").find(|link| link.attribute("rel") == Some("via")).unwrap();
    let content = entry.one("content").map(|content| {
        let digest = entry.one("tidings:digest");
        without_nulls(json!({
            "url": content.attribute("src"),
            "mediaType": content.attribute("type"),
            "size": via.attribute("length").map(|length| length.parse::<u64>().unwrap()),
            "digest": digest.map(|digest| json!({"algorithm": digest.attribute("algorithm"), "value": digest.text})),
            "generatedBy": entry.link("http://www.w3.org/ns/prov#wasGeneratedBy"),
        }))
    });
    let notes = entry.one("tidings:item");
    without_nulls(json!({
        "id": entry.text_of("id"),
        "uri": via.attribute("href"),
        "change": entry.terms("changes:ITEM:CHANGE:TYPE").next(),
        "content": content,
        "stateBefore": entry.terms("changes:CONTENT:ITEM:STATEBEFORE").next(),
        "stateAfter": entry.terms("changes:CONTENT:ITEM:STATEAFTER").next(),
        "late": entry.one("tidings:late").map(|late| aspects(&late.text)),
        "inferred": notes.and_then(|notes| notes.attribute("inferred")).map(|inferred| inferred == "true"),
        "beginsIn": notes.and_then(|notes| notes.attribute("begins-in")),
    }))
}

fn time(written: &str) -> String {
    Timestamp::parse(written).unwrap().to_string()
}

fn aspects(written: &str) -> Vec<&str> {
    written.split(' ').collect()
}

fn without_nulls(object: Value) -> Value {
    let Value::Object(members) = object else { panic!("{object} is no object") };
    Value::Object(members.into_iter().filter(|(_, value)| !value.is_null()).collect::<Map<_, _>>())
}

/// Returns a draft that varies with its number: one with every member of the model and text with special
/// characters, a minimal draft, or one between them.
pub(crate) fn varied(number: u64) -> Draft {
    let object = format!("http://h/fedora/objects/demo:{}", number % 37);
    let item = |name: &str| format!("{object}/datastreams/{name}/content");
    let plain = || {
        draft(json!({
            "sourceEventId": format!("event {number} & \"<é>'"),
            "object": object,
            "description": "setDatastreamState",
            "user": {"name": "fedoraAdmin"},
            "items": [{"uri": item("DC"), "stateAfter": (if number % 74 < 37 { "ACTIVE" } else { "INACTIVE" })}],
        }))
    };
    match number % 8 {
        0 => draft(json!({
            "sourceEventId": format!("urn:x:{number}?a=1&b=<2>&c=\"3\""),
            "sourceVersion": "3.8\t1\r\n& \"later\"",
            "time": "2011-08-03T08:14:25.9Z",
            "user": {"name": "A \"B\"\r<c@d> & É", "uri": "http://h/users?id=1&b='2'"},
            "object": object,
            "parent": "http://h/fedora/objects/demo:parent?a&b='c'",
            "types": ["info:fedora/demo:M?a&b", "http://www.w3.org/ns/ldp#Container"],
            "description": "  line\r\nfeed\ttab   ]]> <b>bold</b> &amp; \u{1F4DA} ",
            "items": [
                {"uri": item("DC"), "change": "UPDATE", "stateAfter": "INACTIVE", "content": {
                    "url": format!("{}?asOfDateTime=2011&v='{number}'", item("DC")), "mediaType": "text/xml; charset=\"a & b\"",
                    "size": number * 1_000_000_000,
                    "digest": {"algorithm": "sha-1", "value": "da39a3ee5e6b4b0d3255bfef95601890afd80709"}}},
                {"uri": item("IMG"), "change": "ADD", "content": {"url": item("IMG"), "size": 0}},
                {"uri": item("OLD"), "change": "DELETE", "stateBefore": "ACTIVE", "stateAfter": "DELETED"},
                {"uri": object, "stateAfter": "RUNNING"},
            ],
        })),
        1 => draft(json!({"object": object, "items": [{"uri": item("A"), "change": "ADD"}]})),
        2 => draft(
            json!({"time": "2012-01-01T00:00:00Z", "object": object, "description": "purgeObject", "purge": true}),
        ),
        3 => Draft { items: unknown_whether_new(&item("NEW")), ..plain() },
        4 => Draft { time: DraftTime::Reported(Timestamp::parse("2009-01-01T00:00:00Z").unwrap()), ..plain() },
        _ => plain(),
    }
}

fn unknown_whether_new(uri: &str) -> tidings::model::DraftItems {
    use tidings::model::{ContentLocation, DraftChange, DraftItem, DraftItems, NonEmpty, State, Uri};
    let content = Some(ContentLocation::at(Uri::parse(&format!("{uri}?v=1")).unwrap()));
    let change = DraftChange::AddOrUpdate { content, initial_state: Some(State::ACTIVE) };
    DraftItems::Listed(NonEmpty::one(DraftItem::new(Uri::parse(uri).unwrap(), change)))
}
