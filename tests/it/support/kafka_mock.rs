//! Mock cluster of librdkafka, with several brokers, and partitions that keep only their newest 5 MiB. Unlike Tansu, its
//! brokers report offsets that are out of range.

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use serde_json::json;

/// A running cluster. Topics are made by the first message, with four partitions.
pub(crate) struct MockCluster {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// Addresses of the brokers.
    pub(crate) brokers: String,
}

impl MockCluster {
    /// Starts a cluster with that many brokers.
    pub(crate) fn start(brokers: u32) -> Self {
        let mut mock = Command::new(super::kafka::python());
        mock.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/support/kafka_mock.py")).arg(brokers.to_string());
        let mock = mock.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = mock.spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut mock = Self { child, input, output, brokers: String::new() };
        mock.brokers = mock.line();
        assert!(mock.brokers.contains(':'), "the mock cluster does not start");
        mock
    }

    /// Publishes values to a partition.
    pub(crate) fn publish(&mut self, topic: &str, partition: i32, values: impl IntoIterator<Item = Vec<u8>>) {
        let values: Vec<_> = values.into_iter().map(|value| String::from_utf8(value).unwrap()).collect();
        let batch = json!({ "topic": topic, "partition": partition, "values": values });
        writeln!(self.input, "{batch}").unwrap();
        assert_eq!(self.line(), "", "the messages are confirmed");
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.output.read_line(&mut line).unwrap() > 0, "the mock cluster has ended");
        line.trim().to_owned()
    }
}

impl Drop for MockCluster {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
