//! HTTP server for fake repositories, with failures on demand.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate, matchers::any};

/// User with access to the repository, and its password.
pub(crate) const USER: &str = "fedoraAdmin-7";
pub(crate) const PASSWORD: &str = "hush-hush-repository";

/// Delay that outlasts every time limit.
const NEVER: Duration = Duration::from_secs(600);

/// Behaviour towards requests.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mood {
    /// Answers correctly.
    Well,
    /// Answers correctly after a delay.
    Slow(Duration),
    /// Answers correctly, with a delay that differs between requests.
    Uneven,
    /// Answers with this status.
    Status(u16),
    /// Answers with an unrelated page.
    Nonsense,
    /// Does not answer.
    Silent,
}

/// Recorded request.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) authorization: String,
}

/// Contents of a repository: computes the response to a method, path and query.
pub(crate) trait Knows: Send + Sync + 'static {
    fn answer(&self, method: &str, path: &str, query: &[(String, String)]) -> ResponseTemplate;

    /// Returns the error status for requests that ask for a digest, if digests are not supported.
    fn refuses_digests(&self) -> Option<u16> {
        None
    }
}

struct Answering<K> {
    knows: Arc<K>,
    mood: Arc<Mutex<Mood>>,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl<K: Knows> Respond for Answering<K> {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        let header = |name: &str| request.headers.get(name).map_or("", |value| value.to_str().unwrap()).to_owned();
        let (method, authorization) = (request.method.to_string(), header("authorization"));
        self.asked.lock().unwrap().push(Asked { method, authorization });
        let query: Vec<_> =
            request.url.query_pairs().map(|(name, value)| (name.into_owned(), value.into_owned())).collect();
        let well = || match self.knows.refuses_digests() {
            Some(status) if request.headers.contains_key("want-digest") => ResponseTemplate::new(status),
            _ => self.knows.answer(request.method.as_str(), request.url.path(), &query),
        };
        let mood = *self.mood.lock().unwrap();
        match mood {
            Mood::Well => well(),
            Mood::Slow(wait) => well().set_delay(wait),
            Mood::Uneven => well().set_delay(Duration::from_millis(fastrand::u64(..60))),
            Mood::Status(status) => ResponseTemplate::new(status),
            Mood::Nonsense => ResponseTemplate::new(200).set_body_raw("<html><p>Log in", "text/html"),
            Mood::Silent => ResponseTemplate::new(200).set_delay(NEVER),
        }
    }
}

/// Running repository.
pub(crate) struct FakeRepository<K> {
    server: MockServer,
    pub(crate) knows: Arc<K>,
    mood: Arc<Mutex<Mood>>,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl<K: Knows> FakeRepository<K> {
    pub(crate) async fn start(knows: K) -> Self {
        let server = MockServer::start().await;
        let (knows, mood) = (Arc::new(knows), Arc::new(Mutex::new(Mood::Well)));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let answering = Answering { knows: Arc::clone(&knows), mood: Arc::clone(&mood), asked: Arc::clone(&asked) };
        Mock::given(any()).respond_with(answering).mount(&server).await;
        Self { server, knows, mood, asked }
    }

    /// Returns the base URL without a path.
    pub(crate) fn url(&self) -> String {
        self.server.uri()
    }

    pub(crate) fn is(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }

    /// Returns the recorded requests.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}
