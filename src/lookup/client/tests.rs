//! Tests of the client with repositories that respond, fail or stay silent.

use std::{sync::Arc, time::Duration};

use tokio::net::TcpListener;

use super::{
    Bytes, HeaderMap, LookupError, LookupResponse, MAX_RESPONSE_BYTES, Method, Repository, RepositorySettings,
    StatusCode, authorization, http_client, interpret,
};
use crate::{
    format::RepositoryApi,
    lookup::{BaseUrl, Credentials},
    model::SourceName,
    web::Secret,
};

/// A repository that accepts connections and never responds. One request may be in flight, for 50 ms.
async fn silent() -> (TcpListener, Repository) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = BaseUrl::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
    let mut settings = RepositorySettings::new(RepositoryApi::Fedora3, base);
    (settings.in_flight, settings.timeout) = (1, Duration::from_millis(50));
    (listener, Repository::new(&SourceName::parse("s").unwrap(), settings).await.unwrap())
}

#[tokio::test]
async fn full_in_flight_limit_is_not_a_repository_failure() {
    let (_listener, repository) = silent().await;
    let permit = Arc::clone(&repository.0.in_flight).acquire_owned().await.unwrap();
    for _ in 0..10 {
        let error = repository.get("/a", "text/xml").await.unwrap_err();
        assert!(matches!(error, LookupError::NoFreeRequest { in_flight: 1, .. }), "{error}");
        assert!(error.is_transient() && !error.is_host_failure());
    }
    assert_eq!(repository.circuit_open_for(), None);
    drop(permit);
    assert!(matches!(repository.get("/a", "text/xml").await, Err(LookupError::NoResponse(_))));
}

/// The abandoned callers never see that the repository is silent; the circuit breaker does.
#[tokio::test]
async fn abandoned_requests_end_by_their_own_timeout() {
    let (_listener, repository) = silent().await;
    while repository.circuit_open_for().is_none() {
        let mut request = Box::pin(repository.get("/a", "text/xml"));
        while repository.0.in_flight.available_permits() == 1 {
            assert!(futures_util::poll!(&mut request).is_pending());
        }
        drop(request);
        let _free = repository.0.in_flight.acquire().await.unwrap();
    }
}

#[test]
fn each_status_is_classified() {
    let interpreted = |status: u16, is_complete| {
        let (status, headers) = (StatusCode::from_u16(status).unwrap(), HeaderMap::new());
        interpret(
            http_client::BoundedResponse { status, headers, body_start: Bytes::from_static(b"x"), is_complete },
            &Method::GET,
        )
    };
    assert!(matches!(interpreted(200, true), Ok(LookupResponse::Found(resource)) if resource.body == "x"));
    for status in [404, 410] {
        assert!(matches!(interpreted(status, true), Ok(LookupResponse::NotFound)));
    }
    for (status, is_complete, is_transient) in [
        (200, false, true),
        (401, true, false),
        (403, true, false),
        (302, true, false),
        (400, true, false),
        (429, true, true),
        (500, true, true),
        (503, true, true),
    ] {
        let error = interpreted(status, is_complete).unwrap_err();
        assert_eq!(error.is_transient(), is_transient, "{status}");
        assert_eq!(error.is_host_failure(), is_transient || status == 401, "{status}");
    }
    let (status, headers, body_start) = (StatusCode::OK, HeaderMap::new(), vec![b'x'; MAX_RESPONSE_BYTES].into());
    let endless =
        interpret(http_client::BoundedResponse { status, headers, body_start, is_complete: false }, &Method::GET);
    assert!(matches!(endless, Err(LookupError::InvalidResponse(_))));
}

#[test]
fn credentials_are_for_the_origin_of_the_repository_and_not_printed() {
    let credentials = Credentials { username: Secret::new("Aladdin"), password: Secret::new("open sesame") };
    assert!(!format!("{credentials:?}").contains("Aladdin"));
    let base = BaseUrl::parse("https://h.example:8443/fedora").unwrap();
    let settings =
        RepositorySettings { credentials: Some(credentials), ..RepositorySettings::new(RepositoryApi::Fedora3, base) };
    let authorization = authorization(&settings).unwrap();
    assert_eq!(authorization.origin().to_string(), "https://h.example:8443");
    assert!(!format!("{authorization:?}").contains("QWx"));
}
