//! Whole harvests, published as Social Feed Manager does, reach the queues of two subscribers: one for every
//! change, and the example indexer of `examples/`. The credentials of the start message appear nowhere.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use lapin::message::Delivery;
use serde_json::{Value, json};

use crate::{
    dialects::sfm_credentials::{assert_no_secret, contains_secret},
    support::{
        feed_reader::Element,
        gateway::{Gateway, PATIENCE},
        journal_fixture::{configuration, journal_file, verify_ok},
        python::{Example, publish_as_sfm},
        rabbitmq::{Broker, Vhost},
        subscription_fixture::{seq, text},
        xmllint,
    },
};

const SFM: &str = "https://sfm.example.org/";
const BEGAN: &str = "2026-07-28T11:17:36.640044+00:00";

/// Returns the harvest of the README: `examples/harvest.jsonl`.
fn examples() -> Vec<(String, Value)> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/harvest.jsonl");
    let read = |line: &str| serde_json::from_str(line).unwrap();
    fs::read_to_string(file).unwrap().lines().map(read).collect()
}

/// Starts a gateway between SFM's exchange and the queues of two subscribers. Its complete log is in
/// `folder/log`.
fn gateway(folder: &Path, url: &str) -> Gateway {
    let subscription = |name: &str, more: &str| {
        format!(
            "[subscriptions.{name}]\ndelivery = \"amqp\"\nstart = \"beginning\"\nurl = \"{url}\"\n\
             exchange = \"content.{name}\"\nqueues = [{{ name = \"{name}\" }}]\n{more}\n"
        )
    };
    let source = format!(
        "[sources.sfm]\ntransport = \"amqp\"\ndialect = \"sfm\"\nurl = \"{url}\"\nexchange = \"sfm_exchange\"\n\
         queue = \"tidings.sfm\"\nbindings = [\"harvest.#\", \"export.#\", \"warc_created\"]\n\
         settings = {{ base_url = \"{SFM}\" }}\n"
    );
    let lines = source + &subscription("all", "") + &subscription("index", "filter = { visibility = true }");
    let config = configuration(folder, &lines);
    Gateway::start_logging(&folder.join("data"), &["--config", &config], &folder.join("log"))
}

async fn until_read(gateway: &Gateway) {
    let began = Instant::now();
    loop {
        let sources = gateway.json("/sources").await;
        let all = sources["sources"].as_array().unwrap();
        let sfm = all.iter().find(|source| source["name"] == "sfm").unwrap();
        if sfm["connection"]["state"] == "connected" {
            return;
        }
        assert!(began.elapsed() < 2 * PATIENCE, "{sfm:#}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn start(id: &str, kind: &str, seeds: &Value) -> Value {
    json!({
        "id": id, "type": kind, "path": "/sfm-data/collection_set/cs/c", "seeds": seeds,
        "options": {"incremental": true, "sizes": ["Thumbnail", "Large"]},
        "credentials": {"key": "hush-hush-1", "secret": "hush-hush-2"},
        "collection_set": {"id": "cs"}, "collection": {"id": "c"},
    })
}

/// Returns a status message with every member that harvesters send.
#[expect(clippy::needless_pass_by_value, reason = "it stands around json!")]
fn status(id: &str, status: &str, more: Value) -> Value {
    let mut totals = json!({
        "id": id, "status": status, "infos": [], "warnings": [], "errors": [], "date_started": BEGAN, "stats": {},
        "token_updates": {}, "uids": {}, "warcs": {"count": 0, "bytes": 0},
        "service": "Harvester", "host": "f0c3c5ef7031", "instance": "39",
    });
    for (name, value) in more.as_object().unwrap() {
        totals[name] = value.clone();
    }
    totals
}

fn warc(id: &str, harvest: &str, kind: &str, created: &str) -> Value {
    json!({
        "warc": {
            "id": id, "path": format!("/sfm-data/collection_set/cs/c/2026/07/28/11/{id}.warc.gz"), "bytes": 26146,
            "sha1": "7512e1c227c29332172118f0b79b2ca75cbe8979", "date_created": created,
        },
        "collection_set": {"id": "cs"}, "collection": {"id": "c"}, "harvest": {"id": harvest, "type": kind},
    })
}

/// Returns the content of a message: its object and the change of each item, without constant parts.
fn summary(message: &Delivery) -> String {
    let feed = Element::parse(std::str::from_utf8(&message.data).unwrap());
    let name = |element: &Element| element.link("via").unwrap().strip_prefix(SFM).unwrap().to_owned();
    let item = |entry: &Element| {
        let term = |scheme: &str| {
            let all: Vec<_> = entry.all("category").filter(|at| at.attribute("scheme") == Some(scheme)).collect();
            all.first().and_then(|category| category.attribute("term")).unwrap_or("-").to_owned()
        };
        let (before, after) = (term("changes:CONTENT:ITEM:STATEBEFORE"), term("changes:CONTENT:ITEM:STATEAFTER"));
        format!("{} {} {before} {after}", name(entry), term("changes:ITEM:CHANGE:TYPE"))
    };
    let items: Vec<_> = feed.all("entry").map(item).collect();
    format!("{}: {}", name(&feed).replace("api/v1/", ""), items.join(", ").replace("api/v1/", ""))
}

/// Consumes the messages of the subscriber to every change; each must be valid and in order. The gateway may
/// declare the queue only after all messages are published.
async fn read_all(vhost: &Vhost<'_>, gateway: &Gateway, folder: &Path, count: usize) -> Vec<Delivery> {
    gateway.until_at("all", count as u64).await;
    let client = vhost.client().await;
    let messages = client.read("all", count).await;
    assert_eq!(client.waiting("all").await, 0);
    client.close().await;
    let seqs: Vec<_> = messages.iter().map(seq).collect();
    assert_eq!(seqs, (1..=count as u64).collect::<Vec<_>>());
    let file = |message: &Delivery| {
        let path = folder.join(format!("{}.xml", seq(message)));
        fs::write(&path, &message.data).unwrap();
        path
    };
    xmllint::assert_valid("content-change-message-0.1.xsd", &messages.iter().map(file).collect::<Vec<_>>());
    for message in &messages {
        assert!(text(message.properties.message_id().as_ref()).starts_with("urn:uuid:"));
        assert!(!contains_secret(format!("{:?}", message.properties).as_bytes()));
    }
    messages
}

/// Runs the example indexer on its queue twice; the second run gets only repeats.
async fn index(vhost: &Vhost<'_>, gateway: &Gateway, folder: &Path, head: u64, lines: usize) -> Vec<String> {
    let details = gateway.until_at("index", head).await;
    let mut indexer = Example::indexer(&vhost.url(), "index", folder);
    indexer.until_printed(lines).await;
    let delivered = details["delivered"].as_u64().unwrap();
    assert_eq!(gateway.ask("POST", "/subscriptions/index/rewind", Some(json!({ "to": "beginning" }))).await.0, 200);
    gateway.until("index", "all came again", |details| details["delivered"] == 2 * delivered).await;
    let began = Instant::now();
    let empty = || Broker::shared().ctl(&["list_queues", "--vhost", &vhost.name, "name", "messages"]);
    while !empty().lines().any(|line| line == "index\t0") {
        assert!(began.elapsed() < 2 * PATIENCE, "not all is acknowledged: {}", empty());
    }
    indexer.stop()
}

/// Posts an unreadable message with credentials, stops the gateway, and checks that its files contain no
/// credentials.
async fn assert_no_credentials(gateway: Gateway, folder: &Path) {
    for path in ["/changes", "/feed", "/quarantine", "/quarantine/1", "/sources", "/subscriptions", "/snapshot"] {
        let answer = gateway.http.get(format!("{}{path}", gateway.url)).send().await.unwrap();
        assert!(!contains_secret(&answer.bytes().await.unwrap()), "{path}");
    }
    assert!(gateway.stop().success());
    assert_no_secret(folder);
    let log = fs::read_to_string(folder.join("log")).unwrap();
    assert!(log.contains("TRACE") || log.contains("DEBUG"), "the log has every level");
    verify_ok(&journal_file(&folder.join("data")));
}

#[tokio::test]
async fn harvest_with_one_warc_reaches_the_indexer() {
    crate::support::needs_sqlite();
    let (vhost, folder) = (Broker::shared().vhost(), tempfile::tempdir().unwrap());
    let gateway = gateway(folder.path(), &vhost.url());
    until_read(&gateway).await;
    let mut messages = examples();
    let cut = messages[0].1.to_string().replace("\"seeds\":", "\"seeds\"");
    messages.insert(0, (messages[0].0.clone(), json!(cut)));
    publish_as_sfm(&vhost.url(), &messages);
    let messages = read_all(&vhost, &gateway, folder.path(), 4).await;
    let all: Vec<_> = messages.iter().map(summary).collect();
    assert_eq!(
        all,
        [
            "harvests/sfmui%3A45/: harvests/sfmui%3A45/ ADD - REQUESTED",
            "harvests/sfmui%3A45/: harvests/sfmui%3A45/ - REQUESTED RUNNING",
            "collections/c1/: warcs/aba6033a/ ADD - -",
            "harvests/sfmui%3A45/: harvests/sfmui%3A45/ - RUNNING COMPLETED_SUCCESS, seeds/s1/ UPDATE - -, \
             seeds/s2/ UPDATE - -",
        ]
    );
    let keys: Vec<_> = messages.iter().map(|message| message.routing_key.as_str()).collect();
    assert_eq!(keys, ["content.add.sfm", "content.state.sfm", "content.add.sfm", "content.mixed.sfm"]);
    let warc = Element::parse(std::str::from_utf8(&messages[2].data).unwrap());
    let entry = warc.one("entry").unwrap();
    let content = entry.one("content").unwrap();
    let place = "https://sfm.example.org/sfm-data/collection_set/cs1/c1/2026/07/28/11/aba6033a.warc.gz";
    assert_eq!((content.attribute("src"), content.attribute("type")), (Some(place), Some("application/warc")));
    assert_eq!(
        entry.link("http://www.w3.org/ns/prov#wasGeneratedBy"),
        Some(&*format!("{SFM}api/v1/harvests/sfmui%3A45/"))
    );

    let quarantine = gateway.json("/quarantine").await;
    let quarantined = &quarantine["messages"][0];
    let reason = quarantined["reason"].as_str().unwrap();
    assert!(quarantined["place"].as_str().unwrap().starts_with("line 1, column "), "{reason}");
    assert_eq!(
        index(&vhost, &gateway, folder.path(), 4, 3).await,
        [
            format!("index  {SFM}api/v1/warcs/aba6033a/ from {place}"),
            format!("index  {SFM}api/v1/seeds/s1/ from {SFM}api/v1/seeds/s1/"),
            format!("index  {SFM}api/v1/seeds/s2/ from {SFM}api/v1/seeds/s2/"),
        ]
    );
    assert_no_credentials(gateway, folder.path()).await;
}

#[tokio::test]
async fn harvest_stream_with_several_warcs_reaches_the_indexer() {
    crate::support::needs_sqlite();
    let (vhost, folder) = (Broker::shared().vhost(), tempfile::tempdir().unwrap());
    let gateway = gateway(folder.path(), &vhost.url());
    until_read(&gateway).await;
    let (id, kind) = ("b7d1c2a09c5e4d1f8a4a5f1d2f7e9a10", "twitter_filter");
    let seeds = json!([{"id": "s1", "token": {"track": "archives,libraries", "language": "en"}}]);
    let on = "harvest.status.twitter.twitter_filter.priority";
    let running = |tweets: u32, warcs: u32| {
        let totals =
            json!({"stats": {"2026-07-28": {"tweets": tweets}}, "warcs": {"count": warcs, "bytes": warcs * 26146}});
        (on, status(id, "running", totals))
    };
    let rotated = |warc_id: &str, minute: u32| {
        ("warc_created", warc(warc_id, id, kind, &format!("2026-07-28T11:{minute}:00.640178+00:00")))
    };
    let success = json!({
        "date_ended": "2026-07-28T12:17:42.539470+00:00", "warcs": {"count": 3, "bytes": 78438},
        "stats": {"2026-07-28": {"tweets": 3100}},
    });
    let begin = start(id, kind, &seeds);
    let cut = begin.to_string()[..begin.to_string().find("hush-hush-1").unwrap() + 11].to_owned();
    publish_as_sfm(
        &vhost.url(),
        &[
            ("harvest.start.twitter.twitter_filter.priority", begin),
            ("harvest.start.twitter.twitter_filter.priority", json!(cut)),
            running(0, 0),
            running(500, 0),
            rotated("w1", 20),
            running(1200, 1),
            rotated("w2", 40),
            running(2400, 2),
            ("harvest.stop.twitter.twitter_filter", json!({"id": id})),
            (on, status(id, "stopping", json!({}))),
            rotated("w3", 59),
            (on, status(id, "completed success", success)),
            // SFM requests a second stop for a stream that has failed.
            ("harvest.stop.twitter.twitter_filter", json!({"id": id})),
        ],
    );
    let all: Vec<_> = read_all(&vhost, &gateway, folder.path(), 7).await.iter().map(summary).collect();
    let harvest = format!("harvests/{id}/: harvests/{id}/");
    assert_eq!(
        all,
        [
            format!("{harvest} ADD - REQUESTED"),
            format!("{harvest} - REQUESTED RUNNING"),
            "collections/c/: warcs/w1/ ADD - -".to_owned(),
            "collections/c/: warcs/w2/ ADD - -".to_owned(),
            format!("{harvest} - RUNNING STOPPING"),
            "collections/c/: warcs/w3/ ADD - -".to_owned(),
            format!("{harvest} - STOPPING COMPLETED_SUCCESS"),
        ]
    );
    let indexed = index(&vhost, &gateway, folder.path(), 7, 3).await;
    let warc = |id| {
        format!("index  {SFM}api/v1/warcs/{id}/ from {SFM}sfm-data/collection_set/cs/c/2026/07/28/11/{id}.warc.gz")
    };
    assert_eq!(indexed, ["w1", "w2", "w3"].map(warc));
    assert_no_credentials(gateway, folder.path()).await;
}
