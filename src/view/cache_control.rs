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
    web::{Access, ReadPermit},
};

/// Longest time for which caches keep anything, in seconds: a year.
pub(super) const YEAR: u32 = 31_536_000;

/// Time for which caches may keep a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lifetime {
    /// For ever, if the reader sees the whole journal. What a view shows depends on the configuration, so its pages are
    /// kept for a minute.
    Fixed,
    /// This number of seconds; at most a minute for readers who see a part of the journal.
    Seconds(u32),
    /// As [`Lifetime::Seconds`], and clients need not ask again afterwards, because nothing will be added.
    Complete(u32),
    /// Caches ask each time.
    Revalidated,
}

impl Lifetime {
    /// Returns the value of `Cache-Control`. Access control makes the responses to tokens private.
    pub(super) fn header(self, permit: &ReadPermit) -> HeaderValue {
        let at_most = |seconds: u32| match permit.view() {
            Some(_) => seconds.min(Access::PUBLIC_SECONDS),
            None => seconds,
        };
        let value = match self {
            Self::Fixed if permit.view().is_some() => format!("public, max-age={}", Access::PUBLIC_SECONDS),
            Self::Fixed => format!("public, max-age={YEAR}, immutable"),
            Self::Seconds(seconds) => format!("public, max-age={}", at_most(seconds)),
            Self::Complete(seconds) => format!("public, max-age={}, immutable", at_most(seconds)),
            Self::Revalidated => "no-cache".to_owned(),
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
    let kind = hex::encode(&Sha256::digest(format)[..8]);
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
    use crate::model::ReaderView;

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
    fn what_a_view_shows_is_kept_for_a_minute() {
        let view = ReadPermit::of_view(Some(std::sync::Arc::new(ReaderView::default())));
        assert_eq!(Lifetime::Fixed.header(&view), "public, max-age=60");
        assert_eq!(Lifetime::Fixed.header(&ReadPermit::whole()), "public, max-age=31536000, immutable");
        assert_eq!(Lifetime::Seconds(1).header(&view), "public, max-age=1");
        assert_eq!(Lifetime::Seconds(3600).header(&view), "public, max-age=60");
        assert_eq!(Lifetime::Seconds(3600).header(&ReadPermit::whole()), "public, max-age=3600");
        assert_eq!(Lifetime::Complete(YEAR).header(&view), "public, max-age=60, immutable");
        assert_eq!(Lifetime::Complete(YEAR).header(&ReadPermit::whole()), "public, max-age=31536000, immutable");
        assert_eq!(Lifetime::Revalidated.header(&view), "no-cache");
    }
}
