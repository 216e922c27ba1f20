//! Processor time of processes.

use std::{fs, time::Duration};

/// Clock ticks per second in `/proc`; the same on every Linux.
const TICKS_PER_SECOND: u32 = 100;

/// Processor time per message.
pub(crate) struct ProcessorTime {
    /// Time of the contender, if it has its own process.
    pub(crate) own: Option<Duration>,
    /// Time of the broker.
    pub(crate) broker: Option<Duration>,
}

/// Returns the processor time that a process has used so far; `None` without `/proc`.
pub(crate) fn used_by(process: u32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // After the process name in parentheses, the fields 12 and 13 are user and system time.
    let fields: Vec<_> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks: u32 = fields.get(11..13)?.iter().filter_map(|field| field.parse::<u32>().ok()).sum();
    Some(Duration::from_secs(1) * ticks / TICKS_PER_SECOND)
}
