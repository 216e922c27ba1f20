//! Readers without a token, and tokens with a view.

use std::{collections::BTreeSet, fs};

use serde_json::json;

use crate::support::{
    oai_pmh_fixture::{REPOSITORY, Response},
    views_fixture::{OPEN, SECRET, ViewedGateway, live_through, token},
    xmllint,
};

/// Lists all records of a reader, whose responses are added to `seen`.
async fn list(
    gateway: &ViewedGateway,
    reader: Option<&str>,
    prefix: &str,
    seen: &mut Vec<String>,
) -> Vec<(String, bool)> {
    let (mut all, mut path) = (Vec::new(), format!("/oai?verb=ListRecords&metadataPrefix={prefix}"));
    loop {
        let answer = gateway.get(&path, reader).await;
        assert_eq!(answer.status, 200, "{}", answer.everything);
        seen.push(answer.body.clone());
        let page = Response { body: answer.body };
        all.extend(page.headers().into_iter().map(|(identifier, _, is_deleted)| (identifier, is_deleted)));
        match page.token().filter(|token| !token.is_empty()) {
            Some(token) => path = format!("/oai?verb=ListRecords&resumptionToken={token}"),
            None => return all,
        }
    }
}

#[tokio::test]
async fn public_gets_what_it_sees_and_learns_what_it_has_seen() {
    let lines = format!(
        "{REPOSITORY}page = 7\n[access.public]\nsurfaces = [\"oai\"]\nobjects = [\"{OPEN}\"]\n{}",
        token("tenant", "read", "view = { objects = [\"http://h/closed/\"] }")
    );
    let gateway = ViewedGateway::start(&lines);
    let truth = live_through(&gateway, 60).await;
    let mut seen = Vec::new();
    for prefix in ["oai_dc", "content-change"] {
        let listed = list(&gateway, None, prefix, &mut seen).await;
        // Of the large object, items are visible.
        let visible: BTreeSet<_> = truth.visible.iter().filter(|uri| truth.objects.contains(*uri)).cloned().collect();
        let large = format!("{OPEN}large");
        let expected: BTreeSet<_> = visible.into_iter().chain([large]).collect();
        let live: BTreeSet<_> = listed.iter().filter(|record| !record.1).map(|record| record.0.clone()).collect();
        assert_eq!(live, expected);
        // The others were visible, and are not any more.
        let deleted: BTreeSet<_> = listed.iter().filter(|record| record.1).map(|record| record.0.clone()).collect();
        let withdrawn: BTreeSet<_> = truth
            .objects
            .iter()
            .filter(|uri| uri.starts_with(OPEN) && !uri.contains(SECRET) && !expected.contains(*uri))
            .cloned()
            .collect();
        assert_eq!(deleted, withdrawn);
        for uri in &truth.objects {
            let path = format!("/oai?verb=GetRecord&metadataPrefix={prefix}&identifier={uri}");
            let answer = gateway.get(&path, None).await;
            let is_found = !answer.body.contains("idDoesNotExist");
            assert_eq!(is_found, expected.contains(uri) || withdrawn.contains(uri), "{uri}");
            if is_found {
                seen.push(answer.body);
            }
        }
    }
    for verb in ["Identify", "ListSets", "ListMetadataFormats"] {
        seen.push(gateway.get(&format!("/oai?verb={verb}"), None).await.body);
    }
    assert!(seen.iter().all(|response| !response.contains(SECRET)));
    let tenant = list(&gateway, Some("tenant"), "oai_dc", &mut seen).await;
    assert!(tenant.iter().all(|record| record.0.starts_with("http://h/closed/")), "{tenant:?}");
    let all = list(&gateway, Some("reader"), "oai_dc", &mut seen).await;
    assert_eq!(all.iter().map(|record| record.0.clone()).collect::<BTreeSet<_>>(), truth.objects);
    let file = |(number, body): (usize, &String)| {
        let file = gateway.folder.path().join(format!("response-{number}.xml"));
        fs::write(&file, body).unwrap();
        file
    };
    let files: Vec<_> = seen.iter().enumerate().map(file).collect();
    files.chunks(200).for_each(|part| xmllint::assert_valid("../tests/it/oai_pmh/schemas/validate.xsd", part));
}

#[tokio::test]
async fn repository_is_closed_without_the_surface() {
    let lines = format!("{REPOSITORY}{}", token("few", "read", "view = { sources = [\"content-change\"] }"));
    let gateway = ViewedGateway::start(&lines);
    assert_eq!(gateway.get("/oai?verb=Identify", None).await.status, 401);
    assert_eq!(gateway.get("/oai?verb=Identify", Some("reader")).await.status, 200);
    // The registry does not know which source has reported a fact.
    assert_eq!(gateway.get("/oai?verb=Identify", Some("few")).await.status, 403);
}

/// A time would show that somebody works on what is hidden.
#[tokio::test]
async fn datestamps_of_the_public_do_not_move_with_hidden_items() {
    let gateway = ViewedGateway::start(&format!("{REPOSITORY}[access.public]\nsurfaces = [\"oai\"]\n"));
    let (object, shown, hidden) = ("http://h/1", "http://h/1/shown", "http://h/1/hidden");
    let change = |parent: &str, item: &str, change: &str, state: &str| json!({ "object": object, "parent": parent, "items": [{ "uri": item, "change": change, "stateAfter": state }] });
    let read = async |query: &str, reader: Option<&str>| {
        let answer = gateway.get(&format!("/oai?verb={query}"), reader).await;
        assert_eq!(answer.status, 200, "{}", answer.everything);
        Response { body: answer.body }
    };
    let record = format!("GetRecord&metadataPrefix=oai_dc&identifier={object}");
    // A later change has a later date.
    let until_later = async |date: &str| while read("Identify", None).await.text("responseDate").as_str() <= date {};
    gateway.post(&change("http://h/a", shown, "ADD", "ACTIVE")).await;
    gateway.post(&change("http://h/a", hidden, "ADD", "INACTIVE")).await;
    let first = read(&record, None).await.text("datestamp");
    until_later(&first).await;
    gateway.post(&change("http://h/a", hidden, "UPDATE", "INACTIVE")).await;
    assert_eq!(read(&record, None).await.text("datestamp"), first, "the parent is the same as before");
    assert!(read(&record, Some("reader")).await.text("datestamp") > first);
    gateway.post(&change("http://h/b", hidden, "UPDATE", "INACTIVE")).await;
    let second = read(&record, None).await.text("datestamp");
    assert!(second > first, "the public sees the parent");

    // Nothing of a withdrawn object shows itself.
    gateway.post(&change("http://h/b", shown, "UPDATE", "INACTIVE")).await;
    let withdrawn = read(&record, None).await.headers().remove(0);
    assert!(withdrawn.2 && withdrawn.1 >= second, "{withdrawn:?}");
    until_later(&withdrawn.1).await;
    gateway.post(&change("http://h/c", shown, "UPDATE", "INACTIVE")).await;
    assert_eq!(read(&record, None).await.headers(), std::slice::from_ref(&withdrawn));
    gateway.post(&change("http://h/c", shown, "UPDATE", "ACTIVE")).await;
    let back = read(&record, None).await.headers().remove(0);
    assert!(!back.2 && back.1 > withdrawn.1, "{back:?}");
}
