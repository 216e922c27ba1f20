//! World of an OAI-PMH repository that keeps one row for each record and set, as Dataverse does, and that is harvested
//! between its changes.

mod behaviour;
mod documents;
mod repository;

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use chrono::TimeDelta;
use proptest::prelude::*;
use serde_json::Value;
use tidings::{
    format::{Headers, Limits, Message, ParsedMessage, dialect, oai_pmh},
    model::DraftItems,
};

use self::{
    behaviour::{Behaviour, Capitals, DeletedRecord},
    documents::{Form, xml},
    repository::{PAGE, Record, Repository, Row, SETS},
};
use crate::{
    support::http_receiver::Receiver,
    worlds::{ItemTruth, Refusals, Truth, World, driver, rig::Rig},
};

/// What happens in the repository.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// Stores a record in a set, new or again.
    Store {
        record: u8,
        set: usize,
    },
    /// Moves a record from its sets to one set.
    Move {
        record: u8,
        set: usize,
    },
    Delete {
        record: u8,
    },
    /// A load stores a new record with a datestamp of ten days ago.
    StoreBackdated {
        record: u8,
        set: usize,
    },
    /// Changes the metadata of a record, and not its datestamp.
    ChangeSilently {
        record: u8,
    },
    /// The repository removes a set, and all records leave it without a word.
    RemoveSet {
        set: usize,
    },
    /// The repository forgets its tombstones.
    ForgetTombstones,
    /// A bug of the software makes the metadata of a changed record unreadable, until it is mended without a new datestamp.
    Break {
        record: u8,
    },
    /// The same for all records, without new datestamps.
    BreakAll,
    Mend,
    Harvest,
}

/// Record that no step names.
const LAST: u8 = 5;

/// Number of successive changes without a new datestamp after which a record counts as one that changes in each run.
const SILENT_CHANGES: u32 = 2;

/// Days after which the gateway compares the number of records with the announced one.
const DAYS_UNTIL_COUNT: i64 = 2;

/// Names of the sources of the databases.
const SOURCES: [&str; 2] = ["r", "p"];

/// Repository with its harvest.
pub(crate) struct OaiPmh {
    repository: Arc<Mutex<Repository>>,
    _server: Receiver,
}

impl OaiPmh {
    fn with<T>(&self, act: impl FnOnce(&mut Repository) -> T) -> T {
        act(&mut self.repository.lock().unwrap())
    }

    fn behaviour(&self) -> Behaviour {
        self.with(|repository| repository.behaviour.clone())
    }

    /// Returns the names of the harvests.
    fn sources(&self) -> &'static [&'static str] {
        if self.behaviour().has_two_databases { &SOURCES } else { &SOURCES[..1] }
    }

    /// Runs the harvests, and returns the run of the first one.
    async fn harvest(&self, rig: &mut Rig) -> Value {
        let is_on_request = self.with(|repository| {
            repository.foreign = 0;
            repository.behaviour.lists_everything && !repository.behaviour.is_full_by_time
        });
        let mut first = Value::Null;
        for source in self.sources() {
            let run = if is_on_request { rig.harvest_everything(source).await } else { rig.harvest(source).await };
            if first.is_null() {
                first = run;
            }
        }
        first
    }

    /// Waits until the next run lists everything.
    async fn let_full_list_come(&self) {
        if self.behaviour().is_full_by_time {
            tokio::time::sleep(Duration::from_millis(1010)).await;
        }
    }

    /// Returns URI and digest of a record as the dialect reads it.
    fn expected(repository: &Repository, database: usize, number: u8, record: &Record) -> (String, String) {
        let row = Row::new(true, repository.now);
        let xml = xml(number, record, &row, Form { database, namespaces: 0 });
        let xml = xml.replacen("<record>", &format!("<record xmlns='{}'>", oai_pmh::NAMESPACE), 1);
        let dialect = (dialect("oai-pmh").unwrap().build)(Value::Null, Limits::default()).unwrap();
        let base = repository.base(database);
        let headers: Headers =
            [(oai_pmh::BASE_URL, base.as_str()), (oai_pmh::METADATA_PREFIX, "oai_dc")].into_iter().collect();
        let message = Message { content_type: None, headers: &headers, body: xml.as_bytes() };
        let ParsedMessage::Drafts(drafts) = dialect.read(&message).unwrap() else { panic!("{xml}") };
        let DraftItems::Complete(items) = &drafts[0].items else { panic!("{xml}") };
        let Some(content) = items.first().and_then(|item| item.change.content()) else { panic!("{xml}") };
        (drafts[0].object.to_string(), content.digest.as_ref().unwrap().hex().to_owned())
    }

    /// Checks what the last run says.
    fn check_words(&self, run: &Value) -> Result<(), String> {
        if run["state"] != "completed" {
            return Err(format!("the last run is {run}"));
        }
        let reason = run["reason"].as_str().unwrap_or_default();
        self.with(|repository| {
            let behaviour = &repository.behaviour;
            if !behaviour.lists_everything {
                return Ok(());
            }
            let is_live = |record: &Record| record.is_live_in(behaviour.followed());
            let has_records = repository.records.values().any(is_live);
            // A list that changes its sets between two pages can leave a record out.
            let undelivered =
                !behaviour.forgets_sets && repository.records.get(&Behaviour::UNDELIVERED).is_some_and(is_live);
            let mut words = vec![
                (behaviour.nonces && has_records && !behaviour.has_undelivered, "change in each run".to_owned()),
                (repository.foreign > 0, "none of the sets".to_owned()),
                (
                    behaviour.has_undelivered && behaviour.lists_identifiers && undelivered,
                    "do not exist for GetRecord".to_owned(),
                ),
            ];
            for (at, set) in behaviour.sets.iter().enumerate() {
                let name = SETS[*set];
                let is_unknown = at == 0 && behaviour.capitals == Capitals::Unknown;
                let shown = if is_unknown { name.to_uppercase() } else { name.to_owned() };
                let is_removed = repository.removed_sets.contains(set) && behaviour.capitals != Capitals::Ignored;
                let is_empty = is_unknown || is_removed && repository.rows("", "", name).is_empty();
                words.push((is_empty, format!("has no set {shown}")));
            }
            match words.iter().find(|(must_say, words)| *must_say && !reason.contains(words)) {
                Some((_, words)) => Err(format!("the last run does not say {words:?}: {run}")),
                None => Ok(()),
            }
        })
    }
}

impl World for OaiPmh {
    type Switches = Behaviour;
    type Step = Act;

    const NAME: &'static str = "oai_pmh";

    fn switches() -> BoxedStrategy<Behaviour> {
        Behaviour::any()
    }

    fn step() -> BoxedStrategy<Act> {
        let place = || (0..5u8, 0..SETS.len());
        prop_oneof![
            12 => place().prop_map(|(record, set)| Act::Store { record, set }),
            6 => place().prop_map(|(record, set)| Act::Move { record, set }),
            4 => (0..5u8).prop_map(|record| Act::Delete { record }),
            2 => place().prop_map(|(record, set)| Act::StoreBackdated { record, set }),
            2 => (0..5u8).prop_map(|record| Act::ChangeSilently { record }),
            1 => (0..SETS.len()).prop_map(|set| Act::RemoveSet { set }),
            1 => Just(Act::ForgetTombstones),
            3 => (0..5u8).prop_map(|record| Act::Break { record }),
            1 => Just(Act::BreakAll),
            2 => Just(Act::Mend),
            12 => Just(Act::Harvest),
        ]
        .boxed()
    }

    async fn begin(behaviour: Behaviour) -> Self {
        let repository = Arc::new(Mutex::new(Repository::new(behaviour)));
        let server = Receiver::start({
            let repository = Arc::clone(&repository);
            move |_, request| repository.lock().unwrap().reply(request)
        })
        .await;
        repository.lock().unwrap().url = format!("http://{}/oai", server.address);
        Self { repository, _server: server }
    }

    fn settings(&self) -> String {
        let behaviour = self.behaviour();
        let mut sets: Vec<_> = behaviour.sets.iter().map(|set| SETS[*set].to_owned()).collect();
        if let (Some(first), false) = (sets.first_mut(), behaviour.capitals == Capitals::None) {
            *first = first.to_uppercase();
        }
        let sets = if sets.is_empty() { String::new() } else { format!("sets = {sets:?}\n") };
        let is_full_by_time = behaviour.lists_everything && behaviour.is_full_by_time;
        let full = if is_full_by_time { "full_every = \"1s\"\n" } else { "" };
        let list = if behaviour.lists_identifiers { "list = \"identifiers\"\n" } else { "" };
        let source = |(database, name): (usize, &&str)| {
            format!(
                "[sources.{name}]\ntransport = \"oai-pmh\"\ndialect = \"oai-pmh\"\nurl = \"{}\"\nmode = \"once\"\n\
                 max_deleted_percent = 100\n{sets}{full}{list}",
                self.with(|repository| repository.base(database))
            )
        };
        self.sources().iter().enumerate().map(source).collect()
    }

    async fn live(&mut self, act: Act, rig: &mut Rig) -> Result<(), String> {
        if matches!(act, Act::Harvest) {
            self.harvest(rig).await;
            return Ok(());
        }
        self.with(|repository| {
            repository.now += TimeDelta::hours(1);
            let (now, behaviour) = (repository.now, repository.behaviour.clone());
            let live_sets = |repository: &Repository, record: u8| -> BTreeSet<usize> {
                let rows = repository.records.get(&record).map(|record| &record.rows);
                rows.into_iter().flatten().filter(|(_, row)| row.is_live).map(|(set, _)| *set).collect()
            };
            match act {
                Act::Store { record, set } => repository.store(record, set, now),
                Act::StoreBackdated { record, set } => {
                    if !repository.records.contains_key(&record) {
                        repository.store(record, set, now - TimeDelta::days(10));
                        repository.has_backdated |= !behaviour.lists_everything;
                    }
                }
                Act::ChangeSilently { record } => {
                    // Only a complete list can find it, and one of identifiers does not.
                    let is_seen = behaviour.lists_everything && !behaviour.lists_identifiers;
                    if let Some(record) = repository.records.get_mut(&record).filter(|_| is_seen)
                        && record.silent_changes < SILENT_CHANGES
                    {
                        record.version += 1;
                        record.silent_changes += 1;
                    }
                }
                Act::Move { record, set } => {
                    let mut left = live_sets(repository, record);
                    if !left.is_empty() {
                        left.remove(&set);
                        repository.store(record, set, now);
                        repository.leave(record, &left, behaviour.tombstones_in_sets);
                    }
                }
                Act::Delete { record } => {
                    let left = live_sets(repository, record);
                    let has_tombstones = behaviour.deleted != DeletedRecord::No;
                    repository.leave(record, &left, has_tombstones);
                    if !has_tombstones {
                        repository.records.remove(&record);
                    }
                }
                Act::RemoveSet { set } if behaviour.lists_everything => {
                    repository.records.values_mut().for_each(|record| _ = record.rows.remove(&set));
                    repository.removed_sets.insert(set);
                }
                Act::ForgetTombstones if behaviour.lists_everything => {
                    repository.records.values_mut().for_each(|record| record.rows.retain(|_, row| row.is_live));
                }
                Act::Break { record } => {
                    if let Some(set) = live_sets(repository, record).into_iter().next() {
                        repository.store(record, set, now);
                        repository.records.entry(record).or_default().is_broken = true;
                    }
                }
                Act::BreakAll => repository.records.values_mut().for_each(|record| record.is_broken = true),
                Act::Mend => repository.records.values_mut().for_each(|record| record.is_broken = false),
                Act::RemoveSet { .. } | Act::ForgetTombstones | Act::Harvest => {}
            }
        });
        Ok(())
    }

    fn audited(&self) -> &'static [&'static str] {
        let behaviour = self.behaviour();
        // A record that is listed and cannot be read may be one of those that seem extra.
        if behaviour.has_undelivered && behaviour.lists_identifiers { &[] } else { self.sources() }
    }

    async fn live_unseen(&mut self, act: Act, rig: &mut Rig) -> Result<(), String> {
        match act {
            Act::Break { .. } | Act::BreakAll | Act::Mend | Act::Harvest => Ok(()),
            act => self.live(act, rig).await,
        }
    }

    async fn fall_quiet(&mut self, rig: &mut Rig) -> Result<(), String> {
        if self.with(|repository| repository.records.values().any(|record| record.is_broken)) {
            // The mark of the harvest moves past the broken records before they are mended.
            self.harvest(rig).await;
            self.with(|repository| {
                repository.now += TimeDelta::hours(1);
                let set = repository.behaviour.sets.first().copied().unwrap_or_default();
                repository.store(LAST, set, repository.now);
            });
            self.harvest(rig).await;
        }
        self.with(|repository| repository.records.values_mut().for_each(|record| record.is_broken = false));
        self.harvest(rig).await;
        if self.with(|repository| repository.has_backdated) {
            rig.let_days_go_by(DAYS_UNTIL_COUNT);
        }
        let Behaviour { nonces, doubles, .. } = self.behaviour();
        // Changes that return in each run are bounded after the third one, and a record whose newer double has left counts in
        // the second list without it.
        let runs = if nonces { 5 } else { 1 + u32::from(doubles.is_some()) };
        let mut run = Value::Null;
        for _ in 0..runs {
            self.let_full_list_come().await;
            run = self.harvest(rig).await;
        }
        self.check_words(&run)?;
        let head = rig.gateway().head().await;
        // The repository corrects the declaration of the encoding, which changes no text.
        self.with(|repository| repository.behaviour.declared_charset = "utf-8");
        self.let_full_list_come().await;
        self.harvest(rig).await;
        rig.no_changes_after(head).await
    }

    fn truth(&self) -> Truth {
        self.with(|repository| {
            let behaviour = &repository.behaviour;
            let is_undelivered = |number: &u8| {
                behaviour.lists_identifiers && behaviour.has_undelivered && *number == Behaviour::UNDELIVERED
            };
            // The other pages depend on the list of the whole repository.
            let is_on_first_page = |number: &u8| {
                behaviour.sets.iter().any(|set| {
                    let rows = repository.rows("", "", SETS[*set]);
                    rows.iter().take(PAGE).any(|(listed, row)| listed == number && row.is_live)
                })
            };
            let mut truth = Truth { one_resource_for_each_event: true, refused: Refusals::Any, ..Truth::default() };
            for database in 0..1 + usize::from(behaviour.has_two_databases) {
                for (number, record) in &repository.records {
                    let has = Repository::has(database, *number) && !is_undelivered(number);
                    if !has || !record.is_live_in(None) {
                        continue;
                    }
                    let (uri, digest) = Self::expected(repository, database, *number, record);
                    if behaviour.forgets_sets && !is_on_first_page(number) {
                        truth.unsettled.insert(uri);
                    } else if record.is_live_in(behaviour.followed()) {
                        // A change that returns in each run is withheld for a day.
                        let digest = (!behaviour.nonces).then_some(digest);
                        let item = ItemTruth { object: uri.clone(), public: true, digest, ..ItemTruth::default() };
                        truth.items.insert(uri, item);
                    }
                }
            }
            truth
        })
    }
}

#[test]
fn oai_pmh_and_registry_agree() {
    driver::run::<OaiPmh>();
}
