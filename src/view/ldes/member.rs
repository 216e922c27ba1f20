//! Members of a page. Each is kept as text until the page has been read, because a divided purge is known by its last part.

use std::io::Write;

use serde::Serialize;

use super::{
    transactions::{PurgePart, end_after, transactions},
    windows::beyond_calendar,
};
use crate::{
    journal::{Journal, RecordedChange, order::OrderTime},
    model::{Change, ChangeId, ObjectChange, Seq, SourceName, Timestamp, Uri},
    view::store_problem,
    web::{Problem, spool_problem},
};

/// The members of a page.
pub(super) struct MemberPage<'a> {
    /// URL of the gateway, without a trailing slash.
    base: &'a str,
    journal: &'a Journal,
    /// Order time of the change with which the page begins.
    begin: OrderTime,
    /// Whether the members say which purges were divided. To readers of a part, the end of one may be hidden.
    pub(super) has_transactions: bool,
    /// Order time of the last change that was read.
    newest: Option<OrderTime>,
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
    /// Time by which a reader finds the newest version of the object.
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
    /// Creates a page that begins with a change of this order time.
    pub(super) fn new(base: &'a str, journal: &'a Journal, begin: OrderTime) -> Self {
        Self { base, journal, begin, has_transactions: false, newest: None, members: Vec::new() }
    }

    /// Adds the next change, as the readers see it. A hidden one moves the order time, too.
    ///
    /// # Errors
    /// Fails if the change is damaged.
    pub(super) fn change(&mut self, recorded: &RecordedChange, shown: Option<&RecordedChange>) -> Result<(), Problem> {
        let order = match self.newest {
            Some(newest) => newest.following(recorded.arrival().map_err(store_problem)?.received),
            None => self.begin,
        };
        self.newest = Some(order);
        let Some(shown) = shown else { return Ok(()) };
        let change = shown.change().map_err(store_problem)?;
        let order = order.timestamp().ok_or_else(beyond_calendar)?;
        let part = if self.has_transactions { PurgePart::of(change) } else { None };
        self.members.push(Member { json: json_of(&activity(change, order, self.base)), part });
        Ok(())
    }

    /// Writes the members, and the end of the document.
    ///
    /// # Errors
    /// Fails if the journal or the disk fails.
    pub(super) fn write(self, out: &mut dyn Write) -> Result<(), Problem> {
        let parts: Vec<_> = self.members.iter().map(|member| member.part).collect();
        let ends = self.transactions(&parts)?;
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

    /// Returns the last part of the purge of each member. The page after this one is looked at only if a purge may go on
    /// there.
    fn transactions(&self, parts: &[Option<PurgePart>]) -> Result<Vec<Option<Seq>>, Problem> {
        let end = match parts.last() {
            Some(Some(part)) if !part.is_last() => end_after(self.journal, *part)?,
            _ => None,
        };
        Ok(transactions(parts, end))
    }
}

fn activity<'a>(change: &'a Change, order: Timestamp, base: &str) -> Activity<'a> {
    let modification = &change.modification;
    // The version of a late change is older than all others, because another change counts. Its type is the true one.
    let (effect, version) = match change.object_change() {
        Some(effect) => (effect, order),
        None => {
            let items: Vec<_> = modification.items.iter().collect();
            (ObjectChange::of(&modification.object, &items, change.settlement.purge), Timestamp::EPOCH)
        }
    };
    let kind = match effect {
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
        version,
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

#[cfg(test)]
mod tests {
    use super::{Timestamp, activity, json_of};
    use crate::model::Change;

    /// If this fails and the new text is right, increase `RENDERING` in `mod.rs`, because caches have the old one.
    #[test]
    fn rendering_of_a_member_is_stable() {
        let change = |late: &str| -> Change {
            let json = r#"{"seq":7,"id":"urn:uuid:c4bf3a5c-69e7-4a1a-941b-dfd328bb4a48","source":"s","description":"",
            "received":"2026-01-02T03:04:05.006Z","time":"2011-01-02T03:04:05.000Z","user":{"name":"Ada"},
            "object":"http://h/1","purge":true,"asOf":"2012-01-02T03:04:05.000Z","items":[
              {"id":"urn:uuid:296f93e1-7f22-430a-99f6-256cf13d1fa3","uri":"http://h/1","change":"DELETE","late":["LATE"]}]}"#;
            serde_json::from_str(&json.replace("LATE", late)).unwrap()
        };
        let order = Timestamp::parse("2026-01-02T03:04:05.009Z").unwrap();
        let expected = |version: &str| {
            format!(
                "{{\"id\":\"urn:uuid:c4bf3a5c-69e7-4a1a-941b-dfd328bb4a48\",\"type\":\"as:Delete\",\
                 \"object\":\"http://h/1\",\"published\":\"2026-01-02T03:04:05.006Z\",\
                 \"endTime\":\"2011-01-02T03:04:05.000Z\",\"order\":\"2026-01-02T03:04:05.009Z\",\
                 \"version\":\"{version}\",\"seq\":7,\"source\":\"s\",\"late\":true,\"purge\":true,\
                 \"url\":\"http://g/changes/c4bf3a5c-69e7-4a1a-941b-dfd328bb4a48\"}}"
            )
        };
        for (late, version) in [("state", "2026-01-02T03:04:05.009Z"), ("existence", "1970-01-01T00:00:00.000Z")] {
            let json = json_of(&activity(&change(late), order, "http://g"));
            assert_eq!(String::from_utf8(json).unwrap(), expected(version));
        }
    }
}
