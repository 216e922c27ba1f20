//! `tidings seed-registry` walks through a repository of the test's own, and the first purge lists what was there before
//! the gateway was. A walk that was cut off, on either side, goes on where it was.

use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use serde_json::{Value, json};
use tempfile::TempDir;
use wiremock::ResponseTemplate;

use crate::{
    fedora3::{BASE, Call},
    gateway::{Gateway, PATIENCE, command, free_address},
    keeping::{journal_file, verified},
    the_command_line_keeps_its_promises::{Ran, ended},
    walked_repository::{Answers, Fake, Fedora3, Fedora6, Resource},
};

/// What Fedora 6 calls itself in its messages.
const BASE_6: &str = "http://localhost:8080/fcrepo/rest";

/// A configuration with a repository, and the data of a gateway.
struct Place {
    folder: TempDir,
    config: PathBuf,
    listen: String,
}

impl Place {
    /// Both sources have that repository; what it calls itself in messages is what each of them expects.
    fn of<T: Answers>(repository: &Fake<T>) -> Self {
        Self::with(&repository.url(), "")
    }

    fn with(url: &str, more: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("tidings.toml");
        let listen = free_address();
        let repository = |source: &str, base: &str| {
            format!("[sources.{source}.repository]\nurl = \"{url}\"\npublic_urls = [\"{base}\"]\n{more}")
        };
        let text =
            format!("[server]\nlisten = \"{listen}\"\n") + &repository("fedora3", BASE) + &repository("fedora", BASE_6);
        fs::write(&config, text).unwrap();
        Self { folder, config, listen }
    }

    fn gateway(&self) -> Gateway {
        Gateway::start_elsewhere(self.data(), &["--config", self.config.to_str().unwrap()], None)
    }

    fn data(&self) -> &Path {
        self.folder.path()
    }

    fn command(&self, source: &str, more: &[&str]) -> Command {
        let mut command = command();
        command.args(["seed-registry", "--source", source, "--config"]).arg(&self.config).args(more);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    async fn seed(&self, source: &str, more: &[&str]) -> Ran {
        let child = self.command(source, more).spawn().unwrap();
        // The repository answers on threads of this process.
        tokio::task::spawn_blocking(move || ended(child)).await.unwrap()
    }

    /// The same with success; gives the summary.
    async fn seeded(&self, source: &str, more: &[&str]) -> String {
        let (code, told, said) = self.seed(source, more).await;
        assert_eq!(code, 0, "{told}{said}");
        told
    }
}

async fn objects(gateway: &Gateway) -> Vec<Value> {
    let (mut after, mut all) = (String::new(), Vec::new());
    loop {
        let page = gateway.json(&format!("/snapshot?limit=1000{after}")).await;
        all.extend(page["objects"].as_array().unwrap().iter().cloned());
        let Some(next) = page["next"].as_str() else { return all };
        after = format!("&after={next}");
    }
}

/// The change that this message makes.
async fn told(gateway: &Gateway, source: &str, kind: &str, message: String) -> Value {
    let (status, answer) = gateway.post(source, kind, message).await;
    assert_eq!(status, 201, "{answer}");
    gateway.changes().await.pop().unwrap()
}

async fn purge(gateway: &Gateway, number: u64, pid: &str) -> Value {
    let call = Call { number, method: "purgeObject", pid, parameters: &[], returned: None };
    told(gateway, "fedora3", "application/atom+xml", call.message()).await
}

/// What a change lists: the items in order, each with what happened and its state before.
fn items(change: &Value) -> Vec<[String; 3]> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let item = |item: &Value| [text(&item["uri"]), text(&item["change"]), text(&item["stateBefore"])];
    change["items"].as_array().unwrap().iter().map(item).collect()
}

/// A Fedora 6 tells that a resource is gone, as it does: with no more types than that it was a resource.
fn deleted(number: u64, path: &str) -> String {
    json!({
        "@context": "https://www.w3.org/ns/activitystreams",
        "id": format!("urn:uuid:00000000-0000-4000-8000-{number:012x}"), "type": ["Delete"], "name": "delete resource",
        "published": "2026-03-01T10:00:00.000Z", "actor": [{ "type": "Person", "id": "info:fedora/fedoraAdmin" }],
        "object": { "id": format!("{BASE_6}{path}"), "type": ["http://www.w3.org/ns/prov#Entity"] },
    })
    .to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_of_fedora_3_lists_what_was_there_before() {
    let repository = Fake::start(Fedora3::with(321)).await;
    let place = Place::of(&repository);
    let gateway = place.gateway();
    // This one is told of before the walk, and has changed since.
    let call = Call {
        number: 1,
        method: "setDatastreamState",
        pid: "demo:11",
        parameters: &[("dsID", "OBJ"), ("dsState", "D")],
        returned: None,
    };
    told(&gateway, "fedora3", "application/atom+xml", call.message()).await;

    assert_eq!(place.seeded("fedora3", &[]).await, "walked 321 objects: 321 filled, 0 changes, 0 known, 0 left out\n");
    assert_eq!(gateway.changes().await.len(), 1, "somebody was told of what was found");
    assert_eq!(objects(&gateway).await.len(), 321);
    let shown = gateway.json(&format!("/objects?uri={BASE}/objects/demo:5")).await;
    assert_eq!(
        shown["items"][1]["content"]["url"],
        format!("{BASE}/objects/demo:5/datastreams/DC/content?asOfDateTime=2021-01-01T00:00:00.005Z")
    );
    assert_eq!(
        (&shown["items"][1]["content"]["mediaType"], &shown["items"][1]["content"]["size"]),
        (&json!("text/xml"), &json!(17))
    );

    let change = purge(&gateway, 2, "demo:35").await;
    let object = format!("{BASE}/objects/demo:35");
    let item =
        |id: &str, state: &str| [format!("{object}/datastreams/{id}/content"), "DELETE".to_owned(), state.to_owned()];
    let itself = [object.clone(), "DELETE".to_owned(), "INACTIVE".to_owned()];
    let expected = [itself, item("DC", "ACTIVE"), item("OBJ", "INACTIVE"), item("RELS-EXT", "ACTIVE")];
    assert_eq!(items(&change), expected);
    assert_eq!(change["parent"], format!("{BASE}/objects/demo:36"));
    assert_eq!(change["types"], json!(["info:fedora/demo:Image"]));
    // What was told counts before what was found, since it is newer.
    assert_eq!(items(&purge(&gateway, 3, "demo:11").await)[2][2], "DELETED");

    // The walk is at its end; begun anew it finds what is known.
    let (code, told, said) = place.seed("fedora3", &[]).await;
    assert_eq!((code, told.as_str()), (0, "walked 321 objects before\n"));
    assert!(said.contains("--restart walks again"), "{said}");
    let again = place.seeded("fedora3", &["--restart"]).await;
    assert_eq!(again, "walked 321 objects: 0 filled, 0 changes, 321 known, 0 left out\n");

    // It survives, and is what the journal says.
    let before = objects(&gateway).await;
    let mut gateway = gateway;
    gateway.kill();
    let report = verified(&journal_file(place.data()));
    assert!(report.complete && report.objects == 321, "{report:?}");
    let gateway = place.gateway();
    assert_eq!(objects(&gateway).await, before);
    let walk = gateway.json("/sources/fedora3/registry").await;
    assert_eq!((&walk["walk"]["done"], &walk["walk"]["objects"]), (&json!(true), &json!(321)));
    assert!(gateway.stop().success());
    assert!(verified(&journal_file(place.data())).complete);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delete_of_fedora_6_has_what_was_known_of_the_resource() {
    for tells_types in [true, false] {
        let mut holds = Fedora6::with(12);
        holds.tells_types = tells_types;
        holds.resources.insert("/collection-1/gone".to_owned(), Resource { size: Some(1), is_gone: true });
        let repository = Fake::start(holds).await;
        let place = Place::of(&repository);
        let gateway = place.gateway();
        // Ten containers with a container each; twelve binaries and one in each; and descriptions.
        let walked = 10 * (2 + 2 * 13);
        let told_of = format!("walked {walked} objects: {walked} filled, 0 changes, 0 known, 0 left out\n");
        assert_eq!(place.seeded("fedora", &[]).await, told_of);
        assert!(gateway.changes().await.is_empty());
        assert_eq!(objects(&gateway).await.len(), walked);

        let path = "/collection-3/image%207.jpg";
        let shown = gateway.json(&format!("/objects?uri={}", format!("{BASE_6}{path}").replace('%', "%25"))).await;
        let content = &shown["items"][0]["content"];
        assert_eq!((&content["size"], &content["mediaType"]), (&json!(7), &json!("image/jpeg")), "{shown}");
        assert_eq!(content["digest"], json!({ "algorithm": "sha-512", "value": "ab".repeat(64) }));
        let change = told(&gateway, "fedora", "application/ld+json", deleted(1, path)).await;
        assert_eq!(items(&change), [[format!("{BASE_6}{path}"), "DELETE".to_owned(), String::new()]]);
        assert_eq!(change["parent"], format!("{BASE_6}/collection-3"));
        let types = change["types"].to_string();
        assert!(types.contains("repository#Binary") && types.contains("ldp#NonRDFSource"), "{types}");
        // A container is deleted with all that is in it, an event each.
        for (number, path, parent) in [
            (2, "/collection-3/zz/ghost/deep/fcr:metadata", "/collection-3/zz/ghost/deep"),
            (3, "/collection-3/zz/ghost/deep", "/collection-3/zz"),
            (4, "/collection-3/zz", "/collection-3"),
            (5, "/collection-3", "/"),
        ] {
            let change = told(&gateway, "fedora", "application/ld+json", deleted(number, path)).await;
            assert_eq!(items(&change)[0][..2], [format!("{BASE_6}{path}"), "DELETE".to_owned()]);
            assert_eq!(change["parent"], format!("{BASE_6}{parent}"), "{path}");
            assert!(!change["types"].as_array().unwrap().is_empty() || path.ends_with("metadata"), "{change}");
        }
        assert!(gateway.stop().success());
        assert!(verified(&journal_file(place.data())).complete);
    }
}

/// Waits until the gateway has so many parts of a walk that is not `other`; gives its identifier.
async fn until_part(gateway: &Gateway, source: &str, part: u64, other: &Value) -> Value {
    let began = std::time::Instant::now();
    loop {
        let walk = gateway.json(&format!("/sources/{source}/registry")).await["walk"].take();
        if walk["id"] != *other {
            assert_ne!(walk["done"], json!(true), "the walk was too fast for this test");
            if walk["part"].as_u64() >= Some(part) {
                return walk["id"].clone();
            }
        }
        assert!(began.elapsed() < PATIENCE, "{walk}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The first line that a command says, with nothing read of what follows.
fn first_line(child: &mut Child) -> String {
    let (mut line, mut byte) = (Vec::new(), [0]);
    let said = child.stderr.as_mut().unwrap();
    while line.last() != Some(&b'\n') && said.read(&mut byte).unwrap() > 0 {
        line.push(byte[0]);
    }
    String::from_utf8(line).unwrap()
}

/// Cuts a walk off on either side, and lets it go on; gives how many requests the whole walk makes, and those of what
/// was left of it.
async fn cut_off_and_gone_on<T: Answers>(source: &str, repository: &Fake<T>, rate: &str, all: usize) {
    let whole = Place::of(repository);
    let gateway = whole.gateway();
    whole.seeded(source, &[]).await;
    let expected = objects(&gateway).await;
    assert_eq!(expected.len(), all);
    let requests = repository.asked().len();
    drop(gateway);

    // The command is killed.
    let place = Place::of(repository);
    let mut gateway = place.gateway();
    let mut child = place.command(source, &["--rate", rate]).spawn().unwrap();
    let id = until_part(&gateway, source, 2, &Value::Null).await;
    child.kill().unwrap();
    child.wait().unwrap();
    let walk = gateway.json(&format!("/sources/{source}/registry")).await;
    let found = walk["walk"]["objects"].as_u64().unwrap();
    assert!(found > 0 && usize::try_from(found).unwrap() < all, "{walk}");

    // The gateway is killed, and the command gives up after it has tried again.
    let mut child = place.command(source, &["--rate", rate, "--retries", "1"]).spawn().unwrap();
    let going_on = first_line(&mut child);
    assert!(going_on.contains("going on after"), "{going_on}");
    let parts = gateway.json(&format!("/sources/{source}/registry")).await["walk"]["part"].as_u64().unwrap();
    assert_eq!(until_part(&gateway, source, parts + 1, &Value::Null).await, id, "another walk was begun");
    gateway.kill();
    let (code, told, said) = tokio::task::spawn_blocking(move || ended(child)).await.unwrap();
    assert_eq!(code, 1, "{told}{said}");
    assert!(said.contains("no connection") && said.contains("run it again to go on"), "{said}");
    verified(&journal_file(place.data()));

    // It goes on where it was, without what is done.
    let gateway = place.gateway();
    repository.asked();
    let told = place.seeded(source, &[]).await;
    let rest = repository.asked().len();
    assert!(rest < requests, "{rest} requests for the rest, {requests} for all: {told}");
    assert_eq!(objects(&gateway).await, expected);
    assert!(gateway.changes().await.is_empty());

    // And so it does when the gateway is there again before the command has given up.
    let mut gateway = gateway;
    let child = place.command(source, &["--rate", rate, "--restart", "--retries", "1000"]).spawn().unwrap();
    until_part(&gateway, source, 2, &id).await;
    gateway.kill();
    let gateway = place.gateway();
    let (code, told, said) = tokio::task::spawn_blocking(move || ended(child)).await.unwrap();
    assert_eq!(code, 0, "{told}{said}");
    assert_eq!(objects(&gateway).await, expected);
    assert!(gateway.stop().success());
    verified(&journal_file(place.data()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_walk_through_fedora_3_that_was_cut_off_goes_on() {
    cut_off_and_gone_on("fedora3", &Fake::start(Fedora3::with(400)).await, "150", 400).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_walk_through_fedora_6_that_was_cut_off_goes_on() {
    cut_off_and_gone_on("fedora", &Fake::start(Fedora6::with(20)).await, "150", 440).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_found_is_told_as_changes_once() {
    let repository = Fake::start(Fedora3::with(60)).await;
    let place = Place::of(&repository);
    let gateway = place.gateway();
    let call = Call {
        number: 1,
        method: "addDatastream",
        pid: "demo:9",
        parameters: &[("dsID", "DC"), ("dsState", "A")],
        returned: Some("DC"),
    };
    told(&gateway, "fedora3", "application/atom+xml", call.message()).await;
    let summary = place.seeded("fedora3", &["--emit"]).await;
    assert_eq!(summary, "walked 60 objects: 0 filled, 60 changes, 0 known, 0 left out\n");
    let changes = gateway.changes().await;
    assert_eq!(changes.len(), 61);
    let of =
        |pid: &str| changes.iter().rev().find(|change| change["object"] == format!("{BASE}/objects/{pid}")).unwrap();
    assert_eq!(of("demo:5")["items"][2]["stateAfter"], "INACTIVE");
    assert!(of("demo:5")["items"].as_array().unwrap().iter().all(|item| item["change"] == "ADD"));
    // What an event told newer is left out, and the rest is told.
    let known = items(of("demo:9"));
    assert!(known.len() == 2 && !known.iter().any(|item| item[0].contains("/DC/")), "{known:?}");
    for again in [&["--emit", "--restart"][..], &["--restart"]] {
        let summary = place.seeded("fedora3", again).await;
        assert!(summary.contains(" 0 changes, "), "{summary}");
    }
    assert_eq!(gateway.changes().await.len(), 61);
    // What a walk filled in silence is known as well.
    repository.change(|holds| holds.objects.extend(Fedora3::with(70).objects));
    assert!(place.seeded("fedora3", &["--restart"]).await.contains(" 10 filled, 0 changes, "));
    assert!(place.seeded("fedora3", &["--restart", "--emit"]).await.contains(" 0 filled, 0 changes, "));
    assert_eq!(purge(&gateway, 2, "demo:70").await["items"].as_array().unwrap().len(), 3);
    assert!(gateway.stop().success());
    assert!(verified(&journal_file(place.data())).complete);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_fedora_3_is_asked_for_each_datastream() {
    let mut holds = Fedora3::with(20);
    (holds.knows_profiles, holds.page) = (false, 7);
    let repository = Fake::start(holds).await;
    let place = Place::of(&repository);
    let gateway = place.gateway();
    // Cut off within its first part.
    let begun = json!({ "walk": uuid::Uuid::new_v4(), "part": 1, "objects": [], "place": "" });
    assert_eq!(part(&gateway, "fedora3", &begun).await.0, 200);
    assert!(place.seeded("fedora3", &[]).await.starts_with("walked 20 objects: 20 filled"));
    let asked = repository.asked();
    assert_eq!(asked.iter().filter(|asked| asked.contains("sessionToken")).count(), 2, "{asked:?}");
    assert_eq!(items(&purge(&gateway, 1, "demo:1").await).len(), 4);
}

/// A list breaks off when an object is purged while it is read, or when its token has expired.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_breaks_off_is_read_again() {
    let mut holds = Fedora3::with(50);
    holds.page = 10;
    let repository = Fake::start(holds).await;
    let broken = std::sync::atomic::AtomicUsize::new(0);
    repository.trouble(move |asked| {
        let is_page = asked.contains("sessionToken");
        let number = if is_page { broken.fetch_add(1, std::sync::atomic::Ordering::SeqCst) } else { usize::MAX };
        // The second page of the first reading, and the third of the second, which is not tried again.
        match number {
            1 => Some(ResponseTemplate::new(404)),
            4 => Some(ResponseTemplate::new(500)),
            _ => None,
        }
    });
    let place = Place::of(&repository);
    let gateway = place.gateway();
    assert!(place.seeded("fedora3", &["--retries", "0"]).await.starts_with("walked 50 objects: 50 filled"));
    assert_eq!(objects(&gateway).await.len(), 50);
    let asked = repository.asked();
    assert_eq!(asked.iter().filter(|asked| asked.contains("terms=")).count(), 3, "{asked:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_repository_fails_to_answer_for_is_told_and_may_be_left_out() {
    let repository = Fake::start(Fedora3::with(120)).await;
    let place = Place::with(&repository.url(), "username = \"fedoraAdmin\"\npassword = \"hush-hush\"\n");
    let gateway = place.gateway();
    let fails = |status: u16| {
        repository.trouble(move |asked| asked.contains("/demo:77/datastreams?").then(|| ResponseTemplate::new(status)));
    };
    for (status, why) in [
        (
            500,
            "the repository answers 500 (asked for /objects/demo:77/datastreams?format=xml&profiles=true); mend that, or leave such out with --leave-out-failing",
        ),
        (401, "the repository answers 401: it does not let the gateway in; check username and password"),
        (403, "the repository answers 403: it does not let the gateway in"),
    ] {
        fails(status);
        let (code, told, said) = place.seed("fedora3", &["--retries", "1"]).await;
        assert!(code == 1 && said.contains(why) && !said.contains("hush"), "{status}: {told}{said}");
        assert_eq!(said.lines().filter(|line| line.contains("the repository answers")).count(), 1, "{said}");
    }
    for (body, why) in [
        ("<html><body>Log in</body></html>", "the repository's answer cannot be read"),
        ("nonsense", "is the url of [sources.fedora3.repository] that of its REST API?"),
    ] {
        repository.trouble(move |_| Some(ResponseTemplate::new(200).set_body_string(body)));
        let (code, told, said) = place.seed("fedora3", &[]).await;
        assert!(code == 1 && said.contains(why), "{told}{said}");
    }
    repository.trouble(|_| Some(ResponseTemplate::new(404)));
    let (code, _, said) = place.seed("fedora3", &["--restart"]).await;
    assert!(
        code == 1 && said.contains("there is no repository at http://127.0.0.1") && said.contains("check the url"),
        "{said}"
    );

    fails(500);
    let (code, told, said) = place.seed("fedora3", &["--restart", "--retries", "0", "--leave-out-failing"]).await;
    assert_eq!(
        (code, told.as_str()),
        (1, "walked 119 objects: 69 filled, 0 changes, 50 known, 1 left out\n"),
        "{said}"
    );
    assert!(said.contains("demo:77 is left out: the repository answers 500"), "{said}");
    repository.mended();
    assert_eq!(
        place.seeded("fedora3", &["--restart"]).await,
        "walked 120 objects: 1 filled, 0 changes, 119 known, 0 left out\n"
    );
    assert_eq!(objects(&gateway).await.len(), 120);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_makes_a_walk_impossible_is_told_in_a_sentence() {
    let repository = Fake::start(Fedora6::with(1)).await;
    let place = Place::of(&repository);
    for (source, more, code, why) in [
        (
            "fedora4",
            &[][..],
            2,
            "there is no source fedora4 in the configuration, or it is not enabled; there are content-change, fedora, fedora3, islandora",
        ),
        ("islandora", &[], 2, "make a source of the dialect fedora-events for the Fedora itself"),
        ("content-change", &[], 2, "has the dialect content-change, and what sends that cannot be walked through"),
        ("fedora", &[], 1, "no connection"),
        ("fedora", &["--gateway", "ftp://h"], 2, "it is neither http nor https"),
        ("fedora", &["--rate", "0"], 2, "0 is not in 1..=100000"),
    ] {
        let (ended, told, said) = place.seed(source, more).await;
        assert!(ended == code && told.is_empty() && said.contains(why), "{source} {more:?}: {ended} {told}{said}");
    }
    let gateway = place.gateway();
    let bare = Place::with("http://127.0.0.1:1/rest", "");
    fs::write(&bare.config, format!("[server]\nlisten = \"{}\"\n", place.listen)).unwrap();
    let (code, _, said) = bare.seed("fedora", &[]).await;
    assert!(code == 2 && said.contains("give its url in [sources.fedora.repository]"), "{said}");
    // A repository that is not there, and one that calls itself otherwise.
    let nobody = Place::with("http://127.0.0.1:1/rest", "");
    let (code, _, said) = nobody.seed("fedora", &["--gateway", &gateway.url, "--retries", "0"]).await;
    assert!(
        code == 1
            && said.contains("does not answer")
            && said.contains("is it running, at the url of [sources.fedora.repository]?"),
        "{said}"
    );
    let url = repository.url();
    repository.trouble(move |asked| {
        let triple = format!("<{url}/> <http://www.w3.org/ns/ldp#contains> <http://inner:8080/rest/a> .");
        asked.ends_with("/rest/?").then(|| ResponseTemplate::new(200).set_body_raw(triple, "application/n-triples"))
    });
    let (code, _, said) = place.seed("fedora", &[]).await;
    assert!(code == 1 && said.contains("http://inner:8080/rest/a") && said.contains("public_urls"), "{said}");
    repository.mended();
    // A source that the gateway has not, a place of another kind of walk.
    let (status, _) = part(&gateway, "nobody", &json!({})).await;
    assert_eq!(status, 404);
    let body = json!({ "walk": uuid::Uuid::new_v4(), "part": 1, "objects": [], "place": "{\"after\":\"demo:1\"}" });
    assert_eq!(part(&gateway, "fedora", &body).await.0, 200);
    let (code, _, said) = place.seed("fedora", &[]).await;
    assert!(code == 1 && said.contains("begin anew with --restart"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_needs_the_scope_admin() {
    let repository = Fake::start(Fedora3::with(3)).await;
    let digest = |token: &str| tidings::web::Secret::new(token).digest().to_hex();
    let tokens = ["reader", "admin"].map(|name| {
        let (digest, scope) = (digest(&format!("tdg_{name}")), if name == "admin" { "admin" } else { "read" });
        format!("[access.tokens.{name}]\nsha256 = \"{digest}\"\nscopes = [\"{scope}\"]\n")
    });
    let place = Place::of(&repository);
    let text = fs::read_to_string(&place.config).unwrap() + &tokens.concat();
    fs::write(&place.config, text).unwrap();
    let _gateway = place.gateway();
    for (token, code, why) in [
        ("", 1, "401 Unauthorized"),
        ("tdg_reader", 1, "give a token with the scope admin in TIDINGS_TOKEN\n"),
        ("tdg_admin", 0, ""),
    ] {
        let child = place.command("fedora3", &[]).env("TIDINGS_TOKEN", token).spawn().unwrap();
        let (ended, told, said) = tokio::task::spawn_blocking(move || ended(child)).await.unwrap();
        assert!(ended == code && said.contains(why) && !said.contains("tdg_"), "{token}: {ended} {told}{said}");
    }
}

async fn part(gateway: &Gateway, source: &str, body: &Value) -> (u16, Value) {
    let url = format!("{}/sources/{source}/registry", gateway.url);
    let sent = gateway.http.post(url).json(body).send().await.unwrap();
    (sent.status().as_u16(), serde_json::from_slice(&sent.bytes().await.unwrap()).unwrap())
}

#[tokio::test]
async fn parts_follow_one_another_and_a_repeat_moves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(folder.path());
    assert_eq!(gateway.json("/sources/fedora/registry").await, json!({ "source": "fedora", "walk": null }));
    let [one, two] = [1, 2].map(|number| format!("00000000-0000-4000-8000-00000000000{number}"));
    let object = json!({ "object": "http://h/1", "at": "2020-01-01T00:00:00Z",
        "items": [{ "uri": "http://h/1", "at": "2020-01-01T00:00:00Z" }] });
    let body =
        |walk: &str, part: u64| json!({ "walk": walk, "part": part, "objects": [object], "place": format!("p{part}") });
    for (walk, number, status, filled) in [
        (&one, 2, 409, None),
        (&one, 1, 200, Some(1)),
        (&one, 1, 200, Some(0)),
        (&one, 3, 409, None),
        (&one, 2, 200, Some(0)),
        (&one, 1, 409, None),
        (&two, 2, 409, None),
        (&two, 1, 200, Some(0)),
        (&one, 3, 409, None),
    ] {
        let (got, answer) = part(&gateway, "fedora", &body(walk, number)).await;
        assert_eq!((got, answer["filled"].as_u64()), (status, filled), "part {number} of {walk}: {answer}");
    }
    let walk = gateway.json("/sources/fedora/registry").await;
    assert_eq!(
        (&walk["walk"]["id"], &walk["walk"]["part"], &walk["walk"]["place"]),
        (&json!(two), &json!(1), &json!("p1"))
    );
    for (wrong, status, why) in [
        (
            json!({ "walk": two, "part": 2, "place": "", "objects": vec![object.clone(); 1001] }),
            422,
            "1000 are taken at once",
        ),
        (json!({ "walk": two, "part": 2, "place": "x".repeat(70_000), "objects": [] }), 422, "more than 65536 bytes"),
        (
            json!({ "walk": two, "part": 2, "place": "", "objects": [{ "object": "h", "at": "now", "items": [] }] }),
            400,
            "no part of a walk",
        ),
        (
            json!({ "walk": two, "part": 2, "place": "", "objects": [{ "object": "http://h/", "at": "2020-01-01T00:00:00Z", "items": [] }] }),
            400,
            "at least one item",
        ),
    ] {
        let (got, answer) = part(&gateway, "fedora", &wrong).await;
        assert!(got == status && answer["detail"].as_str().unwrap().contains(why), "{got} {answer}");
    }
}
