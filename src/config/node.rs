//! `[node]`: this gateway among the nodes that share a journal.

use std::{env, fs};

use super::server::PublicUrl;
use crate::{
    cluster::NodeSettings,
    model::NodeName,
    settings::{Seconds, Text, settings},
};

/// File in which Linux shows the host name.
const HOST_NAME: &str = "/proc/sys/kernel/hostname";

settings! {
    /// `[node]`: name and lease of this node.
    #[derive(Clone, Debug)]
    pub struct NodeConfig {
        /// Name of the node; the host name if there is none.
        pub name: Option<Text<NodeName>>,
        /// URL at which the node is reached, for people.
        pub address: Option<PublicUrl>,
        /// Time after which other nodes take over the duties of a node that has died, 3 to 300 seconds.
        pub lease as "lease_seconds": Seconds<3, 300>,
    }
}

impl NodeConfig {
    /// Returns the settings of the node.
    #[must_use]
    pub fn settings(&self) -> NodeSettings {
        NodeSettings {
            name: self.name.clone().unwrap_or_else(host_name),
            address: self.address.as_ref().map(|address| address.as_str().to_owned()),
            lease: self.lease,
        }
    }
}

/// Returns the name of this host as the name of a node.
fn host_name() -> NodeName {
    let name = fs::read_to_string(HOST_NAME).ok().or_else(|| env::var("HOSTNAME").ok()).unwrap_or_default();
    node_name(&name)
}

/// Returns the nearest name of a node.
#[expect(clippy::expect_used, reason = "the characters are replaced, and the first one is a letter if it must be")]
fn node_name(host: &str) -> NodeName {
    let allowed = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '-' };
    let mut name: String = host.trim().chars().map(allowed).take(60).collect();
    if !name.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        name.insert_str(0, "node");
    }
    NodeName::parse(&name).expect("the name has only valid characters")
}

#[cfg(test)]
mod tests {
    use super::node_name;

    #[test]
    fn every_host_name_makes_a_node_name() {
        for (host, expected) in
            [("Web1.example.org\n", "Web1.example.org"), ("", "node"), ("-x y", "node-x-y"), ("ä", "node-")]
        {
            assert_eq!(node_name(host).as_str(), expected);
        }
        assert_eq!(node_name(&"x".repeat(99)).as_str().len(), 60);
    }
}
