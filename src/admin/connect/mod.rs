//! `GET /connect`: how to connect each kind of repository, harvest and subscriber: the block of the configuration, and a
//! command with the URL of the gateway. `examples` has the texts; `tests/it/page/connect.rs` gives each to a gateway.

mod examples;

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use self::examples::{Command, EXAMPLES, Example};
use crate::web::problems;

/// The examples of a gateway. Clones share them.
#[derive(Clone)]
pub struct ConnectExamples(Arc<[ExampleView]>);

impl ConnectExamples {
    /// Creates the examples of a gateway with this URL. If access is open, their commands have no token.
    #[must_use]
    pub fn new(public_url: &str, is_open: bool) -> Self {
        let token = if is_open { "" } else { "-H \"Authorization: Bearer $TOKEN\" " };
        let url = public_url.trim_end_matches('/');
        Self(EXAMPLES.iter().map(|example| ExampleView::of(example, url, token)).collect())
    }
}

/// Kind of a connection.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = ConnectKind)]
pub(super) enum Kind {
    /// A source, which sends messages.
    Source,
    /// A source that the gateway asks.
    Harvest,
    /// A subscription.
    Delivery,
}

/// Steps that connect a repository, a harvest or a subscriber.
#[derive(Serialize, ToSchema)]
#[schema(as = ConnectExample)]
struct ExampleView {
    /// Kind of the connection.
    kind: Kind,
    /// Name of the source or subscription in the configuration, or `hub`.
    name: String,
    /// Name of the system that is connected.
    title: &'static str,
    /// Page of the documentation.
    page: &'static str,
    /// Block of the configuration, in TOML.
    config: &'static str,
    /// Command for a shell: it sends a first message, makes the same without the file of the configuration, or shows the
    /// state.
    command: String,
}

impl ExampleView {
    fn of(example: &Example, url: &str, token: &str) -> Self {
        let Example { kind, title, page, config, .. } = *example;
        let (name, settings) = example.parsed();
        let quoted = |value: &Value| format!("'{}'", value.to_string().replace('\'', r"'\''"));
        let command = match (example.command, kind) {
            (Command::Send { header, message }, _) => {
                format!(
                    "curl {token}-H '{header}' --data-binary @- '{url}/hooks/{name}' <<'END'\n{}\nEND",
                    message.trim()
                )
            }
            (Command::Create, Kind::Delivery) => {
                format!("curl {token}-X PUT --data {} '{url}/subscriptions/{name}'", quoted(&settings))
            }
            (Command::Create, _) => {
                let mut harvest = settings;
                harvest["name"] = name.as_str().into();
                format!("curl {token}--data {} '{url}/harvests'", quoted(&harvest))
            }
            (Command::Subscribe, _) => format!(
                "curl {token}'{url}/hub' -d hub.mode=subscribe --data-urlencode 'hub.topic={url}/feed' \
                 --data-urlencode hub.callback=https://reader.example.org/tidings"
            ),
            (Command::Show, Kind::Delivery) => format!("curl {token}'{url}/subscriptions/{name}'"),
            (Command::Show, _) => format!("curl {token}'{url}/sources/{name}'"),
        };
        Self { kind, name, title, page, config, command }
    }
}

/// The examples.
#[derive(Serialize, ToSchema)]
#[schema(as = ConnectExamples)]
struct ExamplesView<'e> {
    /// Sources, harvests and deliveries.
    examples: &'e [ExampleView],
}

problems!(Problems:);

/// How to connect each kind of repository, harvest and subscriber: the block of the configuration, and a command with the
/// URL of the gateway.
#[utoipa::path(
    get,
    path = "/connect",
    operation_id = "getConnectExamples",
    tag = "administration",
    responses((status = 200, description = "The examples.", body = ExamplesView), Problems),
)]
pub async fn list(State(ConnectExamples(examples)): State<ConnectExamples>) -> Response {
    Json(ExamplesView { examples: &examples }).into_response()
}
