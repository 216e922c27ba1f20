//! HTML page of a change.

use std::io::{self, Write};

use crate::{
    model::{Change, Seq},
    view::{html, summary},
    web::{DocumentWriter, Problem, ReadPermit, Representation, Spool, Surface},
};

/// Returns the page of a change for a reader with this permit. `head` is the number of the newest change.
pub(super) fn page(spool: &Spool, change: &Change, head: Seq, permit: &ReadPermit) -> Result<Representation, Problem> {
    let modification = &change.modification;
    let title = match &modification.items[..] {
        [item] => summary::title(modification, item),
        items => format!("{} items of {}", items.len(), summary::object_name(&modification.object)),
    };
    html::page(spool, &title, |out| write(out, change, head, permit))
}

fn write(out: &mut DocumentWriter, change: &Change, head: Seq, permit: &ReadPermit) -> io::Result<()> {
    let modification = &change.modification;
    writeln!(out, "<dl>")?;
    html::fact(out, "Change", &change.seq.to_string())?;
    html::fact(out, "Object", &html::uri(&modification.object))?;
    if change.has_made_up_time() {
        html::fact(out, "Time", &format!("{} (of receipt)", html::time(modification.time)))?;
    } else {
        html::fact(out, "Time", &html::time(modification.time))?;
        html::fact(out, "Received", &html::time(change.received))?;
    }
    html::fact(out, "Source", &html::escaped(modification.origin.source.as_str()))?;
    if permit.view().is_none_or(|view| !view.public) {
        html::fact(out, "User", &html::escaped(modification.user.name()))?;
    }
    if !modification.description.is_empty() {
        html::fact(out, "Event", &html::escaped(modification.description.as_str()))?;
    }
    if let Some(parent) = &modification.parent {
        html::fact(out, "Parent", &html::uri(parent))?;
    }
    for object_type in &modification.types {
        html::fact(out, "Type", &html::uri(object_type))?;
    }
    if change.settlement.purge {
        html::fact(out, "Purge", "The object was deleted with all items that it ever had.")?;
    }
    if change.settlement.is_late() {
        html::fact(out, "Late", "The change is older than what the gateway already knew.")?;
    }
    writeln!(out, "</dl>\n<nav>")?;
    // Relative to /changes/{id}.
    let object = format!("../{}", html::object_url(&modification.object));
    // A source is not a fact of the registry, so readers of some sources cannot read objects.
    if permit.allows(Surface::Objects) && permit.view().is_none_or(|view| view.sources.is_empty()) {
        writeln!(out, "{}", html::link(&object, "The life of the object"))?;
    }
    // Of a part of the journal, the neighbours may be hidden.
    let has_neighbours = permit.view().is_none();
    if has_neighbours && change.seq > Seq::ZERO.next() {
        writeln!(out, "{}", html::link(&(change.seq.0 - 1).to_string(), "Previous change"))?;
    }
    if has_neighbours && change.seq < head {
        writeln!(out, "{}", html::link(&change.seq.next().to_string(), "Next change"))?;
    }
    writeln!(out, "</nav>")?;
    for item in modification.items.iter().take(html::MAX_ITEMS) {
        writeln!(out, "<h2>{}</h2>", html::escaped(&summary::title(modification, item)))?;
        html::item_facts(out, item)?;
    }
    let more = modification.items.len().saturating_sub(html::MAX_ITEMS);
    if more > 0 {
        writeln!(out, "<p>The change has {more} more items; its JSON lists all.</p>")?;
    }
    Ok(())
}
