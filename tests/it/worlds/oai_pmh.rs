//! World of an OAI-PMH repository that keeps one row for each record and set, as Dataverse does, and that is harvested
//! between its changes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use proptest::prelude::*;
use serde_json::Value;
use tidings::{
    format::{Headers, Limits, Message, ParsedMessage, dialect, oai_pmh},
    model::DraftItems,
};

use crate::{
    support::http_receiver::{ReceivedRequest, Receiver, Reply},
    worlds::{ItemTruth, Refusals, Truth, World, driver, rig::Rig},
};

const SETS: [&str; 3] = ["a", "b", "c"];

/// Records on one page.
const PAGE: usize = 2;

/// Value of `deletedRecord`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DeletedRecord {
    Persistent,
    Transient,
    No,
}

/// Behaviour of this repository, and the settings of its harvest.
#[derive(Clone, Debug)]
pub(crate) struct Behaviour {
    deleted: DeletedRecord,
    /// Numbers of the sets that are harvested, in the order of the settings; none for the whole repository.
    sets: Vec<usize>,
    /// Every run lists all records. Otherwise only a repository whose deletions are persistent is true to itself.
    lists_everything: bool,
    /// `ListIdentifiers` and `GetRecord` instead of `ListRecords`.
    lists_identifiers: bool,
    /// A record that leaves a set becomes a tombstone in that set.
    tombstones_in_sets: bool,
    /// Characters before each document.
    before_documents: &'static str,
    /// The base URL has a query.
    query: bool,
}

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
    /// A bug of the software makes the metadata of a record unreadable, until it is mended without a new datestamp.
    Break {
        record: u8,
    },
    Mend,
    Harvest,
}

#[derive(Clone, Debug)]
struct Row {
    is_live: bool,
    date: DateTime<Utc>,
}

#[derive(Clone, Debug, Default)]
struct Record {
    version: u32,
    rows: BTreeMap<usize, Row>,
    is_broken: bool,
}

impl Record {
    fn is_live_in(&self, sets: &[usize]) -> bool {
        self.rows.iter().any(|(set, row)| row.is_live && (sets.is_empty() || sets.contains(set)))
    }
}

/// Records of the repository, and its clock.
struct Repository {
    behaviour: Behaviour,
    base: String,
    records: BTreeMap<u8, Record>,
    now: DateTime<Utc>,
}

fn identifier(record: u8) -> String {
    format!("oai:r.example.org:{record}")
}

fn date(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Secs, true)
}

impl Repository {
    /// Answers a request of the protocol.
    fn answer(&self, query: &BTreeMap<String, String>) -> String {
        let argument = |name: &str| query.get(name).map(String::as_str).unwrap_or_default();
        let content = match argument("verb") {
            "Identify" => self.identify(),
            "GetRecord" => self.single(argument("identifier")),
            "ListSets" => {
                let set = |name: &&str| format!("<set><setSpec>{name}</setSpec><setName>{name}</setName></set>");
                format!("<ListSets>{}</ListSets>", SETS.iter().map(set).collect::<String>())
            }
            verb => self.list(verb, query),
        };
        format!(
            "{}<?xml version=\"1.0\" encoding=\"UTF-8\"?>\
             <OAI-PMH xmlns=\"http://www.openarchives.org/OAI/2.0/\"><responseDate>{}</responseDate>\
             <request>{}</request>{content}</OAI-PMH>",
            self.behaviour.before_documents,
            date(self.now),
            self.base
        )
    }

    fn identify(&self) -> String {
        let deleted = match self.behaviour.deleted {
            DeletedRecord::Persistent => "persistent",
            DeletedRecord::Transient => "transient",
            DeletedRecord::No => "no",
        };
        format!(
            "<Identify><repositoryName>R</repositoryName><baseURL>{}</baseURL><protocolVersion>2.0</protocolVersion>\
             <adminEmail>a@r.example.org</adminEmail><earliestDatestamp>2001-01-01T00:00:00Z</earliestDatestamp>\
             <deletedRecord>{deleted}</deletedRecord><granularity>YYYY-MM-DDThh:mm:ssZ</granularity></Identify>",
            self.base
        )
    }

    /// Answers `GetRecord` with the newest live row, or with the newest tombstone.
    fn single(&self, wanted: &str) -> String {
        let found = self.records.iter().find(|(record, _)| identifier(**record) == wanted);
        let row = found.and_then(|(_, record)| record.rows.values().max_by_key(|row| (row.is_live, row.date)));
        match (found, row) {
            (Some((number, record)), Some(row)) => {
                format!("<GetRecord>{}</GetRecord>", xml(*number, record, row, false))
            }
            _ => "<error code=\"idDoesNotExist\">no such record</error>".to_owned(),
        }
    }

    /// Answers `ListRecords` and `ListIdentifiers`; the token is the whole state of the list.
    fn list(&self, verb: &str, query: &BTreeMap<String, String>) -> String {
        let parts: Vec<_> = match query.get("resumptionToken") {
            Some(token) => token.split('!').map(str::to_owned).collect(),
            None => {
                let argument = |name: &str| query.get(name).cloned().unwrap_or_default();
                vec![argument("from"), argument("until"), argument("set"), "0".to_owned()]
            }
        };
        let [from, until, set, offset] = parts.as_slice() else { panic!("{query:?}") };
        let offset: usize = offset.parse().unwrap();
        let rows = self.rows(from, until, set);
        if rows.is_empty() {
            return "<error code=\"noRecordsMatch\">none</error>".to_owned();
        }
        let headers_only = verb == "ListIdentifiers";
        let page: String = rows
            .iter()
            .skip(offset)
            .take(PAGE)
            .map(|(number, row)| xml(*number, &self.records[number], row, headers_only))
            .collect();
        let next = offset + PAGE;
        let token = match (next < rows.len(), offset) {
            (true, _) => format!(
                "<resumptionToken completeListSize=\"{}\" cursor=\"{offset}\">{from}!{until}!{set}!{next}</resumptionToken>",
                rows.len()
            ),
            (false, 0) => String::new(),
            (false, _) => "<resumptionToken/>".to_owned(),
        };
        format!("<{verb}>{page}{token}</{verb}>")
    }

    /// Returns the rows of a list by their datestamps: of one set, or the newest row of each record.
    fn rows(&self, from: &str, until: &str, set: &str) -> Vec<(u8, Row)> {
        let in_list = |(number, record): (&u8, &Record)| {
            let mut rows = record.rows.iter().filter(|(row_set, _)| set.is_empty() || SETS[**row_set] == set);
            // Without a set, the record is live if any of its rows is.
            let row = rows.by_ref().map(|(_, row)| row).max_by_key(|row| (row.is_live, row.date))?;
            let newest = if set.is_empty() { record.rows.values().map(|row| row.date).max()? } else { row.date };
            Some((*number, Row { is_live: row.is_live, date: newest }))
        };
        let mut rows: Vec<_> = self.records.iter().filter_map(in_list).collect();
        rows.retain(|(_, row)| {
            (from.is_empty() || *date(row.date) >= *from) && (until.is_empty() || *date(row.date) <= *until)
        });
        rows.sort_by_key(|(number, row)| (row.date, *number));
        rows
    }

    fn store(&mut self, record: u8, set: usize, date: DateTime<Utc>) {
        let record = self.records.entry(record).or_default();
        record.version += 1;
        record.rows.entry(set).or_insert(Row { is_live: true, date }).is_live = true;
        record.rows.values_mut().filter(|row| row.is_live).for_each(|row| row.date = date);
    }

    /// Removes a record from sets, as this repository does it.
    fn leave(&mut self, record: u8, sets: &BTreeSet<usize>, has_tombstones: bool) {
        let now = self.now;
        let Some(record) = self.records.get_mut(&record) else { return };
        for set in sets {
            if has_tombstones {
                record.rows.insert(*set, Row { is_live: false, date: now });
            } else {
                record.rows.remove(set);
            }
        }
    }
}

/// Returns a record, or its header.
fn xml(number: u8, record: &Record, row: &Row, header_only: bool) -> String {
    let status = if row.is_live { "" } else { " status=\"deleted\"" };
    let sets: String = record
        .rows
        .iter()
        .filter(|(_, row)| row.is_live)
        .map(|(set, _)| format!("<setSpec>{}</setSpec>", SETS[*set]))
        .collect();
    let header = format!(
        "<header{status}><identifier>{}</identifier><datestamp>{}</datestamp>{sets}</header>",
        identifier(number),
        date(row.date)
    );
    if header_only {
        return header;
    }
    let metadata = if row.is_live { metadata(number, record) } else { String::new() };
    format!("<record>{header}{metadata}</record>")
}

fn metadata(number: u8, record: &Record) -> String {
    let second_root = if record.is_broken { "<more/>" } else { "" };
    format!(
        "<metadata><oai_dc:dc xmlns:oai_dc=\"http://www.openarchives.org/OAI/2.0/oai_dc/\" \
         xmlns:dc=\"http://purl.org/dc/elements/1.1/\"><dc:title>Straße {number}…</dc:title>\
         <dc:date>{}</dc:date></oai_dc:dc>{second_root}</metadata>",
        record.version
    )
}

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
        let row = Row { is_live: true, date: repository.now };
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
        (deleted, sets, any::<[bool; 4]>(), before)
            .prop_map(|(deleted, sets, [everything, lists_identifiers, tombstones, query], before_documents)| {
                Behaviour {
                    deleted,
                    lists_everything: everything || deleted != DeletedRecord::Persistent,
                    lists_identifiers,
                    // A record that leaves its sets silently is found in a complete list alone.
                    tombstones_in_sets: tombstones || !everything,
                    sets,
                    before_documents,
                    query,
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
            1 => (0..5u8).prop_map(|record| Act::Break { record }),
            1 => Just(Act::Mend),
            6 => Just(Act::Harvest),
        ]
        .boxed()
    }

    async fn begin(behaviour: Behaviour) -> Self {
        let now = Utc::now() - TimeDelta::days(60);
        let repository = Repository { behaviour, base: String::new(), records: BTreeMap::new(), now };
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
                    if let Some(record) = repository.records.get_mut(&record) {
                        record.is_broken = true;
                    }
                }
                Act::Mend => repository.records.values_mut().for_each(|record| record.is_broken = false),
                Act::Harvest => {}
            }
        });
        Ok(())
    }

    async fn fall_quiet(&mut self, rig: &mut Rig) -> Result<(), String> {
        self.with(|repository| repository.records.values_mut().for_each(|record| record.is_broken = false));
        rig.harvest("r").await;
        if self.with(|repository| repository.behaviour.lists_everything) {
            // After this time the next run lists everything.
            tokio::time::sleep(std::time::Duration::from_millis(1010)).await;
        }
        let run = rig.harvest("r").await;
        if run["state"] != "completed" {
            return Err(format!("the last run is {run}"));
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
                let item =
                    ItemTruth { object: uri.clone(), public: true, digest: Some(digest), ..ItemTruth::default() };
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
