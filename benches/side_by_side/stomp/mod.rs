//! STOMP: the gateway consumes an ActiveMQ queue into the journal until the feed shows the changes. A minimal reader
//! that acknowledges each message and stores nothing is the reference.
//!
//! The benchmark starts its own broker. The gateway is the real program in its own process; the reader and the code
//! that observes the gateway run in this process, on the same machine.

mod bare;
pub(crate) mod gateway;

use std::cell::{Cell, RefCell};

use super::{
    activemq::Broker,
    amqp::processor::used_by,
    fedora3_messages::Call,
    measure::{Contender, compare},
    stomp_client::Client,
};

/// Number of messages in the queue when a contender starts.
const MESSAGES: u64 = 20_000;

/// Number of messages that are sent in one transaction.
const TRANSACTION: u64 = 1000;

/// Number of rounds, after a warm-up round.
const ROUNDS: usize = 5;

/// Names of the contenders; the first is the reference.
const NAMES: [&str; 3] = ["a bare reader, each message acknowledged", "Tidings, each acknowledged", "Tidings"];

/// Returns a Fedora 3 message of 1.3 kB that adds a datastream to one of a thousand objects.
pub(crate) fn message(number: u64) -> String {
    let (pid, datastream) = (format!("demo:{}", number % 1000), format!("DS{number}"));
    let parameters = [
        ("dsID", datastream.as_str()),
        ("altIDs", "null"),
        ("dsLabel", "a page of a book that has many"),
        ("versionable", "true"),
        ("controlGroup", "M"),
        ("dsState", "A"),
    ];
    Call { number, method: "addDatastream", pid: &pid, parameters: &parameters, returned: Some(&datastream) }.message()
}

pub(crate) fn measure() {
    let (broker, folder) = (Broker::start(), tempfile::tempdir().unwrap());
    let queue = format!("/queue/{}", broker.name());
    let (next, used) = (Cell::new(0), RefCell::new([(); 3].map(|()| Vec::new())));
    let contender = |which: usize| {
        let (broker, folder, queue, next, used) = (&broker, folder.path(), &queue, &next, &used);
        Contender::timed(NAMES[which], move || {
            let numbers = next.get()..next.get() + MESSAGES;
            next.set(numbers.end);
            let mut client = Client::connect(broker.port);
            for from in numbers.clone().step_by(TRANSACTION as usize) {
                client.send_all(queue, &[("methodName", "addDatastream")], (from..from + TRANSACTION).map(message));
            }
            let broker_time = || used_by(broker.process.id().parse().unwrap());
            let before = broker_time();
            let tidings = |acknowledge| {
                let lines = format!("acknowledge = \"{acknowledge}\"\n");
                gateway::drain(&broker.url(), queue, &lines, folder, MESSAGES, &|head| head)
            };
            let (moved, took) = match which {
                0 => bare::drain(broker.port, queue, MESSAGES),
                1 => tidings("individual"),
                _ => tidings("cumulative"),
            };
            used.borrow_mut()[which].push((broker_time().unwrap() - before.unwrap()) / MESSAGES as u32);
            assert_eq!(client.browse(queue).len(), 0, "all is acknowledged");
            (moved, took)
        })
    };
    compare("a queue of ActiveMQ, 1.3 kB a message", "messages", ROUNDS, (0..3).map(contender).collect());
    println!("\n| processor time of a message | the broker's |\n| --- | ---: |");
    for (name, mut used) in NAMES.iter().zip(used.into_inner()) {
        used.sort();
        println!("| {name} | {:.1} µs |", used[used.len() / 2].as_secs_f64() * 1e6);
    }
}
