//! Connection without a request: name resolution, TCP and the TLS handshake of the client, for a check of the configuration.

use std::{
    error::Error,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tower_layer::Layer;
use tower_service::Service;

use super::{
    client::{ClientError, ClientSettings, client_error, describe_error, library_client},
    outbound_url::OutboundUrl,
    tls_roots,
};

type BoxError = Box<dyn Error + Send + Sync>;

/// Connects to the server of a URL as a [`Client`](super::Client) does, and closes the connection. Nothing is sent but the
/// TLS handshake.
///
/// # Errors
/// As a request of the client without a connection.
pub async fn probe(settings: ClientSettings, to: &OutboundUrl) -> Result<(), ClientError> {
    let url = to.expose();
    settings.policy.check(url)?;
    let is_encrypted = url.scheme() == "https";
    let ca = settings.ca.clone();
    let read = move || {
        if is_encrypted { tls_roots::client_config(ca.as_deref()).map_err(Arc::new) } else { tls_roots::no_roots() }
    };
    let tls = tokio::task::spawn_blocking(read).await;
    let tls = tls.map_err(|error| ClientError::Connection(error.to_string()))??;
    let client = library_client(&settings, tls, is_encrypted).connector_layer(HangUpLayer).build();
    let client = client.map_err(|error| ClientError::Connection(describe_error(&error)))?;
    match client.get(url.clone()).send().await {
        Err(error) if !is_hang_up(&error) => Err(client_error(&error)),
        // The library has no connection for a request, so none can succeed.
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Returns whether a request has failed only because its connection was closed at once.
fn is_hang_up(error: &reqwest::Error) -> bool {
    let mut next = error.source();
    while let Some(cause) = next {
        if cause.is::<HungUp>() {
            return true;
        }
        next = cause.source();
    }
    false
}

/// The connection was made, and closed before a request.
#[derive(Debug, thiserror::Error)]
#[error("the connection was closed before a request")]
struct HungUp;

/// Replaces each connection by the error [`HungUp`].
#[derive(Clone)]
struct HangUpLayer;

impl<S> Layer<S> for HangUpLayer {
    type Service = HangUp<S>;

    fn layer(&self, connector: S) -> HangUp<S> {
        HangUp(connector)
    }
}

#[derive(Clone)]
struct HangUp<S>(S);

impl<S, R> Service<R> for HangUp<S>
where
    S: Service<R, Error = BoxError>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let connecting = self.0.call(request);
        Box::pin(async move { connecting.await.and_then(|_| Err(HungUp.into())) })
    }
}
