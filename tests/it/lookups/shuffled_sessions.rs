//! The session of thirty operations on five objects, sent to ActiveMQ in random order, with lookups. Whenever
//! the repository is asked, the registry ends with its versions, media types and parents, and no change reports
//! a false fact.

use serde_json::{Value, json};

use crate::{
    sources::stomp_sessions::{
        OBJECTS, STEPS, kind, operation, registry_items, run_session, session_of_fedora_3, session_of_fedora_6, time_of,
    },
    support::{
        amqp_source::SOURCE,
        fake_fedora3::{self, FakeFedora3, Fedora3},
        fake_fedora6::{self, FakeFedora6, Fedora6, REST},
        fake_repository::FakeRepository,
        fedora3_messages::BASE,
    },
};

/// Returns the lines of a source for the repository at `url`, whose messages contain `public`.
fn lines(mode: &str, url: &str, public: &str) -> String {
    format!("lookup = \"{mode}\"\n[sources.{SOURCE}.repository]\nurl = \"{url}\"\npublic_urls = [\"{public}\"]\n")
}

fn steps() -> impl Iterator<Item = (usize, usize)> {
    (0..STEPS).flat_map(|step| (0..OBJECTS).map(move |object| (object, step)))
}

/// Applies all operations to the repository.
fn apply_all(api: &Fedora3) {
    for (object, step) in steps() {
        let (method, parameters, _) = operation(object, step);
        let (pid, time) = (format!("demo:{object}"), time_of(object, step) as u64);
        let parameter = |name| parameters.iter().find(|(held, _)| *held == name).map(|(_, value)| *value);
        let id = parameter("dsID").unwrap_or_default();
        match method {
            "ingest" => {
                api.ingest(&pid);
                api.relate(&pid, "isMemberOfCollection", "demo:all", time);
            }
            "addDatastream" | "modifyDatastreamByValue" => api.write(&pid, id, media_type(id, step), time),
            "setDatastreamState" => {}
            "purgeDatastream" => api.purge_versions(&pid, id, 0, 99),
            "addRelationship" => api.relate(&pid, "isMemberOf", "demo:9", time),
            _ => api.purge_object(&pid),
        }
        if let Some(state) = parameter("dsState") {
            api.set_state(&pid, id, state.chars().next().unwrap());
        }
    }
}

fn media_type(id: &str, step: usize) -> &'static str {
    match (id, step) {
        ("DC", 1) => "text/xml",
        ("DC", _) => "application/xml",
        (_, 3) => "image/jp2",
        _ => "image/png",
    }
}

#[tokio::test]
async fn fedora_3_shuffled_session_is_completed() {
    for mode in ["best-effort", "required"] {
        let repository: FakeFedora3 = FakeRepository::start(Fedora3::default()).await;
        apply_all(&repository.api);
        let lines = lines(mode, &format!("{}{}", repository.url(), fake_fedora3::PATH), BASE);
        let (_folder, gateway) = run_session("fedora-apim", session_of_fedora_3(), false, &lines).await;
        let item = |object: usize, id: &str| format!("{BASE}/objects/demo:{object}/datastreams/{id}/content");
        let dated = |object: usize, id: &str, step: usize| {
            let time = fake_fedora3::time(time_of(object, step) as u64);
            (format!("{}?asOfDateTime={time}", item(object, id)), media_type(id, step).to_owned())
        };
        for object in 0..OBJECTS {
            let uri = format!("{BASE}/objects/demo:{object}");
            let details = gateway.json(&format!("/objects?uri={uri}")).await;
            let live = details["items"].as_array().unwrap().iter().filter(|item| item["live"] == true);
            let content = |item: &Value| {
                let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
                (
                    text(&item["uri"]),
                    text(&item["state"]),
                    (text(&item["content"]["url"]), text(&item["content"]["mediaType"])),
                )
            };
            let mut found: Vec<_> = live.map(content).collect();
            found.sort();
            let none = || ("-".to_owned(), "-".to_owned());
            let itself = (uri.clone(), "-".to_owned(), none());
            let rels = item(object, "RELS-EXT");
            let rels = (rels.clone(), "ACTIVE".to_owned(), (rels, "application/rdf+xml".to_owned()));
            let of = |id: &str, state: &str, step| (item(object, id), state.to_owned(), dated(object, id, step));
            let expected = match object {
                0 => vec![itself, of("DC", "INACTIVE", 2), of("OBJ", "ACTIVE", 3), rels],
                1 => vec![itself, of("DC", "INACTIVE", 2), of("OBJ", "INACTIVE", 5), rels],
                2 => vec![itself, of("DC", "INACTIVE", 2), of("OBJ", "INACTIVE", 3), rels],
                3 => vec![itself, of("DC", "ACTIVE", 5), rels],
                _ => vec![],
            };
            assert_eq!(found, expected, "{uri}");
            let parent = match object {
                2 => json!(format!("{BASE}/objects/demo:9")),
                4 => Value::Null,
                _ => json!(format!("{BASE}/objects/demo:all")),
            };
            assert_eq!(details["parent"], parent, "{uri}");
        }
        for change in gateway.changes().await {
            assert!(matches!(change["lookup"].as_str(), None | Some("newer" | "gone")), "{change:#}");
            for item in change["items"].as_array().unwrap() {
                let (url, media_type) = (item["content"]["url"].as_str(), item["content"]["mediaType"].as_str());
                // The facts about a version are always those of that version.
                let all = steps().flat_map(|(object, step)| ["DC", "OBJ"].map(|id| dated(object, id, step)));
                if let (Some(url), Some(media_type)) = (url, media_type)
                    && !url.contains("RELS-EXT")
                {
                    assert!(
                        all.into_iter().any(|version| version == (url.to_owned(), media_type.to_owned())),
                        "{change:#}"
                    );
                }
            }
        }
        assert!(gateway.stop().success());
    }
}

#[tokio::test]
async fn fedora_6_shuffled_session_is_completed() {
    let repository: FakeFedora6 = FakeRepository::start(Fedora6::default()).await;
    repository.api.container("/collection", 0);
    for (object, step) in steps() {
        let path = format!("/collection/{object}");
        match kind(object, step) {
            "Delete" => repository.api.delete(&path),
            _ => repository.api.container(&path, time_of(object, step) as u64),
        }
    }
    let lines = lines("required", &format!("{}{}", repository.url(), fake_fedora6::PATH), REST);
    let (_folder, gateway) = run_session("fedora-events", session_of_fedora_6(), false, &lines).await;
    for object in 0..OBJECTS {
        let uri = format!("{REST}/collection/{object}");
        let (parent, live) = registry_items(&gateway, &uri).await;
        if object < 3 {
            assert_eq!(parent, format!("{REST}/collection"));
            assert_eq!(live.len(), 1);
            let details = gateway.json(&format!("/objects?uri={uri}")).await;
            assert_eq!(details["items"][0]["content"]["mediaType"], "text/turtle;charset=utf-8");
        } else {
            assert_eq!(live.len(), 0);
        }
    }
    assert!(gateway.stop().success());
}

/// Islandora's files are in Fedora; its pages are not.
#[tokio::test]
async fn islandora_shuffled_session_is_completed() {
    let repository: FakeFedora6 = FakeRepository::start(Fedora6::default()).await;
    let (mut messages, page) = (Vec::new(), |object: usize| format!("http://localhost:8000/file/{object}"));
    let object_uri = |object: usize| format!("urn:uuid:1f0c6c5e-3b0a-4f5d-9a55-{object:012x}");
    for (object, step) in steps() {
        let (kind, path) = (kind(object, step), format!("/files/{object}"));
        match kind {
            "Delete" => repository.api.delete(&path),
            _ => repository.api.file(&path, "image/jp2", 100 + object as u64, 1),
        }
        let body = json!({
            "@context": "https://www.w3.org/ns/activitystreams",
            "actor": { "type": "Person", "id": "urn:uuid:0b3c5f0e-58f1-4c38-8b5e-6d6f3a1c2d4e" },
            "object": { "id": object_uri(object), "url": [{ "type": "Link", "href": page(object), "rel": "canonical" }] },
            "attachment": { "type": "Object", "content": { "fedora_uri": format!("{REST}{path}") } },
            "type": kind,
        });
        messages.push((object, json!({}), body.to_string()));
    }
    let lines = lines("best-effort", &format!("{}{}", repository.url(), fake_fedora6::PATH), REST);
    let (_folder, gateway) = run_session("islandora", messages, true, &lines).await;
    for object in 0..OBJECTS {
        let details = gateway.json(&format!("/objects?uri={}", object_uri(object))).await;
        let live: Vec<_> = details["items"].as_array().unwrap().iter().filter(|item| item["live"] == true).collect();
        if object >= 3 {
            assert_eq!(live.len(), 0);
            continue;
        }
        let file = live.iter().find(|item| item["uri"] == format!("{REST}/files/{object}")).unwrap();
        let content = &file["content"];
        assert_eq!(
            (&content["mediaType"], &content["size"]),
            (&json!("image/jp2"), &json!(100 + object)),
            "{details:#}"
        );
        assert_eq!(live.len(), 2);
    }
    assert!(gateway.changes().await.iter().all(|change| matches!(change["lookup"].as_str(), None | Some("gone"))));
    assert!(gateway.stop().success());
}
