//! Keys of the connection to a Kafka cluster, in the table of a source or a subscription.

use super::Mechanism;
use crate::settings::{Choice, Choose, Flag, SecretText, Text, settings};

settings! {
    /// Keys of a source and of a subscription for the connection to a cluster.
    pub struct ClusterTable {
        /// Some brokers of the cluster: HOST:PORT, separated by commas. Default port: 9092.
        pub brokers: Text,
        /// Whether the connections are encrypted. Default: false.
        pub tls: Flag = false,
        /// PEM file with the CA certificate of the brokers, for TLS. Default: the CA certificates of the
        /// operating system.
        pub ca: Option<Text>,
        /// "plain", "scram-sha-256" or "scram-sha-512". Default: none.
        pub sasl: Option<Choice<Mechanism>>,
        /// User for SASL.
        pub user: Option<Text>,
        /// Password for SASL, given by value, as { file = "PATH" } or as { env = "NAME" }.
        pub password: Option<SecretText>,
    }
}

impl Choose for Mechanism {
    const WHAT: &'static str = "mechanism of SASL";
}
