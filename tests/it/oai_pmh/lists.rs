//! Lists in pages: resumption tokens, records that change during a list, and limits.

use std::collections::BTreeSet;

use futures_util::{StreamExt, stream};
use reqwest::header::{ACCEPT_ENCODING, ETAG, IF_NONE_MATCH};
use serde_json::json;

use crate::support::{
    gateway::Gateway,
    journal_fixture::{configuration, journal_file, run, verify_ok},
    oai_pmh_fixture::{REPOSITORY, Repository, added, object},
};

const FIRST: &str = "verb=ListRecords&metadataPrefix=oai_dc";

#[tokio::test]
async fn pages_are_complete_and_the_last_one_has_an_empty_token() {
    let repository = Repository::start("page = 3\n");
    for (records, pages) in [(3, vec![3]), (4, vec![3, 1]), (6, vec![3, 3]), (7, vec![3, 3, 1])] {
        for number in repository.list("").await.len()..records {
            repository.add(number).await;
        }
        for verb in ["ListRecords", "ListIdentifiers"] {
            let mut query = format!("verb={verb}&metadataPrefix=oai_dc&from=2000-01-01");
            let (mut sizes, mut seen) = (Vec::new(), BTreeSet::new());
            loop {
                let page = repository.get(&query).await;
                let cursor = format!("cursor=\"{}\"", sizes.iter().sum::<usize>());
                sizes.push(page.headers().len());
                seen.extend(page.headers());
                let token = page.token();
                assert_eq!(token.is_some(), pages.len() > 1, "{}", page.body);
                assert_eq!(token.is_some(), page.body.contains(&cursor), "{}", page.body);
                match token.filter(|token| !token.is_empty()) {
                    Some(token) => query = format!("verb={verb}&resumptionToken={token}"),
                    None => break,
                }
            }
            assert_eq!((&sizes, seen.len()), (&pages, records), "{verb}");
        }
    }
}

#[tokio::test]
async fn token_belongs_to_its_list_and_can_be_repeated() {
    let mut repository = Repository::start("page = 2\n");
    for number in 0..5 {
        repository.add(number).await;
    }
    let token = repository.get(FIRST).await.token().unwrap();
    let resume = async |repository: &Repository, verb: &str, more: &str| {
        repository.get(&format!("verb={verb}&resumptionToken={token}{more}")).await
    };
    let page = resume(&repository, "ListRecords", "").await;
    assert_eq!(resume(&repository, "ListRecords", "").await.headers(), page.headers());
    assert_eq!(resume(&repository, "ListIdentifiers", "").await.errors(), ["badResumptionToken"]);
    assert_eq!(resume(&repository, "ListSets", "").await.errors(), ["badResumptionToken"]);
    assert_eq!(resume(&repository, "ListRecords", "A").await.errors(), ["badResumptionToken"]);
    assert_eq!(resume(&repository, "ListRecords", "&until=2002-01-01").await.errors(), ["badArgument"]);
    // The gateway keeps no state of a list.
    repository.gateway.kill();
    let config = configuration(repository.folder.path(), &format!("{REPOSITORY}page = 2\n"));
    repository.gateway = Gateway::start_with(&repository.folder.path().join("data"), &["--config", &config]);
    assert_eq!(resume(&repository, "ListRecords", "").await.headers(), page.headers());
}

#[tokio::test]
async fn record_that_changes_during_a_list_is_listed_again() {
    let repository = Repository::start("page = 2\n");
    for number in 0..6 {
        repository.add(number).await;
    }
    let first = repository.get(FIRST).await;
    // One that was listed, one that was not, and a new one.
    for number in [0, 3] {
        let content = json!({ "url": format!("{}/file", object(number)), "size": 8 });
        let item = json!({ "uri": format!("{}/file", object(number)), "change": "UPDATE", "content": content });
        repository.post(&json!({ "object": object(number), "items": [item] })).await;
    }
    repository.add(6).await;
    let (mut listed, mut token) = (first.headers(), first.token());
    while let Some(resumed) = token.filter(|token| !token.is_empty()) {
        let page = repository.get(&format!("verb=ListRecords&resumptionToken={resumed}")).await;
        listed.extend(page.headers());
        token = page.token();
    }
    let listed: Vec<_> = listed.into_iter().map(|(identifier, _, _)| identifier).collect();
    assert_eq!(listed, [0, 1, 2, 4, 5, 0, 3, 6].map(object));
}

#[tokio::test]
async fn list_that_is_never_quiet_ends() {
    let repository = Repository::start("page = 2\n");
    for number in 0..8 {
        repository.add(number).await;
    }
    let (mut page, mut pages) = (repository.get(FIRST).await, 1);
    while let Some(token) = page.token().filter(|token| !token.is_empty()) {
        assert!(pages < 40, "the list does not end");
        for number in [pages % 8, (pages + 3) % 8, (pages + 5) % 8] {
            let content = json!({ "url": format!("{}/file", object(number)), "size": 100 + pages });
            let item = json!({ "uri": format!("{}/file", object(number)), "change": "UPDATE", "content": content });
            repository.post(&json!({ "object": object(number), "items": [item] })).await;
        }
        page = repository.get(&format!("verb=ListRecords&resumptionToken={token}")).await;
        pages += 1;
    }
}

#[tokio::test]
async fn unchanged_page_is_not_sent_again_and_gzip_is_offered() {
    let repository = Repository::start("");
    for number in 0..20 {
        repository.add(number).await;
    }
    let request = || repository.gateway.http.get(format!("{}?{FIRST}", repository.url()));
    let plain = request().header(ACCEPT_ENCODING, "identity").send().await.unwrap();
    assert!(!plain.headers().contains_key("content-encoding"));
    let tag = plain.headers()[ETAG].clone();
    let text = plain.text().await.unwrap();
    let same = request().header(IF_NONE_MATCH, tag.clone()).send().await.unwrap();
    assert_eq!(same.status(), 304);
    let zipped = request().header(ACCEPT_ENCODING, "gzip").send().await.unwrap();
    assert_eq!(zipped.headers()["content-encoding"], "gzip");
    let zipped = zipped.bytes().await.unwrap();
    let mut unzipped = String::new();
    std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&*zipped), &mut unzipped).unwrap();
    let undated = |text: &str| text.split_once("</responseDate>").unwrap().1.to_owned();
    assert_eq!(undated(&unzipped), undated(&text));
    repository.add(20).await;
    assert_eq!(request().header(IF_NONE_MATCH, tag).send().await.unwrap().status(), 200);
}

#[tokio::test]
async fn restored_journal_lists_all_records_again_and_refuses_old_tokens() {
    crate::support::needs_sqlite();
    let mut repository = Repository::start("page = 2\n");
    for number in 0..3 {
        repository.add(number).await;
    }
    let token = repository.get(FIRST).await.token().unwrap();
    let old = repository.list("").await;
    let (data, backup) = (repository.folder.path().join("data"), repository.folder.path().join("backup.sqlite"));
    let made = run("backup", &["--data".as_ref(), &data, &backup]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    repository.add(3).await;
    repository.gateway.kill();
    let restored = run("restore", &[&backup, "--data".as_ref(), &data, "--force".as_ref()]);
    assert!(restored.status.success(), "{}", String::from_utf8_lossy(&restored.stderr));
    let config = configuration(repository.folder.path(), &format!("{REPOSITORY}page = 2\n"));
    repository.gateway = Gateway::start_with(&data, &["--config", &config]);
    let resumed = repository.get(&format!("verb=ListRecords&resumptionToken={token}")).await;
    assert_eq!(resumed.errors(), ["badResumptionToken"]);
    // A harvester that continues from its last date gets everything, because it may have lost versions.
    let since = &old.last().unwrap().1;
    let new = repository.list(&format!("&from={since}")).await;
    assert_eq!(new.len(), 3);
    assert!(new.iter().all(|record| record.1 >= *since), "{new:?}");
    assert_eq!(repository.get("verb=Identify").await.text("earliestDatestamp"), new[0].1);
    assert!(repository.list(&format!("&until={}", &old[0].1)).await.len() <= 3);
    verify_ok(&journal_file(&data));
}

/// The last record of a list with an end changes before its page is read.
#[tokio::test]
async fn list_with_an_end_ends_although_its_last_record_has_changed() {
    let repository = Repository::start("page = 2\n");
    for number in 0..3 {
        repository.add(number).await;
    }
    let last = repository.list("").await[2].1.clone();
    let token = repository.get(&format!("{FIRST}&until={last}")).await.token().unwrap();
    // The change gets a later date.
    while repository.get("verb=Identify").await.text("responseDate") <= last {}
    repository.add_again(2).await;
    let page = repository.get(&format!("verb=ListRecords&resumptionToken={token}")).await;
    assert_eq!(page.errors(), [""; 0], "{}", page.body);
    assert_eq!((page.headers()[0].0.as_str(), page.token().as_deref()), (object(2).as_str(), Some("")));
    repository.validate();
}

/// No index has the sets, so a page examines only some of the objects at a time.
#[tokio::test(flavor = "multi_thread")]
async fn records_of_a_rare_set_are_found_among_many_others() {
    let repository = Repository::start("page = 2\n");
    let rare = "http://h/types/rare";
    let with_type = |number: usize| {
        let mut change = added(number);
        if [0, 5500, 5600, 10_700].contains(&number) {
            change["types"] = json!([rare]);
        }
        change
    };
    let posts = stream::iter(0..10_800).map(|number| {
        let (repository, change) = (&repository, with_type(number));
        async move { repository.post(&change).await }
    });
    // Nearly in their order, so that the rare ones are far from each other.
    assert_eq!(posts.buffered(64).count().await, 10_800);
    let listed = repository.list("&set=type.http!3A!2F!2Fh!2Ftypes!2Frare").await;
    let listed: Vec<_> = listed.into_iter().map(|(identifier, ..)| identifier).collect();
    assert_eq!(listed, [0, 5500, 5600, 10_700].map(object));
    assert_eq!(repository.get(&format!("{FIRST}&set=type.urn!3Anone")).await.errors(), ["noRecordsMatch"]);
}
