//! What the tests of sources that speak STOMP share: a gateway that reads a destination. Their source has the name of
//! [`crate::support::amqp_source::SOURCE`], so that one waits for it as for any other.

use std::path::Path;

use crate::support::{amqp_source::SOURCE, gateway::Gateway, journal_fixture::configuration};

/// The path of a configuration with one such source, of that dialect. The lines go into its table.
pub(crate) fn source(folder: &Path, url: &str, destination: &str, dialect: &str, lines: &str) -> String {
    let table = format!(
        "[sources.{SOURCE}]\ntransport = \"stomp\"\ndialect = \"{dialect}\"\nurl = \"{url}\"\n\
         destination = \"{destination}\"\n{lines}\n"
    );
    configuration(folder, &table)
}

/// A gateway with such a source of the dialect content-change, and its journal in `folder`, its whole log in the file
/// `log` beside it.
pub(crate) fn start(folder: &Path, url: &str, destination: &str, lines: &str) -> Gateway {
    start_with(folder, url, destination, "content-change", lines)
}

/// The same with a dialect.
pub(crate) fn start_with(folder: &Path, url: &str, destination: &str, dialect: &str, lines: &str) -> Gateway {
    let config = source(folder, url, destination, dialect, lines);
    Gateway::start_logging(&folder.join("data"), &["--config", &config], &folder.join("log"))
}
