//! The two halves of a connection's socket.

use tokio::io::{ReadHalf, WriteHalf, split};

use super::{Connector, StompError};
use crate::broker::{SocketGuard, Stream, open_socket};

/// Half of a socket. Dropping both halves closes the socket.
pub(super) type ReadSocket = ReadHalf<Stream>;
pub(super) type WriteSocket = WriteHalf<Stream>;

/// Opens a socket to the broker, with TLS if the URL requires it. There is no timeout; dropping the future
/// ends the attempt.
pub(super) async fn open(connector: &Connector) -> Result<(ReadSocket, WriteSocket, SocketGuard), StompError> {
    let opened = open_socket(&connector.address, connector.ca.as_deref(), &connector.resolver).await;
    let (stream, guard) = opened?;
    let (reading, writing) = split(stream);
    Ok((reading, writing, guard))
}
