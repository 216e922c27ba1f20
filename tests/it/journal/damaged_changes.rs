//! One damaged change costs only itself: pages, streams, feeds and deliveries end before it and name it, and its
//! readers can skip it.

use std::{path::Path, time::Duration};

use serde_json::{Value, json};
use tidings::{
    journal::store::{StoreError, StoreLimits},
    model::Seq,
};

use crate::support::{
    gateway::{Gateway, PATIENCE},
    http_receiver::{Receiver, Reply},
    journal_fixture::{OpenJournal, configuration, journal_file},
    tested_store::{append, every_tested_store},
    views_fixture::{ViewedGateway, token},
    webhook_fixture::webhook,
};

const DAMAGED: u64 = 130;
const COUNT: u64 = 250;

#[test]
fn page_of_every_store_ends_before_a_damaged_change() {
    every_tested_store(|folder, tested| {
        let store = (tested.open)(folder, StoreLimits::default());
        append(&*store, &(1..=9).collect::<Vec<_>>()).unwrap();
        (tested.query)(folder, "UPDATE changes SET json = replace(json, 'a', 'b') WHERE seq = 5 RETURNING 'done'");
        let after = |seq| {
            let page = store.after(Seq(seq), 100, usize::MAX)?;
            Ok(page.unwrap().iter().map(|change| change.seq.0).collect::<Vec<_>>())
        };
        let before = |seq| {
            let page = store.before(Seq(seq), 100, usize::MAX)?;
            Ok(page.iter().map(|change| change.seq.0).collect::<Vec<_>>())
        };
        let is_named = |page: Result<Vec<u64>, StoreError>| match page {
            Err(error @ StoreError::DamagedChange { seq: Seq(5), .. }) => !error.is_transient(),
            _ => false,
        };
        assert_eq!(after(0).unwrap(), [1, 2, 3, 4], "{}", tested.name);
        assert!(is_named(after(4)));
        assert_eq!(after(5).unwrap(), [6, 7, 8, 9], "{}", tested.name);
        assert_eq!(before(100).unwrap(), [9, 8, 7, 6], "{}", tested.name);
        assert!(is_named(before(6)));
        assert_eq!(before(5).unwrap(), [4, 3, 2, 1], "{}", tested.name);
    });
}

#[tokio::test]
async fn damaged_object_ends_a_page_of_the_registry_and_is_named() {
    crate::support::needs_sqlite();
    let folder = tempfile::tempdir().unwrap();
    let opened = OpenJournal::at(folder.path());
    opened.append(1..=COUNT).await;
    opened.close();
    let gateway = Gateway::start(folder.path());
    let uris = |page: &Value| {
        let objects = page["objects"].as_array().unwrap();
        objects.iter().map(|object| object["uri"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let all = uris(&gateway.json("/snapshot?limit=1000").await);
    assert_eq!(all.len(), 100);
    let damage = |sql: &str, at: usize| {
        let journal = rusqlite::Connection::open(journal_file(folder.path())).unwrap();
        assert!(journal.execute(sql, [&all[at]]).unwrap() > 0);
    };
    let items = "(SELECT object FROM objects WHERE uri = ?)";
    damage("UPDATE objects SET types = 'damaged' WHERE uri = ?", 20);
    damage(&format!("UPDATE items SET content = 'damaged', content_at = 7 WHERE object = {items}"), 50);
    damage(&format!("UPDATE items SET existence = 'damaged' WHERE object = {items}"), 70);
    let mut after = String::new();
    let parameter = |after: &str| if after.is_empty() { String::new() } else { format!("&after={after}") };
    for (from, damaged) in [(0, 20), (21, 50), (51, 70)] {
        let page = gateway.json(&format!("/snapshot?limit=1000{}", parameter(&after))).await;
        assert_eq!(uris(&page), all[from..damaged], "{damaged}");
        assert_eq!(page["next"], all[damaged - 1]);
        let (status, body) = get(&gateway, &format!("/snapshot?limit=1000&after={}", all[damaged - 1])).await;
        let problem: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((status, &problem["type"]), (500, &json!("urn:tidings:problem:damaged-object")), "{body}");
        assert_eq!(problem["object"], all[damaged]);
        after.clone_from(&all[damaged]);
    }
    let page = gateway.json(&format!("/snapshot?limit=1000{}", parameter(&after))).await;
    assert_eq!(uris(&page), all[71..]);
}

/// A damaged object is no obstacle for readers of whom nobody knows that they may see it, and a prefix leads past it.
#[tokio::test]
async fn damaged_object_is_passed_for_readers_of_other_objects() {
    crate::support::needs_sqlite();
    let more = token("tenant", "read", "view = { objects = [\"http://h/tenant/\"] }")
        + &token("guest", "read", "view = { public = true }")
        + "[access.public]\nsurfaces = [\"snapshot\"]\n";
    let gateway = ViewedGateway::start(&more);
    for (object, state) in [("a", "INACTIVE"), ("b", "ACTIVE"), ("tenant/1", "ACTIVE"), ("tenant/2", "INACTIVE")] {
        let uri = format!("http://h/{object}");
        let item = json!({ "uri": uri, "change": "ADD", "stateAfter": state });
        gateway.post(&json!({ "object": uri, "items": [item] })).await;
    }
    let damage = |object: &str| {
        let journal = rusqlite::Connection::open(journal_file(&gateway.folder.path().join("data"))).unwrap();
        assert_eq!(journal.execute("UPDATE objects SET types = 'damaged' WHERE uri = ?", [object]).unwrap(), 1);
    };
    damage("http://h/a");
    let digests = "/registry/digests";
    for (path, token, expected) in [
        ("/snapshot", None, vec!["http://h/b", "http://h/tenant/1"]),
        ("/snapshot", Some("guest"), vec!["http://h/b", "http://h/tenant/1"]),
        ("/snapshot", Some("tenant"), vec!["http://h/tenant/1", "http://h/tenant/2"]),
        (digests, Some("tenant"), vec!["http://h/tenant/1", "http://h/tenant/2"]),
        (
            "/registry/digests?object=http://h/tenant/&object=http://h/b",
            Some("reader"),
            vec!["http://h/b", "http://h/tenant/1", "http://h/tenant/2"],
        ),
    ] {
        let page = gateway.get(path, token).await.json();
        let objects = page["objects"].as_array().or_else(|| page["ranges"][0]["objects"].as_array()).unwrap();
        let uris: Vec<_> = objects.iter().map(|object| object["uri"].as_str().unwrap()).collect();
        assert_eq!(uris, expected, "{path} {token:?}");
    }
    for path in ["/snapshot", digests] {
        let answer = gateway.get(path, Some("reader")).await;
        assert!(answer.status == 500 && answer.body.contains("http://h/a"), "{path}: {}", answer.everything);
    }
    // Digests without the object would call it extra at every mirror. Its name is no business of the public.
    let answer = gateway.get(digests, Some("guest")).await;
    assert!(answer.status == 500 && answer.body.contains("damaged-object"), "{}", answer.everything);
    assert!(!answer.everything.contains("http://h/a"), "{}", answer.everything);
    // The reader of a part learns which object of the part is damaged, and continues after it.
    damage("http://h/tenant/1");
    let answer = gateway.get("/snapshot", Some("tenant")).await;
    assert!(answer.status == 500 && answer.body.contains("http://h/tenant/1"), "{}", answer.everything);
    let rest = gateway.get("/snapshot?after=http://h/tenant/1", Some("tenant")).await.json();
    assert_eq!(rest["objects"][0]["uri"], "http://h/tenant/2");
}

/// Creates a journal with a damaged change.
async fn damaged_journal(data: &Path) {
    let opened = OpenJournal::at(data);
    opened.append(1..=COUNT).await;
    opened.close();
    let journal = rusqlite::Connection::open(journal_file(data)).unwrap();
    let sql = "UPDATE changes SET json = replace(json, 'localhost', 'elsewhere') WHERE seq = ?";
    assert_eq!(journal.execute(sql, [DAMAGED.cast_signed()]).unwrap(), 1);
}

async fn get(gateway: &Gateway, path: &str) -> (u16, String) {
    let answer = gateway.http.get(format!("{}{path}", gateway.url)).send().await.unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap())
}

fn assert_problem((status, body): (u16, String)) {
    let problem: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &problem["type"]), (500, &json!("urn:tidings:problem:damaged-change")), "{body}");
    assert_eq!(problem["seq"], DAMAGED);
    assert!(problem["detail"].as_str().unwrap().contains(&format!("/changes?after={DAMAGED}")), "{body}");
}

#[tokio::test]
async fn views_end_before_a_damaged_change_and_continue_after_it() {
    crate::support::needs_sqlite();
    let folder = tempfile::tempdir().unwrap();
    damaged_journal(folder.path()).await;
    let gateway = Gateway::start(folder.path());
    let numbers = |page: &Value| {
        page["changes"].as_array().unwrap().iter().map(|change| change["seq"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    let page = gateway.json("/changes?after=0&limit=1000").await;
    assert_eq!((numbers(&page), &page["next"]), ((1..DAMAGED).collect(), &json!(DAMAGED - 1)));
    assert_problem(get(&gateway, &format!("/changes?after={}&limit=1000", DAMAGED - 1)).await);
    let page = gateway.json(&format!("/changes?after={DAMAGED}&limit=1000")).await;
    assert_eq!(numbers(&page), (DAMAGED + 1..=COUNT).collect::<Vec<_>>());

    let (status, events) = get(&gateway, "/stream?after=0").await;
    let last = events.lines().filter_map(|line| line.strip_prefix("id: ")?.parse::<u64>().ok()).max();
    assert_eq!((status, last), (200, Some(DAMAGED - 1)), "the stream ends before the damaged change");
    assert_problem(get(&gateway, &format!("/stream?after={}", DAMAGED - 1)).await);

    let entries = |feed: &str| feed.matches("<entry").count() as u64;
    let (status, feed) = get(&gateway, "/feed").await;
    assert_eq!((status, entries(&feed)), (200, COUNT - DAMAGED), "the feed ends before the damaged change");
    assert!(!feed.contains("prev-archive") && feed.contains(&format!("/feed?before={}", DAMAGED + 1)), "{feed}");
    assert_problem(get(&gateway, &format!("/feed?before={}", DAMAGED + 1)).await);
    let (status, feed) = get(&gateway, &format!("/feed?before={DAMAGED}&limit=1000")).await;
    assert_eq!((status, entries(&feed)), (200, DAMAGED - 1));
    let (status, feed) = get(&gateway, "/feed?limit=1000").await;
    assert_eq!((status, entries(&feed)), (200, COUNT - DAMAGED));
    assert!(feed.contains(&format!("before={}", DAMAGED + 1)), "{feed}");
    // The other archive page is intact.
    assert_eq!(get(&gateway, "/feed/archive/1").await.0, 200);
    assert_eq!(get(&gateway, "/snapshot").await.0, 200);
}

#[tokio::test]
async fn delivery_ends_before_a_damaged_change_and_names_it() {
    crate::support::needs_sqlite();
    let folder = tempfile::tempdir().unwrap();
    damaged_journal(&folder.path().join("data")).await;
    let receiver = Receiver::start(|_, _| Reply::of(204)).await;
    let lines = "[journal]\ntail_changes = 5\n".to_owned()
        + &webhook("single", &receiver.url(), "")
        + &webhook("batches", &format!("{}batches", receiver.url()), "max_batch = 100");
    let config = configuration(folder.path(), &lines);
    let gateway = Gateway::start_with(&folder.path().join("data"), &["--config", &config]);
    let delivered = |path: &str| {
        let requests = receiver.requests();
        let bodies = requests.iter().filter(|request| request.path.ends_with("batches") == (path == "batches"));
        let changes = bodies.flat_map(|request| match request.json()["changes"].as_array() {
            Some(changes) => changes.clone(),
            None => vec![request.json()],
        });
        changes.map(|change| change["seq"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    for name in ["single", "batches"] {
        let began = std::time::Instant::now();
        loop {
            let shown = gateway.json(&format!("/subscriptions/{name}")).await;
            let error = shown["lastError"]["reason"].as_str().unwrap_or_default().to_owned();
            if shown["state"] == "retrying" && error.contains(&format!("change {DAMAGED} is damaged")) {
                break;
            }
            assert!(began.elapsed() < PATIENCE, "{shown}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(delivered(name), (1..DAMAGED).collect::<Vec<_>>(), "{name}");
    }
    let ready = gateway.json("/readyz").await;
    assert_eq!((&ready["status"], ready["subscriptions"].as_array().unwrap().len()), (&json!("degraded"), 2));
    assert_eq!(gateway.json("/subscriptions").await["subscriptions"].as_array().unwrap().len(), 2);
    for name in ["single", "batches"] {
        let url = format!("{}/subscriptions/{name}/rewind", gateway.url);
        let answer = gateway.http.post(url).json(&json!({ "to": DAMAGED + 1 })).send().await.unwrap();
        assert!(answer.status().is_success(), "{}", answer.text().await.unwrap());
        let began = std::time::Instant::now();
        while delivered(name).len() as u64 != COUNT - 1 {
            assert!(began.elapsed() < PATIENCE, "{name}: {:?}", delivered(name).last());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(delivered(name)[usize::try_from(DAMAGED).unwrap() - 1], DAMAGED + 1);
    }
}
