//! Members of a page. Each is kept as text until the page has been read, because a divided purge is known by its last part.

use std::io::Write;

use serde::Serialize;

use super::{
    transactions::{PurgePart, end_after, part_at, transactions},
    windows::beyond_calendar,
};
use crate::{
    journal::{Journal, OrderTime, RecordedChange, registry::ordering_time},
    model::{Change, ChangeId, ObjectChange, Seq, SourceName, Timestamp, Uri},
    view::store_problem,
    web::{Problem, spool_problem},
};

/// The members of a page.
pub(super) struct MemberPage<'a> {
    /// URL of the gateway, without a trailing slash.
    base: &'a str,
    /// Order time of the change before.
    order: OrderTime,
    /// Whether the members say which purges were divided. To readers of a part, the end of one may be hidden.
    has_transactions: bool,
    /// Number of the first change of the page.
    first: Option<Seq>,
    members: Vec<Member>,
}

/// A member: its JSON without its end.
struct Member {
    json: Vec<u8>,
    part: Option<PurgePart>,
}

/// A change as an activity, which is immutable. All its properties are its own, because clients take a member without the
/// properties of its object.
#[derive(Serialize)]
struct Activity<'a> {
    id: ChangeId,
    #[serde(rename = "type")]
    kind: &'static str,
    object: &'a Uri,
    /// Time of receipt.
    published: Timestamp,
    /// Time of the event, by the source.
    #[serde(rename = "endTime", skip_serializing_if = "Option::is_none")]
    end_time: Option<Timestamp>,
    order: Timestamp,
    /// Time by which the registry orders the event.
    version: Timestamp,
    seq: Seq,
    source: &'a SourceName,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    late: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    purge: bool,
    url: String,
}

impl<'a> MemberPage<'a> {
    /// Creates the page after a change with this order time.
    pub(super) fn new(base: &'a str, order: OrderTime, has_transactions: bool) -> Self {
        Self { base, order, has_transactions, first: None, members: Vec::new() }
    }

    /// Adds the next change, as the readers see it. A hidden one moves the order time, too.
    ///
    /// # Errors
    /// Fails if the change is damaged.
    pub(super) fn change(&mut self, recorded: &RecordedChange, shown: Option<&RecordedChange>) -> Result<(), Problem> {
        self.first.get_or_insert(recorded.seq());
        self.order = self.order.following(recorded.arrival().map_err(store_problem)?.received);
        let Some(shown) = shown else { return Ok(()) };
        let change = shown.change().map_err(store_problem)?;
        let order = self.order.timestamp().ok_or_else(beyond_calendar)?;
        let part = if self.has_transactions { PurgePart::of(change) } else { None };
        self.members.push(Member { json: json_of(&activity(change, order, self.base)), part });
        Ok(())
    }

    /// Writes the members, and the end of the document.
    ///
    /// # Errors
    /// Fails if the journal or the disk fails.
    pub(super) fn write(self, journal: &Journal, out: &mut dyn Write) -> Result<(), Problem> {
        let parts: Vec<_> = self.members.iter().map(|member| member.part).collect();
        let ends = self.transactions(&parts, journal)?;
        let write = |out: &mut dyn Write| -> std::io::Result<()> {
            for (at, (member, end)) in self.members.iter().zip(ends).enumerate() {
                out.write_all(if at == 0 { b",\"member\":[" } else { b"," })?;
                out.write_all(&member.json[..member.json.len() - 1])?;
                if let Some(end) = end {
                    write!(out, ",\"transaction\":{end}")?;
                    let is_last = member.part.is_some_and(|part| part.is_at(end));
                    out.write_all(if is_last { b",\"final\":true" } else { b"" })?;
                }
                out.write_all(b"}")?;
            }
            out.write_all(if self.members.is_empty() { b"}" } else { b"]}" })
        };
        write(out).map_err(spool_problem)
    }

    /// Returns the last part of the divided purge of each member. The pages beside this one are looked at only if a purge may
    /// cross an end of the page.
    fn transactions(&self, parts: &[Option<PurgePart>], journal: &Journal) -> Result<Vec<Option<Seq>>, Problem> {
        let before = match (self.first, parts.first()) {
            (Some(first), Some(Some(_))) if first.0 > 1 => part_at(journal, Seq(first.0 - 1))?,
            _ => None,
        };
        let end = match parts.last() {
            Some(Some(part)) if !part.is_last() => end_after(journal, *part)?,
            _ => None,
        };
        Ok(transactions(parts, before, end))
    }
}

fn activity<'a>(change: &'a Change, order: Timestamp, base: &str) -> Activity<'a> {
    let modification = &change.modification;
    let items: Vec<_> = modification.items.iter().collect();
    // A late change has its true type, because the version decides which one counts.
    let kind = match ObjectChange::of(&modification.object, &items, change.settlement.purge) {
        ObjectChange::Create => "as:Create",
        ObjectChange::Update => "as:Update",
        ObjectChange::Delete => "as:Delete",
    };
    Activity {
        id: modification.id,
        kind,
        object: &modification.object,
        published: change.received,
        end_time: (!change.has_made_up_time()).then_some(modification.time),
        order,
        version: ordering_time(change.settlement.as_of.unwrap_or(modification.time), change.received),
        seq: change.seq,
        source: &modification.origin.source,
        late: change.settlement.is_late(),
        purge: change.settlement.purge,
        url: format!("{base}/changes/{}", modification.id.uuid()),
    }
}

#[expect(clippy::expect_used, reason = "there is no map whose keys are not strings, and a Vec takes all")]
fn json_of(activity: &Activity<'_>) -> Vec<u8> {
    serde_json::to_vec(activity).expect("an activity has a JSON shape")
}
