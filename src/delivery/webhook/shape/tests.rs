//! Tests of shapes: what each preset sends, and what a template cannot do.

use std::ffi::OsString;

use serde_json::{Value, json};

use super::{Shape, samples::samples};
use crate::{
    delivery::{DefinitionContext, webhook::settings},
    http_client::{AllowList, OutboundPolicy, OutboundUrl},
    journal::subscriptions::MadeBy,
    named::NamedValue,
    settings::{Setting, Table},
    template::Facts,
};

const URL: &str = "https://receiver.example/base";

fn read(made_by: MadeBy, url: &str, request: &Value, max_batch: usize) -> Result<Shape, String> {
    let guard = match made_by {
        MadeBy::Config => OutboundPolicy::unrestricted(),
        MadeBy::Api | MadeBy::Hub => OutboundPolicy::restricted(AllowList::default()),
    };
    let variable = |name: &str| (name == "TIDINGS_SECRET_A").then(|| OsString::from("hush"));
    let context = DefinitionContext { made_by, variable: &variable, guard: &guard };
    let definition =
        Setting::definition(json!({ "url": url, "format": "json", "max_batch": max_batch, "request": request }));
    match settings::read_settings(&definition, &context) {
        Ok(settings) => Ok(settings.shape.unwrap()),
        Err(error) => Err(error.to_string()),
    }
}

/// Returns the requests of a message as text: the request line, the headers and the body.
fn written(shape: &Shape, message: &Value) -> Result<String, String> {
    let to = OutboundUrl::parse(URL, &OutboundPolicy::unrestricted()).unwrap();
    let is_batch = message.get("changes").is_some();
    let requests = shape.requests(message.to_string().as_bytes(), is_batch, false, &to);
    let requests = requests.map_err(|error| error.to_string())?;
    let mut text = String::new();
    for request in requests {
        text += &format!("{} {}\n", request.method, request.to.expose());
        for (name, value) in &request.headers.of_request(request.to.expose()) {
            text += &format!("{name}: {}\n", value.to_str().unwrap());
        }
        text += &format!("{}\n", String::from_utf8_lossy(&request.body));
    }
    Ok(text)
}

#[test]
fn every_preset_has_a_request_for_each_kind_of_change() {
    for preset in super::presets::Preset::all() {
        let shape = read(MadeBy::Config, URL, &json!({ "preset": preset.name() }), 10).unwrap();
        let mut text = String::new();
        for sample in samples() {
            text += &format!("# {}\n{}\n", sample.what, written(&shape, &sample.change).unwrap());
        }
        let all: Vec<_> = samples().into_iter().take(3).map(|sample| sample.change).collect();
        text += &format!("# a batch\n{}", written(&shape, &json!({ "changes": all })).unwrap());
        insta::assert_snapshot!(format!("preset_{}", preset.name()), text);
    }
}

/// Names and texts of a repository are data: they never become a header, a path or a command.
#[test]
fn hostile_texts_stay_where_they_are() {
    let mut change = samples().remove(0).change;
    let hostile = "\"}}, {\"delete\": {\"query\": \"*:*\"}}\r\nx-evil: 1\n<!channel> & {{ 7 * 7 }}";
    change["user"]["name"] = json!(hostile);
    change["description"] = json!(hostile);
    change["items"][0]["uri"] = json!("http://h.example/../../_cluster?x#y");
    for (preset, expected) in [("slack", "&lt;!channel&gt; &amp; {{ 7 * 7 }}"), ("teams", "<!channel> & {{ 7 * 7 }}")] {
        let shape = read(MadeBy::Config, URL, &json!({ "preset": preset }), 1).unwrap();
        let text = written(&shape, &change).unwrap();
        let body: Value = serde_json::from_str(text.lines().nth(2).unwrap()).unwrap();
        assert!(body.to_string().contains(expected), "{body}");
        assert_eq!(text.lines().count(), 3, "{text}");
    }
    let by_path = json!({ "method": "PUT", "path": "/docs/{{ item.uri }}", "each": "item", "body": "" });
    let text = written(&read(MadeBy::Config, URL, &by_path, 1).unwrap(), &change).unwrap();
    assert_eq!(text.trim(), format!("PUT {URL}/docs/http%3A%2F%2Fh.example%2F..%2F..%2F_cluster%3Fx%23y"));
    let by_header = json!({ "headers": { "x-user": "{{ change.user.name }}" } });
    let refused = written(&read(MadeBy::Config, URL, &by_header, 1).unwrap(), &change).unwrap_err();
    assert_eq!(refused, "request.headers.x-user: a header cannot carry it");
    change["source"] = json!("..");
    let up = read(MadeBy::Config, URL, &json!({ "path": "/{{ change.source }}/admin" }), 1).unwrap();
    assert_eq!(written(&up, &change).unwrap_err(), "request.path: the path leads out of the path of the URL");
}

#[test]
fn wrong_shapes_are_refused_with_the_key_and_the_change() {
    for (request, expected) in [
        (json!({ "preset": "sorl" }), "request.preset: there is no preset \"sorl\"; did you mean \"solr\"?"),
        (json!({ "boddy": "" }), "request.boddy: there is no such key"),
        (
            json!({ "body": "{{ change.objekt }}" }),
            "request.body: for an item that was added: line 1 of the template: it names something",
        ),
        (
            json!({ "body": "{\"size\": {{ change.items[0].content.size }}}" }),
            "request.body: for an item that was added without content: line 1 of the template: it names something",
        ),
        (
            json!({ "body": "{\"of\": \"{{ change.object }}\"}" }),
            "request.body: for an item that was added: it is not JSON",
        ),
        (json!({ "body": "{% if %}" }), "request.body: line 1 of the template: syntax error"),
        (json!({ "path": "docs" }), "request.path: for an item that was added: the path does not begin with a slash"),
        (json!({ "method": "GET IT" }), "request.method: for an item that was added: \"GET IT\" is no method"),
        (json!({ "headers": { "a b": "" } }), "request.headers.a b: it is no name of a header"),
        (
            json!({ "headers": { "content-length": "1" } }),
            "request.headers.content-length: the gateway sets this header",
        ),
        (
            json!({ "headers": { "x-key": "{{ change.id }}" } }),
            "request.headers.x-key: its name says that it is a secret",
        ),
        (json!({ "headers": { "x": 7 } }), "request.headers.x: give a template"),
        (json!({ "retry_if": "response.(" }), "request.retry_if: line 1 of the template: syntax error"),
        (json!({ "refuse_if": "response.status|shout" }), "request.refuse_if: line 1 of the template: unknown filter"),
        (json!({ "accepted_statuses": [500] }), "request.accepted_statuses: 500 does not reject"),
        (json!({ "values": { "a": [] } }), "request.values.a: give a text, a number, true or false"),
    ] {
        let error = read(MadeBy::Config, URL, &request, 1).err().unwrap();
        assert!(error.starts_with(expected), "{request}: {error}");
    }
    let batch = json!({ "body": "{% if is_batch %}{{ change.nothing }}{% endif %}" });
    assert!(read(MadeBy::Config, URL, &batch, 1).is_ok());
    let error = read(MadeBy::Config, URL, &batch, 2).err().unwrap();
    assert!(error.starts_with("request.body: for a batch: line 1 of the template: it names something"), "{error}");
    let error = read(MadeBy::Config, &format!("{URL}?key=x"), &json!({ "path": "/x" }), 1).err().unwrap();
    assert!(error.starts_with("url: url has a query"), "{error}");
}

/// Headers whose names say that they are credentials are secrets, and a definition over HTTP cannot give them by value.
#[test]
fn credentials_in_headers_are_secrets() {
    for name in ["authorization", "Fastly-Key", "x-apikey", "x-api-token", "cookie", "x-auth"] {
        let by_value = json!({ "headers": { name: "hush" } });
        let error = read(MadeBy::Api, URL, &by_value, 1).err().unwrap();
        assert!(error.contains("it would be stored in the journal") && !error.contains("hush"), "{error}");
        let by_variable = json!({ "headers": { name: { "env": "TIDINGS_SECRET_A" } } });
        for (made_by, request) in [(MadeBy::Config, by_value), (MadeBy::Api, by_variable)] {
            let shape = read(made_by, URL, &request, 1).unwrap();
            let change = samples().remove(0).change;
            let sent = written(&shape, &change).unwrap();
            assert!(sent.contains(&format!("{}: hush\n", name.to_ascii_lowercase())), "{sent}");
            assert_eq!(shape.secrets.len(), 1);
            let shown = super::redacted(&Setting::definition(request));
            assert_eq!(shown["headers"][name], "(hidden)");
        }
    }
    for plain in ["host", "x-author", "x-monkeys", "authority"] {
        let shown = super::redacted(&Setting::definition(json!({ "headers": { plain: "{{ uri|authority }}" } })));
        assert_eq!(shown["headers"][plain], "{{ uri|authority }}");
    }
}

#[test]
fn conditions_read_the_response() {
    let shape = read(MadeBy::Config, URL, &json!({ "preset": "elasticsearch" }), 1).unwrap();
    let outcome = |status: u16, text: &str| {
        let answer = crate::http_client::BoundedResponse {
            status: axum::http::StatusCode::from_u16(status).unwrap(),
            headers: axum::http::HeaderMap::new(),
            body_start: text.to_owned().into(),
            is_complete: true,
        };
        shape.outcome_of(&answer).map(|outcome| format!("{outcome:?}").split(' ').next().unwrap().to_owned())
    };
    assert_eq!(outcome(200, r#"{"errors":false}"#), None);
    let full = r#"{"errors":true,"items":[{"index":{"error":{"type":"es_rejected_execution_exception"}}}]}"#;
    assert_eq!(outcome(200, full).as_deref(), Some("Retry"));
    let wrong = r#"{"errors":true,"items":[{"index":{"error":{"type":"mapper_parsing_exception"}}}]}"#;
    assert_eq!(outcome(200, wrong).as_deref(), Some("Refused"));
    assert_eq!(outcome(503, wrong), None);
    let purge = read(MadeBy::Config, URL, &json!({ "preset": "purge" }), 1).unwrap();
    assert!(purge.accepted_statuses.contains(&404));
    let facts = Facts::new(&json!({ "response": { "json": { "a": 1 } } }));
    assert!(crate::template::Condition::parse("response.json.a == 1").unwrap().holds(&facts).unwrap());
    assert_eq!(super::RequestTable::KEYS.len(), 11);
}
