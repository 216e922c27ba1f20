//! Errors of a crawl: each is one sentence with advice, and a resource that fails alone can be skipped.

use std::fs;

use serde_json::json;
use wiremock::ResponseTemplate;

use crate::support::{
    command_line::ended,
    crawl_fixture::{CrawlFixture, objects, post_part},
    crawled_repository::{CrawledRepository, Fedora3, Fedora6},
};

#[tokio::test(flavor = "multi_thread")]
async fn failed_resource_is_reported_and_can_be_skipped() {
    let repository = CrawledRepository::start(Fedora3::with(120)).await;
    let fixture = CrawlFixture::with(&repository.url(), "username = \"fedoraAdmin\"\npassword = \"hush-hush\"\n");
    let gateway = fixture.gateway();
    let fails = |status: u16| {
        repository.replace_responses(move |asked| {
            asked.contains("/demo:77/datastreams?").then(|| ResponseTemplate::new(status))
        });
    };
    for (status, why) in [
        (
            500,
            "the repository responds with status 500 (request: /objects/demo:77/datastreams?format=xml&profiles=true); fix that, or leave such objects out with --leave-out-failing",
        ),
        (401, "the repository denies access with status 401; check username and password"),
        (403, "the repository denies access with status 403"),
    ] {
        fails(status);
        let (code, stdout, stderr) = fixture.seed("fedora3", &["--retries", "1"]).await;
        assert!(code == 1 && stderr.contains(why) && !stderr.contains("hush"), "{status}: {stdout}{stderr}");
        assert_eq!(stderr.lines().filter(|line| line.contains(&format!("status {status}"))).count(), 1, "{stderr}");
    }
    for (body, why) in [
        ("<html><body>Log in</body></html>", "cannot parse the response of the repository"),
        ("nonsense", "is the url of [sources.fedora3.repository] the URL of its REST API?"),
    ] {
        repository.replace_responses(move |_| Some(ResponseTemplate::new(200).set_body_string(body)));
        let (code, stdout, stderr) = fixture.seed("fedora3", &[]).await;
        assert!(code == 1 && stderr.contains(why), "{stdout}{stderr}");
    }
    repository.replace_responses(|_| Some(ResponseTemplate::new(404)));
    let (code, _, stderr) = fixture.seed("fedora3", &["--restart"]).await;
    assert!(
        code == 1 && stderr.contains("there is no repository at http://127.0.0.1") && stderr.contains("check the url"),
        "{stderr}"
    );

    fails(500);
    let (code, stdout, stderr) = fixture.seed("fedora3", &["--restart", "--retries", "0", "--leave-out-failing"]).await;
    assert_eq!(
        (code, stdout.as_str()),
        (1, "walked 119 objects: 69 filled, 0 changes, 50 known, 1 left out\n"),
        "{stderr}"
    );
    assert!(stderr.contains("demo:77 is left out: the repository responds with status 500"), "{stderr}");
    repository.restore_responses();
    assert_eq!(
        fixture.seed_successfully("fedora3", &["--restart"]).await,
        "walked 120 objects: 1 filled, 0 changes, 119 known, 0 left out\n"
    );
    assert_eq!(objects(&gateway).await.len(), 120);
}

#[tokio::test(flavor = "multi_thread")]
async fn crawl_errors_are_one_sentence_with_advice() {
    let repository = CrawledRepository::start(Fedora6::with(1)).await;
    let fixture = CrawlFixture::of(&repository);
    for (source, more, code, why) in [
        (
            "fedora4",
            &[][..],
            2,
            "there is no source fedora4 in the configuration, or it is not enabled; there are content-change, fedora, fedora3, islandora",
        ),
        ("islandora", &[], 2, "add a source with the dialect fedora-events for the Fedora itself"),
        ("content-change", &[], 2, "has the dialect content-change, whose repositories cannot be crawled"),
        ("fedora", &[], 1, "no connection"),
        ("fedora", &["--gateway", "ftp://h"], 2, "give an http or https URL"),
        ("fedora", &["--rate", "0"], 2, "0 is not in 1..=100000"),
    ] {
        let (ended, stdout, stderr) = fixture.seed(source, more).await;
        assert!(
            ended == code && stdout.is_empty() && stderr.contains(why),
            "{source} {more:?}: {ended} {stdout}{stderr}"
        );
    }
    let gateway = fixture.gateway();
    let bare = CrawlFixture::with("http://127.0.0.1:1/rest", "");
    fs::write(&bare.config, format!("[server]\nlisten = \"{}\"\n", fixture.listen)).unwrap();
    let (code, _, stderr) = bare.seed("fedora", &[]).await;
    assert!(code == 2 && stderr.contains("give its url in [sources.fedora.repository]"), "{stderr}");
    // An unreachable repository, and a repository with another base URL.
    let nobody = CrawlFixture::with("http://127.0.0.1:1/rest", "");
    let (code, _, stderr) = nobody.seed("fedora", &["--gateway", &gateway.url, "--retries", "0"]).await;
    assert!(
        code == 1
            && stderr.contains("does not respond")
            && stderr.contains("is it running, at the url of [sources.fedora.repository]?"),
        "{stderr}"
    );
    let url = repository.url();
    repository.replace_responses(move |asked| {
        let triple = format!("<{url}/> <http://www.w3.org/ns/ldp#contains> <http://inner:8080/rest/a> .");
        asked.ends_with("/rest/?").then(|| ResponseTemplate::new(200).set_body_raw(triple, "application/n-triples"))
    });
    let (code, _, stderr) = fixture.seed("fedora", &[]).await;
    assert!(code == 1 && stderr.contains("http://inner:8080/rest/a") && stderr.contains("public_urls"), "{stderr}");
    repository.restore_responses();
    // An unknown source, and a position of another kind of crawl.
    let (status, _) = post_part(&gateway, "nobody", &json!({})).await;
    assert_eq!(status, 404);
    let body = json!({ "walk": uuid::Uuid::new_v4(), "part": 1, "objects": [], "place": "{\"after\":\"demo:1\"}" });
    assert_eq!(post_part(&gateway, "fedora", &body).await.0, 200);
    let (code, _, stderr) = fixture.seed("fedora", &[]).await;
    assert!(code == 1 && stderr.contains("start again with --restart"), "{stderr}");
}

#[tokio::test(flavor = "multi_thread")]
async fn crawl_requires_a_token_with_scope_admin() {
    let repository = CrawledRepository::start(Fedora3::with(3)).await;
    let digest = |token: &str| tidings::web::Secret::new(token).digest().to_hex();
    let tokens = ["reader", "admin"].map(|name| {
        let (digest, scope) = (digest(&format!("tdg_{name}")), if name == "admin" { "admin" } else { "read" });
        format!("[access.tokens.{name}]\nsha256 = \"{digest}\"\nscopes = [\"{scope}\"]\n")
    });
    let fixture = CrawlFixture::of(&repository);
    let text = fs::read_to_string(&fixture.config).unwrap() + &tokens.concat();
    fs::write(&fixture.config, text).unwrap();
    let _gateway = fixture.gateway();
    for (token, code, why) in [
        ("", 1, "401 Unauthorized"),
        ("tdg_reader", 1, "give a token with the scope admin in TIDINGS_TOKEN\n"),
        ("tdg_admin", 0, ""),
    ] {
        let child = fixture.command("fedora3", &[]).env("TIDINGS_TOKEN", token).spawn().unwrap();
        let (ended, stdout, stderr) = tokio::task::spawn_blocking(move || ended(child)).await.unwrap();
        assert!(ended == code && stderr.contains(why) && !stderr.contains("tdg_"), "{token}: {ended} {stdout}{stderr}");
    }
}
