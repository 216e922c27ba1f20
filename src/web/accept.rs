//! Content negotiation (RFC 9110 sections 12.4.2, 12.5.1 and 12.5.3).

use axum::http::{HeaderMap, HeaderName, header};

use super::{Problem, ProblemCode};

/// Returns the best of the `offered` media types for the request's `Accept`; `None` if none is acceptable. `offered`
/// is in the server's order of preference.
///
/// Without `Accept` it is the first. Parameters are ignored except `type`, which distinguishes an Atom feed from an
/// Atom entry (RFC 5023 section 12.1); an offer without it matches both. Elements that cannot be parsed are ignored,
/// so that a client does not fail because of a typing error in an irrelevant element.
#[must_use]
pub fn best_media_type<'o>(headers: &HeaderMap, offered: &[&'o str]) -> Option<&'o str> {
    let accepted = elements(headers, &header::ACCEPT);
    if accepted.is_empty() {
        return offered.first().copied();
    }
    let mut best: Option<(u16, &'o str)> = None;
    for offer in offered {
        let quality = quality_of(offer, &accepted);
        if quality > best.map_or(0, |(quality, _)| quality) {
            best = Some((quality, offer));
        }
    }
    best.map(|(_, offer)| offer)
}

/// Returns the best of the `offered` media types, as [`best_media_type`] does.
///
/// # Errors
/// `not-acceptable` with the offered media types, if the client accepts none of them.
pub fn negotiated_media_type<'o>(headers: &HeaderMap, offered: &[&'o str]) -> Result<&'o str, Problem> {
    best_media_type(headers, offered).ok_or_else(|| {
        let detail = format!("None of the accepted media types is available. Available are: {}.", offered.join(", "));
        Problem::new(ProblemCode::NotAcceptable, detail).with("offered", offered.to_vec())
    })
}

/// Returns `true` if the client accepts gzip and does not prefer an unencoded response.
#[must_use]
pub fn accepts_gzip(headers: &HeaderMap) -> bool {
    let accepted = elements(headers, &header::ACCEPT_ENCODING);
    let quality = |encoding: &str| accepted.iter().filter(|e| e.value == encoding).map(|e| e.quality).max();
    let gzip = quality("gzip").or_else(|| quality("x-gzip")).or_else(|| quality("*")).unwrap_or(0);
    gzip > 0 && gzip >= quality("identity").unwrap_or(0)
}

/// Returns the client's quality value of `offer`: that of the most specific matching range.
fn quality_of(offer: &str, accepted: &[Element]) -> u16 {
    let offer = Element::parse(offer).unwrap_or_default();
    let matching = accepted.iter().filter_map(|range| Some((specificity(range, &offer)?, range.quality)));
    matching.max().map_or(0, |(_, quality)| quality)
}

/// Returns how specifically `range` matches `offer`; `None` if it does not match.
fn specificity(range: &Element, offer: &Element) -> Option<u8> {
    let (kind, subtype) = range.value.split_once('/')?;
    let (offered_kind, _) = offer.value.split_once('/')?;
    match (&range.document, &offer.document) {
        (Some(accepted), Some(offered)) if accepted != offered => None,
        (Some(_), _) if range.value == offer.value => Some(3),
        _ if range.value == offer.value => Some(2),
        _ if kind == offered_kind && subtype == "*" => Some(1),
        _ if range.value == "*/*" => Some(0),
        _ => None,
    }
}

/// Element of an `Accept` or `Accept-Encoding` list.
#[derive(Default)]
struct Element {
    /// Media range or encoding, in lower case.
    value: String,
    /// Parameter `type`, in lower case.
    document: Option<String>,
    /// Quality value in thousandths, 0 to 1000.
    quality: u16,
}

impl Element {
    fn parse(element: &str) -> Option<Self> {
        let mut parts = split(element, ';');
        let value = parts.next()?.trim().to_ascii_lowercase();
        let mut parsed = Self { value, document: None, quality: 1000 };
        for parameter in parts {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let (name, value) = (name.trim(), value.trim().trim_matches('"'));
            if name.eq_ignore_ascii_case("q") {
                parsed.quality = thousandths(value)?;
            } else if name.eq_ignore_ascii_case("type") {
                parsed.document = Some(value.to_ascii_lowercase());
            }
        }
        (!parsed.value.is_empty()).then_some(parsed)
    }
}

/// Returns the elements of all headers with this name.
fn elements(headers: &HeaderMap, name: &HeaderName) -> Vec<Element> {
    let fields = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    fields.flat_map(|field| split(field, ',')).filter_map(Element::parse).collect()
}

/// Parses a quality value such as `0`, `0.5` or `1.000` (RFC 9110 section 12.4.2), in thousandths. Also parses `.2`, which
/// the HTTP client of Java sends by default.
fn thousandths(quality: &str) -> Option<u16> {
    let (whole, fraction) = quality.split_once('.').unwrap_or((quality, ""));
    if fraction.len() > 3 || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    match whole {
        "" if fraction.is_empty() => None,
        "" | "0" => format!("{fraction:0<3}").parse().ok(),
        "1" if fraction.bytes().all(|b| b == b'0') => Some(1000),
        _ => None,
    }
}

/// Splits a list at `separator`, except inside quotation marks.
fn split(list: &str, separator: char) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    let mut escaped = false;
    list.split(move |c| {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ => {}
        }
        c == separator && !quoted
    })
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderMap, HeaderName, HeaderValue, header};

    use super::{accepts_gzip, best_media_type};

    const FEED: &str = "application/atom+xml;type=feed";
    const JSON: &str = "application/json";

    fn headers(name: &HeaderName, values: &[&'static str]) -> HeaderMap {
        values.iter().map(|value| (name.clone(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn client_preference_then_server_order() {
        for (accept, best) in [
            (&[][..], Some(FEED)),
            (&[""], Some(FEED)),
            (&["*/*"], Some(FEED)),
            (&["application/*"], Some(FEED)),
            (&["application/json"], Some(JSON)),
            (&["APPLICATION/JSON ; Q=0.1"], Some(JSON)),
            (&["application/json;q=0.9, application/atom+xml;q=0.8"], Some(JSON)),
            (&["application/json;q=0.9", "application/atom+xml"], Some(FEED)),
            (&["text/html, application/xhtml+xml, */*;q=0.8"], Some(FEED)),
            (&["*/*;q=0.5, application/atom+xml;q=0.1"], Some(JSON)),
            (&["*/*, application/atom+xml;q=0"], Some(JSON)),
            (&["application/atom+xml;type=feed;q=0.5, application/atom+xml;q=1, application/json;q=0.7"], Some(JSON)),
            (&["application/atom+xml; type=\"feed\""], Some(FEED)),
            (&["application/atom+xml;type=entry"], None),
            (&["application/json;profile=\"a,b;q=0\""], Some(JSON)),
            (&["text/html;x=\",application/json,\""], None),
            (&["text/html"], None),
            (&["*/*;q=0"], None),
            (&["application/json;q=7, text/html"], None),
            (&["application/json;q="], Some(FEED)),
            (&["application/json;q=."], Some(FEED)),
            (&["text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2"], Some(FEED)),
        ] {
            assert_eq!(best_media_type(&headers(&header::ACCEPT, accept), &[FEED, JSON]), best, "{accept:?}");
        }
        let entry = headers(&header::ACCEPT, &["application/atom+xml;type=entry"]);
        assert_eq!(best_media_type(&entry, &["application/atom+xml"]), Some("application/atom+xml"));
    }

    #[test]
    fn gzip_needs_acceptance() {
        for (accept, gzip) in [
            (&[][..], false),
            (&[""], false),
            (&["gzip"], true),
            (&["deflate", "X-GZIP"], true),
            (&["gzip;q=0"], false),
            (&["gzip;q=0.000, *"], false),
            (&["*"], true),
            (&["*;q=0"], false),
            (&["br, deflate"], false),
            (&["identity;q=0.5, gzip;q=0.4"], false),
            (&["identity;q=0.5, gzip;q=0.5"], true),
            (&["identity, *;q=0.1"], false),
        ] {
            assert_eq!(accepts_gzip(&headers(&header::ACCEPT_ENCODING, accept)), gzip, "{accept:?}");
        }
    }
}
