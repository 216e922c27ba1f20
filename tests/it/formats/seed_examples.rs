//! The four example messages of the content-change-message 0.1 specification, parsed and written again.

use std::fs;

use crate::support::{fixtures, gateway::Gateway, unsettled, xmllint};

const EXAMPLES: [&str; 4] = ["seed-ingest", "seed-modify", "seed-state", "seed-purge"];

#[test]
fn seed_examples_survive_parsing_and_writing() {
    let folder = tempfile::tempdir().unwrap();
    for example in EXAMPLES {
        let fixture = fixtures::folder("content-change").join(example).with_extension("xml");
        let modifications = unsettled::modifications(&fixtures::read("content-change", &fixture).unwrap());
        let written = folder.path().join(example);
        fs::write(&written, unsettled::as_format("atom", &modifications[0])).unwrap();
        assert_eq!(xmllint::canonical(&written), xmllint::canonical(&fixture), "{example}");
        // White space is preserved too.
        assert_eq!(fs::read_to_string(&written).unwrap(), fs::read_to_string(&fixture).unwrap(), "{example}");
    }
}

/// The whole gateway preserves them too, apart from additions in its own namespace.
#[tokio::test]
async fn seed_examples_survive_the_gateway() {
    for example in EXAMPLES {
        let folder = tempfile::tempdir().unwrap();
        let gateway = Gateway::start(folder.path());
        let fixture = fixtures::folder("content-change").join(example).with_extension("xml");
        let posted = fs::read_to_string(fixture).unwrap();
        let (status, answer) = gateway.post("content-change", "application/atom+xml;type=feed", posted.clone()).await;
        assert_eq!(status, 201, "{answer}");
        let id = answer["changes"][0]["id"].as_str().unwrap();
        let request = gateway.http.get(format!("{}/changes/{id}", gateway.url));
        let emitted = request.header("accept", "application/atom+xml").send().await.unwrap().text().await.unwrap();
        assert!(emitted.contains("<tidings:change seq=\"1\" source=\"content-change\""), "{emitted}");
        let without_ours: String = emitted
            .replace(" xmlns:tidings=\"urn:tidings:change:1\"", "")
            .split_inclusive('\n')
            .filter(|line| !line.contains("<tidings:"))
            .collect();
        assert_eq!(without_ours, posted, "{example}");
    }
}
