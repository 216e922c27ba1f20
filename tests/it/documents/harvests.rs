//! Pages of OAI-PMH repositories, feeds and other gateways, each harvested from eight hosts at once.

use serde_json::{Value, json};
use wiremock::{Mock, MockServer, Request, ResponseTemplate, matchers::any};

use super::{gzip, many, watch};
use crate::support::resource_watch::WatchedGateway;

/// Number of harvests at work, each from a host of its own, because a host gets one request at a time.
const HARVESTS: usize = 8;

/// Number of harvests of a document of which 20 000 records are written.
const FEW_HARVESTS: usize = 2;

/// What a harvest must do with a document.
#[derive(Clone, Copy)]
enum Outcome {
    /// Refuse it, for a reason that contains this text.
    Refused(&'static str),
    /// Refuse its end, for a reason that contains this text, after thousands of records were read.
    Cut(&'static str),
    /// Read this number of records or more.
    Read(u64),
}
use Outcome::{Cut, Read, Refused};

/// Name, outcome and content of a document.
type Document = (&'static str, Outcome, fn() -> String);

const OAI: &str = "http://www.openarchives.org/OAI/2.0/";

/// Returns a page of `ListRecords` with attributes of its root, and this content of the list.
fn list(attributes: &str, content: &str) -> String {
    format!(
        "<OAI-PMH xmlns='{OAI}'{attributes}><responseDate>2026-01-01T00:00:00Z</responseDate><ListRecords>{content}\
         </ListRecords></OAI-PMH>"
    )
}

fn record(number: usize, metadata: &str) -> String {
    format!(
        "<record><header><identifier>oai:h:{number}</identifier><datestamp>2026-01-01</datestamp></header>\
         <metadata>{metadata}</metadata></record>\n"
    )
}

fn atom(attributes: &str, content: &str) -> String {
    format!("<feed xmlns='http://www.w3.org/2005/Atom'{attributes}><id>f</id>{content}</feed>")
}

fn snapshot(objects: &str) -> String {
    format!(
        "{{\"journal\":\"00000000-0000-0000-0000-000000000001\",\"head\":0,\"seeds\":0,\"next\":null,\"objects\":[{objects}]}}"
    )
}

const PAGES: &[Document] = &[
    ("records without content and a long namespace", Refused("bytes with the namespaces"), || {
        list(&format!(" xmlns:a='{}'", "u".repeat(8000)), &"<record/>".repeat(many(100_000).min(100_000)))
    }),
    ("records without content", Refused("more than 100000 records"), || list("", &"<record/>".repeat(many(800_000)))),
    ("broken records", Refused("more than 100000 records"), || list("", &"<record><x></record>".repeat(many(200_000)))),
    ("records of a usual size", Read(1500), || {
        let metadata = format!("<m>{}</m>", "Text about a record. ".repeat(200));
        list("", &(0..many(1500)).map(|number| record(number, &metadata)).collect::<String>())
    }),
    ("small records", Read(4000), || {
        list("", &(0..many(4000)).map(|number| record(number, "<m/>")).collect::<String>())
    }),
    ("attributes", Read(1), || {
        let attributes: String = (0..many(100_000)).map(|number| format!(" a{number}='x'")).collect();
        list("", &record(1, &format!("<m{attributes}/>")))
    }),
    ("namespaces", Read(0), || {
        let namespaces: String = (0..many(100_000)).map(|number| format!(" xmlns:a{number}='u'")).collect();
        list("", &record(1, &format!("<m{namespaces}/>")))
    }),
    ("deep elements", Read(1), || list("", &record(1, &"<m>".repeat(many(300_000))))),
    ("long names", Read(1), || list("", &record(1, &format!("<{}/>", "n".repeat(many(4_000_000)))))),
    ("sets", Read(1), || list("", &record(1, "<m/>").replace("</header>", &"<setSpec/>".repeat(many(400_000))))),
    ("ampersands", Refused("longer than"), || list("", &"&".repeat(many(4_000_000)))),
    ("a long token", Refused("the resumption token has more than 4096 bytes"), || {
        list("", &format!("{}<resumptionToken>{}</resumptionToken>", record(1, "<m/>"), "t".repeat(many(2_000_000))))
    }),
];

const FEEDS: &[Document] = &[
    ("entries without content and a long namespace", Refused("too large with the attributes"), || {
        atom(&format!(" xmlns:a='{}'", "u".repeat(8000)), &"<entry/>".repeat(many(100_000)))
    }),
    ("entries of an id alone", Cut("more than 20000 entries"), || {
        let entry = |number: usize| format!("<entry><id>urn:x:{number}</id></entry>");
        atom("", &(0..many(40_000)).map(entry).collect::<String>())
    }),
    ("deletions", Cut("more than 20000 entries"), || {
        let entry = |number: usize| format!("<at:deleted-entry ref='urn:x:{number}' when='2026-01-01T00:00:00Z'/>");
        let deletions: String = (0..many(40_000)).map(entry).collect();
        atom(" xmlns:at='http://purl.org/atompub/tombstones/1.0'", &deletions)
    }),
    ("links of an entry", Read(0), || {
        let links: String =
            (0..many(20_000)).map(|number| format!("<link rel='enclosure' href='/{number}'/>")).collect();
        atom("", &format!("<entry><id>urn:x:1</id>{links}</entry>"))
    }),
    ("links of a feed", Read(1), || {
        let links = format!("<link rel='next' href='/{}'/>", "x".repeat(100)).repeat(many(40_000));
        atom("", &format!("{links}<entry><id>urn:x:1</id></entry>"))
    }),
    ("attributes of a feed", Refused("is not a feed"), || {
        atom(&format!(" xmlns:a='{}'", "u".repeat(many(4_000_000))), "<entry><id>urn:x:1</id></entry>")
    }),
];

const GATEWAYS: &[Document] = &[
    ("objects without content", Refused("more than 10000 elements"), || {
        snapshot("{},".repeat(many(2_000_000)).trim_end_matches(','))
    }),
    ("deep JSON", Refused("is no page"), || snapshot(&"[".repeat(many(4_000_000)))),
    ("wide JSON", Read(1), || {
        snapshot(&format!("{{{}}}", (0..many(100_000)).map(|n| format!("\"a{n}\":0")).collect::<Vec<_>>().join(",")))
    }),
];

/// Starts a host that answers each list with a document, compressed.
async fn host(document: Vec<u8>) -> MockServer {
    let server = MockServer::start().await;
    let respond = move |request: &Request| {
        let query = request.url.query().unwrap_or_default();
        if query.contains("verb=Identify") {
            // Without earlier dates, so that the list cannot be divided.
            let today = chrono::Utc::now().format("%Y-%m-%d");
            return ResponseTemplate::new(200).set_body_string(format!(
                "<OAI-PMH xmlns='{OAI}'><Identify><baseURL>http://h/</baseURL><granularity>YYYY-MM-DD</granularity>\
                 <deletedRecord>no</deletedRecord><earliestDatestamp>{today}</earliestDatestamp></Identify></OAI-PMH>"
            ));
        }
        if query.contains("verb=GetRecord") || request.url.path().ends_with("/changes") {
            return ResponseTemplate::new(404);
        }
        ResponseTemplate::new(200).insert_header("content-encoding", "gzip").set_body_bytes(document.clone())
    };
    Mock::given(any()).respond_with(respond).mount(&server).await;
    server
}

/// Harvests each document from all hosts at once.
async fn harvest(transport: &str, dialect: &str, documents: &[Document]) {
    let gateway = WatchedGateway::start("[delivery]\nallow = [\"127.0.0.1\"]\n[log]\nfilter = \"warn\"\n");
    for (number, (name, outcome, make)) in documents.iter().enumerate() {
        let document = gzip(&make());
        let harvests = if matches!(outcome, Cut(_)) { FEW_HARVESTS } else { HARVESTS };
        let mut hosts = Vec::new();
        for _ in 0..harvests {
            hosts.push(host(document.clone()).await);
        }
        let names: Vec<_> = (0..harvests).map(|harvest| format!("h{number}-{harvest}")).collect();
        for (harvest, host) in names.iter().zip(&hosts) {
            let definition = json!({ "name": harvest, "transport": transport, "dialect": dialect, "url": host.uri(), "every": "1h" });
            let (status, answer) = gateway.ask("POST", "/harvests", Some(definition)).await;
            assert_eq!(status, 201, "{answer}");
        }
        let mut ended: Vec<Value> = Vec::new();
        watch(&gateway, name, async || {
            ended.clear();
            for harvest in &names {
                let (_, found) = gateway.ask("GET", &format!("/harvests/{harvest}"), None).await;
                let run = found["runs"][0].clone();
                if matches!(run["state"].as_str(), Some("completed" | "failed")) {
                    ended.push(run);
                } else if matches!(*outcome, Refused(reason) if found["lastError"].to_string().contains(reason)) {
                    // It will be tried again.
                    ended.push(json!({ "reason": found["lastError"] }));
                }
            }
            ended.len() == names.len()
        })
        .await;
        for run in &ended {
            match outcome {
                Refused(reason) | Cut(reason) => assert!(run["reason"].to_string().contains(reason), "{name}: {run}"),
                Read(least) => assert!(run["records"].as_u64() >= Some(*least), "{name}: {run}"),
            }
        }
        for harvest in &names {
            assert_eq!(gateway.ask("DELETE", &format!("/harvests/{harvest}"), None).await.0, 204);
        }
    }
}

#[tokio::test]
async fn pages_of_repositories() {
    harvest("oai-pmh", "oai-pmh", PAGES).await;
}

#[tokio::test]
async fn feeds() {
    harvest("feed", "feed", FEEDS).await;
}

#[tokio::test]
async fn pages_of_gateways() {
    harvest("gateway", "gateway", GATEWAYS).await;
}
