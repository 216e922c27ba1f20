//! Character encoding in `Content-Type`. Atom and JSON responses are UTF-8 and say so, because some clients assume
//! another encoding by default. CloudEvents and ActivityStreams keep the media types of their standards. Other XML
//! declares its encoding in the document.

use axum::{
    http::{HeaderValue, header::CONTENT_TYPE},
    response::Response,
};

/// Media types as handlers set them and as they are sent.
const WITH_CHARSET: [(&str, &str); 3] = [
    ("application/json", "application/json;charset=utf-8"),
    ("application/atom+xml", "application/atom+xml;charset=utf-8"),
    ("application/atom+xml;type=feed", "application/atom+xml;type=feed;charset=utf-8"),
];

/// Adds the character encoding to the media type of a response.
pub(super) fn with_charset(mut response: Response) -> Response {
    let media_type = response.headers().get(CONTENT_TYPE);
    let sent = media_type.and_then(|given| WITH_CHARSET.iter().find(|(plain, _)| given == plain));
    if let Some((_, sent)) = sent {
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(sent));
    }
    response
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse;

    use super::{CONTENT_TYPE, with_charset};

    #[test]
    fn only_atom_and_json_get_a_charset() {
        for (given, sent) in [
            ("application/json", "application/json;charset=utf-8"),
            ("application/atom+xml;type=feed", "application/atom+xml;type=feed;charset=utf-8"),
            ("application/atom+xml;charset=utf-8", "application/atom+xml;charset=utf-8"),
            ("application/xml", "application/xml"),
            ("application/problem+json", "application/problem+json"),
            ("application/cloudevents+json", "application/cloudevents+json"),
            ("application/cloudevents-batch+json", "application/cloudevents-batch+json"),
            ("application/activity+json", "application/activity+json"),
        ] {
            let response = with_charset(([(CONTENT_TYPE, given)], "").into_response());
            assert_eq!(response.headers()[CONTENT_TYPE], sent);
        }
    }
}
