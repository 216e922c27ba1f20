//! The error of a gateway that cannot start or has stopped.

use std::{io, net::SocketAddr};

use crate::{
    cluster::JoinError,
    delivery::OperationError,
    files::FileStoreError,
    harvest,
    http_client::{ClientError, TlsRootsError},
    journal::store::{OpenError, StoreError},
    model::SourceName,
    supervision::Death,
    web::TlsError,
};

/// Error that prevented the start of the gateway or stopped it.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The journal cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The certificate of the journal's database server cannot be checked.
    #[error("journal.ca: {0}")]
    DatabaseCa(#[from] TlsRootsError),
    /// The journal cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A source's settings do not fit its dialect.
    #[error("sources.{name}.settings: {reason}")]
    Source {
        /// Name of the source.
        name: SourceName,
        /// Reason of the dialect.
        reason: String,
    },
    /// The harvests cannot be set up.
    #[error(transparent)]
    Harvests(#[from] harvest::OpenError),
    /// The file store cannot be opened.
    #[error(transparent)]
    Files(#[from] FileStoreError),
    /// The HTTP client for a source's repository cannot be set up.
    #[error("sources.{name}.repository: {error}")]
    Repository {
        /// Name of the source.
        name: SourceName,
        /// Cause.
        error: ClientError,
    },
    /// The certificate or its key cannot be used.
    #[error("server.tls: {0}")]
    Tls(#[from] TlsError),
    /// SIGHUP cannot be handled.
    #[error("cannot handle SIGHUP: {0}")]
    Hangup(io::Error),
    /// The socket address cannot be listened on.
    #[error("cannot listen on {address}: {error}; {}", listen_remedy(*address, error.kind()))]
    Listen {
        /// Socket address.
        address: SocketAddr,
        /// Error of the operating system.
        error: io::Error,
    },
    /// The node cannot join the other nodes of the journal.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The subscriptions cannot be set up.
    #[error("cannot set up the subscriptions: {0}")]
    Subscriptions(#[from] OperationError),
    /// The hub cannot be set up.
    #[error("cannot set up the hub: {0}")]
    Hub(#[from] ClientError),
    /// A thread or task has died because of a bug.
    #[error("{0}, which is a bug in Tidings; the gateway has stopped")]
    Died(Death),
    /// The recorder of metrics cannot be installed.
    #[error("cannot set up the metrics: {0}")]
    Metrics(#[from] metrics_exporter_prometheus::BuildError),
}

/// Returns what lets the gateway listen.
fn listen_remedy(address: SocketAddr, error: io::ErrorKind) -> String {
    match error {
        io::ErrorKind::PermissionDenied if address.port() < 1024 => {
            "ports below 1024 need root; choose another port with --listen, or put a proxy in front".to_owned()
        }
        io::ErrorKind::AddrNotAvailable => {
            format!("this machine has no address {}; choose one of its own with --listen", address.ip())
        }
        io::ErrorKind::AddrInUse => "stop the process that uses it, or choose another address with --listen".to_owned(),
        _ => "choose another address with --listen".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{ServeError, io};

    #[test]
    fn remedy_fits_the_error_of_the_port() {
        let message = |address: &str, kind: io::ErrorKind| {
            ServeError::Listen { address: address.parse().unwrap(), error: kind.into() }.to_string()
        };
        assert!(message("127.0.0.1:80", io::ErrorKind::PermissionDenied).contains("ports below 1024 need root"));
        assert!(message("10.9.9.9:8395", io::ErrorKind::AddrNotAvailable).contains("has no address 10.9.9.9"));
        assert!(message("127.0.0.1:8395", io::ErrorKind::AddrInUse).contains("stop the process that uses it"));
    }
}
