//! Cookies of a run: a server may keep the place in a list, or the answer to a check, between two requests.
//!
//! A cookie goes back to the origin that has set it, until the run ends. It is never stored.

use std::sync::{Mutex, PoisonError};

use axum::http::{HeaderMap, HeaderValue, header::SET_COOKIE};

/// Maximum number of cookies of a run.
const MAX_COOKIES: usize = 50;

/// Maximum length of the name and the value of a cookie together, in bytes.
const MAX_COOKIE_BYTES: usize = 4096;

/// Cookies of one place.
#[derive(Debug, Default)]
pub(super) struct Cookies(Mutex<Vec<Cookie>>);

#[derive(Debug)]
struct Cookie {
    origin: String,
    name: String,
    value: String,
}

impl Cookies {
    /// Remembers the cookies of a response of an origin.
    pub(super) fn note(&self, origin: &str, headers: &HeaderMap) {
        let mut cookies = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for set in headers.get_all(SET_COOKIE).iter().filter_map(|value| value.to_str().ok()) {
            let mut parts = set.split(';').map(str::trim);
            let Some((name, value)) = parts.next().and_then(|pair| pair.split_once('=')) else { continue };
            let is_over = parts.any(|part| {
                let part = part.to_ascii_lowercase();
                part.strip_prefix("max-age=").is_some_and(|age| age == "0" || age.starts_with('-'))
            });
            cookies.retain(|cookie| cookie.origin != origin || cookie.name != name);
            if !is_over
                && !name.is_empty()
                && name.len() + value.len() <= MAX_COOKIE_BYTES
                && cookies.len() < MAX_COOKIES
            {
                cookies.push(Cookie { origin: origin.to_owned(), name: name.to_owned(), value: value.to_owned() });
            }
        }
    }

    /// Returns the header for a request to an origin; `None` without cookies.
    pub(super) fn header(&self, origin: &str) -> Option<HeaderValue> {
        let cookies = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_origin = cookies.iter().filter(|cookie| cookie.origin == origin);
        let pairs: Vec<_> = of_origin.map(|cookie| format!("{}={}", cookie.name, cookie.value)).collect();
        (!pairs.is_empty()).then(|| HeaderValue::from_str(&pairs.join("; ")).ok()).flatten()
    }

    /// Returns the names of the cookies of an origin, without their values, which may be secret.
    pub(super) fn names(&self, origin: &str) -> Vec<String> {
        let cookies = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        cookies.iter().filter(|cookie| cookie.origin == origin).map(|cookie| cookie.name.clone()).collect()
    }

    /// Forgets all cookies, because the run has ended.
    pub(super) fn forget(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

#[cfg(test)]
mod tests {
    use super::{Cookies, HeaderMap, SET_COOKIE};

    #[test]
    fn cookies_return_to_their_origin_until_they_end() {
        let cookies = Cookies::default();
        let set = |text: &str| HeaderMap::from_iter([(SET_COOKIE, text.parse().unwrap())]);
        cookies.note("http://a", &set("seen=1; Path=/; HttpOnly"));
        cookies.note("http://a", &set("place=7"));
        assert_eq!(cookies.header("http://a").unwrap(), "seen=1; place=7");
        assert_eq!(cookies.header("http://b"), None);
        assert_eq!(cookies.names("http://a"), ["seen", "place"]);
        cookies.note("http://a", &set("seen=; Max-Age=0"));
        assert_eq!(cookies.header("http://a").unwrap(), "place=7");
        cookies.forget();
        assert_eq!(cookies.header("http://a"), None);
    }
}
