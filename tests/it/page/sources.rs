//! Sources that read a broker and harvests: each state in its table, and each button.

use serde_json::{Value, json};

use super::{OpenPage, actions::until};
use crate::{
    lookups::failures::{SOON, modified, repository, url},
    support::{
        activemq::Broker,
        amqp_source::{SOURCE, connection, events, until_head, until_state},
        breakable_proxy::{BreakableProxy, Link},
        fake_fedora3::PATH,
        fedora3_messages::BASE,
        scripted_repository::ScriptedRepository,
        small_disk::SmallDisk,
        stomp_client::Client,
        stomp_source::{start, start_with},
        subscription_fixture::gateway,
    },
};

const PROBLEM: (&str, &str) = ("source-not-read", "source/harvests");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn source_is_paused_resumed_and_connected_again() {
    let broker = Broker::shared();
    let proxy = BreakableProxy::start(broker.port);
    let folder = tempfile::tempdir().unwrap();
    let queue = format!("/queue/{}", broker.name());
    let gateway = start(folder.path(), &format!("stomp://127.0.0.1:{}", proxy.port), &queue, "");
    let mut page = OpenPage::open(&format!("{}/", gateway.url));
    page.until_row("Sources", SOURCE, "✓ connected", &queue, &["Pause harvests"]);
    page.click("Pause harvests");
    until_state(&gateway, "paused").await;
    page.until_row("Sources", SOURCE, "▲ paused", "", &["Resume harvests"]);
    page.until_verdict("All is well");
    page.click("Resume harvests");
    until_state(&gateway, "connected").await;
    page.until_row("Sources", SOURCE, "✓ connected", "", &["Pause harvests"]);

    // A trouble of moments is not bad yet.
    proxy.set_link(Link::Refusing);
    page.until_row("Sources", SOURCE, "▲ waiting", "next try in", &["Pause harvests"]);
    page.until_problem(PROBLEM.0, PROBLEM.1, "");
    page.pass(31);
    page.until_row("Sources", SOURCE, "✗ waiting", "", &["Connect now harvests", "Pause harvests"]);
    proxy.set_link(Link::Open);
    until_state(&gateway, "connected").await;
    page.until_row("Sources", SOURCE, "✓ connected", "", &["Pause harvests"]);
    page.until_no_problem(PROBLEM.0, PROBLEM.1);

    // The view of a source connects it again at any time.
    let since = connection(&gateway).await["since"].clone();
    page.go("sources/harvests");
    page.click("Connect now harvests");
    let is_again =
        |source: &Value| source["connection"]["state"] == "connected" && source["connection"]["since"] != since;
    until(&gateway, "/sources/harvests", is_again).await;
    page.assert_quiet();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn source_that_waits_for_its_repository_says_so_until_that_answers() {
    let broker = Broker::shared();
    let queue = format!("/queue/{}", broker.name());
    let repository = repository().await;
    repository.api.write("demo:1", "OBJ", "image/jp2", 2);
    let address: reqwest::Url = url(&repository).parse().unwrap();
    let proxy = BreakableProxy::start(address.port().unwrap());
    proxy.set_link(Link::Refusing);
    let lines = format!(
        "lookup = \"required\"\n[sources.{SOURCE}.repository]\nurl = \"http://127.0.0.1:{}{PATH}\"\n\
         public_urls = [\"{BASE}\"]\n{SOON}",
        proxy.port
    );
    let folder = tempfile::tempdir().unwrap();
    let gateway = start_with(folder.path(), &broker.url(), &queue, "fedora-apim", &lines);
    let mut page = OpenPage::open(&format!("{}/", gateway.url));
    page.until_row("Sources", SOURCE, "✓ connected", "", &["Pause harvests"]);
    let headers = [("methodName", "modifyDatastreamByValue"), ("pid", "demo:1")];
    Client::connect(broker.port).send_all(&queue, &headers, [modified(2)]);
    page.until_problem(PROBLEM.0, PROBLEM.1, "");
    page.until_problem("lookup-unanswered", PROBLEM.1, "");
    let buttons = ["Connect now harvests", "Pause harvests"];
    page.until_row("Sources", SOURCE, "✗ no lookups", "the repository does not respond", &buttons);
    proxy.set_link(Link::Open);
    until_head(&gateway, 1).await;
    page.until_row("Sources", SOURCE, "✓ connected", "", &["Pause harvests"]);
    page.until_verdict("All is well");
    page.assert_quiet();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn source_that_waits_for_the_journal_says_so_until_there_is_room() {
    let disk = SmallDisk::of(64);
    let broker = Broker::shared();
    let queue = format!("/queue/{}", broker.name());
    let gateway = start(disk.path(), &broker.url(), &queue, "");
    let mut page = OpenPage::open(&format!("{}/", gateway.url));
    page.until_row("Sources", SOURCE, "✓ connected", "", &["Pause harvests"]);
    let filling = disk.fill();
    // Some may fit into the files of the journal.
    Client::connect(broker.port).send_all(&queue, &[], events(1..=1000));
    page.until_problem("journal-unavailable", "gateway", "");
    page.until_row("Sources", SOURCE, "▲ stalled", "", &["Pause harvests"]);
    std::fs::remove_file(filling).unwrap();
    until_head(&gateway, 1000).await;
    page.until_row("Sources", SOURCE, "✓ connected", "", &["Pause harvests"]);
    page.until_verdict("All is well");
    page.assert_quiet();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn harvest_shows_each_state_with_its_buttons() {
    let repository = ScriptedRepository::start(3).await;
    let address: reqwest::Url = repository.url().parse().unwrap();
    let proxy = BreakableProxy::start(address.port().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(
        folder.path(),
        &format!(
            "[sources.upm]\ntransport = \"oai-pmh\"\ndialect = \"oai-pmh\"\nurl = \"http://127.0.0.1:{}{}\"\n\
             every = \"1h\"\n",
            proxy.port,
            address.path()
        ),
    );
    let mut page = OpenPage::open(&format!("{}/", gateway.url));
    page.until_row("Sources", "upm", "✓ waiting", address.path(), &["Run now upm", "Pause upm"]);
    proxy.set_link(Link::Refusing);
    page.click("Run now upm");
    page.until_row("Sources", "upm", "✗ retrying", "next try in", &["Run now upm", "Pause upm"]);
    page.until_problem("harvest-fails", "source/upm", "");
    // A pause is what an administrator wants.
    page.click("Pause upm");
    until(&gateway, "/harvests/upm", |shown| shown["state"] == "paused").await;
    page.until_row("Sources", "upm", "▲ paused", "", &["Run now upm", "Resume upm"]);
    page.until_verdict("All is well");
    proxy.set_link(Link::Open);
    page.click("Resume upm");
    until(&gateway, "/harvests/upm", |shown| shown["run"]["state"] == json!("completed")).await;
    page.until_row("Sources", "upm", "✓ waiting", "", &["Run now upm", "Pause upm"]);
    page.assert_quiet();
}
