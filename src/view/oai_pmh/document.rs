//! The envelope of a response (section 3.2): the date, the request, and the errors or the result.

use super::{
    arguments::Arguments,
    error::{ErrorCode, OaiError},
};
use crate::{
    format::{
        oai_pmh::{NAMESPACE, SCHEMA_LOCATION, kept_record::datestamp_text},
        xml_writer::{XSI, XmlWriter},
    },
    journal::acceptance::AcceptanceTime,
    model::{Text, Timestamp},
};

/// Approximate size of a response without its result, in bytes.
const ENVELOPE_BYTES: usize = 1024;

/// Returns a time as a datestamp in the granularity of seconds.
pub(super) fn datestamp(time: AcceptanceTime) -> String {
    datestamp_text(time.timestamp().unwrap_or(Timestamp::EPOCH))
}

/// Begins a response, up to the result. The arguments are those of a request without illegal ones.
pub(super) fn envelope(date: AcceptanceTime, base_url: &str, arguments: Option<&Arguments>) -> XmlWriter {
    let mut xml = XmlWriter::document(ENVELOPE_BYTES);
    xml.open("OAI-PMH", &[("xmlns", NAMESPACE), ("xmlns:xsi", XSI), ("xsi:schemaLocation", SCHEMA_LOCATION)]);
    xml.leaf("responseDate", &[], &datestamp(date));
    let received = arguments.map_or(&[][..], |arguments| arguments.received.as_slice());
    // A value that XML cannot carry makes no attributes at all, because they would not be those of the request.
    let is_writable = received.iter().all(|(_, value)| Text::new(value).as_str() == value);
    let attributes: Vec<_> = received.iter().filter(|_| is_writable).map(|(name, value)| (&**name, &**value)).collect();
    xml.leaf("request", &attributes, base_url);
    xml
}

/// Returns the response with errors.
pub(super) fn errors(
    date: AcceptanceTime,
    base_url: &str,
    arguments: Option<&Arguments>,
    errors: &[OaiError],
) -> Vec<u8> {
    let shows_arguments = errors.iter().all(|error| error.code.shows_arguments());
    let mut xml = envelope(date, base_url, arguments.filter(|_| shows_arguments));
    for OaiError { code, text } in errors {
        xml.leaf("error", &[("code", code.name())], Text::new(text).as_str());
    }
    finish(xml)
}

/// Ends a response.
pub(super) fn finish(mut xml: XmlWriter) -> Vec<u8> {
    xml.close("OAI-PMH");
    xml.finish()
}

/// Writes the resumption token of a page: of one that others follow, and an empty one on the last page of several.
pub(super) fn resumption_token(xml: &mut XmlWriter, token: Option<&str>, cursor: Option<u64>) {
    if token.is_none() && cursor.unwrap_or_default() == 0 {
        return;
    }
    let cursor = cursor.map(|cursor| cursor.to_string());
    let attributes: Vec<_> = cursor.iter().map(|cursor| ("cursor", cursor.as_str())).collect();
    xml.leaf("resumptionToken", &attributes, token.unwrap_or_default());
}

/// Returns the error for a token that the gateway has not made, or that is from before a restore of the journal.
pub(super) fn bad_token() -> OaiError {
    let text = "The token is not one of this list, or is from before a restore of the journal; begin the list again.";
    OaiError::new(ErrorCode::BadResumptionToken, text)
}
