//! The page at `/`, in a real browser.

mod accessibility;
mod actions;
mod audits;
mod away;
mod buttons;
mod connect;
mod contents;
mod crawlers;
mod datasets;
mod find;
mod live;
mod looks;
mod nodes;
mod pictures;
mod real_data;
mod remedies;
mod requests;
mod shell;
mod sign_in;
mod sizes;
mod sources;
mod states;
mod subscriptions;

use serde_json::{Value, json};

use crate::support::browser::Browser;

/// The page in a browser.
pub(crate) struct OpenPage {
    browser: Browser,
    url: String,
}

impl OpenPage {
    /// Opens the page of a gateway, or another address below its URL.
    pub(crate) fn open(url: &str) -> Self {
        // The certificates of tests are signed by themselves.
        let mut browser = Browser::start_with(&["--ignore-certificate-errors"]);
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

    /// Enters a token when the page asks for one.
    pub(crate) fn sign_in(&mut self, token: &str) {
        self.browser.until("!!document.querySelector('main input')", &json!(true));
        self.value(&format!("document.querySelector('main input').value = {}", json!(token)));
        self.click_text("Sign in");
    }

    /// Waits until the row of a thing in a table shows a state, a text and these buttons, by their names.
    fn until_row(&mut self, table: &str, name: &str, state: &str, text: &str, buttons: &[&str]) {
        let shown = format!(
            "(row => row && [row.cells[1].textContent.startsWith({}) && row.textContent.includes({}) || row.textContent, \
             [...row.querySelectorAll('button')].map(one => one.ariaLabel)])\
             ([...document.querySelectorAll('[aria-label={}] tbody tr')].find(row => row.cells[0].textContent === {}))",
            json!(state),
            json!(text),
            json!(table),
            json!(name)
        );
        self.browser.until(&shown, &json!([true, buttons]));
    }

    /// Lets so many seconds pass for the page, which knows the time from the browser and from the responses.
    fn pass(&mut self, seconds: u32) {
        self.value(&format!(
            "(() => {{ const now = Date.now, get = Headers.prototype.get, later = (time) => time + {seconds}e3; \
             Date.now = () => later(now()); \
             Headers.prototype.get = function (name) {{ const value = get.call(this, name); \
             return name === 'Date' ? new Date(later(Date.parse(value))).toUTCString() : value }} }})()"
        ));
    }

    /// Waits for the button with this name, and clicks it.
    fn click(&mut self, name: &str) {
        let button = format!("document.querySelector({})", json!(format!("[aria-label={}]", json!(name))));
        self.click_found(&button);
    }

    /// Waits until an expression finds a button, and clicks it at that moment: the page may replace it soon.
    fn click_found(&mut self, button: &str) {
        let click = "button => !!button && (button.focus(), button.click(), true)";
        self.browser.until(&format!("({click})({button})"), &json!(true));
    }

    /// Waits for the button with this text, and clicks it.
    fn click_text(&mut self, text: &str) {
        let button =
            format!("[...document.querySelectorAll('button')].find(one => one.textContent === {})", json!(text));
        self.click_found(&button);
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
