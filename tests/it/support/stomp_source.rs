//! Gateway that reads a STOMP destination. Its source has the name [`crate::support::amqp_source::SOURCE`], so
//! that the helpers of that module can wait for it.

use std::path::Path;

use crate::support::{amqp_source::SOURCE, gateway::Gateway, journal_fixture::configuration};

/// Writes a configuration with one STOMP source of that dialect and returns its path. `lines` are added to the
/// source's table.
pub(crate) fn source(folder: &Path, url: &str, destination: &str, dialect: &str, lines: &str) -> String {
    let table = format!(
        "[sources.{SOURCE}]\ntransport = \"stomp\"\ndialect = \"{dialect}\"\nurl = \"{url}\"\n\
         destination = \"{destination}\"\n{lines}\n"
    );
    configuration(folder, &table)
}

/// Starts a gateway with such a source of the dialect content-change. Its journal is in `folder`, and its
/// complete log in the file `log` beside it.
pub(crate) fn start(folder: &Path, url: &str, destination: &str, lines: &str) -> Gateway {
    start_with(folder, url, destination, "content-change", lines)
}

/// Starts a gateway with such a source of another dialect.
pub(crate) fn start_with(folder: &Path, url: &str, destination: &str, dialect: &str, lines: &str) -> Gateway {
    let config = source(folder, url, destination, dialect, lines);
    Gateway::start_logging(&folder.join("data"), &["--config", &config], &folder.join("log"))
}
