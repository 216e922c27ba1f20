//! Processor time of processes.

use std::{fs, ops::Range, time::Duration};

/// Clock ticks per second in `/proc`; the same on every Linux.
const TICKS_PER_SECOND: u32 = 100;

/// Processor time per message.
pub(crate) struct ProcessorTime {
    /// Time of the contender, if it has its own process.
    pub(crate) own: Option<Duration>,
    /// Time of the broker.
    pub(crate) broker: Option<Duration>,
}

/// Fields of `/proc/PROCESS/stat` after the process name, with user and system time.
const OWN: Range<usize> = 11..13;
/// The same fields of the children that have ended.
const FORMER_CHILDREN: Range<usize> = 13..15;

/// Returns the processor time that a process has used so far; `None` without `/proc`.
pub(crate) fn used_by(process: u32) -> Option<Duration> {
    read(process, OWN)
}

fn read(process: u32, which: Range<usize>) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The process name is in parentheses.
    let fields: Vec<_> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks: u32 = fields.get(which)?.iter().filter_map(|field| field.parse::<u32>().ok()).sum();
    Some(Duration::from_secs(1) * ticks / TICKS_PER_SECOND)
}

/// Returns the processor time that a process, its children and its former children have used so far.
pub(crate) fn used_by_family(process: u32) -> Duration {
    let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap_or_default();
    let children = children.split_whitespace().filter_map(|child| used_by(child.parse().ok()?));
    let own = [OWN, FORMER_CHILDREN].into_iter().filter_map(|which| read(process, which));
    own.sum::<Duration>() + children.sum::<Duration>()
}
