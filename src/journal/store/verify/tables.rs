//! Checks of the other tables: subscriptions, dead letters, incomplete changes, crawls, sources, order times,
//! segments, harvests, quarantine.

use uuid::Uuid;

use super::Report;
use crate::{
    journal::{
        harvest::RunState,
        ingest::JobState,
        store::{
            StoreError, rows,
            tables::{Cell, Row, Table, TableReader, TableRows},
        },
        subscriptions::MadeBy,
    },
    model::{Change, JsonDocument, MissingFacts, Seq, SourceName, SubscriptionName},
};

/// Returns the ranges of numbers that restores have skipped: after the first number, up to the second.
pub(super) fn restores(journal: &dyn TableReader) -> Result<Vec<(i64, i64)>, StoreError> {
    let restores = TableRows::new(journal, Table::Restores);
    restores.map(|row| row.and_then(|row| Ok((row.integer("head")?, row.integer("floor")?)))).collect()
}

/// Checks the rows of each table by themselves. `restores` are the ranges of numbers that restores have skipped.
pub(super) fn examine(journal: &dyn TableReader, restores: &[(i64, i64)], report: &mut Report) {
    type Check<'c> = &'c dyn Fn(&Row, &mut Report) -> Result<(), StoreError>;
    let checks: [(Table, &str, Check<'_>); 13] = [
        (Table::Subscriptions, "the subscription", &|row, report| subscription(row, restores, report)),
        (Table::DeadLetters, "the dead letter", &dead_letter),
        (Table::IncompleteChanges, "the incomplete change", &incomplete),
        (Table::Crawls, "the crawl of the repository of", &crawl),
        (Table::Sources, "the times of the source", &source),
        (Table::OrderTimes, "the order time of the change", &order_time),
        (Table::Segments, "the segment that begins with the change", &segment),
        (Table::Harvests, "the harvest of", &harvest),
        (Table::HarvestRuns, "the run of a harvest", &harvest_run),
        (Table::HarvestRecords, "a record of the harvest of", &harvest_record),
        (Table::IngestJobs, "a job of the source", &ingest_job),
        (Table::Results, "the result of", &result),
        (Table::Quarantine, "the quarantined message", &quarantined),
    ];
    for (table, kind, check) in checks {
        for row in TableRows::new(journal, table) {
            match row {
                Ok(row) => {
                    if let Err(error) = check(&row, report) {
                        report.add(format!("{kind} {}: {error}", key(&row)));
                    }
                }
                Err(error) => report.add(format!("the table {} cannot be read: {error}", table.name())),
            }
        }
    }
}

/// Describes the key of a row.
fn key(row: &Row) -> String {
    match row.key().first() {
        Some(Cell::Integer(number)) => number.to_string(),
        Some(Cell::Text(text)) => format!("{text:?}"),
        _ => "without a key".to_owned(),
    }
}

/// Checks that the cursor is a number that the journal has given: the subscription would skip changes after a cursor above
/// the newest one, and a cursor in a skipped range is from a journal that was lost.
fn subscription(row: &Row, restores: &[(i64, i64)], report: &mut Report) -> Result<(), StoreError> {
    let (name, made_by) = (row.text("name")?, row.text("made_by")?);
    SubscriptionName::parse(name).map_err(rows::damaged)?;
    rows::named("creator of a subscription", made_by, MadeBy::ALL, MadeBy::as_str)?;
    row.text("definition")?;
    row.optional_text("ended")?;
    row.boolean("paused")?;
    row.optional_text("paused_by")?;
    let (cursor, head) = (row.seq("cursor")?, report.head);
    if cursor > head {
        report.add(format!("the cursor of the subscription {name} is {cursor}, but the newest change is {head}"));
    }
    let number = rows::number(cursor.0);
    if let Some((before, floor)) = restores.iter().find(|(before, floor)| *before < number && number <= *floor) {
        report.add(format!(
            "the cursor of the subscription {name} is {cursor}, but a restore or failover has skipped the numbers after \
             {before} up to {floor}; a gateway that delivers the subscription continues after {before}"
        ));
    }
    Ok(())
}

fn dead_letter(row: &Row, report: &mut Report) -> Result<(), StoreError> {
    let id = row.unsigned("id")?;
    SubscriptionName::parse(row.text("subscription")?).map_err(rows::damaged)?;
    row.time("refused")?;
    row.unsigned("attempts")?;
    row.boolean("replay")?;
    row.text("reason")?;
    copy_of_change(report, &format!("the dead letter {id}"), row.seq("seq")?, row.bytes("json"));
    Ok(())
}

fn incomplete(row: &Row, report: &mut Report) -> Result<(), StoreError> {
    let seq = row.seq("seq")?;
    let row_name = format!("the incomplete change {seq}");
    let (source, missing) = (row.text("source")?, row.text("missing")?);
    if SourceName::parse(source).is_err() || !MissingFacts::ALL.into_iter().any(|facts| facts.name() == missing) {
        report.add(format!("{row_name} has invalid values: missing facts {missing:?}, source {source:?}"));
    }
    copy_of_change(report, &row_name, seq, row.bytes("json"));
    Ok(())
}

/// Checks a copy of a change, which a row contains because retention may have removed the change itself.
fn copy_of_change(report: &mut Report, row_name: &str, seq: Seq, json: &[u8]) {
    let head = report.head;
    if seq > head {
        report.add(format!("{row_name} is a copy of change {seq}, but the newest change is {head}"));
    }
    match serde_json::from_slice::<Change>(json) {
        Ok(change) if change.seq != seq => {
            report.add(format!("{row_name} is of change {seq}, but its JSON has the number {}", change.seq));
        }
        Ok(_) => {}
        Err(error) => report.add(format!("{row_name} cannot be read: {error}")),
    }
}

fn crawl(row: &Row, _: &mut Report) -> Result<(), StoreError> {
    SourceName::parse(row.text("source")?).map_err(rows::damaged)?;
    Uuid::parse_str(row.text("id")?).map_err(rows::damaged)?;
    row.unsigned("parts")?;
    row.unsigned("objects")?;
    row.text("position")?;
    row.time("started")?;
    row.time("updated")?;
    row.boolean("finished").map(drop)
}

fn source(row: &Row, _: &mut Report) -> Result<(), StoreError> {
    SourceName::parse(row.text("source")?).map_err(rows::damaged)?;
    row.time("first_event")?;
    row.time("last_event")?;
    ["week", "longest_pause", "earlier_pause"].iter().try_for_each(|name| row.unsigned(name).map(drop))
}

fn order_time(row: &Row, _: &mut Report) -> Result<(), StoreError> {
    row.seq("seq")?;
    row.time("order_time").map(drop)
}

fn segment(row: &Row, _: &mut Report) -> Result<(), StoreError> {
    if row.seq("first")? > row.seq("last")? {
        return Err(rows::damaged("it ends before it begins"));
    }
    rows::json::<JsonDocument>(row.text("manifest")?).map(drop)
}

fn harvest(row: &Row, _: &mut Report) -> Result<(), StoreError> {
    SourceName::parse(row.text("source")?).map_err(rows::damaged)?;
    row.text("position")?;
    row.optional_text("definition")?;
    row.boolean("paused").map(drop)
}

fn harvest_run(row: &Row, _: &mut Report) -> Result<(), StoreError> {
    SourceName::parse(row.text("source")?).map_err(rows::damaged)?;
    Uuid::parse_str(row.text("id")?).map_err(rows::damaged)?;
    row.time("started")?;
    row.time("updated")?;
    rows::named("state of a run", row.text("state")?, RunState::ALL, RunState::name)?;
    row.optional_text("reason")?;
    ["pages", "records", "changes", "quarantined", "repaired"].iter().try_for_each(|name| row.unsigned(name).map(drop))
}

fn harvest_record(row: &Row, _: &mut Report) -> Result<(), StoreError> {
    SourceName::parse(row.text("source")?).map_err(rows::damaged)?;
    row.text("identifier")?;
    row.time("listed").map(drop)
}

/// Checks also the size, because the limits of the quarantine depend on it.
fn quarantined(row: &Row, report: &mut Report) -> Result<(), StoreError> {
    let (id, size, length) = (row.unsigned("id")?, row.unsigned("size")?, row.bytes("body").len() as u64);
    if size != length {
        report.add(format!("the message {id} of the quarantine has {length} bytes, but its row says {size}"));
    }
    let checked = || -> Result<(), StoreError> {
        SourceName::parse(row.text("source")?).map_err(rows::damaged)?;
        row.time("received")?;
        row.optional_text("content_type")?;
        row.text("location")?;
        row.text("reason")?;
        rows::json::<Vec<(String, String)>>(row.text("headers")?).map(drop)
    };
    if let Err(error) = checked() {
        report.add(format!("the message {id} of the quarantine: {error}"));
    }
    Ok(())
}

fn ingest_job(row: &Row, _: &mut Report) -> Result<(), StoreError> {
    SourceName::parse(row.text("source")?).map_err(rows::damaged)?;
    rows::uri(row.text("dataset")?)?;
    Uuid::parse_str(row.text("id")?).map_err(rows::damaged)?;
    rows::json::<JsonDocument>(row.text("request")?)?;
    rows::named("state of a job", row.text("state")?, JobState::ALL, JobState::name)?;
    row.unsigned("attempts")?;
    row.time("requested")?;
    row.time("updated").map(drop)
}

fn result(row: &Row, report: &mut Report) -> Result<(), StoreError> {
    rows::uri(row.text("object")?)?;
    rows::json::<JsonDocument>(row.text("result")?)?;
    row.time("received")?;
    let (seq, head) = (row.seq("seq")?, report.head);
    if seq > head {
        report.add(format!("a result belongs to the change {seq}, but the newest change is {head}"));
    }
    Ok(())
}
