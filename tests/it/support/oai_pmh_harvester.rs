//! Clients of others that harvest a repository with OAI-PMH.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use serde::Deserialize;

use crate::support::python;

/// Client that harvests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HarvestClient {
    Sickle,
    Scythe,
    /// The package `oaipmh` of PyPI, whose requests are POST requests.
    Oaipmh,
    /// The package `oai-pmh` of npm.
    Node,
}

impl HarvestClient {
    /// Returns the program around the client.
    fn program(self) -> Command {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let script = |extension: &str| here.join("tests/it/support/oai_pmh_harvest").with_extension(extension);
        let python = |environment: &str, name: &str| {
            let mut python = Command::new(python::environment(environment));
            python.arg(script("py")).arg(name);
            python
        };
        match self {
            Self::Sickle => python("sickle", "sickle"),
            Self::Scythe => python("oaipmh-scythe", "scythe"),
            Self::Oaipmh => python("oaipmh", "oaipmh"),
            Self::Node => {
                let mut node = Command::new(here.join("scripts/node"));
                node.arg("oai-pmh@2.0.3").arg(script("js"));
                node
            }
        }
    }
}

/// Running program around a client, which harvests again and again.
pub(crate) struct Harvester {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

/// Result of a harvest.
#[derive(Deserialize)]
struct Harvest {
    /// Date from which the next harvest continues.
    date: String,
    records: BTreeMap<String, Relations>,
}

/// Relations of a record, in their order; `None` if it is deleted.
pub(crate) type Relations = Option<Vec<String>>;

impl Harvester {
    /// Starts the program around a client.
    pub(crate) fn start(client: HarvestClient) -> Self {
        let mut child = client.program().stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output }
    }

    /// Harvests what has changed since a date, or everything. The call blocks.
    fn harvest(&mut self, url: &str, since: &str) -> Harvest {
        writeln!(self.input, "{url} {since}").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }
}

impl Drop for Harvester {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Copy of a repository that a client keeps.
#[derive(Clone, Default)]
pub(crate) struct HarvestedCopy {
    /// All records by their identifiers, also the deleted ones.
    pub(crate) records: BTreeMap<String, Relations>,
    /// Date from which the next harvest continues; empty before the first one.
    since: String,
}

impl HarvestedCopy {
    /// Harvests what has changed since the harvest before, or everything. Returns the newer copy, and the harvester for
    /// another harvest.
    pub(crate) async fn renew(mut self, mut harvester: Harvester, url: String) -> (Self, Harvester) {
        let renewal = tokio::task::spawn_blocking(move || {
            let harvest = harvester.harvest(&url, &self.since);
            self.records.extend(harvest.records);
            self.since = harvest.date;
            (self, harvester)
        });
        renewal.await.unwrap()
    }
}
