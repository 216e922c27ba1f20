//! Reading a shape from its settings, and trying it with a change of each kind.

use axum::http::{
    HeaderName, HeaderValue,
    header::{CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING},
};
use serde::de::IgnoredAny;
use serde_json::{Map, json};

use super::{
    Shape, ShapeError,
    presets::{Preset, PresetParts},
    samples::{Sample, samples},
    table::{RequestTable, is_secret_header},
};
use crate::{
    delivery::{DefinitionContext, InvalidDefinition, secret_url},
    http_client::{Authorization, Origin, OutboundUrl},
    settings::Setting,
    template::{Condition, Facts, Place, Template},
};

/// Headers that the gateway or the protocol sets.
const OWN_HEADERS: [HeaderName; 3] = [CONTENT_TYPE, CONTENT_LENGTH, TRANSFER_ENCODING];

impl Shape {
    /// Parses a shape for requests to `to`, and tries it with a change of each kind.
    ///
    /// # Errors
    /// Fails if a template is wrong, or makes no request of one of the changes.
    pub(in crate::delivery::webhook) fn parse(
        table: RequestTable,
        place: &Setting,
        to: &OutboundUrl,
        max_batch: usize,
        context: &DefinitionContext<'_>,
    ) -> Result<Self, InvalidDefinition> {
        let preset = table.preset.unwrap_or(Preset::Json).parts();
        if !table.path.as_deref().unwrap_or(preset.path).is_empty() && to.expose().query().is_some() {
            let reason = "url has a query, and a path would come after it; put the query into request.path";
            return Err(InvalidDefinition::new("url", reason));
        }
        let shape = Self::of_parts(table, &preset, place, to, context)?;
        shape.try_samples(place, to, max_batch > 1)?;
        Ok(shape)
    }

    fn of_parts(
        table: RequestTable,
        preset: &PresetParts,
        place: &Setting,
        to: &OutboundUrl,
        context: &DefinitionContext<'_>,
    ) -> Result<Self, InvalidDefinition> {
        let invalid = |key: &str, reason: String| InvalidDefinition::from(place.at(key).invalid(reason));
        let template = |key: &str, given: Option<String>, default: &str, escape| {
            let source = given.unwrap_or_else(|| default.to_owned());
            Template::parse(&source, escape).map_err(|error| invalid(key, error.to_string()))
        };
        let condition = |key: &str, given: Option<String>, default: Option<&str>| {
            let source = given.or(default.map(str::to_owned)).filter(|source| !source.is_empty());
            let parsed = source.map(|source| Condition::parse(&source)).transpose();
            parsed.map_err(|error| invalid(key, error.to_string()))
        };
        let media_type = table.content_type.unwrap_or_else(|| preset.content_type.to_owned());
        let content_type = HeaderValue::try_from(&media_type);
        let content_type = content_type.map_err(|_| invalid("content_type", "it is no media type".to_owned()))?;
        let (is_json, escape) = escape_of(&media_type);
        let mut values = Map::new();
        for (name, json) in preset.values {
            values.insert((*name).to_owned(), serde_json::from_str(json).unwrap_or_default());
        }
        values.extend(table.values);
        let mut shape = Self {
            each: table.each.unwrap_or(preset.each),
            method: template("method", table.method, preset.method, Place::Text)?,
            path: template("path", table.path, preset.path, Place::Path)?,
            content_type,
            headers: Vec::new(),
            secrets: Vec::new(),
            authorizations: Vec::new(),
            body: match table.body.unwrap_or_else(|| preset.body.concat()) {
                source if source.is_empty() => None,
                source => Some(template("body", Some(source), "", escape)?),
            },
            is_json,
            retry_if: condition("retry_if", table.retry_if, preset.retry_if)?,
            refuse_if: condition("refuse_if", table.refuse_if, preset.refuse_if)?,
            accepted_statuses: table
                .accepted_statuses
                .unwrap_or_else(|| preset.accepted_statuses.iter().copied().collect()),
            values: Facts::new(&json!({ "values": values })),
        };
        for (name, source) in preset.headers {
            shape.headers.push((HeaderName::from_static(name), template("headers", None, source, Place::Text)?));
        }
        for (name, setting) in table.headers {
            shape.add_header(&name, &setting, &place.at(&format!("headers.{name}")), to, context)?;
        }
        Ok(shape)
    }

    fn add_header(
        &mut self,
        name: &str,
        setting: &Setting,
        place: &Setting,
        to: &OutboundUrl,
        context: &DefinitionContext<'_>,
    ) -> Result<(), InvalidDefinition> {
        let no_header = || place.invalid("it is no name of a header");
        let name = HeaderName::try_from(name).map_err(|_| no_header())?;
        if OWN_HEADERS.contains(&name) || name.as_str().starts_with("webhook-") {
            return Err(place.invalid("the gateway sets this header; content_type sets the media type").into());
        }
        self.headers.retain(|(other, _)| *other != name);
        if !is_secret_header(name.as_str(), &setting.json()) {
            let source = setting.json().as_str().map(str::to_owned);
            let source = source.ok_or_else(|| place.invalid("give a template in quotation marks"))?;
            let template = Template::parse(&source, Place::Text).map_err(|error| place.invalid(error.to_string()))?;
            self.headers.push((name, template));
            return Ok(());
        }
        if setting.json().as_str().is_some_and(|text| text.contains("{{")) {
            return Err(place.invalid("its name says that it is a secret, which cannot be a template").into());
        }
        let secret = secret_url::read_secret(place, setting, context)?;
        self.secrets.push(secret.clone());
        let authorization = Origin::of(to.expose()).and_then(|origin| Authorization::in_header(origin, name, &secret));
        self.authorizations.push(authorization.ok_or_else(|| place.invalid("a header cannot carry it"))?);
        Ok(())
    }

    /// Makes the requests for a change of each kind, alone and in a batch.
    fn try_samples(&self, place: &Setting, to: &OutboundUrl, is_batch: bool) -> Result<(), InvalidDefinition> {
        let mut samples = samples();
        if is_batch {
            let all: Vec<_> = samples.iter().map(|sample| sample.change.clone()).collect();
            samples.push(Sample { what: "a batch", change: json!({ "changes": all }) });
        }
        for Sample { what, change } in samples {
            let failed = |part: &str, reason: String| {
                let key = part.strip_prefix("request.").unwrap_or(part);
                InvalidDefinition::from(place.at(key).invalid(format!("for {what}: {reason}")))
            };
            let is_batch = change.get("changes").is_some();
            match self.requests(&change.to_string().into_bytes(), is_batch, false, to) {
                Ok(requests) if self.is_json => {
                    let bodies = requests.iter().map(|request| &request.body).filter(|body| !body.is_empty());
                    for body in bodies {
                        check_json(body).map_err(|reason| failed("body", reason))?;
                    }
                }
                Ok(_) => {}
                Err(ShapeError::Template { part, error }) => return Err(failed(&part, error.to_string())),
                Err(ShapeError::Unfit { part, reason }) => return Err(failed(&part, reason)),
                Err(error) => return Err(failed("", error.to_string())),
            }
        }
        let response = json!({ "status": 200, "text": "", "json": { "errors": false } });
        for (key, condition) in [("retry_if", &self.retry_if), ("refuse_if", &self.refuse_if)] {
            if let Some(condition) = condition {
                let tried = condition.holds(&Facts::new(&json!({ "response": response })));
                tried.map_err(|error| InvalidDefinition::from(place.at(key).invalid(error.to_string())))?;
            }
        }
        Ok(())
    }
}

/// Returns whether a media type is JSON or lines of JSON, and how values are escaped in it.
fn escape_of(media_type: &str) -> (bool, Place) {
    let essence = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if essence.ends_with("json") || essence.ends_with("json-seq") || essence.ends_with("jsonlines") {
        (true, Place::Json)
    } else if essence.ends_with("xml") || essence == "text/html" {
        (false, Place::Markup)
    } else {
        (false, Place::Text)
    }
}

/// Checks that a body is JSON, or that each of its lines is.
fn check_json(body: &[u8]) -> Result<(), String> {
    let whole = serde_json::from_slice::<IgnoredAny>(body);
    let Err(error) = whole else { return Ok(()) };
    let mut lines = body.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty());
    if body.contains(&b'\n') && lines.all(|line| serde_json::from_slice::<IgnoredAny>(line).is_ok()) {
        return Ok(());
    }
    let line = body.split(|byte| *byte == b'\n').nth(error.line().saturating_sub(1)).unwrap_or_default();
    let line: String = String::from_utf8_lossy(line).chars().take(200).collect();
    Err(format!(
        "it is not JSON: {error}: {line}; write values without quotation marks, such as {{{{ change.object }}}}"
    ))
}
