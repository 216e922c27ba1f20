//! Connections: HTTP/1.1, plain or inside TLS, until they are told to end.

use std::{io, net::SocketAddr};

use axum::Router;
use axum_server::{Handle, Server};
use tokio::net::TcpListener;

use super::Tls;

/// The connections of a server, to be ended from outside.
#[derive(Clone, Debug, Default)]
pub struct Connections(Handle<SocketAddr>);

impl Connections {
    /// Takes no new ones, and ends each when its request has been answered.
    pub fn finish(&self) {
        self.0.graceful_shutdown(None);
    }

    /// Ends all of them now.
    pub fn cut_off(&self) {
        self.0.shutdown();
    }
}

/// Serves until `connections` have been told to end and have ended. Handlers find the address of the
/// client as `ConnectInfo<SocketAddr>`.
///
/// # Errors
/// When the listener cannot be used.
pub async fn serve(
    listener: TcpListener,
    tls: Option<&Tls>,
    router: Router,
    connections: &Connections,
) -> io::Result<()> {
    let server = Server::from_listener(listener).handle(connections.0.clone());
    let router = router.into_make_service_with_connect_info::<SocketAddr>();
    match tls {
        Some(tls) => server.acceptor(tls.acceptor()).http1_only().serve(router).await,
        None => server.http1_only().serve(router).await,
    }
}
