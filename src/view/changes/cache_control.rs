//! Cache headers of pages of the journal.
//!
//! A page that ends before the head has the same changes for ever, as long as the journal has its identity. So caches may keep
//! it if its URL names the identity. All other pages are revalidated, or kept for a moment.

use axum::http::{
    HeaderMap, HeaderValue,
    header::{CACHE_CONTROL, ETAG, IF_NONE_MATCH},
};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::{
    model::Seq,
    web::{Client, ReadPermit},
};

/// Time for which caches may keep a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lifetime {
    /// For ever, if the reader sees the whole journal. What a view shows depends on the configuration, so its pages are
    /// kept for an hour.
    Fixed,
    /// This number of seconds.
    Seconds(u32),
    /// Caches ask each time.
    Revalidated,
}

/// Whether shared caches may keep the responses to a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CacheScope {
    is_private: bool,
    has_view: bool,
}

impl CacheScope {
    /// Returns the scope for a reader. A response to a token is for its owner alone: a shared cache would give it to others
    /// without a token.
    pub(super) fn of(client: &Client, permit: &ReadPermit) -> Self {
        Self { is_private: matches!(client, Client::Token(_)), has_view: permit.view().is_some() }
    }

    /// Returns the value of `Cache-Control`.
    pub(super) fn header(self, lifetime: Lifetime) -> HeaderValue {
        let scope = if self.is_private { "private" } else { "public" };
        let value = match lifetime {
            Lifetime::Fixed if self.has_view => format!("{scope}, max-age=3600"),
            Lifetime::Fixed => format!("{scope}, max-age=31536000, immutable"),
            Lifetime::Seconds(seconds) => format!("{scope}, max-age={seconds}"),
            Lifetime::Revalidated => "no-cache".to_owned(),
        };
        #[expect(clippy::expect_used, reason = "only letters, digits and ASCII punctuation")]
        HeaderValue::from_str(&value).expect("a header value")
    }
}

/// Returns the tag of a page of a URL: the identity of the journal, its begin and its end. It is weak, because the bytes depend on
/// the compression. `view` and `format` distinguish the pages of one URL.
pub(super) fn tag(journal: Uuid, (after, next): (Seq, Seq), permit: &ReadPermit, format: &str) -> HeaderValue {
    let of_view = permit.view().map(|view| hex::encode(&Sha256::digest(format!("{view:?}"))[..8]));
    let of_view = of_view.unwrap_or_default();
    let kind = hex::encode(&Sha256::digest(format)[..2]);
    #[expect(clippy::expect_used, reason = "only letters, digits and ASCII punctuation")]
    HeaderValue::from_str(&format!("W/\"{}:{after}:{next}:{kind}{of_view}\"", journal.simple()))
        .expect("a header value")
}

/// Returns whether a client has the response with this tag (RFC 9110 section 13.1.2).
pub(super) fn is_known(request: &HeaderMap, tag: &HeaderValue) -> bool {
    let opaque = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
    let tag = tag.to_str().map(opaque).unwrap_or_default();
    let listed = request.get_all(IF_NONE_MATCH).iter().filter_map(|field| field.to_str().ok());
    listed.flat_map(|field| field.split(',')).any(|listed| listed.trim() == "*" || opaque(listed) == tag)
}

/// Adds the headers to a response.
pub(super) fn add(headers: &mut HeaderMap, cache: HeaderValue, tag: HeaderValue) {
    headers.insert(CACHE_CONTROL, cache);
    headers.insert(ETAG, tag);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_tags_are_compared_weakly() {
        let tag = tag(Uuid::from_u128(1), (Seq(0), Seq(10)), &ReadPermit::whole(), "json");
        let text = tag.to_str().unwrap();
        let known = |listed: &str| {
            let request = HeaderMap::from_iter([(IF_NONE_MATCH, HeaderValue::from_str(listed).unwrap())]);
            is_known(&request, &tag)
        };
        assert!(known(text) && known(text.trim_start_matches("W/")) && known(&format!("\"a\", {text}")) && known("*"));
        assert!(!known("\"a\"") && !is_known(&HeaderMap::new(), &tag));
        let other = super::tag(Uuid::from_u128(2), (Seq(0), Seq(10)), &ReadPermit::whole(), "json");
        assert_ne!(other, tag, "after a restore the same numbers can be other changes");
    }

    #[test]
    fn responses_to_tokens_are_private() {
        let scope = |client| CacheScope::of(&client, &ReadPermit::whole());
        let (token, open) = (scope(Client::Token("a".into())), scope(Client::Local));
        assert_eq!(token.header(Lifetime::Fixed), "private, max-age=31536000, immutable");
        assert_eq!(open.header(Lifetime::Fixed), "public, max-age=31536000, immutable");
        assert_eq!(open.header(Lifetime::Seconds(1)), "public, max-age=1");
        assert_eq!(token.header(Lifetime::Revalidated), "no-cache");
    }
}
