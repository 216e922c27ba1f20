//! Simulated repository: its records with a row for each set, and its answers.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};

pub(super) const SETS: [&str; 3] = ["a", "b", "c"];

/// Records on one page.
pub(super) const PAGE: usize = 2;

/// Value of `deletedRecord`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeletedRecord {
    Persistent,
    Transient,
    No,
}

/// Behaviour of this repository, and the settings of its harvest.
#[derive(Clone, Debug)]
pub(crate) struct Behaviour {
    pub(super) deleted: DeletedRecord,
    /// Numbers of the sets that are harvested, in the order of the settings; none for the whole repository.
    pub(super) sets: Vec<usize>,
    /// Every run lists all records. Otherwise only a repository whose deletions are persistent is true to itself.
    pub(super) lists_everything: bool,
    /// `ListIdentifiers` and `GetRecord` instead of `ListRecords`.
    pub(super) lists_identifiers: bool,
    /// A record that leaves a set becomes a tombstone in that set.
    pub(super) tombstones_in_sets: bool,
    /// Characters before each document.
    pub(super) before_documents: &'static str,
    /// The base URL has a query.
    pub(super) query: bool,
    /// Records with an even number are listed twice, with another title and this older datestamp, in minutes.
    pub(super) doubles: Option<i64>,
    /// A tombstone that is so many minutes older follows each record with an odd number.
    pub(super) stale_tombstones: Option<i64>,
    /// Each response has other metadata.
    pub(super) nonces: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) is_live: bool,
    pub(super) date: DateTime<Utc>,
    /// The record has the identifier of another one.
    pub(super) is_double: bool,
}

impl Row {
    pub(super) fn new(is_live: bool, date: DateTime<Utc>) -> Self {
        Self { is_live, date, is_double: false }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Record {
    pub(super) version: u32,
    pub(super) rows: BTreeMap<usize, Row>,
    pub(super) is_broken: bool,
}

impl Record {
    pub(super) fn is_live_in(&self, sets: &[usize]) -> bool {
        self.rows.iter().any(|(set, row)| row.is_live && (sets.is_empty() || sets.contains(set)))
    }
}

/// Records of the repository, and its clock.
pub(super) struct Repository {
    pub(super) behaviour: Behaviour,
    pub(super) base: String,
    pub(super) records: BTreeMap<u8, Record>,
    pub(super) now: DateTime<Utc>,
    /// Number of responses.
    pub(super) responses: u32,
}

pub(super) fn identifier(record: u8) -> String {
    format!("oai:r.example.org:{record}")
}

pub(super) fn date(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Secs, true)
}

impl Repository {
    /// Answers a request of the protocol.
    pub(super) fn answer(&mut self, query: &BTreeMap<String, String>) -> String {
        self.responses += 1;
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

    pub(super) fn identify(&self) -> String {
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
    pub(super) fn single(&self, wanted: &str) -> String {
        let found = self.records.iter().find(|(record, _)| identifier(**record) == wanted);
        let row = found.and_then(|(_, record)| record.rows.values().max_by_key(|row| (row.is_live, row.date)));
        match (found, row) {
            (Some((number, record)), Some(row)) => {
                format!("<GetRecord>{}</GetRecord>", self.record_xml(*number, record, row))
            }
            _ => "<error code=\"idDoesNotExist\">no such record</error>".to_owned(),
        }
    }

    /// Answers `ListRecords` and `ListIdentifiers`; the token is the whole state of the list.
    pub(super) fn list(&self, verb: &str, query: &BTreeMap<String, String>) -> String {
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
            .map(|(number, row)| match headers_only {
                true => xml(*number, &self.records[number], row, true),
                false => self.record_xml(*number, &self.records[number], row),
            })
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
    pub(super) fn rows(&self, from: &str, until: &str, set: &str) -> Vec<(u8, Row)> {
        let in_list = |(number, record): (&u8, &Record)| {
            let mut rows = record.rows.iter().filter(|(row_set, _)| set.is_empty() || SETS[**row_set] == set);
            // Without a set, the record is live if any of its rows is.
            let row = rows.by_ref().map(|(_, row)| row).max_by_key(|row| (row.is_live, row.date))?;
            let newest = if set.is_empty() { record.rows.values().map(|row| row.date).max()? } else { row.date };
            Some((*number, Row::new(row.is_live, newest)))
        };
        let mut rows: Vec<_> = self.records.iter().filter_map(in_list).collect();
        if let Some(minutes) = self.behaviour.doubles {
            let has_double = |(number, row): &&(u8, Row)| number % 2 == 0 && row.is_live;
            let double = |(number, row): &(u8, Row)| {
                let date = row.date - TimeDelta::minutes(minutes);
                (*number, Row { date, is_double: true, ..row.clone() })
            };
            let doubles: Vec<_> = rows.iter().filter(has_double).map(double).collect();
            rows.extend(doubles);
        }
        let mut stale = Vec::new();
        if let Some(minutes) = self.behaviour.stale_tombstones {
            let has_tombstone = |(number, row): &&(u8, Row)| number % 2 == 1 && row.is_live;
            let tombstone = |(number, row): &(u8, Row)| {
                let date = row.date - TimeDelta::minutes(minutes);
                (*number, Row::new(false, date))
            };
            stale = rows.iter().filter(has_tombstone).map(tombstone).collect();
        }
        let is_asked_for = |(_, row): &(u8, Row)| {
            (from.is_empty() || *date(row.date) >= *from) && (until.is_empty() || *date(row.date) <= *until)
        };
        rows.sort_by_key(|(number, row)| (row.date, *number, row.is_double));
        rows.extend(stale);
        rows.retain(is_asked_for);
        rows
    }

    /// Returns a record as this response has it.
    fn record_xml(&self, number: u8, record: &Record, row: &Row) -> String {
        let xml = xml(number, record, row, false);
        if !self.behaviour.nonces {
            return xml;
        }
        let nonce = format!("<dc:description>{}</dc:description></oai_dc:dc>", self.responses);
        xml.replace("</oai_dc:dc>", &nonce)
    }

    pub(super) fn store(&mut self, record: u8, set: usize, date: DateTime<Utc>) {
        let record = self.records.entry(record).or_default();
        record.version += 1;
        record.rows.entry(set).or_insert(Row::new(true, date)).is_live = true;
        record.rows.values_mut().filter(|row| row.is_live).for_each(|row| row.date = date);
    }

    /// Removes a record from sets, as this repository does it.
    pub(super) fn leave(&mut self, record: u8, sets: &BTreeSet<usize>, has_tombstones: bool) {
        let now = self.now;
        let Some(record) = self.records.get_mut(&record) else { return };
        for set in sets {
            if has_tombstones {
                record.rows.insert(*set, Row::new(false, now));
            } else {
                record.rows.remove(set);
            }
        }
    }
}

/// Returns a record, or its header.
pub(super) fn xml(number: u8, record: &Record, row: &Row, header_only: bool) -> String {
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
    let metadata = match (row.is_live, row.is_double) {
        (false, _) => String::new(),
        (true, false) => metadata(number, record),
        (true, true) => metadata(number, record).replace("Straße", "Allee"),
    };
    format!("<record>{header}{metadata}</record>")
}

pub(super) fn metadata(number: u8, record: &Record) -> String {
    let second_root = if record.is_broken { "<more/>" } else { "" };
    format!(
        "<metadata><oai_dc:dc xmlns:oai_dc=\"http://www.openarchives.org/OAI/2.0/oai_dc/\" \
         xmlns:dc=\"http://purl.org/dc/elements/1.1/\"><dc:title>Straße {number}…</dc:title>\
         <dc:date>{}</dc:date></oai_dc:dc>{second_root}</metadata>",
        record.version
    )
}
