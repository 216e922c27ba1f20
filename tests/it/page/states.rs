//! The states that the page shows. Each is made by its real cause, is read off the page, and leaves it when the cause ends,
//! without a reload.

use std::sync::{
    Arc,
    atomic::{AtomicU16, Ordering},
};

use serde_json::json;

use super::OpenPage;
use crate::support::{
    activemq::Broker,
    breakable_proxy::{BreakableProxy, Link},
    http_receiver::{Receiver, Reply},
    scripted_repository::ScriptedRepository,
    subscription_fixture::{gateway, post},
    webhook_fixture::webhook,
};

/// What the page shows of a problem: a part of its sentence, and the buttons that mend it.
const PROBLEMS: [(&str, &[&str]); 7] = [
    ("✗ The source messages is not read", &["Connect now messages", "Details of messages"]),
    ("✗ The source upm cannot be harvested", &["Run now upm", "Details of upm"]),
    (
        "✗ The subscription broken does not deliver: change 1: it responded with 500",
        &["Try now broken", "Pause broken", "Details of broken"],
    ),
    (
        "▲ The source content-change has messages in the quarantine: 1 message",
        &["Read all again content-change", "Look at content-change", "Details of content-change"],
    ),
    (
        "▲ The subscription refusing has messages that its receiver refuses: 1 message",
        &["Send all again refusing", "Details of refusing"],
    ),
    ("▲ The subscription over has ended", &["Resume over", "Details of over"]),
    ("▲ The source messages is read with a warning", &["Details of messages"]),
];

/// States in the tables, with their marks.
const STATES: [(&str, &str, &str); 7] = [
    ("Sources", "messages", "▲ connected"),
    ("Sources", "upm", "✓ waiting"),
    ("Sources", "fedora3", "○ hook"),
    ("Subscriptions", "broken", "✓ running"),
    ("Subscriptions", "over", "✓ running"),
    ("Subscriptions", "asleep", "▲ paused"),
    ("Subscriptions", "refusing", "✓ running"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn states_are_shown_with_their_remedies_until_their_causes_end() {
    let broker = Broker::shared();
    let to_broker = BreakableProxy::start(broker.port);
    let repository = ScriptedRepository::start(3).await;
    let address: reqwest::Url = repository.url().parse().unwrap();
    let to_repository = BreakableProxy::start(address.port().unwrap());
    to_repository.set_link(Link::Refusing);
    // Each receiver answers with its own status until the end of the test.
    let is_mended = Arc::new(AtomicU16::new(0));
    let mut receivers = Vec::new();
    let mut lines = format!(
        "[delivery]\nallow = [\"127.0.0.1\"]\n[sources.messages]\ntransport = \"stomp\"\ndialect = \"content-change\"\n\
         url = \"stomp://127.0.0.1:{}\"\ndestination = \"/topic/{}\"\n[sources.upm]\ntransport = \"oai-pmh\"\n\
         dialect = \"oai-pmh\"\nurl = \"http://127.0.0.1:{}{}\"\nevery = \"1h\"\n",
        to_broker.port,
        broker.name(),
        to_repository.port,
        address.path()
    );
    for (name, status) in [("broken", 500), ("refusing", 422), ("over", 410), ("asleep", 200)] {
        let mended = Arc::clone(&is_mended);
        let answer = move |_: usize, _: &_| Reply::of(if mended.load(Ordering::Relaxed) == 0 { status } else { 200 });
        let receiver = Receiver::start(answer).await;
        lines += &webhook(name, &receiver.url(), "refused_statuses = [422]");
        receivers.push(receiver);
    }
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), &lines);
    let mut page = OpenPage::open(&format!("{}/", gateway.url));
    page.until_verdict("The source messages is read with a warning");
    to_broker.set_link(Link::Refusing);
    post(&gateway, 1).await;
    assert_eq!(gateway.post("content-change", "application/json", "{\"no\": 1}").await.0, 422);
    for (text, buttons) in PROBLEMS {
        let sentence = text.split_once(' ').unwrap().1;
        page.until_verdict(sentence);
        let item = format!(
            "[...document.querySelectorAll('.verdict li')].find(item => item.textContent.includes({}))",
            json!(sentence)
        );
        page.browser.until(
            &format!("{item}?.textContent.startsWith({})", json!(&text[..text.find(' ').unwrap()])),
            &json!(true),
        );
        let labels = format!("[...{item}.querySelectorAll('[aria-label]')].map(one => one.ariaLabel)");
        page.browser.until(&labels, &json!(buttons));
    }
    assert_eq!(page.value("document.querySelector('.verdict').classList.contains('bad')"), true);
    page.until_verdict("7 things need attention");
    assert_eq!(page.value("document.title"), "(7) Tidings");
    page.until_says("#announcement", "7 things need attention");
    for button in ["Pause asleep", "Connect now messages", "Try now broken", "Read all again content-change"] {
        page.click(button);
        page.until_says("#notice", &format!("{button}: "));
    }

    // The causes end.
    is_mended.store(1, Ordering::Relaxed);
    to_broker.set_link(Link::Open);
    to_repository.set_link(Link::Open);
    page.click("Resume over");
    page.click("Send all again refusing");
    page.click("Run now upm");
    page.go("quarantine?source=content-change");
    page.confirm("Drop all content-change", "1 message of content-change will be deleted for good");
    page.go("");
    // A source without a durable subscription keeps its warning.
    page.until_verdict("1 thing needs attention");
    page.until_verdict(PROBLEMS[6].0.split_once(' ').unwrap().1);
    for (table, name, state) in STATES {
        let row = format!("[aria-label={table}] tbody tr");
        let rows = format!("[...document.querySelectorAll({})]", json!(row));
        let cell = format!("{rows}.find(row => row.cells[0].textContent === {})?.cells[1].textContent", json!(name));
        page.browser.until(&format!("{cell}?.startsWith({}) || {cell}", json!(state)), &json!(true));
    }
    page.assert_quiet();
}
