//! What processes have taken of the processors.

use std::{fs, time::Duration};

/// The kernel's clock ticks a second in `/proc`, on every Linux that there is.
const TICKS: u32 = 100;

/// Processor time of one message.
pub(crate) struct Used {
    /// That of whoever moves it, where that is a process of its own.
    pub(crate) own: Option<Duration>,
    /// That of the broker.
    pub(crate) broker: Option<Duration>,
}

/// The time that a process has taken so far; `None` where there is no `/proc`.
pub(crate) fn taken(process: u32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // After the name, which ends with the last parenthesis: the 12th and 13th are user and system time.
    let fields: Vec<_> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks: u32 = fields.get(11..13)?.iter().filter_map(|field| field.parse::<u32>().ok()).sum();
    Some(Duration::from_secs(1) * ticks / TICKS)
}
