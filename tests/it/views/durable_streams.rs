//! The journal by the protocol Durable Streams: its rules, its client libraries, and a cache in front.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    path::Path,
    process::{Child, Command, Stdio},
    time::Instant,
};

use futures_util::{StreamExt, stream};
use reqwest::{Method, Response};
use serde_json::Value;

use crate::support::{
    broker_process::free_ports,
    gateway::{Gateway, PATIENCE, free_address},
    nginx::Nginx,
    printed_lines::printed_lines,
    python,
    subscription_fixture::{gateway, post},
};

const PATH: &str = "/streams/changes";

/// Posts changes with these numbers, many at once.
async fn post_all(gateway: &Gateway, numbers: std::ops::RangeInclusive<u64>) {
    stream::iter(numbers).for_each_concurrent(32, |number| post(gateway, number)).await;
}

async fn get(gateway: &Gateway, query: &str) -> Response {
    gateway.http.get(format!("{}{PATH}?{query}", gateway.url)).send().await.unwrap()
}

fn header(response: &Response, name: &str) -> Option<String> {
    response.headers().get(name).map(|value| value.to_str().unwrap().to_owned())
}

/// Returns the numbers of the changes of a response.
async fn numbers(response: Response) -> Vec<u64> {
    let text = response.text().await.unwrap();
    let changes: Vec<Value> = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    changes.iter().map(|change| change["seq"].as_u64().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_are_aligned_and_those_in_history_are_fixed() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "");
    post_all(&gateway, 1..=2500).await;
    let (mut offset, mut all, mut ends) = ("-1".to_owned(), Vec::new(), Vec::new());
    loop {
        let page = get(&gateway, &format!("offset={offset}")).await;
        assert_eq!(page.status(), 200);
        let (next, cache) = (header(&page, "stream-next-offset").unwrap(), header(&page, "cache-control").unwrap());
        let is_end = page.headers().contains_key("stream-up-to-date");
        let expected = match (is_end, offset.as_str()) {
            (true, _) => "public, max-age=1",
            (false, "-1") => "public, max-age=60",
            (false, _) => "public, max-age=31536000, immutable",
        };
        assert_eq!(cache, expected, "{offset}");
        assert_eq!(header(&page, "stream-cursor"), None, "clients would carry it into the URLs of all following pages");
        assert!(next.len() == 29 && next > offset.replace("-1", ""), "{next} sorts after {offset}");
        // The same page again, with its tag.
        let tag = header(&page, "etag").unwrap();
        let again = gateway.http.get(page.url().clone()).header("if-none-match", &tag).send().await.unwrap();
        assert_eq!((again.status().as_u16(), header(&again, "stream-next-offset").as_ref()), (304, Some(&next)));
        all.extend(numbers(page).await);
        ends.push(*all.last().unwrap());
        offset = next;
        if is_end {
            break;
        }
    }
    assert_eq!(all, (1..=2500).collect::<Vec<_>>());
    assert_eq!(ends, [1000, 2000, 2500]);
    // A reader that begins elsewhere comes to the same pages.
    let middle = format!("{:020}{}", 317, &offset[20..]);
    assert_eq!(numbers(get(&gateway, &format!("offset={middle}")).await).await, (318..=1000).collect::<Vec<_>>());
    // A page that ends at the head is another one when the next change comes, because a cache would keep its header.
    post_all(&gateway, 2501..=3000).await;
    let last = get(&gateway, &format!("offset={:020}{}", 2000, &offset[20..])).await;
    assert_eq!(header(&last, "cache-control").unwrap(), "public, max-age=1");
    let tag = header(&last, "etag").unwrap();
    post(&gateway, 3001).await;
    let last = gateway.http.get(last.url().clone()).header("if-none-match", &tag).send().await.unwrap();
    assert_eq!(
        (last.status().as_u16(), header(&last, "cache-control").as_deref()),
        (200, Some("public, max-age=31536000, immutable"))
    );
    assert!(!last.headers().contains_key("stream-up-to-date"));

    let now = get(&gateway, "offset=now").await;
    assert_eq!(header(&now, "stream-next-offset").unwrap()[..20], format!("{:020}", 3001));
    assert_eq!((header(&now, "stream-up-to-date").as_deref(), numbers(now).await), (Some("true"), vec![]));
    let filtered = get(&gateway, "object=http://h.example/objects/77").await;
    assert_eq!(numbers(filtered).await.len(), 11, "77 and 770 to 779");
}

/// Returns the offset with the identity of another journal.
fn other_journal(offset: &str) -> String {
    let (number, journal) = offset.split_at(21);
    let other: String = journal.chars().map(|digit| if digit == '0' { '1' } else { '0' }).collect();
    format!("{number}{other}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_requests_are_refused_as_the_protocol_says() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "");
    post(&gateway, 1).await;
    let next = header(&get(&gateway, "").await, "stream-next-offset").unwrap();
    for (query, status) in [
        ("offset=0", 400),
        ("offset=7_zz", 400),
        ("offset=-1&live=perhaps", 400),
        ("live=long-poll", 400),
        ("live=sse", 400),
        (&format!("offset={}", next.replacen("01_", "02_", 1)), 410),
        (&format!("offset={}", other_journal(&next)), 410),
    ] {
        let refused = get(&gateway, query).await;
        assert_eq!(refused.status(), status, "{query}");
        assert_eq!(header(&refused, "content-type").unwrap(), "application/problem+json", "{query}");
    }
    let url = format!("{}{PATH}", gateway.url);
    for method in [Method::PUT, Method::POST, Method::DELETE] {
        let refused = gateway.http.request(method.clone(), &url).body("[]").send().await.unwrap();
        assert_eq!(refused.status(), 405, "{method}");
        assert!(header(&refused, "allow").unwrap().contains("GET"), "{method}");
    }
    let head = gateway.http.head(&url).send().await.unwrap();
    assert_eq!((head.status().as_u16(), header(&head, "stream-next-offset")), (200, Some(next)));
    assert_eq!(header(&head, "cache-control").unwrap(), "no-store");
    assert!(header(&head, "content-type").unwrap().starts_with("application/json"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_poll_waits_for_a_change_and_ends_without_one() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "[limits]\nwait_seconds = 1\nrequest_seconds = 1\n");
    post(&gateway, 1).await;
    let next = header(&get(&gateway, "").await, "stream-next-offset").unwrap();
    let empty = get(&gateway, &format!("offset={next}&live=long-poll")).await;
    assert_eq!((empty.status().as_u16(), header(&empty, "stream-next-offset").as_ref()), (204, Some(&next)));
    assert_eq!(header(&empty, "stream-up-to-date").as_deref(), Some("true"));
    assert_eq!(header(&empty, "cache-control").as_deref(), Some("public, max-age=1"));
    let cursor: u64 = header(&empty, "stream-cursor").unwrap().parse().unwrap();
    let since = u64::try_from(chrono::Utc::now().timestamp()).unwrap() - 1_728_432_000;
    assert!(since / 20 - cursor <= 1, "{cursor}");
    // A wait that is shorter than an interval has another cursor, so that no cache repeats the response.
    let again = get(&gateway, &format!("offset={next}&live=long-poll&cursor={}", cursor + 7)).await;
    assert_eq!(header(&again, "stream-cursor"), Some((cursor + 8).to_string()));
    let (url, http) =
        (format!("{}{PATH}?offset=now&live=long-poll&cursor={cursor}", gateway.url), gateway.http.clone());
    let poll = tokio::spawn(async move {
        loop {
            let response = http.get(&url).send().await.unwrap();
            if response.status() == 200 {
                return response;
            }
        }
    });
    gateway.until_metric("tidings_open_streams{kind=\"poll\"} 1").await;
    post(&gateway, 2).await;
    let response = poll.await.unwrap();
    assert_eq!(header(&response, "cache-control").as_deref(), Some("public, max-age=1"), "now is another place soon");
    assert!(response.headers().contains_key("stream-cursor"));
    assert_eq!(numbers(response).await, [2]);
}

/// A client library that follows the stream, with its output in a file.
struct Reader {
    child: Child,
    output: tempfile::TempDir,
}

impl Reader {
    fn start(mut command: Command, extension: &str, arguments: &[&str]) -> Self {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let output = tempfile::tempdir().unwrap();
        let out = File::create(output.path().join("out")).unwrap();
        command.arg(here.join("tests/it/support/durable_stream_reader").with_extension(extension)).args(arguments);
        Self { child: command.stdin(Stdio::null()).stdout(out).spawn().unwrap(), output }
    }

    fn node(arguments: &[&str]) -> Self {
        let mut node = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/node"));
        node.arg("@durable-streams/client@0.2.7");
        Self::start(node, "js", arguments)
    }

    fn python(arguments: &[&str]) -> Self {
        Self::start(Command::new(python::environment("durable-streams")), "py", arguments)
    }

    /// Waits until the reader has that many changes, and returns their numbers in the order in which they came.
    async fn until(&mut self, changes: usize) -> Vec<u64> {
        let began = Instant::now();
        loop {
            let lines = printed_lines(&self.output.path().join("out"));
            let batches: Vec<Vec<u64>> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
            let numbers = batches.concat();
            if numbers.len() >= changes {
                return numbers;
            }
            assert!(self.child.try_wait().unwrap().is_none(), "it has ended");
            assert!(began.elapsed() < 2 * PATIENCE, "{} of {changes}", numbers.len());
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }

    /// Waits until the reader has the change with a number. Returns the numbers without repeats: a connection that ends between the
    /// changes and the offset after them brings them again.
    async fn until_number(&mut self, number: u64) -> Vec<u64> {
        let mut changes = 1;
        loop {
            let numbers = self.until(changes).await;
            if numbers.contains(&number) {
                let mut once: Vec<u64> = Vec::new();
                for number in numbers {
                    if once.last().is_none_or(|newest| number > *newest) {
                        once.push(number);
                    }
                }
                return once;
            }
            changes = numbers.len() + 1;
        }
    }

    /// Waits until the reader says that its offset is gone.
    async fn until_gone(&mut self) {
        let began = Instant::now();
        while fs::read_to_string(self.output.path().join("out")).unwrap() != "gone\n" {
            assert!(began.elapsed() < PATIENCE);
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_libraries_read_all_changes_in_order_through_a_kill() {
    let data = tempfile::tempdir().unwrap();
    let address = free_address();
    let start = || Gateway::start_elsewhere(data.path(), &["--listen", &address], None);
    let mut gateway = start();
    post_all(&gateway, 1..=2100).await;
    let url = format!("http://{address}{PATH}");
    let mut readers = [
        Reader::node(&[&url, "-1", "true"]),
        Reader::node(&[&url, "-1", "sse"]),
        Reader::python(&[&url, "-1", "auto"]),
        Reader::python(&[&url, "-1", "sse"]),
    ];
    for reader in &mut readers {
        reader.until(2100).await;
    }
    post_all(&gateway, 2101..=2150).await;
    gateway.kill();
    gateway = start();
    post_all(&gateway, 2151..=2200).await;
    for reader in &mut readers {
        assert_eq!(reader.until_number(2200).await, (1..=2200).collect::<Vec<_>>());
    }
    // An offset that the journal never had.
    let next = header(&get(&gateway, "offset=now").await, "stream-next-offset").unwrap();
    let lost = next.replacen("02200_", "09999_", 1);
    Reader::node(&[&url, &lost, "true"]).until_gone().await;
    Reader::python(&[&url, &lost, "auto"]).until_gone().await;
}

/// The lines of the documentation make one request of those of many readers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cache_reads_each_page_once_and_waits_once_for_all_readers() {
    let (data, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let gateway = gateway(data.path(), "");
    post_all(&gateway, 1..=3100).await;
    let [port] = free_ports();
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/durable-streams.md")).unwrap();
    let lines = page.split_once("```nginx\n").unwrap().1.split_once("```").unwrap().0.to_owned();
    let cache = folder.path().join("cache");
    let lines = lines.replace("http://127.0.0.1:8395", &gateway.url);
    let lines = lines.replace("/var/cache/nginx/tidings", cache.to_str().unwrap());
    let (settings, location) = lines.split_once("location").unwrap();
    let http = format!("{settings}\nserver {{\nlisten 127.0.0.1:{port};\nlocation{location}\n}}");
    let _nginx = Nginx::start(folder.path(), &http, port);
    let requests = async || -> u64 {
        let metrics = gateway.http.get(format!("{}/metrics", gateway.url)).send().await.unwrap().text().await.unwrap();
        let lines = metrics.lines().filter(|line| line.starts_with("tidings_http_requests_total{"));
        let of_stream = lines.filter(|line| line.contains("route=\"/streams/changes\""));
        of_stream.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
    };
    let url = format!("http://127.0.0.1:{port}{PATH}");
    let read = async |http: reqwest::Client| {
        let (mut offset, mut all) = ("-1".to_owned(), Vec::new());
        loop {
            let page = http.get(format!("{url}?offset={offset}")).send().await.unwrap();
            offset = header(&page, "stream-next-offset").unwrap();
            let is_end = page.headers().contains_key("stream-up-to-date");
            all.extend(numbers(page).await);
            if is_end {
                return (offset, all);
            }
        }
    };
    let readers =
        stream::iter(0..100).map(|_| read(gateway.http.clone())).buffer_unordered(25).collect::<Vec<_>>().await;
    assert!(readers.iter().all(|(_, all)| *all == (1..=3100).collect::<Vec<_>>()));
    let offsets: BTreeSet<_> = readers.into_iter().map(|(offset, _)| offset).collect();
    assert_eq!(offsets.len(), 1);
    // Three pages in history; the tail is read again once a second.
    let before = requests().await;
    assert!(before < 100, "{before} requests of 400");

    let poll = format!("{url}?offset={}&live=long-poll", offsets.first().unwrap());
    let polls: Vec<_> = (0..100)
        .map(|_| {
            let (http, poll) = (gateway.http.clone(), poll.clone());
            tokio::spawn(async move { numbers(http.get(poll).send().await.unwrap()).await })
        })
        .collect();
    gateway.until_metric("tidings_open_streams{kind=\"poll\"} 1").await;
    post(&gateway, 3101).await;
    for poll in polls {
        assert_eq!(poll.await.unwrap(), [3101]);
    }
    let polled = requests().await - before;
    assert!(polled <= 2, "{polled} requests of 100");
}

/// Changes that the filter excludes come all the time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_poll_with_a_filter_ends_on_a_busy_journal() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "[limits]\nwait_seconds = 2\n");
    post(&gateway, 1).await;
    let before = header(&get(&gateway, "offset=now").await, "stream-next-offset").unwrap();
    let poll = tokio::spawn({
        let query = format!("offset={before}&live=long-poll&object=http://h.example/other/");
        let request = gateway.http.get(format!("{}{PATH}?{query}", gateway.url));
        async move { request.send().await.unwrap() }
    });
    let mut number = 1;
    while !poll.is_finished() {
        number += 1;
        post(&gateway, number).await;
    }
    let response = poll.await.unwrap();
    assert!(response.status() == 204 || response.status() == 200, "{}", response.status());
    assert!(header(&response, "stream-next-offset").unwrap() > before, "what was examined is not examined again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_have_the_changes_and_the_position_after_them() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "[limits]\nstream_seconds = 2\n");
    post_all(&gateway, 1..=1002).await;
    let response = get(&gateway, "offset=-1&live=sse").await;
    assert_eq!(header(&response, "cache-control").as_deref(), Some("no-cache"));
    let text = response.text().await.unwrap();
    let events: Vec<_> = text.split("\n\n").filter(|event| !event.is_empty()).collect();
    let data = |event: &str| -> Value { serde_json::from_str(event.split_once("\ndata: ").unwrap().1).unwrap() };
    let [first, of_first, second, of_second] = events.as_slice() else { panic!("{} events", events.len()) };
    assert!(first.starts_with("event: data\n") && of_first.starts_with("event: control\n"));
    assert_eq!([first, second].map(|event| data(event).as_array().unwrap().len()), [1000, 2]);
    assert_eq!(data(of_first)["upToDate"], Value::Null);
    assert_eq!(data(of_second)["upToDate"], true);
    let next = header(&get(&gateway, "offset=now").await, "stream-next-offset").unwrap();
    assert_eq!(data(of_second)["streamNextOffset"], next);
}
