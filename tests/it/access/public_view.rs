//! Readers without a token: no surface and no format shows them anything that the public does not see.

use std::collections::BTreeSet;

use atom_syndication::Feed;
use serde_json::Value;
use tidings::format::FORMATS;

use crate::support::oai_pmh_fixture::REPOSITORY;
use crate::support::views_fixture::{Answer, OPEN, SECRET, SURFACES, ViewedGateway, live_through};

/// Configuration with all surfaces of the public.
fn public() -> String {
    format!("{REPOSITORY}[access.public]\nsurfaces = {SURFACES}\nobjects = [\"{OPEN}\"]\n")
}

/// Returns the path of an object.
fn object_path(uri: &str) -> String {
    let query = url::form_urlencoded::Serializer::new(String::new()).append_pair("uri", uri).finish();
    format!("/objects?{query}")
}

/// Returns the paths of a route: its parameters name things that exist, and its queries ask for everything.
fn paths(route: &str, ids: &[String], objects: &BTreeSet<String>) -> Vec<String> {
    let filters = ["", "visibility=true", "state=INACTIVE", "state=ACTIVE", "change=STATE", "media_type=text/*"];
    let with = |more: &str| -> Vec<String> { filters.iter().map(|filter| format!("{route}?{filter}{more}")).collect() };
    match route {
        "/feed" => [with("&limit=1000"), with("&before=90")].concat(),
        "/changes" => {
            let about = |uri: &String| object_path(uri).replace("/objects?uri=", "/changes?about=");
            let backwards = [with("&before=9999&limit=1000"), with("&before=50&limit=7")].concat();
            let lives = objects.iter().map(about).collect();
            [with("&after=0&limit=1000"), with("&after=0&limit=7"), backwards, lives].concat()
        }
        "/stream" => FORMATS
            .iter()
            .filter(|format| format.is_self_contained())
            .flat_map(|format| {
                ["", "&visibility=true"].map(|more| format!("{route}?after=0&format={}{more}", format.name))
            })
            .collect(),
        "/snapshot" => ["", "?limit=1", "?former=true", "?limit=1000"].map(|query| format!("{route}{query}")).into(),
        "/oai" => {
            let get = |uri: &String| format!("/oai?verb=GetRecord&metadataPrefix=content-change&identifier={uri}");
            let lists =
                ["Identify", "ListSets", "ListRecords&metadataPrefix=oai_dc", "ListIdentifiers&metadataPrefix=oai_dc"];
            lists.map(|verb| format!("/oai?verb={verb}")).into_iter().chain(objects.iter().map(get)).collect()
        }
        "/resourcesync/{name}" => {
            let lists = ["capabilitylist", "resourcelist", "changelist", "notifications"].map(ToOwned::to_owned);
            let parts = [format!("changelist-{:016}", 1), format!("resourcelist-{0:016}-{0:016}", 0)];
            let names = lists.into_iter().chain(parts).map(|name| format!("/resourcesync/{name}.xml"));
            names.flat_map(|path| ["", "?object=http://h/open/"].map(|query| format!("{path}{query}"))).collect()
        }
        "/oai/schemas/{name}" => vec!["/oai/schemas/model-types.xsd".to_owned()],
        "/objects" => objects.iter().map(|uri| object_path(uri)).collect(),
        "/changes/{id}" => ids.iter().map(|id| format!("/changes/{id}")).collect(),
        _ => vec![
            route
                .replace("{page}", "1")
                .replace("{digest}", &"0".repeat(64))
                .replace("{name}", "content-change")
                .replace("{source}", "content-change")
                .replace("{token}", "x")
                .replace("{id}", "1"),
        ],
    }
}

/// Returns the paths of all documents with numbered pages that the public is led to, with some filters.
async fn numbered_documents(gateway: &ViewedGateway, entry: &str, head: u64) -> Vec<String> {
    let mut paths = Vec::new();
    for query in ["", "?visibility=true", "?state=ACTIVE", "?change=STATE"] {
        let first = gateway.request(&format!("{entry}{query}"), None).send().await.unwrap();
        assert_eq!(first.status(), 200, "{entry}{query}");
        let (folder, name) = first.url().path().rsplit_once('/').unwrap();
        let (_, extension) = name.split_once('.').unwrap();
        let query = first.url().query().map_or_else(String::new, |query| format!("?{query}"));
        let pages = (1..=head.div_ceil(100)).map(|page| format!("page-{page}.{extension}"));
        let names = pages.chain([name.to_owned(), format!("block-1.{extension}")]);
        paths.extend(names.map(|name| format!("{folder}/{name}{query}")));
    }
    paths
}

/// Reads a stream until it has sent the newest change, or the number of the newest change as its position.
async fn read_stream(gateway: &ViewedGateway, path: &str, token: Option<&str>, head: u64) -> (u16, String) {
    let mut response = gateway.request(path, token).send().await.unwrap();
    let status = response.status().as_u16();
    let mut text = format!("{:?}\n", response.headers());
    let end = format!("id: {head}\n");
    while status == 200 && !text.contains(&end) {
        text += &String::from_utf8_lossy(&response.chunk().await.unwrap().expect("the stream has not ended"));
    }
    (status, text)
}

#[tokio::test]
async fn no_route_and_no_format_shows_a_secret() {
    let gateway = ViewedGateway::start(&public());
    let truth = live_through(&gateway, 60).await;
    let all = gateway.changes("", Some("reader")).await;
    let head = all.last().unwrap()["seq"].as_u64().unwrap();
    let ids: Vec<String> =
        all.iter().flat_map(|change| [change["id"].as_str().unwrap().to_owned(), change["seq"].to_string()]).collect();
    assert!(all.iter().all(|change| change.to_string().contains(SECRET)), "the whole journal has the secrets");
    let interface = gateway.get("/openapi.json", Some("reader")).await.json();
    let mut shown = BTreeSet::new();
    for (route, operations) in interface["paths"].as_object().unwrap() {
        let Some(operation) = operations.get("get") else { continue };
        let content = &operation["responses"]["200"]["content"];
        let mut formats: Vec<&str> =
            content.as_object().map_or_else(Vec::new, |all| all.keys().map(|f| &**f).collect());
        formats.push("*/*");
        let paths = match route.strip_suffix("/{stream}/{document}") {
            Some(entry) => numbered_documents(&gateway, entry, head).await,
            None => paths(route, &ids, &truth.objects),
        };
        for path in paths {
            if route == "/stream" {
                // Events of large changes are shared by streams. The whole one is there first.
                let (_, whole) = read_stream(&gateway, &path, Some("reader"), head).await;
                // Some formats cover other changes alone.
                assert!(whole.contains(SECRET) || !path.contains("format=json"), "{path}");
                let (status, text) = read_stream(&gateway, &path, None, head).await;
                assert!(!text.contains(SECRET) && status == 200, "{path}: {status} {text}");
                shown.insert(route.clone());
                continue;
            }
            for format in &formats {
                let answer = gateway.get_as(&path, None, format).await;
                // A problem repeats the URI of the request, of an object that is hidden as of one that does not exist.
                let is_unknown = |uri: &String| {
                    let is_oai =
                        path.ends_with(&format!("&identifier={uri}")) && answer.body.contains("idDoesNotExist");
                    is_oai || (answer.status == 404 && path == object_path(uri))
                };
                let asked = truth.objects.iter().find(|uri| is_unknown(uri));
                let everything =
                    asked.map_or_else(|| answer.everything.clone(), |uri| answer.everything.replace(uri, ""));
                assert!(!everything.contains(SECRET), "{path} as {format}: {everything}");
                assert!(answer.status < 500, "{path} as {format}: {}", answer.everything);
                if answer.status == 200 {
                    shown.insert(route.clone());
                }
            }
        }
    }
    let expected = [
        "/",
        "/.well-known/resourcesync",
        "/changes",
        "/changes/{id}",
        "/docs",
        "/feed",
        "/feed.css",
        "/healthz",
        "/iiif",
        "/iiif/{stream}/{document}",
        "/ldes",
        "/ldes/{stream}/{document}",
        "/live",
        "/oai",
        "/oai/schemas/{name}",
        "/objects",
        "/readyz",
        "/resourcesync/{name}",
        "/snapshot",
        "/stream",
        "/streams/changes",
    ];
    assert_eq!(shown, expected.map(ToOwned::to_owned).into());
}

/// Applies changes to an empty set of items.
fn replayed(changes: &[Value]) -> BTreeSet<String> {
    let mut items = BTreeSet::new();
    for item in changes.iter().flat_map(|change| change["items"].as_array().unwrap()) {
        let uri = item["uri"].as_str().unwrap().to_owned();
        if item["change"] == "DELETE" {
            items.remove(&uri)
        } else {
            items.insert(uri)
        };
    }
    items
}

#[tokio::test]
async fn every_surface_shows_what_the_public_sees() {
    let gateway = ViewedGateway::start(&public());
    let truth = live_through(&gateway, 60).await;
    let changes = gateway.changes("", None).await;
    // The same changes and items that an administrator sees with this filter.
    let query = format!("&visibility=true&object={OPEN}");
    let outline = |changes: &[Value]| -> Vec<Value> {
        let change = |change: &Value| {
            let items = change["items"].as_array().unwrap().iter();
            let items = items.map(|item| [&item["id"], &item["uri"], &item["change"]].map(Clone::clone));
            serde_json::json!([change["seq"], change["id"], items.collect::<Vec<_>>()])
        };
        changes.iter().map(change).collect()
    };
    assert_eq!(outline(&changes), outline(&gateway.changes(&query, Some("admin")).await));
    assert!(changes.len() > 50, "{}", changes.len());
    assert_eq!(replayed(&changes), truth.visible);
    assert!(changes.iter().all(|change| change["user"] == serde_json::json!({ "name": "unknown" })));

    // The registry.
    let (mut items, mut after) = (BTreeSet::new(), None);
    loop {
        let query = after.map(|after| format!("&after={after}")).unwrap_or_default();
        let page = gateway.get(&format!("/snapshot?limit=3{query}"), None).await.json();
        let objects = page["objects"].as_array().unwrap();
        assert!(objects.len() <= 3);
        let uris = objects.iter().flat_map(|object| object["items"].as_array().unwrap());
        items.extend(uris.map(|item| item["uri"].as_str().unwrap().to_owned()));
        let Some(next) = page["next"].as_str() else { break };
        after = Some(next.to_owned());
    }
    assert_eq!(items, truth.visible);
    for object in &truth.objects {
        let is_visible = truth.visible.iter().any(|item| *item == *object || item.starts_with(&format!("{object}/")));
        assert_eq!(gateway.get(&object_path(object), None).await.status == 200, is_visible, "{object}");
    }

    // The feed, whose links work.
    let (mut entries, mut next) = (Vec::new(), Some("/feed".to_owned()));
    let mut links = BTreeSet::new();
    while let Some(page) = next {
        let answer = gateway.get(&page, None).await;
        let feed = Feed::read_from(answer.body.as_bytes()).unwrap();
        let own = |href: &str| href.strip_prefix(&gateway.gateway.url).map(ToOwned::to_owned);
        let of_entries = feed.entries.iter().flat_map(|entry| entry.links.iter());
        links.extend(feed.links.iter().chain(of_entries).filter_map(|link| own(&link.href)));
        entries.extend(feed.entries.iter().map(|entry| entry.id.clone()));
        next = feed.links.iter().find(|link| link.rel == "next").and_then(|link| own(&link.href));
    }
    let ids = changes.iter().flat_map(|change| change["items"].as_array().unwrap());
    let ids: BTreeSet<_> = ids.map(|item| item["id"].as_str().unwrap().to_owned()).collect();
    assert_eq!((entries.len(), entries.into_iter().collect::<BTreeSet<_>>()), (ids.len(), ids));
    assert!(links.len() > 50);
    for link in links {
        for format in ["*/*", "text/html"] {
            let status = gateway.get_as(&link, None, format).await.status;
            assert!(status == 200 || (status == 406 && link.starts_with("/feed")), "{link} as {format}: {status}");
        }
    }
}

#[tokio::test]
async fn more_than_the_public_sees_is_refused() {
    let gateway = ViewedGateway::start(&public());
    live_through(&gateway, 5).await;
    for (path, parameter) in [
        ("/changes?visibility=false", "visibility"),
        ("/feed?visibility=false", "visibility"),
        ("/stream?visibility=false", "visibility"),
        ("/changes?object=http://h/", "object"),
        ("/feed?object=http://h/closed/", "object"),
        ("/snapshot?former=true", "former"),
        ("/resourcesync/changelist.xml?object=http://h/closed/", "object"),
        ("/resourcesync/resourcelist.xml?object=http://h/", "object"),
    ] {
        let answer = gateway.get(path, None).await;
        assert_eq!(answer.status, 403, "{path}: {}", answer.everything);
        let problem: Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(
            (&problem["type"], &problem["parameter"]),
            (&"urn:tidings:problem:forbidden".into(), &parameter.into())
        );
    }
    assert_eq!(gateway.get(&format!("/feed?object={OPEN}1"), None).await.status, 200);
    for path in ["/metrics", "/openapi.json", "/status", "/feed/archive/1", "/service", "/files/00"] {
        assert_eq!(gateway.get(path, None).await.status, 401, "{path}");
    }
    // Wrong credentials are not those of nobody.
    assert_eq!(gateway.get("/feed", Some("unknown")).await.status, 401);
    let hub = gateway.gateway.http.post(format!("{}/hub", gateway.gateway.url)).body("hub.mode=subscribe");
    assert_eq!(Answer::of(hub).await.status, 401);
}

#[tokio::test]
async fn surfaces_that_are_not_listed_need_a_token() {
    let gateway = ViewedGateway::start("[access.public]\nsurfaces = [\"feed\"]\n");
    live_through(&gateway, 5).await;
    let public = gateway.changes("&visibility=true", Some("reader")).await;
    let change = format!("/changes/{}", public[0]["id"].as_str().unwrap());
    for (path, status) in [
        ("/feed", 200),
        ("/feed.css", 200),
        (&*change, 200),
        ("/changes", 401),
        ("/stream", 401),
        // The page has no data.
        ("/live", 200),
        ("/objects", 401),
        ("/snapshot", 401),
        ("/.well-known/resourcesync", 401),
        ("/resourcesync/changelist.xml", 401),
    ] {
        assert_eq!(gateway.get(path, None).await.status, status, "{path}");
    }
    // The page of the change has no link to the surface that is closed.
    let page = gateway.get_as(&change, None, "text/html").await;
    assert!(page.status == 200 && !page.body.contains("objects?uri="), "{}", page.body);
}

#[tokio::test]
async fn caches_do_not_mix_the_public_with_others() {
    let gateway = ViewedGateway::start(&public());
    live_through(&gateway, 20).await;
    let change = gateway.changes("", None).await.swap_remove(0);
    let change = format!("/changes/{}", change["id"].as_str().unwrap());
    let list = format!("/resourcesync/changelist-{:016}.xml", 1);
    for path in ["/feed", "/feed?limit=5", "/changes?after=0", &change, "/feed.css", &list] {
        let (public, whole) = (gateway.get(path, None).await, gateway.get(path, Some("reader")).await);
        for answer in [&public, &whole] {
            assert_eq!(answer.status, 200, "{path}");
            assert!(answer.vary.contains("authorization"), "{path}: {}", answer.vary);
        }
        assert_eq!(public.cache_control, "no-cache", "{path}");
        assert!(!whole.cache_control.contains("public"), "{path}");
        let is_the_same = path == "/feed.css";
        assert_eq!(public.body == whole.body, is_the_same, "{path}");
        let Some(etag) = whole.etag.filter(|_| !is_the_same) else { continue };
        let again = Answer::of(gateway.request(path, None).header("if-none-match", etag)).await;
        assert_eq!((again.status, again.body), (200, public.body), "{path}");
    }
    let feeds = [gateway.get("/feed", None).await, gateway.get("/feed", Some("reader")).await];
    let ids = feeds.map(|answer| Feed::read_from(answer.body.as_bytes()).unwrap().id);
    assert_ne!(ids[0], ids[1], "a part of the journal is another feed");
}
