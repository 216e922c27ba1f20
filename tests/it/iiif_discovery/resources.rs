//! The resources of activities: objects, or manifests that a template names.

use serde_json::{Value, json};

use crate::support::{
    gateway::Gateway,
    iiif_walk::{Walk, walk},
    subscription_fixture::{gateway, post_event},
};

async fn activities(gateway: &Gateway) -> Vec<Value> {
    let collection = gateway.json("/iiif").await;
    let last = collection["last"]["id"].as_str().unwrap().strip_prefix(&gateway.url).unwrap().to_owned();
    gateway.json(&last).await["orderedItems"].as_array().unwrap().clone()
}

async fn change(gateway: &Gateway, object: &str, kind: &str) {
    let items = json!([{ "uri": object, "change": kind }]);
    post_event(gateway, &json!({ "object": object, "items": items })).await;
}

#[tokio::test]
async fn activity_has_the_change_and_its_object() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "");
    for (object, kind) in [
        ("http://h/1", "ADD"),
        ("http://h/1", "UPDATE"),
        ("info:x/a b".replace(' ', "%20").as_str(), "ADD"),
        ("http://h/1", "DELETE"),
    ] {
        change(&gateway, object, kind).await;
    }
    let changes = gateway.changes().await;
    let expected: Vec<_> = changes
        .iter()
        .zip(["Create", "Update", "Create", "Delete"])
        .map(|(change, kind)| {
            let id = change["id"].as_str().unwrap().replace("urn:uuid:", "");
            let object = change["object"].as_str().unwrap();
            let resource = match object.starts_with("http") {
                true => json!({ "id": object, "type": "Object" }),
                // It has no web URL, so it is named by its page at the gateway.
                false => json!({
                    "id": format!("{}/objects?uri=info%3Ax%2Fa%2520b", gateway.url), "type": "Object", "canonical": object,
                }),
            };
            json!({
                "id": format!("{}/changes/{id}", gateway.url), "type": kind, "object": resource,
                "endTime": change["received"],
            })
        })
        .collect();
    let activities = activities(&gateway).await;
    assert_eq!(activities, expected);
    // The URLs lead to the change and to the object.
    for url in [&activities[2]["id"], &activities[2]["object"]["id"]] {
        assert_eq!(gateway.http.get(url.as_str().unwrap()).send().await.unwrap().status(), 200, "{url}");
    }
}

#[tokio::test]
async fn template_names_manifests_and_selects_objects() {
    let folder = tempfile::tempdir().unwrap();
    let settings = "[iiif_discovery]\nclass = \"Manifest\"\nmanifest = \"{% if object is startingwith 'http://h/maps/' \
                    %}https://iiif.example.org/{{ name }}/manifest{% endif %}\"\n";
    let gateway = gateway(folder.path(), settings);
    for (object, kind) in [
        ("http://h/maps/1", "ADD"),
        ("http://h/staff/1", "ADD"),
        ("http://h/maps/2%2F", "ADD"),
        ("http://h/maps/1", "DELETE"),
    ] {
        change(&gateway, object, kind).await;
    }
    let read = walk(&format!("{}/iiif", gateway.url), None, None).unwrap();
    let manifest = |name: &str| [format!("https://iiif.example.org/{name}/manifest")].into();
    assert_eq!(read, Walk { included: manifest("2%2F"), removed: manifest("1") });
    let first = &activities(&gateway).await[0]["object"];
    assert_eq!((&first["type"], &first["canonical"]), (&"Manifest".into(), &"http://h/maps/1".into()));
}

#[tokio::test]
async fn aggregator_adds_to_its_stream_and_removes_from_it() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "[iiif_discovery]\nwording = \"aggregator\"\n");
    for (object, kind) in
        [("http://h/1", "ADD"), ("http://h/2", "ADD"), ("http://h/2", "UPDATE"), ("http://h/1", "DELETE")]
    {
        change(&gateway, object, kind).await;
    }
    let activities = activities(&gateway).await;
    let kinds: Vec<_> = activities.iter().map(|activity| activity["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["Add", "Add", "Update", "Remove"]);
    let stream = &gateway.json("/iiif").await["id"];
    assert_eq!((&activities[0]["target"]["id"], &activities[3]["origin"]["id"]), (stream, stream));
    let read = walk(&format!("{}/iiif", gateway.url), None, None).unwrap();
    assert_eq!(read, Walk { included: ["http://h/2".to_owned()].into(), removed: ["http://h/1".to_owned()].into() });
}

#[tokio::test]
async fn stream_can_be_filtered_and_disabled() {
    let folder = tempfile::tempdir().unwrap();
    let open = gateway(folder.path(), "");
    for (object, kind) in [("http://h/maps/1", "ADD"), ("http://h/staff/1", "ADD"), ("http://h/maps/2", "ADD")] {
        change(&open, object, kind).await;
    }
    let read = walk(&format!("{}/iiif?object=http%3A%2F%2Fh%2Fmaps%2F", open.url), None, None).unwrap();
    assert_eq!(read.included, ["http://h/maps/1", "http://h/maps/2"].map(str::to_owned).into());
    let wrong = open.http.get(format!("{}/iiif?objekt=x", open.url)).send().await.unwrap();
    assert_eq!(wrong.status(), 400);
    assert!(open.stop().success());
    let closed = gateway(folder.path(), "[iiif_discovery]\nenabled = false\n");
    assert_eq!(closed.http.get(format!("{}/iiif", closed.url)).send().await.unwrap().status(), 404);
}
