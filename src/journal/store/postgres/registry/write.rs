//! Writing of the objects and items that a batch changed.

use foldhash::HashMap;
use futures_util::future::join;

use super::{
    super::{connection::Session, value::Value},
    columns::{NO_TYPES, item_columns, object_columns},
};
use crate::{
    journal::{
        RawContentLocation,
        acceptance::{AcceptanceTime, ObjectNews},
        registry::{Clock, InitialState, ItemRecord, ObjectState},
        store::{ObjectUpdate, StoreError, WriteBatch, public_items::has_public_item, rows},
    },
    model::{SourceName, State, Timestamp, Uri},
};

/// Statement that writes objects. An object that did not change ($2) is only inserted, if it has no row. For `NOT
/// EXISTS` the server would read all objects.
pub(in super::super) const PUT_OBJECTS: &str = concat!(
    "INSERT INTO objects AS o (uri, items, ",
    object_columns!(),
    ", accepted, published) SELECT n.uri, n.items, ",
    object_columns!(),
    ", n.accepted, CASE WHEN n.is_public THEN n.accepted ELSE
        (SELECT CASE WHEN n.is_news AND ",
    has_public_item!("e.object"),
    " THEN n.accepted END FROM objects e WHERE e.uri = n.uri) END",
    " FROM unnest($1::text[], $2::boolean[], $3::bigint[], $4::text[], $5::bigint[], $6::bigint[], $7::text[],
                  $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::text[], $13::bigint[],
                  $14::boolean[], $15::boolean[])
          AS n(uri, changed, items, ",
    object_columns!(),
    ", accepted, is_public, is_news) WHERE n.changed OR (SELECT true FROM objects e WHERE e.uri = n.uri) IS NULL
     ON CONFLICT (uri) DO UPDATE SET items = coalesce(excluded.items, o.items),
         (parent, parent_at, parent_confirmed) = (excluded.parent, excluded.parent_at, excluded.parent_confirmed),
         (types, types_at, types_confirmed) = (excluded.types, excluded.types_at, excluded.types_confirmed),
         (purged_at, purged_confirmed) = (excluded.purged_at, excluded.purged_confirmed), source = excluded.source,
         accepted = greatest(excluded.accepted, o.accepted), published = coalesce(excluded.published, o.published)"
);

/// Statement that inserts or replaces items. Their objects have rows already.
pub(in super::super) const PUT_ITEMS: &str = concat!(
    "INSERT INTO items (object, ",
    item_columns!(),
    ") SELECT (SELECT object FROM objects WHERE objects.uri = n.owner), ",
    item_columns!(),
    " FROM unnest($1::text[], $2::text[], $3::boolean[], $4::bigint[], $5::bigint[], $6::text[], $7::bigint[],
                  $8::bigint[], $9::text[], $10::bigint[], $11::bigint[], $12::text[], $13::bigint[], $14::bigint[],
                  $15::boolean[], $16::bigint[], $17::bigint[], $18::bigint[], $19::bigint[])
          AS n(owner, ",
    item_columns!(),
    ") ON CONFLICT (object, uri) DO UPDATE SET
         (existence, existence_at, existence_confirmed) =
             (excluded.existence, excluded.existence_at, excluded.existence_confirmed),
         (content, content_at, content_confirmed) =
             (excluded.content, excluded.content_at, excluded.content_confirmed),
         (state, state_at, state_confirmed) = (excluded.state, excluded.state_at, excluded.state_confirmed),
         (initial_state, initial_state_at, initial_state_confirmed) =
             (excluded.initial_state, excluded.initial_state_at, excluded.initial_state_confirmed),
         unannounced = excluded.unannounced,
         (visible_from, visible_until, came, denied) =
             (excluded.visible_from, excluded.visible_until, excluded.came, excluded.denied)"
);

/// Objects to write, one array per column.
#[derive(Default)]
struct ObjectColumns<'b> {
    uri: Vec<&'b str>,
    changed: Vec<bool>,
    items: Vec<Option<i64>>,
    parent: Vec<Option<&'b str>>,
    parent_clock: ClockColumns,
    types: Vec<String>,
    types_clock: ClockColumns,
    purged: ClockColumns,
    source: Vec<Option<&'b str>>,
    /// Times of acceptance; 0 for objects without news.
    accepted: Vec<i64>,
    /// Whether the public sees the news.
    is_public: Vec<bool>,
    /// Whether the public sees the news if it has seen the object before.
    is_news: Vec<bool>,
}

/// Items to write, one array per column.
#[derive(Default)]
struct ItemColumns<'b> {
    object: Vec<&'b str>,
    uri: Vec<&'b str>,
    existence: Vec<bool>,
    existence_clock: ClockColumns,
    content: Vec<Option<&'b str>>,
    content_clock: ClockColumns,
    state: Vec<Option<&'b str>>,
    state_clock: ClockColumns,
    initial_state: Vec<Option<&'b str>>,
    initial_state_clock: ClockColumns,
    unannounced: Vec<bool>,
    /// The columns `visible_from`, `visible_until`, `came` and `denied`.
    schedule: [Vec<Option<i64>>; 4],
}

/// The columns `<fact>_at` and `<fact>_confirmed`.
#[derive(Default)]
struct ClockColumns {
    at: Vec<Option<i64>>,
    confirmed: Vec<Option<i64>>,
}

impl ClockColumns {
    fn push(&mut self, Clock { at, confirmed }: Clock) {
        self.at.push(at.map(Timestamp::millis));
        self.confirmed.push(confirmed.map(Timestamp::millis));
    }
}

/// Writes the rows of objects and of their changed items. `known` has the prefetched objects that have a row, each
/// with the number of items in the row.
pub(in super::super) async fn write(
    session: &Session,
    known: &HashMap<Uri, Option<i64>>,
    batch: &WriteBatch,
) -> Result<(), StoreError> {
    let (mut objects, mut items) = (ObjectColumns::default(), ItemColumns::default());
    for update in &batch.objects {
        let count = update.item_count.map(|count| rows::number(count as u64));
        let stored = known.get(&update.uri);
        let count_differs = count.is_some() && stored.is_some_and(|stored| *stored != count);
        let changed = update.object_changed || count_differs || update.news != ObjectNews::None;
        if changed || stored.is_none() {
            objects.push(update, changed, count, batch.accepted)?;
        }
        for item in update.changed_items.as_slice() {
            if let Some(record) = update.state.items.get(item) {
                items.push(&update.uri, item, record);
            }
        }
    }
    // Sent in this order.
    let (objects, items) = join(objects.write(session), items.write(session)).await;
    objects?;
    items
}

impl<'b> ObjectColumns<'b> {
    fn push(
        &mut self,
        update: &'b ObjectUpdate,
        changed: bool,
        items: Option<i64>,
        accepted: AcceptanceTime,
    ) -> Result<(), StoreError> {
        let ObjectState { parent, types, purged, source, items: _ } = &update.state;
        self.uri.push(update.uri.as_str());
        self.changed.push(changed);
        self.items.push(items);
        self.parent.push(parent.value.as_ref().map(Uri::as_str));
        self.parent_clock.push(parent.clock);
        self.types.push(if types.value.is_empty() { NO_TYPES.to_owned() } else { rows::to_json(&types.value)? });
        self.types_clock.push(types.clock);
        self.purged.push(*purged);
        self.source.push(source.as_ref().map(SourceName::as_str));
        self.accepted.push(if update.news == ObjectNews::None { 0 } else { accepted.0 });
        self.is_public.push(update.news == ObjectNews::Public);
        self.is_news.push(update.news == ObjectNews::OfObject);
        Ok(())
    }

    async fn write(&self, session: &Session) -> Result<(), StoreError> {
        if self.uri.is_empty() {
            return Ok(());
        }
        let Self {
            uri,
            changed,
            items,
            parent,
            parent_clock,
            types,
            types_clock,
            purged,
            source,
            accepted,
            is_public,
            is_news,
        } = self;
        let values: &[Value<'_>] = &[
            uri,
            changed,
            items,
            parent,
            &parent_clock.at,
            &parent_clock.confirmed,
            types,
            &types_clock.at,
            &types_clock.confirmed,
            &purged.at,
            &purged.confirmed,
            source,
            accepted,
            is_public,
            is_news,
        ];
        session.execute(PUT_OBJECTS, values).await.map(drop)
    }
}

impl<'b> ItemColumns<'b> {
    fn push(&mut self, object: &'b Uri, uri: &'b Uri, record: &'b ItemRecord) {
        let ItemRecord { existence, content, state, initial_state, unannounced, schedule } = record;
        self.object.push(object.as_str());
        self.uri.push(uri.as_str());
        self.existence.push(existence.value);
        self.existence_clock.push(existence.clock);
        self.content.push(content.value.as_ref().map(RawContentLocation::json));
        self.content_clock.push(content.clock);
        self.state.push(state.value.as_ref().map(State::as_str));
        self.state_clock.push(state.clock);
        let clock = |initial: &InitialState| Clock { at: Some(initial.at), confirmed: initial.confirmed };
        self.initial_state.push(initial_state.as_ref().map(|initial| initial.state.as_str()));
        self.initial_state_clock.push(initial_state.as_ref().map(clock).unwrap_or_default());
        self.unannounced.push(*unannounced);
        for (column, time) in self.schedule.iter_mut().zip(schedule.times()) {
            column.push(time.map(Timestamp::millis));
        }
    }

    async fn write(&self, session: &Session) -> Result<(), StoreError> {
        if self.uri.is_empty() {
            return Ok(());
        }
        let values: &[Value<'_>] = &[
            &self.object,
            &self.uri,
            &self.existence,
            &self.existence_clock.at,
            &self.existence_clock.confirmed,
            &self.content,
            &self.content_clock.at,
            &self.content_clock.confirmed,
            &self.state,
            &self.state_clock.at,
            &self.state_clock.confirmed,
            &self.initial_state,
            &self.initial_state_clock.at,
            &self.initial_state_clock.confirmed,
            &self.unannounced,
            &self.schedule[0],
            &self.schedule[1],
            &self.schedule[2],
            &self.schedule[3],
        ];
        // An item without a row of its object would violate the constraint of the column `object`.
        session.execute(PUT_ITEMS, values).await.map(drop)
    }
}
