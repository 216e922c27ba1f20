//! The target as others see it: introspection, tools of the bus, views and metrics.

use serde_json::json;

use crate::support::xesam_fixture::{NAME, TARGET, Target, until};

const INTERFACE: &str = "org.freedesktop.xesam.pmh.Target";

#[tokio::test]
async fn introspection_has_the_interface_of_the_draft() {
    let target = Target::start().await;
    let xml = target.bus.run("gdbus", &["introspect", "--session", "--dest", NAME, "--object-path", TARGET, "--xml"]);
    let start = xml.find(&format!("<interface name=\"{INTERFACE}\">")).unwrap();
    let end = start + xml[start..].find("</interface>").unwrap();
    let lines: Vec<_> = xml[start..end].lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    assert_eq!(
        lines,
        [
            r#"<interface name="org.freedesktop.xesam.pmh.Target">"#,
            r#"<method name="ListRecords">"#,
            r#"<arg name="mtime" type="t" direction="in"/>"#,
            r#"<arg name="fields" type="as" direction="in"/>"#,
            r#"<arg name="content_cats" type="as" direction="in"/>"#,
            r#"<arg name="source_cats" type="as" direction="in"/>"#,
            r#"<arg name="max_batch_size" type="u" direction="in"/>"#,
            r#"<arg name="crawler" type="o" direction="in"/>"#,
            r#"<arg name="incremental" type="b" direction="out"/>"#,
            "</method>",
        ]
    );
    let interfaces: Vec<_> = xml.match_indices("<interface name=").collect();
    assert_eq!(interfaces.len(), 4, "and those of every object: {xml}");
}

#[tokio::test]
async fn tools_of_the_bus_can_call_the_target() {
    let target = Target::start().await;
    target.add(1).await;
    let listed = target.bus.run("busctl", &["--user", "introspect", NAME, TARGET, INTERFACE]);
    assert!(listed.lines().any(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        words[..4] == [".ListRecords", "method", "tasasasuo", "b"]
    }));
    let call = |mtime: &str| {
        let arguments =
            ["--user", "call", NAME, TARGET, INTERFACE, "ListRecords", "tasasasuo", mtime, "0", "0", "0", "10", "/c/1"];
        target.bus.run("busctl", &arguments)
    };
    assert_eq!(call("0"), "b false\n");
    assert_eq!(call("1"), "b true\n");
    let method = format!("{INTERFACE}.ListRecords");
    let arguments = ["call", "--session", "--dest", NAME, "--object-path", TARGET, "--method", &method];
    let answer =
        target.bus.run("gdbus", &[&arguments[..], &["1", "@as []", "@as []", "@as []", "10", "/c/1"]].concat());
    assert_eq!(answer, "(true,)\n");
    target.until_crawlers(0).await;
}

#[tokio::test]
async fn crawlers_are_shown_counted_and_invalidated() {
    let target = Target::start().await;
    target.add(1).await;
    let view = target.view().await;
    assert_eq!((&view["name"], &view["path"], &view["crawlers"]), (&json!(NAME), &json!(TARGET), &json!([])));
    let mut crawler = target.crawler(1, 0);
    crawler.until_records(1).await;
    until("the record is counted", async || target.crawlers().await[0]["records"] == 1).await;
    until("it waits for changes", async || target.crawlers().await[0]["state"] == "current").await;
    let listed = target.crawlers().await.remove(0);
    let expected = json!({
        "id": 1, "owner": crawler.owner().await, "path": "/crawler", "state": "current", "since": "1970-01-01T00:00:01.000Z",
        "incremental": true, "position": 1, "lag": { "changes": 0, "seconds": 0.0 }, "batches": 1, "records": 1
    });
    assert_eq!(listed, expected);
    let metrics = async || {
        target.gateway.http.get(format!("{}/metrics", target.gateway.url)).send().await.unwrap().text().await.unwrap()
    };
    until("the gauges are set", async || metrics().await.contains("tidings_xesam_crawlers{state=\"current\"} 1")).await;
    let text = metrics().await;
    for line in [
        "tidings_xesam_records_total 1",
        "tidings_xesam_batches_total 1",
        "tidings_xesam_requests_total{outcome=\"incremental\"} 1",
        "tidings_xesam_pages_total{of=\"journal\"} 1",
        "tidings_xesam_unanswered_crawlers 0",
        "tidings_connection_state_info{connection=\"dbus\",state=\"connected\"} 1",
    ] {
        assert!(text.lines().any(|other| other == line), "{line} is not in\n{text}");
    }
    let invalidate = async |id: u64, body: &str| {
        let url = format!("{}/crawlers/{id}/invalidate", target.gateway.url);
        target.gateway.http.post(url).body(body.to_owned()).send().await.unwrap().status().as_u16()
    };
    assert_eq!(invalidate(2, "").await, 404);
    assert_eq!(invalidate(1, "no").await, 400);
    assert_eq!(invalidate(1, r#"{"reason":"a\u0000b"}"#).await, 204);
    assert_eq!(crawler.until_event("Invalidate").await["text"], "a\u{fffd}b");
    target.until_crawlers(0).await;
    assert_eq!(invalidate(1, "").await, 404);
    target.add(2).await;
    let later = target.crawler(1, 0);
    later.until_records(2).await;
    assert_eq!(crawler.count(), 1, "an invalidated crawler gets no more records");
    // The signal `Invalidated` that it has emitted since does not concern the crawler that it installs now.
    crawler.tell("install");
    crawler.until_records(3).await;
    target.until_crawlers(2).await;
}

#[tokio::test]
async fn crawlers_share_the_reads_of_the_journal() {
    let target = Target::start().await;
    for number in 0..300 {
        target.add(number).await;
    }
    let pages = async || {
        let text = target
            .gateway
            .http
            .get(format!("{}/metrics", target.gateway.url))
            .send()
            .await
            .unwrap()
            .text()
            .await
            .unwrap();
        let line = text.lines().find(|line| line.starts_with("tidings_xesam_pages_total{of=\"journal\"}"));
        line.map_or(0, |line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
    };
    let post_and_wait = async |crawlers: &[crate::support::xesam_fixture::Crawler], numbers: std::ops::Range<usize>| {
        for number in numbers.clone() {
            target.add(number).await;
        }
        for crawler in crawlers {
            crawler.until_records(numbers.end).await;
        }
    };
    let mut crawlers = vec![target.crawler(1, 0)];
    crawlers[0].until_records(300).await;
    let before = pages().await;
    post_and_wait(&crawlers, 300..500).await;
    let of_one = pages().await - before;
    crawlers.extend((0..9).map(|_| target.crawler(1, 0)));
    for crawler in &crawlers {
        crawler.until_records(500).await;
    }
    let before = pages().await;
    post_and_wait(&crawlers, 500..700).await;
    let of_ten = pages().await - before;
    assert!(of_ten * 10 <= of_one.max(200) * 12, "one crawler reads {of_one} pages, and ten read {of_ten}");
}
