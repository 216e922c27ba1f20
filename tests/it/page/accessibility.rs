//! The page for people who use a keyboard, a screen reader, or colours of their own.

use std::{path::Path, process::Command};

use serde_json::{Value, json};

use super::OpenPage;
use crate::support::{
    http_receiver::{Receiver, Reply},
    subscription_fixture::{gateway, post},
    webhook_fixture::webhook,
};

/// Returns what axe-core finds against WCAG 2.2 AA and its best practices: rules with the elements that break them.
const FAULTS: &str = "axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'], resultTypes: ['violations'] })
    .then(({ violations }) => violations.map(({ id, nodes }) => [id, nodes.map(({ html, any, all, none }) => [html.slice(0, 300), ...[...any, ...all, ...none].map(({ message }) => message)])]))";

/// Returns the source of axe-core.
fn axe() -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/axe-core");
    let output = Command::new(script).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::read_to_string(String::from_utf8(output.stdout).unwrap().trim_end()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_has_no_fault_that_axe_core_finds() {
    let receiver = Receiver::start(|_, _| Reply::of(500)).await;
    let folder = tempfile::tempdir().unwrap();
    let lines = format!("[delivery]\nallow = [\"127.0.0.1\"]\n{}", webhook("index", &receiver.url(), ""));
    let gateway = gateway(folder.path(), &lines);
    post(&gateway, 1).await;
    assert_eq!(gateway.post("content-change", "application/json", "{}").await.0, 422);
    let mut page = OpenPage::open(&format!("{}/", gateway.url));
    page.until_verdict("2 things need attention");
    page.value(&format!("{}; null", axe()));
    let object = page.value(
        "fetch('changes').then(answer => answer.json()).then(({ changes }) => encodeURIComponent(changes[0].object))",
    );
    let life = format!("objects?uri={}", object.as_str().unwrap());
    let mut faults = Vec::new();
    for (feature, value) in
        [("prefers-color-scheme", "light"), ("prefers-color-scheme", "dark"), ("forced-colors", "active")]
    {
        page.browser.emulate(feature, value);
        for route in [
            "",
            "sources",
            "sources/content-change",
            "subscriptions",
            "subscriptions/index",
            "changes",
            "changes/1",
            &life,
            "quarantine",
            "quarantine/1",
            "datasets",
            "due",
            "gateway",
        ] {
            page.go(route);
            page.until_loaded();
            let found = page.value(FAULTS);
            if found != json!([]) {
                faults.push(json!([value, route, found]));
            }
        }
    }
    page.go("subscriptions/index");
    page.click("Skip to now index");
    page.browser.until("document.querySelector('dialog').open", &json!(true));
    let found = page.value(FAULTS);
    assert!(faults.is_empty() && found == json!([]), "{:#}\n{found:#}", Value::Array(faults));
    page.assert_quiet();
}

/// Each control is reached with the tabulator in the order of the document, shows the focus, and the page keeps still.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_works_with_a_keyboard_alone() {
    let receiver = Receiver::start(|_, _| Reply::of(200)).await;
    let folder = tempfile::tempdir().unwrap();
    let lines = format!("[delivery]\nallow = [\"127.0.0.1\"]\n{}", webhook("index", &receiver.url(), ""));
    let gateway = gateway(folder.path(), &lines);
    let mut page = OpenPage::open(&format!("{}/", gateway.url));
    page.until_says("[aria-label=Subscriptions] tbody", "index");
    page.until_loaded();
    page.browser.emulate("prefers-reduced-motion", "reduce");
    let moving = "document.getAnimations().length + [...document.querySelectorAll('*')].filter(one => getComputedStyle(one).scrollBehavior === 'smooth').length";
    assert_eq!(page.value(moving), 0);
    page.value(
        "window.controls = () => [...document.querySelectorAll('a, button, input, select, summary, [tabindex=\"0\"]')].filter(one => one.checkVisibility())",
    );
    let number = page.value("controls().length").as_u64().unwrap();
    assert!(number > 20, "{number}");
    for at in 0..number {
        page.browser.press("Tab", 9);
        let reached = page.value("[controls().indexOf(document.activeElement), document.activeElement.matches(':focus-visible'), getComputedStyle(document.activeElement).outlineStyle]");
        assert_eq!(reached, json!([at, true, "solid"]), "{}", page.value("document.activeElement.outerHTML"));
    }
    page.value("document.querySelector('[aria-label=\"Pause index\"]').focus()");
    page.browser.press(" ", 32);
    page.browser.until("document.activeElement.ariaLabel", &json!("Resume index"));
    assert_eq!(gateway.json("/subscriptions/index").await["state"], json!("paused"));
    page.assert_quiet();
}
