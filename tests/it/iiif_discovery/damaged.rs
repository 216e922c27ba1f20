//! A damaged change costs the page on which it is, in both protocols with numbered pages.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::{
    gateway::Gateway,
    journal_fixture::{OpenJournal, journal_file},
};

/// Number of the damaged change: the first one of page 2.
const DAMAGED: u64 = 101;

/// Creates a journal with a damaged change. The change before it deletes an item, as the parts of a divided purge do.
async fn damaged_journal(data: &Path) {
    let change = |at: u64| {
        let object = format!("http://h/{}", (at - 1) / 2);
        json!({ "object": object, "items": [{ "uri": object, "change": if at % 2 == 1 { "ADD" } else { "DELETE" } }] })
    };
    let journal = OpenJournal::at(data);
    journal.append_batch((1..=250).map(change)).await;
    journal.close();
    let journal = rusqlite::Connection::open(journal_file(data)).unwrap();
    let sql = "UPDATE changes SET json = replace(json, '\"object\"', '\"objekt\"') WHERE seq = ?";
    assert_eq!(journal.execute(sql, [DAMAGED.cast_signed()]).unwrap(), 1);
}

#[tokio::test]
async fn damaged_change_costs_its_page_alone() {
    crate::support::needs_sqlite();
    let folder = tempfile::tempdir().unwrap();
    damaged_journal(folder.path()).await;
    let gateway = Gateway::start(folder.path());
    for (path, extension, member, links) in
        [("iiif", "json", "orderedItems", "last"), ("ldes", "jsonld", "member", "view")]
    {
        let entry = gateway.http.get(format!("{}/{path}", gateway.url)).send().await.unwrap();
        let url = entry.url().clone();
        assert!(entry.json::<Value>().await.unwrap()[links].is_object(), "{path}");
        let page = async |number: u64| {
            let page = url.join(&format!("page-{number}.{extension}")).unwrap();
            let response = gateway.http.get(page).send().await.unwrap();
            (response.status().as_u16(), response.json::<Value>().await.unwrap())
        };
        for (number, members) in [(1, 100), (3, 50)] {
            let (status, page) = page(number).await;
            assert_eq!((status, page[member].as_array().unwrap().len()), (200, members), "{path} {page}");
        }
        let (status, problem) = page(2).await;
        assert_eq!((status, &problem["type"]), (500, &json!("urn:tidings:problem:damaged-change")), "{path} {problem}");
        assert_eq!(problem["seq"], DAMAGED);
    }
}
