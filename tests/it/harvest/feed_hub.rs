//! Feeds whose WebSub hub reports their changes.

use std::{
    collections::BTreeMap,
    path::Path,
    time::{Duration, Instant},
};

use serde_json::Value;
use tidings::model::Seq;

use crate::support::{
    gateway::{Gateway, PATIENCE, free_address},
    journal_fixture::{configuration, journal_file, verify_ok},
    scripted_feed::{FeedFixture, item},
    subscription_fixture::{gateway, post},
    websub_fixture::LOCAL,
};

/// Returns an RSS feed that names the hub at `/hub`.
fn feed_with_hub(items: &[u32]) -> String {
    let items: String = items.iter().map(|number| item(*number, "Title")).collect();
    format!(
        "<rss version='2.0' xmlns:a='http://www.w3.org/2005/Atom'><channel><title>News</title>\
         <a:link rel='hub' href='/hub'/><a:link rel='self' href='https://feeds.example.org/news'/>{items}</channel></rss>"
    )
}

/// Waits until a harvest meets a condition, and returns it.
async fn wait_for_harvest(gateway: &Gateway, condition: impl Fn(&Value) -> bool) -> Value {
    let began = Instant::now();
    loop {
        let harvest = gateway.json("/harvests/other").await;
        if condition(&harvest) {
            return harvest;
        }
        assert!(began.elapsed() < PATIENCE, "{harvest}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn subscription_is_requested_once_and_again_at_another_hub() {
    let fixture = FeedFixture::start(&feed_with_hub(&[1])).await;
    fixture.put_status("/hub", 202, "");
    let run = fixture.complete().await;
    assert_eq!((run.counts.changes, run.reason), (1, None));
    let requests = std::mem::take(&mut fixture.script().requests);
    assert_eq!(requests.iter().map(|request| &*request.path).collect::<Vec<_>>(), ["/feed.xml", "/hub"]);
    let form: BTreeMap<String, String> =
        url::form_urlencoded::parse(requests[1].body.as_bytes()).into_owned().collect();
    assert_eq!((&*form["hub.mode"], &*form["hub.topic"]), ("subscribe", "https://feeds.example.org/news"));
    assert_eq!(form["hub.lease_seconds"], "864000");
    let token = form["hub.callback"].strip_prefix("http://gateway.example/harvests/scripted/notifications/").unwrap();
    assert_eq!(token.len(), 64);
    assert_eq!(fixture.position().await["subscription"]["token"], token);
    // Neither an unchanged feed nor a changed one requests it again so soon.
    fixture.complete().await;
    fixture.put(&feed_with_hub(&[2, 1]), None);
    assert_eq!(fixture.complete().await.counts.changes, 1);
    assert_eq!(fixture.take_paths(), ["/feed.xml", "/feed.xml"]);
    fixture.put(&feed_with_hub(&[3, 2]).replace("'/hub'", "'/other'"), None);
    fixture.put_status("/other", 400, "unknown topic");
    let run = fixture.complete().await;
    assert_eq!(run.counts.changes, 1);
    assert_eq!(fixture.take_paths(), ["/feed.xml", "/other"]);
    assert!(fixture.remarks().contains("the hub of the feed refuses a subscription"), "{}", fixture.remarks());
    assert!(fixture.remarks().contains("400 Bad Request: unknown topic"), "{}", fixture.remarks());
    assert_ne!(fixture.position().await["subscription"]["token"], token);
    assert_eq!(fixture.changes_after(Seq::ZERO).await.len(), 3);
}

#[tokio::test]
async fn hub_of_a_header_counts_first_and_internal_hosts_are_refused() {
    let fixture = FeedFixture::start(&feed_with_hub(&[1])).await;
    let links = "<http://192.0.2.1/hub>; rel=\"hub\", <http://feeds.example.org/x>; rel=\"self\"";
    fixture.script().documents.get_mut("/feed.xml").unwrap().headers = vec![("link", links.to_owned())];
    fixture.complete().await;
    assert_eq!(fixture.take_paths(), ["/feed.xml"]);
    assert!(fixture.remarks().contains("refuses a subscription"), "{}", fixture.remarks());
    assert_eq!(fixture.position().await["hub"]["topic"], "http://feeds.example.org/x");
}

#[tokio::test]
async fn hub_is_not_asked_without_need() {
    let mut fixture = FeedFixture::start(&feed_with_hub(&[1])).await;
    fixture.settings.websub = false;
    fixture.complete().await;
    assert_eq!(fixture.take_paths(), ["/feed.xml"]);
    fixture.settings.websub = true;
    fixture.put(&feed_with_hub(&[1]).replace("rel='hub'", "rel='x'"), None);
    fixture.complete().await;
    assert_eq!(fixture.take_paths(), ["/feed.xml"]);
}

/// Returns the token of the subscription that the harvest `other` has requested.
fn stored_token(data: &Path) -> String {
    let journal = rusqlite::Connection::open(journal_file(data)).unwrap();
    let sql = "SELECT position FROM harvests WHERE source = 'other'";
    let position: String = journal.query_row(sql, [], |row| row.get(0)).unwrap();
    let position: Value = serde_json::from_str(&position).unwrap();
    position["subscription"]["token"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn flood_of_notifications_begins_few_runs_and_loses_none() {
    crate::support::needs_sqlite();
    const GAP: u64 = 3;
    let [data, folder] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let other = gateway(data.path(), LOCAL);
    post(&other, 1).await;
    let address = free_address();
    let lines = format!(
        "[server]\npublic_url = \"http://{address}\"\n[sources.other]\ntransport = \"feed\"\n\
         dialect = \"feed\"\nurl = \"{}/feed\"\nevery = \"{GAP}s\"\n",
        other.url
    );
    let config = configuration(folder.path(), &lines);
    let copy = Gateway::start_elsewhere(folder.path(), &["--listen", &address, "--config", &config], None);
    wait_for_harvest(&copy, |harvest| harvest["lease"].is_string() && harvest["state"] == "waiting").await;
    let runs = |harvest: &Value| harvest["runs"].as_array().unwrap().len() as u64;
    let before = runs(&copy.json("/harvests/other").await);
    let place = format!("{}/harvests/other/notifications/{}", copy.url, stored_token(folder.path()));
    let began = Instant::now();
    for _ in 0..100 {
        assert_eq!(copy.http.post(&place).body("x").send().await.unwrap().status(), 202);
    }
    // The hub of the other gateway reports this change, too.
    post(&other, 2).await;
    while copy.changes().await.len() < 2 {
        assert!(began.elapsed() < PATIENCE, "{}", copy.json("/harvests/other").await);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let most = 2 + began.elapsed().as_secs() / GAP;
    let begun = runs(&copy.json("/harvests/other").await) - before;
    assert!(begun <= most, "{begun} runs by 101 notifications; at most {most} were expected");
}

#[tokio::test]
async fn hub_of_another_gateway_begins_runs() {
    crate::support::needs_sqlite();
    let [data, folder] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let other = gateway(data.path(), LOCAL);
    post(&other, 1).await;
    let address = free_address();
    let lines = format!(
        "[server]\npublic_url = \"http://{address}\"\n[sources.other]\ntransport = \"feed\"\n\
         dialect = \"feed\"\nurl = \"{}/feed\"\nevery = \"1s\"\n",
        other.url
    );
    let config = configuration(folder.path(), &lines);
    let arguments = ["--listen", &address, "--config", &config];
    let mut copy = Gateway::start_elsewhere(folder.path(), &arguments, None);
    let harvest = wait_for_harvest(&copy, |harvest| harvest["lease"].is_string()).await;
    let position: Value = serde_json::from_str(harvest["position"].as_str().unwrap()).unwrap();
    assert_eq!(position["subscription"]["token"], "(hidden)");
    let token = stored_token(folder.path());
    assert!(!harvest.to_string().contains(&token));
    assert_eq!(position["subscription"]["url"], format!("{}/hub", other.url));
    wait_for_harvest(&copy, |harvest| harvest["state"] == "waiting").await;
    for number in 2..5 {
        post(&other, number).await;
        wait_for_harvest(&copy, |harvest| harvest["run"]["changes"] == 1 && harvest["state"] == "waiting").await;
        let began = Instant::now();
        while copy.changes().await.len() < usize::try_from(number).unwrap() {
            assert!(began.elapsed() < PATIENCE, "{}", copy.json("/harvests/other").await);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    // The subscription survives.
    copy.kill();
    let copy = Gateway::start_elsewhere(folder.path(), &arguments, None);
    wait_for_harvest(&copy, |harvest| harvest["state"] == "waiting").await;
    post(&other, 5).await;
    let began = Instant::now();
    while copy.changes().await.len() < 5 {
        assert!(began.elapsed() < PATIENCE, "{}", copy.json("/harvests/other").await);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // Others can neither confirm nor notify.
    let place = |token: &str| format!("{}/harvests/other/notifications/{token}", copy.url);
    let ask = async |token: &str, query: &str| {
        let response = copy.http.get(format!("{}?{query}", place(token))).send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    };
    let topic = position["subscription"]["topic"].as_str().unwrap();
    let good = format!("hub.mode=subscribe&hub.topic={topic}&hub.challenge=abc&hub.lease_seconds=60");
    assert_eq!(ask(&token, &good).await, (200, "abc".to_owned()));
    for (token, query) in [
        ("0", good.clone()),
        (&token, good.replace(topic, "http://h.example/")),
        (&token, good.replace("=subscribe", "=unsubscribe")),
        (&token, String::new()),
    ] {
        assert_eq!(ask(token, &query).await.0, 404, "{query}");
    }
    assert_eq!(copy.http.post(place("0")).body("x").send().await.unwrap().status(), 404);
    let refused = copy.http.post(place("0").replace("other", "unknown")).body("x").send().await.unwrap();
    assert_eq!(refused.status(), 404);
    assert_eq!(ask(&token, "hub.mode=denied&hub.topic=x").await.0, 200);
    assert_eq!(copy.json("/harvests/other").await.get("lease"), None);
    assert!(copy.stop().success());
    verify_ok(&journal_file(folder.path()));
}
