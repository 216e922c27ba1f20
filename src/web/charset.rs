//! The encoding of answers in their `Content-Type`. Atom and JSON are UTF-8 here, and some clients take another encoding
//! where none is given. CloudEvents and ActivityStreams keep the media types of their standards, and
//! other XML says its encoding in the document.

use axum::{
    http::{HeaderValue, header::CONTENT_TYPE},
    response::Response,
};

/// The media types as handlers give them, and as they are sent.
const SENT: [(&str, &str); 3] = [
    ("application/json", "application/json;charset=utf-8"),
    ("application/atom+xml", "application/atom+xml;charset=utf-8"),
    ("application/atom+xml;type=feed", "application/atom+xml;type=feed;charset=utf-8"),
];

/// The answer with the encoding in its media type.
pub(super) fn with_charset(mut answer: Response) -> Response {
    let media_type = answer.headers().get(CONTENT_TYPE);
    let sent = media_type.and_then(|given| SENT.iter().find(|(plain, _)| given == plain));
    if let Some((_, sent)) = sent {
        answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(sent));
    }
    answer
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse;

    use super::{CONTENT_TYPE, with_charset};

    #[test]
    fn atom_and_json_have_their_encoding_and_others_stay() {
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
            let answer = with_charset(([(CONTENT_TYPE, given)], "").into_response());
            assert_eq!(answer.headers()[CONTENT_TYPE], sent);
        }
    }
}
