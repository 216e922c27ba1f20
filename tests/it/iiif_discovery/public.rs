//! Readers without a token, and tokens with a view.

use crate::support::{
    iiif_walk::walk,
    views_fixture::{OPEN, SECRET, ViewedGateway, live_through, token},
};

#[tokio::test]
async fn public_gets_what_it_sees_and_learns_what_it_has_seen() {
    let lines = format!(
        "[access.public]\nsurfaces = [\"iiif\"]\nobjects = [\"{OPEN}\"]\n{}",
        token("tenant", "read", "view = { objects = [\"http://h/closed/\"] }")
    );
    let gateway = ViewedGateway::start(&lines);
    let truth = live_through(&gateway, 60).await;
    let url = format!("{}/iiif", gateway.gateway.url);
    let public = walk(&url, None, None).unwrap();
    let shown: std::collections::BTreeSet<_> = public.included.iter().chain(&public.removed).cloned().collect();
    // Objects that are items themselves.
    let visible = |object: &&String| truth.visible.contains(*object);
    let expected = truth.objects.iter().filter(visible).cloned().chain([format!("{OPEN}large")]).collect();
    assert_eq!(public.included, expected);
    assert!(shown.iter().all(|object| !object.contains(SECRET)), "{shown:?}");
    assert!(!public.removed.is_empty());
    let whole = walk(&url, None, Some("tdg_reader")).unwrap();
    assert!(whole.included.len() > public.included.len());
    let tenant = walk(&url, None, Some("tdg_tenant")).unwrap();
    assert!(!tenant.included.is_empty());
    assert!(tenant.included.iter().all(|object| object.starts_with("http://h/closed/")));

    // Each kind of readers has a stream of its own, so caches cannot mix them.
    let collection = gateway.get("/iiif", None).await;
    let of_public = collection.json()["id"].as_str().unwrap().strip_prefix(&gateway.gateway.url).unwrap().to_owned();
    assert_eq!(collection.cache_control, "public, max-age=1");
    assert!(collection.everything.contains("\"access-control-allow-origin\": \"*\""), "{}", collection.everything);
    let of_reader = gateway.get("/iiif", Some("reader")).await;
    assert_ne!(of_reader.json()["id"], collection.json()["id"]);
    assert!(!of_reader.everything.contains("access-control"));
    assert_eq!(gateway.get(&of_public, Some("reader")).await.status, 410);
    let page = of_public.replace("collection", "page-1");
    assert_eq!(gateway.get(&page, None).await.cache_control, "public, max-age=60");

    // Pages of other sites may also read where the stream is, and why a document is not there.
    let redirected = client_without_redirects().get(&url).send().await.unwrap();
    assert_eq!(
        (redirected.status().as_u16(), redirected.headers()["access-control-allow-origin"].as_bytes()),
        (307, &b"*"[..])
    );
    let former = "/iiif/00000000-0000-8000-8000-000000000000/page-1.json";
    for (path, status) in [
        (former.to_owned(), 410),
        (of_public.replace("collection", "page-9"), 404),
        ("/iiif/no-identity/page-1.json".to_owned(), 404),
        (format!("{of_public}?objekt=x"), 400),
        ("/iiif?objekt=x".to_owned(), 400),
        (format!("{of_public}?visibility=false"), 403),
    ] {
        let problem = gateway.get(&path, None).await;
        assert_eq!(problem.status, status, "{path}");
        let allows = |everything: &str| everything.contains("\"access-control-allow-origin\": \"*\"");
        assert!(allows(&problem.everything), "{path}: {}", problem.everything);
        assert!(!allows(&gateway.get(&path, Some("reader")).await.everything), "{path}");
    }
}

fn client_without_redirects() -> reqwest::Client {
    reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap()
}

/// The pages of the public, too, are kept for a short time alone if retention removes changes.
#[tokio::test]
async fn pages_of_the_public_are_kept_for_a_minute_with_retention() {
    let gateway = ViewedGateway::start("[journal]\nkeep_days = 30\n[access.public]\nsurfaces = [\"iiif\"]\n");
    live_through(&gateway, 60).await;
    let collection = gateway.get("/iiif", None).await.json();
    let first = collection["first"]["id"].as_str().unwrap().strip_prefix(&gateway.gateway.url).unwrap().to_owned();
    assert_eq!(gateway.get(&first, None).await.cache_control, "public, max-age=60");
}

#[tokio::test]
async fn stream_that_is_not_open_needs_a_token() {
    let gateway = ViewedGateway::start("[access.public]\nsurfaces = [\"feed\"]\n");
    for path in ["/iiif", "/iiif/00000000-0000-8000-8000-000000000000/page-1.json"] {
        assert_eq!(gateway.get(path, None).await.status, 401);
    }
}
