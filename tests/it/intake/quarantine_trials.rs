//! The quarantine says where the error of a message is, and what a retry would do.

use serde_json::{Value, json};

use crate::support::{fedora3_messages::Call, gateway::Gateway};

/// Sends a message that nobody can read, and returns its path in the quarantine.
async fn quarantined(gateway: &Gateway, source: &str, content_type: &str, body: &str) -> String {
    let (status, problem) = gateway.post(source, content_type, body.to_owned()).await;
    assert!(status == 400 || status == 422, "{problem}");
    problem["instance"].as_str().unwrap().to_owned()
}

async fn ask(gateway: &Gateway, path: &str, operation: &str) -> (u16, Value) {
    let answer = gateway.http.post(format!("{}{path}/{operation}", gateway.url)).send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

#[tokio::test]
async fn quarantine_shows_where_the_error_is() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(folder.path());
    let xml = "<entry xmlns='http://www.w3.org/2005/Atom'>\n <id>ñ</wrong></entry>";
    let wrong_uri = "{\"object\": \"http://h/ñ/1\",\n \"items\": [{\"uri\": \"http://h/1\", \"change\": \"GONE\"}]}";
    let wrong_uri = &wrong_uri.replace('ñ', "n");
    for (source, content_type, body, line, part) in [
        ("fedora3", "application/atom+xml", xml, 2, "</wrong>"),
        ("content-change", "application/json", "{\"object\":\n ]", 2, "]"),
        ("content-change", "application/json", "\n {\"objekt\": 1}", 2, "{"),
        ("content-change", "application/json", wrong_uri.as_str(), 2, "\"GONE\""),
    ] {
        let path = quarantined(&gateway, source, content_type, body).await;
        let shown = gateway.json(&path).await;
        let at = &shown["at"];
        let offset = usize::try_from(at["offset"].as_u64().unwrap_or_else(|| panic!("{shown:#}"))).unwrap();
        assert_eq!(at["line"], line, "{shown:#}");
        assert!(body[offset..].starts_with(part), "{shown:#}: {}", &body[offset..]);
    }
    let listed = gateway.json("/quarantine").await;
    assert!(listed["messages"].as_array().unwrap().iter().all(|message| message["at"].is_null()), "{listed:#}");
    let binary = quarantined(&gateway, "islandora", "application/json", "").await;
    assert!(gateway.json(&binary).await["place"].is_string());
}

#[tokio::test]
async fn dry_run_says_what_a_retry_would_do_and_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(folder.path());
    let nowhere = Call { number: 1, method: "purgeObject", pid: "demo:1", parameters: &[], returned: None };
    let message = nowhere.message().replace("<uri>http://localhost:8080/fedora</uri>", "");
    let path = quarantined(&gateway, "fedora3", "application/atom+xml", &message).await;
    let stored = gateway.json(&path).await;
    let (status, trial) = ask(&gateway, &path, "dry-run").await;
    assert_eq!((status, &trial["outcome"], &trial["changes"]), (200, &json!("quarantined"), &json!([])), "{trial:#}");
    assert_eq!((&trial["reason"], &trial["place"]), (&stored["reason"], &stored["place"]));
    assert_eq!(ask(&gateway, "/quarantine/99", "dry-run").await.0, 404);
    assert!(gateway.stop().success());

    let config = folder.path().join("tidings.toml");
    std::fs::write(&config, "[sources.fedora3.settings]\nbase_url = \"http://fedora.example.org/fedora\"\n").unwrap();
    let gateway = Gateway::start_with(folder.path(), &["--config", config.to_str().unwrap()]);
    for _ in 0..2 {
        let (status, trial) = ask(&gateway, &path, "dry-run").await;
        assert_eq!((status, &trial["outcome"]), (200, &json!("accepted")), "{trial:#}");
        assert_eq!(trial["changes"][0]["object"], "http://fedora.example.org/fedora/objects/demo:1");
        assert_eq!((gateway.head().await, gateway.json(&path).await), (0, stored.clone()));
        assert_eq!(gateway.json("/sources/fedora3").await["messages"]["accepted"], 0);
    }
    let (_, trial) = ask(&gateway, &path, "dry-run").await;
    let (status, retried) = ask(&gateway, &path, "retry").await;
    assert_eq!((status, &retried["outcome"], gateway.head().await), (200, &json!("accepted"), 1), "{retried:#}");
    let change = gateway.changes().await.remove(0);
    for member in ["object", "time", "user", "description", "source"] {
        assert_eq!(trial["changes"][0][member], change[member], "{member}");
    }
    let kinds = |change: &Value| -> Vec<Value> {
        change["items"].as_array().unwrap().iter().map(|item| json!([item["uri"], item["change"]])).collect()
    };
    assert_eq!(kinds(&trial["changes"][0]), kinds(&change));
}
