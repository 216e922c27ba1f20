//! One pass over all changes and seeds, which rebuilds the registry and checks each change.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    iter::Peekable,
};

use super::Report;
use crate::{
    journal::{
        registry::Registry,
        seed::RegistryDelta,
        store::{
            StoreError, rows,
            tables::{Row, Table, TableReader, TableRows},
        },
    },
    model::{Change, Seq, Timestamp, Uri},
};

/// Number of changes between two reports of progress.
const CHANGES_PER_PROGRESS: u64 = 1_000;

/// A pass that rebuilds one part of the registry. The first pass also checks each change.
pub(super) struct JournalReplay<'j> {
    journal: &'j dyn TableReader,
    /// Ranges of numbers that restores have skipped: after the first number, up to the second.
    restores: &'j [(i64, i64)],
    part: u64,
    parts: u64,
    registry: Registry,
    /// Number and time of receipt of the previous change.
    before: Option<(i64, i64)>,
}

impl<'j> JournalReplay<'j> {
    /// Prepares the pass for one of `parts` parts of the objects.
    pub(super) fn new(journal: &'j dyn TableReader, restores: &'j [(i64, i64)], part: u64, parts: u64) -> Self {
        Self { journal, restores, part, parts, registry: Registry::default(), before: None }
    }

    /// Returns the rebuilt part of the registry.
    pub(super) fn into_registry(self) -> Registry {
        self.registry
    }

    /// Reads all changes and seeds.
    pub(super) fn run(&mut self, report: &mut Report, progress: &mut dyn FnMut(u64)) -> Result<(), StoreError> {
        let mut seeds = Some(TableRows::new(self.journal, Table::Seeds).peekable());
        let (mut done, mut is_first) = (0, true);
        for change in TableRows::new(self.journal, Table::Changes) {
            let change = change?;
            let seq = change.integer("seq")?;
            let is_complete = !is_first || seq == 1 || self.is_restored(0, seq);
            self.seeds(&mut seeds, Some(seq), is_complete, report);
            is_first = false;
            self.change(&change, seq, report)?;
            done += 1;
            if done % CHANGES_PER_PROGRESS == 0 {
                progress(done);
            }
        }
        self.seeds(&mut seeds, None, true, report);
        // Retention never removes the newest change, so a journal without changes is complete.
        report.complete |= is_first;
        progress(done);
        Ok(())
    }

    /// Applies the seeds that are ordered before this change. If earlier changes are missing, they may have set the
    /// facts of the seeds between them, so only the seeds after the last of them count.
    fn seeds(
        &mut self,
        seeds: &mut Option<Peekable<TableRows<'_>>>,
        before: Option<i64>,
        is_complete: bool,
        report: &mut Report,
    ) {
        let Some(unread) = seeds else { return };
        while let Some(seed) = unread.next_if(|seed| is_due(seed, before)) {
            match seed.and_then(|seed| read_seed(&seed)) {
                Ok((seq, object, delta)) => {
                    let counts = is_complete || Some(rows::number(seq.next().0)) == before;
                    if counts && part_of(&object, self.parts) == self.part {
                        self.registry.apply_delta(object, &delta);
                    }
                }
                Err(error) => {
                    report.add(format!("the seeds cannot be read: {error}"));
                    *seeds = None;
                    return;
                }
            }
        }
    }

    fn change(&mut self, row: &Row, seq: i64, report: &mut Report) -> Result<(), StoreError> {
        let change = serde_json::from_slice::<Change>(row.bytes("json"));
        if self.part == 0 {
            self.check(row, seq, change.as_ref(), report)?;
        }
        if let Ok(change) = change
            && part_of(&change.modification.object, self.parts) == self.part
        {
            self.registry.apply(&change);
        }
        Ok(())
    }

    fn check(
        &mut self,
        row: &Row,
        seq: i64,
        change: Result<&Change, &serde_json::Error>,
        report: &mut Report,
    ) -> Result<(), StoreError> {
        let received = row.integer("received")?;
        self.check_order(seq, received, report);
        let visibility = row.optional_text("visibility").ok().flatten().map(str::as_bytes);
        if row.integer("checksum")? != rows::checksum(seq, row.bytes("json"), visibility) {
            report.add(format!("change {seq} is damaged: its checksum is wrong"));
        }
        match change {
            Err(error) => report.add(format!("change {seq} cannot be read: {error}")),
            Ok(change) => {
                if rows::number(change.seq.0) != seq {
                    report.add(format!("the JSON of change {seq} has the number {}", change.seq));
                }
                let id = change.modification.id;
                if row.uuid("id").ok() != Some(id.uuid()) {
                    report.add(format!("change {seq} has the id {id}, but its row has another id"));
                }
                if change.received.millis() != received {
                    let received = change.received;
                    report.add(format!("change {seq} was received at {received}, but its row has another time"));
                }
            }
        }
        Ok(())
    }

    /// Checks that numbers and times of receipt increase, and that only restores skip numbers.
    fn check_order(&mut self, seq: i64, received: i64, report: &mut Report) {
        let number = Seq(u64::try_from(seq).unwrap_or_default());
        match self.before {
            None => {
                report.first = Some(number);
                report.complete = seq == 1 || self.is_restored(0, seq);
            }
            Some((before, earlier)) => {
                if before + 1 != seq && !self.is_restored(before, seq) {
                    report.complete = false;
                    let (gap, end) = (before + 1, seq - 1);
                    report.add(format!("the changes {gap} to {end} are missing"));
                }
                if received < earlier {
                    let earlier = Timestamp::from_millis(earlier).map(|time| time.to_string()).unwrap_or_default();
                    report.add(format!("change {seq} was received before {earlier}, the time of the previous change"));
                }
            }
        }
        report.changes += 1;
        report.head = number;
        self.before = Some((seq, received));
    }

    /// Returns whether a restore continued the numbering at `after` when `before` was the newest change.
    fn is_restored(&self, before: i64, after: i64) -> bool {
        self.restores.contains(&(before, after - 1))
    }
}

/// Returns whether a seed is ordered before a change. An unreadable seed always is, so that it is reported.
fn is_due(seed: &Result<Row, StoreError>, before: Option<i64>) -> bool {
    match (seed.as_ref().map(|seed| seed.integer("seq")), before) {
        (Ok(Ok(seq)), Some(before)) => seq < before,
        _ => true,
    }
}

fn read_seed(row: &Row) -> Result<(Seq, Uri, RegistryDelta), StoreError> {
    Ok((row.seq("seq")?, rows::uri(row.text("object")?)?, rows::json(row.text("delta")?)?))
}

/// Returns the part of the objects to which an object belongs.
pub(super) fn part_of(uri: &Uri, parts: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    uri.as_str().hash(&mut hasher);
    hasher.finish() % parts
}
