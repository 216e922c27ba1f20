//! `/openapi.json` describes exactly the routes of the router and is consistent, and `/docs` shows it without
//! network access.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use serde_json::{Value, json};
use tidings::{
    router,
    web::{self, Rule, Surface},
};

use crate::support::gateway::Gateway;

fn routes() -> BTreeSet<(String, String)> {
    let routes = router::routes();
    let of_route = |route: &web::Route| (route.method.as_str().to_ascii_lowercase(), route.path.clone());
    routes.list().map(of_route).collect()
}

fn operations(document: &Value) -> BTreeMap<(String, String), &Value> {
    let paths = document["paths"].as_object().unwrap();
    let of_path = |(path, operations): (&String, &'_ Value)| -> Vec<_> {
        operations.as_object().unwrap().keys().map(|method| (method.clone(), path.clone())).collect()
    };
    let names = paths.iter().flat_map(of_path);
    names.map(|(method, path)| ((method.clone(), path.clone()), &document["paths"][&path][&method])).collect()
}

fn references(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            found.extend(members.get("$ref").and_then(Value::as_str).map(str::to_owned));
            members.values().for_each(|member| references(member, found));
        }
        Value::Array(elements) => elements.iter().for_each(|element| references(element, found)),
        _ => {}
    }
}

#[tokio::test]
async fn openapi_document_has_exactly_the_routes_of_the_router() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(folder.path());
    let document = gateway.json("/openapi.json").await;
    let operations = operations(&document);
    assert_eq!(operations.keys().cloned().collect::<BTreeSet<_>>(), routes());
    assert!(operations.len() > 15, "the test finds no routes");
    assert_eq!(document["servers"][0]["url"], gateway.url);

    let names: BTreeSet<_> = operations.values().map(|operation| operation["operationId"].as_str().unwrap()).collect();
    assert_eq!(names.len(), operations.len(), "two operations have the same name");
    for ((method, path), operation) in &operations {
        let answers = operation["responses"].as_object().unwrap();
        for status in ["500", "503"] {
            let problem = &answers[status]["content"]["application/problem+json"]["schema"]["$ref"];
            assert_eq!(problem, "#/components/schemas/Problem", "{method} {path}");
        }
        assert!(!operation.to_string().contains("# Errors"), "{method} {path}");
    }
    let mut named = BTreeSet::new();
    references(&document, &mut named);
    for reference in named {
        assert!(document.pointer(&reference[1..]).is_some(), "{reference} leads nowhere");
    }
}

/// The description says which scope each route needs.
#[tokio::test]
async fn openapi_document_has_the_scope_of_each_route() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(folder.path());
    let document = gateway.json("/openapi.json").await;
    for route in router::routes().list() {
        let operation = &document["paths"][&route.path][route.method.as_str().to_ascii_lowercase()];
        let of = |scope: &str| json!([{}, { "token": [scope] }, { "password": [scope] }]);
        let expected = match route.rule {
            Rule::Open => json!([]),
            Rule::Read | Rule::View(_) => of("read"),
            Rule::Admin => of("admin"),
            Rule::Publish => json!([{}, { "token": ["publish"] }, { "password": ["publish"] }, { "signature": [] }]),
        };
        assert_eq!(operation["security"], expected, "{} {}", route.method, route.path);
    }
}

/// If this fails, the left side is the table for `docs/access.md`.
#[test]
fn access_page_lists_every_route_and_its_scope() {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/access.md")).unwrap();
    let (_, section) = page.split_once("\n## Every URL\n").unwrap();
    let rows: Vec<_> = section.lines().take_while(|line| !line.starts_with("## ")).collect();
    let rows: Vec<_> = rows.into_iter().filter(|line| line.starts_with("| `")).collect();
    let row = |route: &web::Route| {
        let rule = match route.rule {
            Rule::Open => "nothing".to_owned(),
            Rule::Read => "`read` without a view".to_owned(),
            Rule::View([]) => "`read`".to_owned(),
            Rule::View(surfaces) if *surfaces == Surface::ALL => "`read`, or any public surface".to_owned(),
            Rule::View(surfaces) => {
                let names: Vec<_> = surfaces.iter().map(|surface| format!("`{}`", surface.name())).collect();
                format!("`read`, or the public surface {}", names.join(" or "))
            }
            Rule::Admin => "`admin`".to_owned(),
            Rule::Publish => "`publish`, or a signature".to_owned(),
        };
        format!("| `{} {}` | {rule} |", route.method, route.path)
    };
    let expected: Vec<_> = router::routes().list().map(row).collect();
    assert_eq!(expected, rows, "\n{}\n", expected.join("\n"));
}

#[tokio::test]
async fn docs_page_loads_nothing_from_the_network() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(folder.path());
    let page = gateway.http.get(format!("{}/docs", gateway.url)).send().await.unwrap();
    assert_eq!(page.headers()["content-type"], "text/html; charset=utf-8");
    let policy = page.headers()["content-security-policy"].to_str().unwrap().to_owned();
    assert!(policy.starts_with("default-src 'none';") && policy.contains("connect-src 'self';"), "{policy}");
    let page = page.text().await.unwrap();
    assert!(page.contains("\"openapi.json\""));
    for elsewhere in ["src=", "//cdn", "@import", " url(", "fetch(\"http", "fetch(`http"] {
        assert!(!page.contains(elsewhere), "the page has {elsewhere}");
    }
    // Texts of examples, and the name of SVG.
    for (at, scheme) in page.match_indices("://") {
        let host = &page[at + scheme.len()..];
        let is_text = ["www.w3.org/", "example.org/", "indexer.example.org/"].iter().any(|one| host.starts_with(one));
        assert!(is_text, "the page has an address: {}", host.chars().take(40).collect::<String>());
    }
}
