//! HTML page of an object: its last known state, and its life, change by change.

use std::{
    io::{self, Write},
    sync::Arc,
};

use super::{ItemView, ObjectView};
use crate::{
    journal::RecordedChange,
    model::{Change, Seq, Timestamp},
    view::{filtered_feed::FilteredPage, html, store_problem, summary},
    web::{DocumentWriter, Problem, Representation, Spool},
};

/// Maximum number of items that are listed with each change.
const ITEMS_OF_CHANGE: usize = 10;

/// Returns the page of an object with a part of its changes, newest first. `newest` is the number of the newest change
/// that was examined.
pub(super) fn page(
    spool: &Spool,
    object: &ObjectView<'_>,
    life: &FilteredPage,
    newest: Seq,
) -> Result<Representation, Problem> {
    // Other objects whose URIs begin with that of the object match its filter too.
    let is_of_object = |recorded: &&Arc<RecordedChange>| {
        recorded.change().map_or(true, |change| change.modification.object == *object.uri)
    };
    let changes = life.changes.iter().filter(is_of_object);
    let changes: Vec<&Change> =
        changes.map(|recorded| recorded.change()).collect::<Result<_, _>>().map_err(store_problem)?;
    html::page(spool, &summary::object_name(object.uri), |out| {
        write_state(out, object)?;
        write_life(out, object, &changes, life.next, newest)
    })
}

fn write_state(out: &mut DocumentWriter, object: &ObjectView<'_>) -> io::Result<()> {
    writeln!(out, "<dl>")?;
    html::fact(out, "Object", &html::uri(object.uri))?;
    if let Some(parent) = object.parent {
        html::fact(out, "Parent", &html::link(&html::object_url(parent), parent.as_str()))?;
    }
    for object_type in object.types {
        html::fact(out, "Type", &html::uri(object_type))?;
    }
    if let Some(source) = object.source {
        html::fact(out, "Source", &html::escaped(source.as_str()))?;
    }
    if let Some(purged) = object.purged {
        html::fact(out, "Purged", &html::time(purged))?;
    }
    writeln!(out, "</dl>\n<h2>Last known state</h2>\n<ul>")?;
    for item in object.items.iter().take(html::MAX_ITEMS) {
        write_item(out, item)?;
    }
    writeln!(out, "</ul>")?;
    let more = object.items.len().saturating_sub(html::MAX_ITEMS);
    if more > 0 {
        writeln!(out, "<p>The object has {more} more items; its JSON lists all.</p>")?;
    }
    Ok(())
}

fn write_item(out: &mut DocumentWriter, item: &ItemView<'_>) -> io::Result<()> {
    let uri = html::uri(item.uri);
    let state = item.state.map(|state| format!(" {}", html::escaped(state.as_str()))).unwrap_or_default();
    // The epoch stands for an unknown time.
    let since = item.since.filter(|since| *since != Timestamp::EPOCH);
    let since = since.map(|since| format!(" since {}", html::time(since))).unwrap_or_default();
    match item.live {
        true => write!(out, "<li>{uri}{state}{since}")?,
        false => write!(out, "<li><span class=\"gone\">{uri}</span> deleted{since}")?,
    }
    if let Some(content) = item.content.as_ref().filter(|content| content.url != *item.uri) {
        write!(out, "<br>content: {}", html::uri(&content.url))?;
    }
    writeln!(out, "</li>")
}

fn write_life(
    out: &mut DocumentWriter,
    object: &ObjectView<'_>,
    changes: &[&Change],
    next: Option<Seq>,
    newest: Seq,
) -> io::Result<()> {
    writeln!(out, "<h2>Life</h2>")?;
    if changes.is_empty() {
        match next {
            Some(next) => writeln!(out, "<p>No change of the object is among the changes {next} to {newest}.</p>")?,
            None => writeln!(out, "<p>The journal has no older change of the object.</p>")?,
        }
    }
    writeln!(out, "<ol reversed>")?;
    for change in changes {
        let modification = &change.modification;
        let url = format!("changes/{}", modification.id.uuid());
        writeln!(out, "<li value=\"{}\">{} {}", change.seq, html::time(modification.time), html::link(&url, "change"))?;
        if change.settlement.is_late() {
            writeln!(out, "(late)")?;
        }
        writeln!(out, "<ul>")?;
        for item in modification.items.iter().take(ITEMS_OF_CHANGE) {
            let states = html::states(&item.change);
            let separator = if states.is_empty() { "" } else { ", " };
            writeln!(out, "<li>{}{separator}{states}</li>", html::escaped(&summary::title(modification, item)))?;
        }
        let more = modification.items.len().saturating_sub(ITEMS_OF_CHANGE);
        if more > 0 {
            writeln!(out, "<li>and {more} more items</li>")?;
        }
        writeln!(out, "</ul></li>")?;
    }
    writeln!(out, "</ol>\n<nav>")?;
    if let Some(next) = next {
        let url = format!("{}&before={next}", html::object_url(object.uri));
        writeln!(out, "{}", html::link(&url, "Older changes"))?;
    }
    writeln!(out, "</nav>")
}
