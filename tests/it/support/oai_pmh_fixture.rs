//! Gateway as a repository with OAI-PMH, whose responses are all validated against the schemas.

use std::{fs, path::PathBuf, sync::Mutex};

use quick_xml::{Reader, events::Event};
use reqwest::RequestBuilder;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{gateway::Gateway, journal_fixture::configuration, xmllint};

/// Lines of the configuration that make the gateway a repository.
pub(crate) const REPOSITORY: &str = "[oai_pmh]\nadmin_email = \"admin@repository.example.org\"\n";

/// Schema of all responses, relative to `xsd/`.
const SCHEMA: &str = "../tests/it/oai_pmh/schemas/validate.xsd";

/// The gateway. Dropping it validates all responses.
pub(crate) struct Repository {
    pub(crate) gateway: Gateway,
    pub(crate) folder: TempDir,
    responses: Mutex<Vec<String>>,
}

/// A response that was read.
#[derive(Clone, Debug)]
pub(crate) struct Response {
    pub(crate) body: String,
}

impl Repository {
    /// Starts a gateway with further lines of its table `[oai_pmh]`.
    pub(crate) fn start(more: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = configuration(folder.path(), &format!("{REPOSITORY}{more}"));
        let gateway = Gateway::start_with(&folder.path().join("data"), &["--config", &config]);
        Self { gateway, folder, responses: Mutex::default() }
    }

    pub(crate) fn url(&self) -> String {
        format!("{}/oai", self.gateway.url)
    }

    /// Returns the response to a query.
    pub(crate) async fn get(&self, query: &str) -> Response {
        self.send(self.gateway.http.get(format!("{}?{query}", self.url()))).await
    }

    pub(crate) async fn send(&self, request: RequestBuilder) -> Response {
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200, "{}", response.text().await.unwrap());
        assert_eq!(response.headers()["content-type"], "text/xml; charset=utf-8");
        let body = response.text().await.unwrap();
        self.responses.lock().unwrap().push(body.clone());
        Response { body }
    }

    /// Returns all headers of a list, each with its identifier, its datestamp, and whether it is deleted.
    pub(crate) async fn list(&self, arguments: &str) -> Vec<(String, String, bool)> {
        let (mut all, mut query) = (Vec::new(), format!("verb=ListIdentifiers&metadataPrefix=oai_dc{arguments}"));
        loop {
            let page = self.get(&query).await;
            all.extend(page.headers());
            match page.token() {
                Some(token) if !token.is_empty() => query = format!("verb=ListIdentifiers&resumptionToken={token}"),
                _ => return all,
            }
        }
    }

    /// Posts a change of an object, and returns its number.
    pub(crate) async fn post(&self, change: &Value) -> u64 {
        let (status, body) = self.gateway.post("content-change", "application/json", change.to_string()).await;
        assert_eq!(status, 201, "{change}: {body}");
        body["changes"][0]["seq"].as_u64().unwrap()
    }

    /// Posts that an object exists, with the item that has its URI.
    pub(crate) async fn add(&self, number: usize) {
        self.post(&added(number)).await;
    }

    /// Posts a new state of an object that exists.
    pub(crate) async fn add_again(&self, number: usize) {
        let item = json!({ "uri": object(number), "change": "UPDATE" });
        self.post(&json!({ "object": object(number), "items": [item] })).await;
    }

    /// Validates the responses that were read until now, in files.
    pub(crate) fn validate(&self) {
        let responses = std::mem::take(&mut *self.responses.lock().unwrap());
        let files = responses.iter().enumerate().map(|(number, response)| {
            let file = self.folder.path().join(format!("response-{number}.xml"));
            fs::write(&file, response).unwrap();
            file
        });
        let files: Vec<PathBuf> = files.collect();
        for part in files.chunks(200) {
            xmllint::assert_valid(SCHEMA, part);
        }
    }
}

impl Drop for Repository {
    fn drop(&mut self) {
        if !std::thread::panicking() && !self.responses.lock().unwrap().is_empty() {
            self.validate();
        }
    }
}

/// Returns the URI of an object.
pub(crate) fn object(number: usize) -> String {
    format!("http://h/objects/{number}")
}

/// Returns the change that adds an object with a file.
pub(crate) fn added(number: usize) -> Value {
    let object = object(number);
    let content = json!({ "url": format!("{object}/file"), "mediaType": "text/plain", "size": 7 });
    json!({ "object": object, "items": [
        { "uri": object, "change": "ADD" },
        { "uri": format!("{object}/file"), "change": "ADD", "content": content, "stateAfter": "ACTIVE" },
    ] })
}

impl Response {
    /// Returns the texts of all elements with this name.
    pub(crate) fn texts(&self, name: &str) -> Vec<String> {
        let mut reader = Reader::from_str(&self.body);
        let (mut texts, mut current) = (Vec::new(), None);
        loop {
            match reader.read_event().unwrap() {
                Event::Eof => return texts,
                Event::Start(start) if start.name().as_ref() == name.as_bytes() => current = Some(String::new()),
                Event::End(end) if end.name().as_ref() == name.as_bytes() => texts.extend(current.take()),
                Event::Text(text) => {
                    if let Some(current) = &mut current {
                        current.push_str(&text.decode().unwrap());
                    }
                }
                _ => {}
            }
        }
    }

    /// Returns the only text of an element with this name.
    pub(crate) fn text(&self, name: &str) -> String {
        let mut texts = self.texts(name);
        assert_eq!(texts.len(), 1, "{name}: {}", self.body);
        texts.remove(0)
    }

    /// Returns the resumption token; `None` if there is no such element.
    pub(crate) fn token(&self) -> Option<String> {
        self.texts("resumptionToken").pop()
    }

    /// Returns the codes of the errors.
    pub(crate) fn errors(&self) -> Vec<String> {
        let codes = self.body.split("<error code=\"").skip(1);
        codes.map(|rest| rest.split('"').next().unwrap().to_owned()).collect()
    }

    /// Returns identifier and datestamp of each header, and whether it is deleted.
    pub(crate) fn headers(&self) -> Vec<(String, String, bool)> {
        let between = |text: &str, from: &str| {
            let rest = text.split_once(from).unwrap().1;
            rest.split('<').next().unwrap().to_owned()
        };
        let headers = self.body.split("<header").skip(1);
        let header = |text: &str| {
            let is_deleted = text.split('>').next().unwrap().contains("status=\"deleted\"");
            (between(text, "<identifier>").replace("&amp;", "&"), between(text, "<datestamp>"), is_deleted)
        };
        headers.map(header).collect()
    }
}
