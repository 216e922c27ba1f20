//! The two halves of the socket under a connection.

use tokio::io::{ReadHalf, WriteHalf, split};

use super::{StompError, StompSettings};
use crate::broker::{SocketGuard, Stream, open_socket, system_resolver};

/// One half of a socket reads, the other writes. The socket is closed when both are dropped.
pub(super) type Reading = ReadHalf<Stream>;
pub(super) type Writing = WriteHalf<Stream>;

/// Opens a socket to the broker, encrypted where the address says so. Nothing here is bounded in time; dropping
/// the future ends the attempt.
pub(super) async fn open(settings: &StompSettings) -> Result<(Reading, Writing, SocketGuard), StompError> {
    let opened = open_socket(&settings.address, settings.ca.as_deref(), &system_resolver()).await;
    let (stream, guard) = opened?;
    let (reading, writing) = split(stream);
    Ok((reading, writing, guard))
}
