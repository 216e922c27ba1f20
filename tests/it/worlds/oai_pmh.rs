//! World of an OAI-PMH repository that keeps one row for each record and set, as Dataverse does, and that is harvested
//! between its changes.

mod repository;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use chrono::{TimeDelta, Utc};
use proptest::prelude::*;
use serde_json::Value;
use tidings::{
    format::{Headers, Limits, Message, ParsedMessage, dialect, oai_pmh},
    model::DraftItems,
};

use self::repository::{Behaviour, DeletedRecord, Record, Repository, Row, SETS, xml};
use crate::{
    support::http_receiver::{ReceivedRequest, Receiver, Reply},
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
    /// A bug of the software makes the metadata of a changed record unreadable, until it is mended without a new datestamp.
    Break {
        record: u8,
    },
    Mend,
    Harvest,
}

/// Record that no step names.
const LAST: u8 = 5;

/// Repository with its harvest.
pub(crate) struct OaiPmh {
    repository: Arc<Mutex<Repository>>,
    _server: Receiver,
}

fn query(request: &ReceivedRequest) -> BTreeMap<String, String> {
    let url = url::Url::parse(&format!("http://h{}", request.path)).unwrap();
    url.query_pairs().into_owned().collect()
}

impl OaiPmh {
    fn with<T>(&self, act: impl FnOnce(&mut Repository) -> T) -> T {
        act(&mut self.repository.lock().unwrap())
    }

    /// Returns URI and digest of a record as the dialect reads it.
    fn expected(repository: &Repository, number: u8, record: &Record) -> (String, String) {
        let row = Row::new(true, repository.now);
        let xml = xml(number, record, &row, false);
        let xml = xml.replacen("<record>", &format!("<record xmlns='{}'>", oai_pmh::NAMESPACE), 1);
        let dialect = (dialect("oai-pmh").unwrap().build)(Value::Null, Limits::default()).unwrap();
        let headers: Headers =
            [(oai_pmh::BASE_URL, repository.base.as_str()), (oai_pmh::METADATA_PREFIX, "oai_dc")].into_iter().collect();
        let message = Message { content_type: None, headers: &headers, body: xml.as_bytes() };
        let ParsedMessage::Drafts(drafts) = dialect.read(&message).unwrap() else { panic!("{xml}") };
        let DraftItems::Complete(items) = &drafts[0].items else { panic!("{xml}") };
        let Some(content) = items.first().and_then(|item| item.change.content()) else { panic!("{xml}") };
        (drafts[0].object.to_string(), content.digest.as_ref().unwrap().hex().to_owned())
    }
}

impl World for OaiPmh {
    type Switches = Behaviour;
    type Step = Act;

    const NAME: &'static str = "oai_pmh";

    fn switches() -> BoxedStrategy<Behaviour> {
        let deleted =
            prop_oneof![Just(DeletedRecord::Persistent), Just(DeletedRecord::Transient), Just(DeletedRecord::No)];
        let sets = prop_oneof![
            Just(Vec::new()),
            Just(vec![0]),
            Just(vec![0, 1]),
            Just(vec![1, 0]),
            Just(vec![0, 1, 2]),
            Just(vec![2, 0, 1])
        ];
        let before = prop_oneof![
            4 => Just(""),
            1 => Just("\u{feff}"),
            1 => Just("\r\n"),
            1 => Just("\u{feff}\u{feff}"),
            1 => Just("\r\n\u{feff}"),
        ];
        let doubles = prop_oneof![4 => Just(None), 1 => Just(Some(0)), 1 => Just(Some(30))];
        let nonces = prop_oneof![6 => Just(false), 1 => Just(true)];
        let stale = prop_oneof![4 => Just(None), 1 => Just(Some(0)), 1 => Just(Some(60))];
        (deleted, sets, any::<[bool; 4]>(), before, (doubles, stale, nonces))
            .prop_map(|(deleted, sets, switches, before_documents, (doubles, stale, nonces))| {
                let [everything, lists_identifiers, tombstones, query] = switches;
                Behaviour {
                    deleted,
                    lists_everything: everything || deleted != DeletedRecord::Persistent,
                    lists_identifiers,
                    // A record that leaves its sets silently is found in a complete list alone.
                    tombstones_in_sets: tombstones || !everything,
                    sets,
                    before_documents,
                    query,
                    doubles,
                    stale_tombstones: stale.filter(|_| deleted != DeletedRecord::No),
                    nonces,
                }
            })
            .boxed()
    }

    fn step() -> BoxedStrategy<Act> {
        let place = || (0..5u8, 0..SETS.len());
        prop_oneof![
            6 => place().prop_map(|(record, set)| Act::Store { record, set }),
            3 => place().prop_map(|(record, set)| Act::Move { record, set }),
            2 => (0..5u8).prop_map(|record| Act::Delete { record }),
            1 => place().prop_map(|(record, set)| Act::StoreBackdated { record, set }),
            2 => (0..5u8).prop_map(|record| Act::Break { record }),
            1 => Just(Act::Mend),
            6 => Just(Act::Harvest),
        ]
        .boxed()
    }

    async fn begin(behaviour: Behaviour) -> Self {
        let now = Utc::now() - TimeDelta::days(60);
        let repository = Repository { behaviour, base: String::new(), records: BTreeMap::new(), now, responses: 0 };
        let repository = Arc::new(Mutex::new(repository));
        let server = Receiver::start({
            let repository = Arc::clone(&repository);
            move |_, request| {
                let body = repository.lock().unwrap().answer(&query(request));
                Reply::Answer(200, vec![("content-type", "text/xml; charset=utf-8".to_owned())], body)
            }
        })
        .await;
        {
            let mut repository = repository.lock().unwrap();
            let query = if repository.behaviour.query { "?db=maps" } else { "" };
            repository.base = format!("http://{}/oai{query}", server.address);
        }
        Self { repository, _server: server }
    }

    fn settings(&self) -> String {
        self.with(|repository| {
            let behaviour = &repository.behaviour;
            let sets: Vec<_> = behaviour.sets.iter().map(|set| SETS[*set]).collect();
            let sets = if sets.is_empty() { String::new() } else { format!("sets = {sets:?}\n") };
            let full = if behaviour.lists_everything { "full_every = \"1s\"\n" } else { "" };
            let list = if behaviour.lists_identifiers { "list = \"identifiers\"\n" } else { "" };
            format!(
                "[sources.r]\ntransport = \"oai-pmh\"\ndialect = \"oai-pmh\"\nurl = \"{}\"\nmode = \"once\"\n\
                 max_deleted_percent = 100\n{sets}{full}{list}",
                repository.base
            )
        })
    }

    async fn live(&mut self, act: Act, rig: &mut Rig) -> Result<(), String> {
        if matches!(act, Act::Harvest) {
            rig.harvest("r").await;
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
                    // Only a complete list can find it.
                    if behaviour.lists_everything && !repository.records.contains_key(&record) {
                        repository.store(record, set, now - TimeDelta::days(10));
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
                Act::Break { record } => {
                    if let Some(set) = live_sets(repository, record).into_iter().next() {
                        repository.store(record, set, now);
                        repository.records.entry(record).or_default().is_broken = true;
                    }
                }
                Act::Mend => repository.records.values_mut().for_each(|record| record.is_broken = false),
                Act::Harvest => {}
            }
        });
        Ok(())
    }

    async fn fall_quiet(&mut self, rig: &mut Rig) -> Result<(), String> {
        if self.with(|repository| repository.records.values().any(|record| record.is_broken)) {
            // The mark of the harvest moves past the broken records before they are mended.
            rig.harvest("r").await;
            self.with(|repository| {
                repository.now += TimeDelta::hours(1);
                let set = repository.behaviour.sets.first().copied().unwrap_or_default();
                repository.store(LAST, set, repository.now);
            });
            rig.harvest("r").await;
        }
        self.with(|repository| repository.records.values_mut().for_each(|record| record.is_broken = false));
        let (lists_everything, nonces, doubles) = self.with(|repository| {
            let Behaviour { lists_everything, nonces, doubles, .. } = repository.behaviour;
            (lists_everything, nonces, doubles.is_some())
        });
        // Changes that return in each run are bounded after the third one, and a record whose newer double has left counts in
        // the second list without it.
        let runs = if nonces { 5 } else { 1 + u32::from(doubles) };
        let mut run = rig.harvest("r").await;
        for _ in 0..runs {
            if lists_everything {
                // After this time the next run lists everything.
                tokio::time::sleep(std::time::Duration::from_millis(1010)).await;
            }
            run = rig.harvest("r").await;
        }
        if run["state"] != "completed" {
            return Err(format!("the last run is {run}"));
        }
        let has_records = self.with(|repository| {
            let sets = &repository.behaviour.sets;
            repository.records.values().any(|record| record.is_live_in(sets))
        });
        let reason = run["reason"].as_str().unwrap_or_default();
        if nonces && lists_everything && has_records && !reason.contains("change in each run") {
            return Err(format!("the last run does not say that records change in each run: {run}"));
        }
        let head = rig.gateway().head().await;
        rig.harvest("r").await;
        let after = rig.gateway().head().await;
        if after == head { Ok(()) } else { Err(format!("a run without news makes {} changes", after - head)) }
    }

    fn truth(&self) -> Truth {
        self.with(|repository| {
            let sets = &repository.behaviour.sets;
            let live = repository.records.iter().filter(|(_, record)| record.is_live_in(sets));
            let item = |(number, record): (&u8, &Record)| {
                let (uri, digest) = Self::expected(repository, *number, record);
                // A change that returns in each run is withheld for a day.
                let digest = (!repository.behaviour.nonces).then_some(digest);
                let item = ItemTruth { object: uri.clone(), public: true, digest, ..ItemTruth::default() };
                (uri, item)
            };
            let items = live.map(item).collect();
            Truth { items, one_resource_for_each_event: true, refused: Refusals::Any, ..Truth::default() }
        })
    }
}

#[test]
fn oai_pmh_and_registry_agree() {
    driver::run::<OaiPmh>();
}
