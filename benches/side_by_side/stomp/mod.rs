//! STOMP: from a queue of an ActiveMQ into the journal, to be read as Atom, beside a bare reader that acknowledges each
//! message and keeps nothing.
//!
//! The broker is the bench's own. The gateway is the real program in a process of its own; the reader runs in this
//! process, and so does who looks at the gateway. All share the machine.

mod bare;
pub(crate) mod gateway;

use std::cell::{Cell, RefCell};

use super::{
    activemq::Broker,
    amqp::processor::taken,
    fedora3_messages::Call,
    measure::{Contender, compare},
    stomp_client::Client,
};

/// How many messages wait when a contender begins.
const MESSAGES: u64 = 20_000;

/// How many of them are sent in one transaction.
const AT_ONCE: u64 = 1000;

/// Rounds, beside the one that warms up.
const ROUNDS: usize = 5;

/// The contenders; the first is what the others are measured by.
const NAMES: [&str; 3] = ["a bare reader, each message acknowledged", "Tidings, each acknowledged", "Tidings"];

/// A message of a Fedora 3, 1.3 kB: a datastream is added to one of a thousand objects.
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
            for from in numbers.clone().step_by(AT_ONCE as usize) {
                client.send_all(queue, &[("methodName", "addDatastream")], (from..from + AT_ONCE).map(message));
            }
            let of_broker = || taken(broker.kept.process().parse().unwrap());
            let before = of_broker();
            let tidings = |acknowledge| {
                let lines = format!("acknowledge = \"{acknowledge}\"\n");
                gateway::drain(&broker.url(), queue, &lines, folder, MESSAGES, &|head| head)
            };
            let (moved, took) = match which {
                0 => bare::drain(broker.port, queue, MESSAGES),
                1 => tidings("individual"),
                _ => tidings("cumulative"),
            };
            used.borrow_mut()[which].push((of_broker().unwrap() - before.unwrap()) / MESSAGES as u32);
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
