//! Fedora 3 does not order its messages, and every source may repeat them. For random histories of an object,
//! ordered events and shuffled and repeated events lead to the same registry, and the journal alone rebuilds
//! it.

use std::{collections::BTreeMap, sync::Arc};

use proptest::{prelude::*, test_runner::TestRunner};
use tidings::{
    journal::{
        ChangeBounds, DuplicatePolicy, Journal, JournalSettings, JournalThreads, Submission,
        registry::{ObjectState, Registry},
        settle::SourcePolicy,
        store::{EventIdentity, event_key, sqlite},
    },
    model::{
        Change, ContentLocation, Draft, DraftChange, DraftItem, DraftItems, DraftLookup, EventId, ItemChange, NonEmpty,
        Reading, Seq, SourceName, State, Text, Timestamp, Uri, User,
    },
};

/// Operation on a repository; one that makes no sense at its time is skipped.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    Add { item: usize, state: usize },
    AddOrUpdate { item: usize },
    Update { item: usize },
    SetState { item: usize, state: usize },
    SetProperties { item: usize, state: Option<usize> },
    Delete { item: usize },
    Purge,
}

const ITEMS: usize = 3;

pub(crate) fn operation() -> impl Strategy<Value = Operation> {
    let item = || 0..ITEMS;
    prop_oneof![
        3 => (item(), 0..2usize).prop_map(|(item, state)| Operation::Add { item, state }),
        3 => item().prop_map(|item| Operation::AddOrUpdate { item }),
        3 => item().prop_map(|item| Operation::Update { item }),
        3 => (item(), 0..3usize).prop_map(|(item, state)| Operation::SetState { item, state }),
        2 => (item(), prop::option::of(0..3usize)).prop_map(|(item, state)| Operation::SetProperties { item, state }),
        2 => item().prop_map(|item| Operation::Delete { item }),
        1 => Just(Operation::Purge),
    ]
}

fn state(number: usize) -> State {
    [State::ACTIVE, State::INACTIVE, State::DELETED][number].clone()
}

/// Returns the drafts that a repository would send for these operations, in order.
pub(crate) fn drafts(object: &Uri, operations: &[Operation]) -> Vec<Draft> {
    let mut live = [false; ITEMS];
    let mut drafts = Vec::new();
    for (moment, operation) in operations.iter().enumerate() {
        let uri = |item: &usize| Uri::parse(&format!("{object}/datastreams/D{item}/content")).unwrap();
        let content =
            |item: &usize| Some(ContentLocation::at(Uri::parse(&format!("{}?v={moment}", uri(item))).unwrap()));
        let item_change = |item: &usize, change| Some((uri(item), DraftChange::Reported(change)));
        let item = match operation {
            Operation::Add { item, state: s } if !live[*item] => {
                live[*item] = true;
                item_change(item, ItemChange::Add { content: content(item), after: Some(state(*s)) })
            }
            Operation::AddOrUpdate { item } => {
                live[*item] = true;
                Some((
                    uri(item),
                    DraftChange::AddOrUpdate { content: content(item), initial_state: Some(State::ACTIVE) },
                ))
            }
            Operation::Update { item } if live[*item] => {
                item_change(item, ItemChange::Update { content: content(item), before: None, after: None })
            }
            Operation::SetState { item, state: s } if live[*item] => {
                item_change(item, ItemChange::State { before: None, after: state(*s) })
            }
            Operation::SetProperties { item, state: s } if live[*item] => {
                Some((uri(item), DraftChange::Properties { after: s.map(state) }))
            }
            Operation::Delete { item } if live[*item] => {
                live[*item] = false;
                item_change(item, ItemChange::Delete { before: None, after: None })
            }
            Operation::Purge if live.contains(&true) => {
                live = [false; ITEMS];
                None
            }
            _ => continue,
        };
        let listed = |(uri, change)| DraftItems::Listed(NonEmpty::one(DraftItem::new(uri, change)));
        drafts.push(Draft {
            id: None,
            event_id: EventId::parse(&format!("{object}#{moment}")),
            software_version: None,
            user: User::unknown(),
            time: Timestamp::from_millis(1_700_000_000_000 + 1000 * i64::try_from(moment).unwrap()).into(),
            object: object.clone(),
            parent: None,
            types: Vec::new(),
            description: Text::new("a deed"),
            report: None,
            lookup: DraftLookup::default(),
            reading: Reading::default(),
            items: item.map_or(DraftItems::Purge, listed),
        });
    }
    drafts
}

/// Returns the registry as a reader sees it: the present items with state and content.
pub(crate) fn visible_items(state: &ObjectState) -> BTreeMap<Uri, (Option<State>, Option<ContentLocation>)> {
    let item = |uri: &Uri| {
        (uri.clone(), (state.state(uri).cloned(), state.content(uri).map(|content| content.parse().unwrap())))
    };
    state.live_items().map(|(uri, _)| item(uri)).collect()
}

pub(crate) struct RegistryFixture {
    _folder: tempfile::TempDir,
    pub(crate) journal: Journal,
    _writer: JournalThreads,
    pub(crate) runtime: tokio::runtime::Runtime,
    policy: Arc<SourcePolicy>,
}

impl RegistryFixture {
    pub(crate) fn new() -> Self {
        Self::bounded(ChangeBounds::default())
    }

    fn bounded(bounds: ChangeBounds) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = sqlite::SqliteStore::open(folder.path(), sqlite::SqliteOptions::default()).unwrap();
        let (journal, writer) =
            Journal::start(store, JournalSettings { bounds, ..JournalSettings::default() }).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let name = SourceName::parse("fedora3").unwrap();
        let policy = Arc::new(SourcePolicy { name, metadata_changes: false });
        Self { _folder: folder, journal, _writer: writer, runtime, policy }
    }

    /// Sends the drafts in three messages, so that the registry is read back between them.
    pub(crate) fn send(&self, drafts: &[Draft]) {
        for part in drafts.chunks(drafts.len().div_ceil(3).max(1)) {
            let key = |draft: &Draft| {
                let id = draft.event_id.as_ref().map(|id| EventIdentity::Id(id.as_str()));
                id.map(|id| event_key(&self.policy.name, id, 0))
            };
            let drafts = part.iter().map(|draft| (key(draft), draft.clone())).collect();
            let submission = Submission {
                policy: Arc::clone(&self.policy),
                drafts,
                duplicate_policy: DuplicatePolicy::RememberChanges,
                completes: None,
            };
            self.runtime.block_on(self.journal.append(submission)).unwrap();
        }
    }

    pub(crate) fn object(&self, object: &Uri) -> ObjectState {
        self.runtime.block_on(self.journal.object(object.clone())).unwrap().unwrap_or_default()
    }
}

/// Returns a random order of arrival in which some events occur twice.
pub(crate) fn arrival_order(events: usize, keys: &[u64]) -> Vec<usize> {
    let mut order: Vec<_> = (0..events).chain((0..events).filter(|event| keys[*event].is_multiple_of(3))).collect();
    let mut turn = 0;
    order.sort_by_cached_key(|_| {
        turn += 1;
        keys[(turn - 1) % keys.len()].wrapping_mul(turn as u64 + 0x9E37_79B9_7F4A_7C15)
    });
    order
}

#[test]
fn registry_is_the_same_for_shuffled_and_duplicated_events() {
    ends_in_the_same(&RegistryFixture::new(), 300);
}

#[test]
fn registry_is_the_same_for_shuffled_split_purges() {
    let fixture = RegistryFixture::bounded(ChangeBounds { items: 1, ..ChangeBounds::default() });
    ends_in_the_same(&fixture, 120);
    let changes = fixture.runtime.block_on(fixture.journal.after(Seq::ZERO, 100_000)).unwrap();
    let changes: Vec<_> = changes.iter().map(|recorded| recorded.change().unwrap()).collect();
    assert!(changes.iter().all(|change| change.modification.items.len() == 1));
    let is_divided = |pair: &[&Change]| {
        let [one, next] = pair else { return false };
        let same =
            one.modification.object == next.modification.object && one.modification.time == next.modification.time;
        same && !one.settlement.purge && next.settlement.purge
    };
    assert!(changes.windows(2).filter(|pair| is_divided(pair)).count() > 20, "purges were divided");
}

fn ends_in_the_same(fixture: &RegistryFixture, cases: u32) {
    let mut runner = TestRunner::new(ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() });
    let mut case = 0;
    let histories = (prop::collection::vec(operation(), 1..24), prop::collection::vec(any::<u64>(), 48));
    let case = std::cell::RefCell::new(&mut case);
    runner
        .run(&histories, |(operations, keys)| {
            let number = {
                let mut case = case.borrow_mut();
                **case += 1;
                **case
            };
            let ordered = Uri::parse(&format!("http://h/objects/ordered:{number}")).unwrap();
            fixture.send(&drafts(&ordered, &operations));
            let shuffled = Uri::parse(&format!("http://h/objects/shuffle:{number}")).unwrap();
            let events = drafts(&shuffled, &operations);
            let arriving: Vec<_> =
                arrival_order(events.len(), &keys).into_iter().map(|event| events[event].clone()).collect();
            fixture.send(&arriving);
            let expected: Vec<_> = visible_items(&fixture.object(&ordered))
                .into_iter()
                .map(|(uri, facts)| {
                    (uri.as_str().replace("ordered", "shuffle"), format!("{facts:?}").replace("ordered", "shuffle"))
                })
                .collect();
            let found: Vec<_> = visible_items(&fixture.object(&shuffled))
                .into_iter()
                .map(|(uri, facts)| (uri.to_string(), format!("{facts:?}")))
                .collect();
            prop_assert_eq!(found, expected);
            Ok(())
        })
        .unwrap();
    the_journal_rebuilds_the_registry(fixture);
}

fn the_journal_rebuilds_the_registry(fixture: &RegistryFixture) {
    let mut registry = Registry::default();
    let mut after = Seq::ZERO;
    loop {
        let page = fixture.runtime.block_on(fixture.journal.after(after, 500)).unwrap();
        let Some(last) = page.last() else { break };
        after = last.seq();
        page.iter().for_each(|recorded| registry.apply(recorded.change().unwrap()));
    }
    assert!(registry.objects.len() > 100);
    for (uri, rebuilt) in registry.objects {
        assert_eq!(rebuilt, fixture.object(&uri).without_confirmations(), "{uri}");
    }
}
