//! Positions in a journal that was restored since: offsets of Durable Streams, and numbers that name the journal.

use std::{fs, path::Path};

use reqwest::Response;
use serde_json::Value;

use crate::support::{
    gateway::Gateway,
    journal_fixture::{run, stderr},
    subscription_fixture::{gateway, post},
};

async fn get(gateway: &Gateway, path: &str) -> Response {
    gateway.http.get(format!("{}{path}", gateway.url)).send().await.unwrap()
}

/// Returns the offset after the response.
fn next_offset(response: &Response) -> String {
    response.headers()["stream-next-offset"].to_str().unwrap().to_owned()
}

/// Returns the identity of the journal, and the offset of its head.
async fn position(gateway: &Gateway) -> (String, String) {
    let journal = gateway.json("/changes").await["journal"].as_str().unwrap().to_owned();
    (journal, next_offset(&get(gateway, "/streams/changes?offset=now").await))
}

/// Two restores end two identities, each at the last change that was kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn positions_of_the_time_before_a_restore_go_on_up_to_what_it_has_kept() {
    crate::support::needs_sqlite();
    let folder = tempfile::tempdir().unwrap();
    let (data, backup) = (folder.path().join("data"), folder.path().join("backup"));
    fs::create_dir(&data).unwrap();
    let succeeds = |name: &str, arguments: &[&Path]| {
        let ended = run(name, arguments);
        assert!(ended.status.success(), "{}", stderr(&ended));
    };
    let (mut kept, mut lost) = (Vec::new(), Vec::new());
    for round in 0..2 {
        let gateway = gateway(&data, "");
        for number in 1..=3 {
            post(&gateway, 10 * round + number).await;
        }
        kept.push(position(&gateway).await);
        let _ = fs::remove_file(&backup);
        succeeds("backup", &[&backup, Path::new("--data"), &data]);
        for number in 4..=6 {
            post(&gateway, 10 * round + number).await;
        }
        lost.push(position(&gateway).await);
        assert!(gateway.stop().success());
        succeeds("restore", &[&backup, Path::new("--data"), &data, Path::new("--force")]);
    }
    let gateway = gateway(&data, "");
    post(&gateway, 100).await;
    let stream = async |offset: &str| get(&gateway, &format!("/streams/changes?offset={offset}")).await;
    let page = async |journal: &str, offset: &str| {
        let number: u64 = offset.split('_').next().unwrap().parse().unwrap();
        get(&gateway, &format!("/changes?after={number}&journal={journal}")).await
    };
    for ((journal, offset), later) in kept.iter().zip([4, 1]) {
        let answer = stream(offset).await;
        assert_eq!(answer.status(), 200, "{offset}");
        let next = next_offset(&answer);
        assert_ne!(next.split('_').nth(1), offset.split('_').nth(1), "it is one of the present journal");
        assert_eq!(answer.json::<Vec<Value>>().await.unwrap().len(), later);
        let answer = page(journal, offset).await;
        assert_eq!((answer.status().as_u16(), &answer.headers()["cache-control"]), (200, &"no-cache".parse().unwrap()));
        assert_eq!(answer.json::<Value>().await.unwrap()["changes"].as_array().unwrap().len(), later);
    }
    for (journal, (_, kept)) in lost.iter().map(|(journal, _)| journal).zip(&kept) {
        let end: u64 = kept.split('_').next().unwrap().parse().unwrap();
        for (before, status) in [(end, 200), (end + 1, 410)] {
            let newest_first = get(&gateway, &format!("/changes?before={before}&journal={journal}")).await;
            assert_eq!(newest_first.status(), status, "the reader has the changes from {before} on");
        }
    }
    for (journal, offset) in &lost {
        assert_eq!(stream(offset).await.status(), 410, "{offset}");
        assert_eq!(page(journal, offset).await.status(), 410, "{offset} of {journal}");
    }
    let (former, end) = (&kept[0].1[21..], &kept[1].1[..21]);
    assert_eq!(stream(&format!("{end}{former}")).await.status(), 410, "it ended before this number");
}
