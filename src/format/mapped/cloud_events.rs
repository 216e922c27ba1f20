//! CloudEvents 1.0 as JSON of one shape: attributes, and the data in `data`. In structured mode the body has that shape. In
//! binary mode the attributes are headers, and the body is the data.

use percent_encoding::percent_decode_str;

use crate::{
    format::{Message, Rejection, json},
    template::Facts,
};

/// Prefixes of the headers with attributes: HTTP and AMQP 0-9-1, Kafka, AMQP 1.0 and STOMP.
pub(super) const PREFIXES: [&str; 4] = ["ce-", "ce_", "cloudevents_", "cloudevents:"];

/// Reads an event in either mode.
///
/// # Errors
/// Fails if the body is not JSON.
pub(super) fn read(message: &Message<'_>) -> Result<Facts, Rejection> {
    let is_binary = PREFIXES.iter().any(|prefix| message.headers.get(&format!("{prefix}specversion")).is_some());
    if !is_binary {
        return json::read(message.body);
    }
    let attribute = |(name, value): (&str, &str)| {
        let prefix = PREFIXES.iter().find(|prefix| name.starts_with(**prefix))?;
        // The binding for HTTP encodes values; in the others a percent sign is itself (HTTP binding, section 3.1.3.2).
        let value = match *prefix {
            "ce-" => percent_decode_str(value).decode_utf8_lossy(),
            _ => value.into(),
        };
        Some((name[prefix.len()..].to_owned(), Facts::of_text(&value)))
    };
    let mut members: Vec<_> = message.headers.iter().filter_map(attribute).collect();
    if !message.body.is_empty() {
        members.push(("data".to_owned(), json::read(message.body)?));
    }
    Ok(Facts::named(members.iter().map(|(name, facts)| (name.as_str(), facts.clone()))))
}
