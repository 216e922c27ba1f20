//! The quarantine saves messages of senders that do not retry: an unreadable message is stored with the reason
//! and the location of its error, and can be ingested after the cause is fixed.

use serde_json::json;

use crate::support::{fedora3_messages::Call, gateway::Gateway};

#[tokio::test]
async fn malformed_message_is_refused_and_quarantined() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(folder.path());
    let body = "<entry xmlns='http://www.w3.org/2005/Atom'>\n <id>x</entry>";
    let (status, problem) = gateway.post("fedora3", "application/atom+xml", body).await;
    assert_eq!(status, 400);
    assert_eq!(problem["type"], "urn:tidings:problem:malformed-message");
    assert!(problem["place"].as_str().unwrap().starts_with("line 2"), "{problem}");
    let quarantined = gateway.json(problem["instance"].as_str().unwrap()).await;
    assert_eq!((&quarantined["body"], &quarantined["source"]), (&json!(body), &json!("fedora3")));
    assert_eq!(quarantined["contentType"], "application/atom+xml");
    assert_eq!(quarantined["reason"], problem["reason"]);
}

#[tokio::test]
async fn binary_bytes_are_quarantined_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(folder.path());
    let (status, problem) = gateway.post("islandora", "application/json", vec![0xff, 0xfe, 0x00]).await;
    assert_eq!(status, 400);
    let quarantined = gateway.json(problem["instance"].as_str().unwrap()).await;
    assert_eq!(quarantined["bodyHex"], "fffe00");
}

#[tokio::test]
async fn foreign_message_is_422_and_quarantined_without_credentials() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(folder.path());
    let request = gateway.http.post(format!("{}/hooks/fedora", gateway.url));
    let answer = request
        .header("authorization", "Bearer very-secret")
        .header("org.fcrepo.jms.user", "fedoraAdmin")
        .body(r#"{"type":"Note"}"#)
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 422);
    drop(answer);
    assert!(gateway.stop().success());
    let gateway = Gateway::start(folder.path());
    let listed = gateway.json("/quarantine").await;
    let id = &listed["messages"][0]["id"];
    let quarantined = gateway.json(&format!("/quarantine/{id}")).await;
    assert_eq!(quarantined["headers"], json!([["org.fcrepo.jms.user", "fedoraAdmin"]]));
    for file in std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().path()).filter(|path| path.is_file())
    {
        let bytes = std::fs::read(&file).unwrap();
        assert!(!bytes.windows(11).any(|window| window == b"very-secret"), "{}", file.display());
    }
}

#[tokio::test]
async fn quarantined_message_is_ingested_after_the_cause_is_fixed() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(folder.path());
    let nowhere = Call { number: 1, method: "purgeObject", pid: "demo:1", parameters: &[], returned: None };
    let message = nowhere.message().replace("<uri>http://localhost:8080/fedora</uri>", "");
    let (status, problem) = gateway.post("fedora3", "application/atom+xml", message).await;
    assert_eq!(status, 422);
    assert!(problem["detail"].as_str().unwrap().contains("base_url"), "{problem}");
    let retry = format!("{}/retry", problem["instance"].as_str().unwrap());
    let again = gateway.http.post(format!("{}{retry}", gateway.url)).send().await.unwrap();
    assert_eq!(again.status(), 422);
    assert!(gateway.stop().success());

    let config = folder.path().join("tidings.toml");
    std::fs::write(&config, "[sources.fedora3.settings]\nbase_url = \"http://fedora.example.org/fedora\"\n").unwrap();
    let gateway = Gateway::start_with(folder.path(), &["--config", config.to_str().unwrap()]);
    let again = gateway.http.post(format!("{}{retry}", gateway.url)).send().await.unwrap();
    assert_eq!(again.status(), 200);
    let changes = gateway.changes().await;
    assert_eq!(changes[0]["object"], "http://fedora.example.org/fedora/objects/demo:1");
    assert_eq!(gateway.json("/quarantine").await["messages"], json!([]));
    let response = gateway.http.post(format!("{}{retry}", gateway.url)).send().await.unwrap();
    assert_eq!(response.status(), 404);
}

#[tokio::test]
async fn quarantined_messages_are_paged_and_can_be_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(folder.path());
    for number in 0..5 {
        gateway.post("fedora3", "text/plain", format!("rubbish {number}")).await;
    }
    let first = gateway.json("/quarantine?limit=3").await;
    assert_eq!(first["messages"].as_array().unwrap().len(), 3);
    let second = gateway.json(&format!("/quarantine?limit=3&before={}", first["next"])).await;
    assert_eq!((second["messages"].as_array().unwrap().len(), &second["next"]), (2, &json!(null)));
    let url = format!("{}/quarantine/{}", gateway.url, first["messages"][0]["id"]);
    assert_eq!(gateway.http.delete(&url).send().await.unwrap().status(), 204);
    assert_eq!(gateway.http.delete(&url).send().await.unwrap().status(), 404);
    assert_eq!(gateway.json("/sources").await["sources"][2]["messages"]["quarantined"], 5);
}
