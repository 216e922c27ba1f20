//! Headless Chromium, controlled by its DevTools protocol over a pipe.

use std::{
    fs::File,
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    time::{Duration, Instant},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::gateway::PATIENCE;

/// Browser with one page.
pub(crate) struct Browser {
    child: Child,
    orders: ChildStdin,
    answers: Receiver<Value>,
    session: Value,
    last: u64,
    /// Events that the browser has sent between its responses.
    events: Vec<Value>,
    folder: TempDir,
}

impl Browser {
    /// Starts a browser with a blank page.
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a browser with further command-line arguments.
    pub(crate) fn start_with(arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // Chromium reads commands from file descriptor 3 and writes responses to file descriptor 4.
        let mut chromium = Command::new("sh");
        chromium.args(["-c", "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null", "sh", "chromium", "--headless=new"]);
        chromium.args(["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]);
        chromium.args(["--disable-background-networking", "--disable-component-update", "--no-proxy-server"]);
        chromium.arg(format!("--user-data-dir={}", folder.path().join("profile").display()));
        chromium.args(arguments).args(["--remote-debugging-pipe", "about:blank"]);
        chromium.env("HOME", folder.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
        chromium.stderr(File::create(folder.path().join("log")).unwrap());
        let mut child = chromium.spawn().unwrap();
        let orders = child.stdin.take().unwrap();
        let (sender, answers) = channel();
        let mut pipe = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            let mut message = Vec::new();
            while pipe.read_until(0, &mut message).is_ok_and(|read| read > 0) {
                message.pop();
                if sender.send(serde_json::from_slice(&message).unwrap()).is_err() {
                    return;
                }
                message.clear();
            }
        });
        let mut browser = Self { child, orders, answers, session: Value::Null, last: 0, events: Vec::new(), folder };
        let page = browser.order("Target.createTarget", &json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": page["targetId"], "flatten": true });
        browser.session = browser.order("Target.attachToTarget", &attach)["sessionId"].take();
        browser
    }

    fn order(&mut self, method: &str, parameters: &Value) -> Value {
        self.try_order(method, parameters).unwrap_or_else(|answer| panic!("{method}: {answer}"))
    }

    fn try_order(&mut self, method: &str, parameters: &Value) -> Result<Value, Value> {
        self.last += 1;
        let mut order = json!({ "id": self.last, "method": method, "params": parameters });
        if !self.session.is_null() {
            order["sessionId"] = self.session.clone();
        }
        self.orders.write_all(format!("{order}\0").as_bytes()).unwrap();
        loop {
            let mut answer = self.answers.recv_timeout(PATIENCE).unwrap_or_else(|error| {
                panic!("{method}: {error}: {}", std::fs::read_to_string(self.folder.path().join("log")).unwrap())
            });
            if answer["id"] == self.last {
                return if answer.get("error").is_none() { Ok(answer["result"].take()) } else { Err(answer) };
            }
            self.events.push(answer);
        }
    }

    /// Gives the page the size of another screen, in CSS pixels.
    pub(crate) fn resize(&mut self, width: u32, height: u32) {
        let screen = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": true });
        self.order("Emulation.setDeviceMetricsOverride", &screen);
    }

    /// Returns a picture of the page as a PNG file: of the screen, or of the whole page.
    pub(crate) fn picture(&mut self, is_whole: bool) -> Vec<u8> {
        let mut picture = json!({ "format": "png", "captureBeyondViewport": is_whole });
        if is_whole {
            picture["clip"] = self.order("Page.getLayoutMetrics", &json!({}))["cssContentSize"].take();
            picture["clip"]["scale"] = json!(1);
        }
        let taken = self.order("Page.captureScreenshot", &picture);
        STANDARD.decode(taken["data"].as_str().unwrap()).unwrap()
    }

    /// Enables events about requests, errors and violations of the security policy from now on.
    pub(crate) fn watch(&mut self) {
        for domain in ["Network", "Log", "Runtime"] {
            self.order(&format!("{domain}.enable"), &json!({}));
        }
    }

    /// Returns the events of this kind since the domain was enabled.
    fn events(&self, method: &str) -> impl Iterator<Item = &Value> {
        self.events.iter().filter(move |event| event["method"] == method).map(|event| &event["params"])
    }

    /// Returns the URLs that were requested since [`Browser::watch`].
    pub(crate) fn requested(&self) -> Vec<String> {
        let requests = self.events("Network.requestWillBeSent");
        requests.map(|request| request["request"]["url"].as_str().unwrap().to_owned()).collect()
    }

    /// Returns the exceptions, the errors and the violations of the security policy since [`Browser::watch`]. Responses
    /// with an error status are none.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let logged = self.events("Log.entryAdded").map(|event| &event["entry"]);
        let logged = logged.filter(|entry| entry["level"] == "error" && entry["source"] != "network");
        let thrown = self.events("Runtime.exceptionThrown").map(|event| &event["exceptionDetails"]);
        logged.chain(thrown).map(Value::to_string).collect()
    }

    /// Emulates a feature of media queries, such as `prefers-color-scheme`. The former one ends.
    pub(crate) fn emulate(&mut self, feature: &str, value: &str) {
        self.order("Emulation.setEmulatedMedia", &json!({ "features": [{ "name": feature, "value": value }] }));
    }

    /// Presses and releases a key, such as `Escape`.
    pub(crate) fn press(&mut self, key: &str, code: u32) {
        for kind in ["keyDown", "keyUp"] {
            self.order("Input.dispatchKeyEvent", &json!({ "type": kind, "key": key, "windowsVirtualKeyCode": code }));
        }
    }

    /// Enables network events from now on.
    pub(crate) fn watch_network(&mut self) {
        self.order("Network.enable", &json!({}));
    }

    /// Waits until the page has received part of the body of a request that began after
    /// [`Browser::watch_network`].
    pub(crate) fn until_received(&mut self, url: &str) {
        loop {
            let events = |method: &'static str| self.events.iter().filter(move |event| event["method"] == method);
            let begun = events("Network.requestWillBeSent").find(|event| event["params"]["request"]["url"] == url);
            let is_same =
                |event: &Value| begun.is_some_and(|begun| begun["params"]["requestId"] == event["params"]["requestId"]);
            if events("Network.dataReceived").any(is_same) {
                return;
            }
            let event = self.answers.recv_timeout(PATIENCE);
            self.events.push(event.unwrap_or_else(|error| panic!("nothing of {url} comes: {error}")));
        }
    }

    /// Navigates to a URL.
    pub(crate) fn go(&mut self, url: &str) {
        let went = self.navigate(url);
        assert_eq!(went, Value::Null, "{url}");
    }

    /// Navigates to a URL; returns the error text if that failed.
    pub(crate) fn navigate(&mut self, url: &str) -> Value {
        self.order("Page.navigate", &json!({ "url": url }))["errorText"].take()
    }

    /// Returns the value of a JavaScript expression, after its promise has resolved.
    pub(crate) fn value(&mut self, expression: &str) -> Value {
        self.evaluate(expression).unwrap_or_else(|exception| panic!("{expression}: {exception}"))
    }

    fn evaluate(&mut self, expression: &str) -> Result<Value, Value> {
        let ask = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        // A page that submits a form may be replaced by another one meanwhile.
        let mut evaluation = self.try_order("Runtime.evaluate", &ask)?;
        if evaluation.get("exceptionDetails").is_some() {
            Err(evaluation)
        } else {
            Ok(evaluation["result"]["value"].take())
        }
    }

    /// Waits until a JavaScript expression has the value `wanted`.
    pub(crate) fn until(&mut self, expression: &str, wanted: &Value) {
        let began = Instant::now();
        loop {
            // The page may not be loaded yet.
            let value = self.evaluate(expression);
            if value.as_ref() == Ok(wanted) {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "{expression} is {value:?}, and is to be {wanted}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Browser.close ends Chromium together with its child processes.
        let close = json!({ "id": 0, "method": "Browser.close" });
        let _ = self.orders.write_all(format!("{close}\0").as_bytes());
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(5) {
            if self.child.try_wait().is_ok_and(|ended| ended.is_some()) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
