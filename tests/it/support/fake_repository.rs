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
pub(crate) enum Behaviour {
    /// Answers correctly.
    Normal,
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
pub(crate) struct RecordedRequest {
    pub(crate) method: String,
    pub(crate) authorization: String,
}

/// Contents of a repository: computes the response to a method, path and query.
pub(crate) trait RepositoryApi: Send + Sync + 'static {
    fn answer(&self, method: &str, path: &str, query: &[(String, String)]) -> ResponseTemplate;

    /// Returns the error status for requests that ask for a digest, if digests are not supported.
    fn refuses_digests(&self) -> Option<u16> {
        None
    }
}

struct Handler<K> {
    api: Arc<K>,
    behaviour: Arc<Mutex<Behaviour>>,
    requests: Arc<Mutex<Vec<RecordedRequest>>>,
}

impl<K: RepositoryApi> Respond for Handler<K> {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        let header = |name: &str| request.headers.get(name).map_or("", |value| value.to_str().unwrap()).to_owned();
        let (method, authorization) = (request.method.to_string(), header("authorization"));
        self.requests.lock().unwrap().push(RecordedRequest { method, authorization });
        let query: Vec<_> =
            request.url.query_pairs().map(|(name, value)| (name.into_owned(), value.into_owned())).collect();
        let well = || match self.api.refuses_digests() {
            Some(status) if request.headers.contains_key("want-digest") => ResponseTemplate::new(status),
            _ => self.api.answer(request.method.as_str(), request.url.path(), &query),
        };
        let behaviour = *self.behaviour.lock().unwrap();
        match behaviour {
            Behaviour::Normal => well(),
            Behaviour::Slow(wait) => well().set_delay(wait),
            Behaviour::Uneven => well().set_delay(Duration::from_millis(fastrand::u64(..60))),
            Behaviour::Status(status) => ResponseTemplate::new(status),
            Behaviour::Nonsense => ResponseTemplate::new(200).set_body_raw("<html><p>Log in", "text/html"),
            Behaviour::Silent => ResponseTemplate::new(200).set_delay(NEVER),
        }
    }
}

/// Running repository.
pub(crate) struct FakeRepository<K> {
    server: MockServer,
    pub(crate) api: Arc<K>,
    behaviour: Arc<Mutex<Behaviour>>,
    requests: Arc<Mutex<Vec<RecordedRequest>>>,
}

impl<K: RepositoryApi> FakeRepository<K> {
    pub(crate) async fn start(api: K) -> Self {
        let server = MockServer::start().await;
        let (api, behaviour) = (Arc::new(api), Arc::new(Mutex::new(Behaviour::Normal)));
        let requests = Arc::new(Mutex::new(Vec::new()));
        let handler =
            Handler { api: Arc::clone(&api), behaviour: Arc::clone(&behaviour), requests: Arc::clone(&requests) };
        Mock::given(any()).respond_with(handler).mount(&server).await;
        Self { server, api, behaviour, requests }
    }

    /// Returns the base URL without a path.
    pub(crate) fn url(&self) -> String {
        self.server.uri()
    }

    pub(crate) fn set_behaviour(&self, behaviour: Behaviour) {
        *self.behaviour.lock().unwrap() = behaviour;
    }

    /// Returns the recorded requests.
    pub(crate) fn requests(&self) -> Vec<RecordedRequest> {
        self.requests.lock().unwrap().clone()
    }
}
