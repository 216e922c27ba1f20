//! The resource list (section 10): the registry at one head, in parts.
//!
//! The registry has only the present state of each object, and the list is exact nevertheless. Its attribute `at` is the order
//! time of the newest change when the list was begun. A part shows the objects as they are when it is read: all changes until
//! `at` are in it, as section 7 requires, and some later ones. The change lists have all changes after `at`, and applying one
//! twice does no harm.
//!
//! The parts divide the objects in the order of their acceptance ([`acceptance`](crate::journal::acceptance)). An object that
//! changes moves to the end of this order, so a part only loses objects, and each that it loses is in the changes after `at`.
//! The last part has no end, and shows them again. So the name of a part, which has its position and the head, is enough to
//! write it at any time and at any node, until the changes after its head are removed.
//!
//! A silent crawl is the exception. It adds resources and moves objects without a change, so a list that is read during one can
//! lack resources of objects that the crawl has moved, and a list from before one lacks those that it has added.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{
    change_lists::ChangeLists,
    division::RETRY_AFTER,
    name::{AFTER_ALL, PartPosition},
    places::Places,
    scope::Scope,
};
use crate::{
    journal::{
        Journal, RawContentLocation,
        acceptance::{AcceptanceTime, AcceptedObject, AcceptedPosition, AcceptedQuery},
    },
    model::{ContentLocation, Seq, Timestamp, Uri, is_public},
    view::{block_on, journal_problem},
    web::{Problem, ProblemCode, Spool},
};

/// Number of objects that are read at once.
const READ_OBJECTS: usize = 500;

/// Number of resources after which a part ends with the objects of the same time. Times tell outsiders less than numbers of
/// rows.
const PART_RESOURCES: usize = 20_000;

/// Maximum number of resources of a part, unless one object has more: that of a Sitemap.
const MAX_RESOURCES: usize = 50_000;

/// Estimated size of the entries of a part at most, in bytes. A Sitemap has at most 50 MB.
const MAX_BYTES: usize = 40_000_000;

/// Size of an entry without its values, in bytes.
const ENTRY_BYTES: usize = 400;

/// Time after which a request gives up the division of a large registry. The next one continues it.
const PATIENCE: Duration = Duration::from_secs(10);

/// Time after which a reader may ask again whose scope has no place.
const BUSY_WAIT: Duration = Duration::from_secs(10);

/// An older list is served for this multiple of the time that it took to make it, so that readers cost few processors.
const KEPT_TIMES: u32 = 20;

/// A resource list: the position of each of its parts.
#[derive(Clone, Debug)]
pub(super) struct ResourceList {
    /// Number of the newest change when it was begun.
    pub(super) head: Seq,
    /// Order time of that change.
    pub(super) at: Timestamp,
    /// Positions after which the parts begin. There is at least one.
    pub(super) parts: Vec<AcceptedPosition>,
    /// Time at which its division was begun.
    pub(super) begun: Timestamp,
    /// Identity of the journal, and number of crawled facts.
    state: (Uuid, u64),
    made: Instant,
    duration: Duration,
}

/// The resource lists of all scopes. Requests share them.
pub(super) struct ResourceLists {
    journal: Journal,
    places: Mutex<Places>,
}

/// The newest resource list of a scope, and the next one.
#[derive(Default)]
pub(super) struct ScopeLists {
    newest: Option<ResourceList>,
    next: Option<Unfinished>,
}

/// A resource list that is being made.
struct Unfinished {
    list: ResourceList,
    /// Position of the last object that was read.
    last: AcceptedPosition,
    size: PartSize,
}

impl ResourceLists {
    pub(super) fn new(journal: Journal) -> Self {
        Self { journal, places: Mutex::default() }
    }

    /// Returns a resource list of a scope. `changes` are the change lists at present.
    ///
    /// # Errors
    /// `unavailable` if the registry is so large that its division takes longer than a request, or the lists of too many other
    /// scopes are being made; fails if the journal does.
    pub(super) async fn list(
        &self,
        scope: &Scope,
        changes: &ChangeLists,
        spool: &Spool,
    ) -> Result<ResourceList, Problem> {
        let state = (self.journal.identity(), self.journal.seed_count());
        let shared = self.places().get(scope, Instant::now()).ok_or_else(no_place)?;
        let mut lists = Arc::clone(&shared).lock_owned().await;
        if let Some(newest) = lists.newest.as_ref().filter(|newest| newest.is_usable(changes, state)) {
            // The request that has made the list may have ended before it could note this.
            self.places().note(&shared, lists.next.is_none(), Instant::now());
            return Ok(newest.clone());
        }
        let is_usable = |next: &Unfinished| next.list.state.0 == state.0 && next.list.at >= changes.from();
        if !lists.next.as_ref().is_some_and(is_usable) {
            lists.next = Some(Unfinished::begin(changes.head, changes.at, state));
        }
        let ended = CancellationToken::new();
        let _guard = ended.clone().drop_guard();
        let (journal, of_scope) = (self.journal.clone(), scope.clone());
        let permit = spool.list_permit().await;
        let read = Spool::blocking(permit, move || {
            let Some(next) = &mut lists.next else { return Err(Problem::internal("no resource list is being made")) };
            if !next.read(&journal, &of_scope, &ended)? {
                return Ok(None);
            }
            lists.newest = lists.next.take().map(|next| next.list);
            Ok(lists.newest.clone())
        });
        let read = read.await;
        // A list that has failed gives its place up.
        self.places().note(&shared, !matches!(read, Ok(None)), Instant::now());
        read?.ok_or_else(unfinished)
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn no_place() -> Problem {
    let detail = "The registry is being read for the resource lists of other objects and readers, and there is no place for a \
                  further one. Try again later.";
    Problem::new(ProblemCode::Unavailable, detail).retry_after(BUSY_WAIT)
}

fn unfinished() -> Problem {
    let detail = "The registry is being read for a new resource list. Try again in a moment.";
    Problem::new(ProblemCode::Unavailable, detail).retry_after(RETRY_AFTER)
}

impl ResourceList {
    /// Divides the registry for a list that was begun when the change `head` was the newest one, at the time `at`. The call
    /// blocks. It needs the permit of a list for some seconds at a time, so that readers of the gateway get their lists, too.
    ///
    /// # Errors
    /// `unavailable` if nobody waits any more; fails if the journal does.
    pub(super) fn divide(
        (journal, spool): (&Journal, &Spool),
        scope: &Scope,
        (head, at): (Seq, Timestamp),
        state: (Uuid, u64),
        ended: &CancellationToken,
    ) -> Result<Self, Problem> {
        let mut next = Unfinished::begin(head, at, state);
        loop {
            let _permit = block_on(spool.list_permit());
            if next.read(journal, scope, ended)? {
                return Ok(next.list);
            }
            if ended.is_cancelled() {
                return Err(unfinished());
            }
        }
    }

    /// Returns whether the list was begun at a head, and in a state of the journal.
    pub(super) fn is_of(&self, head: Seq, state: (Uuid, u64)) -> bool {
        self.head == head && self.state == state
    }

    /// Returns whether the list is new enough for a reader, and the change lists continue it.
    fn is_usable(&self, changes: &ChangeLists, state: (Uuid, u64)) -> bool {
        let is_newest = self.head == changes.head && self.state == state;
        let is_recent = self.made.elapsed() < self.duration * KEPT_TIMES;
        self.state.0 == state.0 && self.at >= changes.from() && (is_newest || is_recent)
    }
}

impl Unfinished {
    fn begin(head: Seq, at: Timestamp, state: (Uuid, u64)) -> Self {
        let made = Instant::now();
        let list = ResourceList {
            head,
            at,
            parts: vec![AcceptedPosition { time: AcceptanceTime(0), object: AFTER_ALL }],
            begun: Timestamp::now(),
            state,
            made,
            duration: Duration::ZERO,
        };
        Self { list, last: AcceptedPosition::default(), size: PartSize::default() }
    }

    /// Reads the registry, and divides it. Returns whether it has come to the end; the next call continues. The call blocks.
    fn read(&mut self, journal: &Journal, scope: &Scope, ended: &CancellationToken) -> Result<bool, Problem> {
        let begun = Instant::now();
        loop {
            let page = block_on(journal.accepted(query(self.last))).map_err(journal_problem)?;
            for object in &page.objects {
                let resources = resources(object, scope);
                if !resources.is_empty() && self.size.ends_before(object.position, &resources) {
                    self.list.parts.push(self.size.end());
                    self.size = PartSize::default();
                }
                self.size.add(object.position, &resources);
                self.last = object.position;
            }
            match page.next {
                Some(next) => self.last = next,
                None => break,
            }
            if ended.is_cancelled() || begun.elapsed() > PATIENCE {
                self.list.duration += begun.elapsed();
                return Ok(false);
            }
        }
        self.list.duration += begun.elapsed();
        self.list.made = Instant::now();
        Ok(true)
    }
}

/// Size of a part until some object.
#[derive(Clone, Copy, Debug, Default)]
struct PartSize {
    resources: usize,
    bytes: usize,
    /// Position of the last object with resources.
    last: AcceptedPosition,
    /// Whether the part ends between objects of one time.
    is_full: bool,
}

impl PartSize {
    /// Returns whether the part ends before an object.
    fn ends_before(&mut self, position: AcceptedPosition, resources: &[Resource<'_>]) -> bool {
        let bytes: usize = resources.iter().map(Resource::bytes).sum();
        self.is_full = self.resources > 0
            && (self.resources + resources.len() > MAX_RESOURCES || self.bytes.saturating_add(bytes) > MAX_BYTES);
        self.is_full || (self.resources >= PART_RESOURCES && position.time != self.last.time)
    }

    fn add(&mut self, position: AcceptedPosition, resources: &[Resource<'_>]) {
        self.resources += resources.len();
        self.bytes += resources.iter().map(Resource::bytes).sum::<usize>();
        if !resources.is_empty() {
            self.last = position;
        }
    }

    /// Returns the position after which the next part begins.
    fn end(&self) -> AcceptedPosition {
        if self.is_full { self.last } else { AcceptedPosition { object: AFTER_ALL, ..self.last } }
    }
}

/// A resource of the registry.
pub(super) struct Resource<'a> {
    pub(super) uri: &'a Uri,
    /// Location of its content, unless it is unknown or damaged.
    pub(super) content: Option<ContentLocation>,
}

impl Resource<'_> {
    /// Returns the estimated size of the entry, in bytes. Each ampersand becomes five characters.
    fn bytes(&self) -> usize {
        let size = |uri: &Uri| uri.as_str().len() + 4 * memchr::memchr_iter(b'&', uri.as_str().as_bytes()).count();
        ENTRY_BYTES + size(self.uri) + self.content.as_ref().map_or(0, |content| size(&content.reported().url))
    }
}

/// Reads the resources of a part. The call blocks.
///
/// # Errors
/// Fails if the journal does, or `resource` fails.
pub(super) fn read_part(
    journal: &Journal,
    scope: &Scope,
    part: PartPosition,
    mut resource: impl FnMut(Resource<'_>) -> Result<(), Problem>,
) -> Result<(), Problem> {
    let mut after = part.after;
    let mut size = PartSize::default();
    loop {
        let page = block_on(journal.accepted(query(after))).map_err(journal_problem)?;
        for object in &page.objects {
            let resources = resources(object, scope);
            if !resources.is_empty() && size.ends_before(object.position, &resources) {
                return Ok(());
            }
            size.add(object.position, &resources);
            resources.into_iter().try_for_each(&mut resource)?;
        }
        let Some(next) = page.next else { return Ok(()) };
        after = next;
    }
}

/// Returns the query of the objects that the public has ever seen, after a position.
fn query(after: AcceptedPosition) -> AcceptedQuery {
    AcceptedQuery { public: true, after, limit: READ_OBJECTS, ..AcceptedQuery::default() }
}

/// Returns the resources of an object.
fn resources<'a>(object: &'a AcceptedObject, scope: &Scope) -> Vec<Resource<'a>> {
    let Some(state) = object.state.as_ref().filter(|_| scope.covers(&object.uri)) else { return Vec::new() };
    let items = state.live_items().filter(|(item, _)| is_public(state.state(item)));
    // A damaged location costs only the facts about the content.
    let content = |item: &Uri| state.content(item).and_then(|content| RawContentLocation::parse(content).ok());
    items.map(|(uri, _)| Resource { uri, content: content(uri) }).collect()
}

#[cfg(test)]
mod tests {
    use super::{ChangeLists, Duration, ResourceList, Seq, Timestamp, Unfinished, Uuid};
    use crate::{
        journal::order::OrderTime,
        view::resourcesync::{change_lists::ChangeList, loss::Loss},
    };

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis).unwrap()
    }

    /// A destination compares times, and does not know that nothing is between the list and the first change after it.
    #[test]
    fn older_list_is_served_unless_destinations_begin_anew_with_it() {
        let state = (Uuid::nil(), 0);
        let begin = OrderTime(101);
        let open = ChangeList { first: Seq(101), last: Seq(160), begin, from: at(101), until: None };
        let (lists, loss) = (vec![open], Loss::default());
        let changes = ChangeLists { lists, head: Seq(160), at: at(160), loss, begin_moves: false };
        let is_usable = |head: i64| {
            let list = Unfinished::begin(Seq(head.unsigned_abs()), at(head), state).list;
            ResourceList { duration: Duration::from_secs(60), ..list }.is_usable(&changes, state)
        };
        assert!(is_usable(101) && is_usable(130) && is_usable(160));
        assert!(!is_usable(100), "the lists begin after it");
    }
}
