//! The page at `/`, in a real browser.

mod accessibility;
mod actions;
mod away;
mod connect;
mod contents;
mod find;
mod live;
mod looks;
mod nodes;
mod pictures;
mod real_data;
mod requests;
mod shell;
mod sign_in;
mod sizes;
mod states;

use serde_json::{Value, json};

use crate::support::browser::Browser;

/// The page in a browser.
struct OpenPage {
    browser: Browser,
    url: String,
}

impl OpenPage {
    /// Opens the page of a gateway, or another address below its URL.
    fn open(url: &str) -> Self {
        let mut browser = Browser::start();
        browser.watch();
        browser.go(url);
        Self { browser, url: url.to_owned() }
    }

    /// Opens a part of the page, without a reload.
    fn go(&mut self, route: &str) {
        self.browser.value(&format!("location.hash = {}", json!(format!("#/{route}"))));
    }

    /// Waits until the text of an element contains a text.
    fn until_says(&mut self, selector: &str, text: &str) {
        let shown = format!("document.querySelector({})?.textContent", json!(selector));
        self.browser.until(&format!("{shown}?.includes({}) || {shown}", json!(text)), &json!(true));
    }

    /// Waits until the view shows the resources that it names.
    fn until_loaded(&mut self) {
        let waits =
            "[...document.querySelectorAll('main .muted')].some(one => one.textContent === '…') ? location.hash : ''";
        self.browser.until(waits, &json!(""));
    }

    /// Waits until the verdict contains a text.
    fn until_verdict(&mut self, text: &str) {
        self.until_says(".verdict", text);
    }

    /// Waits for the button with this name, and clicks it.
    fn click(&mut self, name: &str) {
        let button = format!("document.querySelector({})", json!(format!("[aria-label={}]", json!(name))));
        self.browser.until(&format!("!!{button}"), &json!(true));
        self.browser.value(&format!("{button}.focus(), {button}.click()"));
    }

    /// Clicks a button that asks first, checks that the dialog says a text and that its safe answer has the focus, and
    /// confirms.
    fn confirm(&mut self, name: &str, says: &str) {
        self.click(name);
        self.until_says("dialog[open]", says);
        self.browser.until("document.activeElement.textContent", &json!("Cancel"));
        self.browser.value("document.querySelector('dialog .danger').click()");
    }

    /// Returns the value of a JavaScript expression.
    fn value(&mut self, expression: &str) -> Value {
        self.browser.value(expression)
    }

    /// Panics if the page has logged an error, has broken its policy, or has requested another server.
    fn assert_quiet(&self) {
        assert_eq!(self.browser.complaints(), Vec::<String>::new());
        let origin: reqwest::Url = self.url.parse().unwrap();
        for url in self.browser.requested() {
            assert_eq!(url.parse::<reqwest::Url>().unwrap().origin(), origin.origin(), "{url}");
        }
    }
}
