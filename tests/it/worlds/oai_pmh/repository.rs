//! Simulated repository: its records with a row for each set, and its answers.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write as _,
};

use chrono::{DateTime, TimeDelta, Utc};
use flate2::{
    Compression,
    write::{GzEncoder, ZlibEncoder},
};

use super::{
    behaviour::{Behaviour, Capitals, Compressed, Cookies, DeletedRecord},
    documents::{DATABASES, FORMS, Form, date, header, identifier, xml},
};
use crate::support::http_receiver::{ReceivedRequest, Reply};

pub(super) const SETS: [&str; 3] = ["a", "b", "c"];

/// Records on one page.
pub(super) const PAGE: usize = 2;

/// Cookie of a server that checks whether its clients keep cookies.
const SEEN: &str = "seen=1";

/// Cookie with the place in a list.
const PLACE: &str = "place=";

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
    /// Number of successive changes without a new datestamp.
    pub(super) silent_changes: u32,
}

impl Record {
    /// Returns whether the record is live in one of these sets, or in any if there are none.
    pub(super) fn is_live_in(&self, sets: Option<&[usize]>) -> bool {
        self.rows.iter().any(|(set, row)| row.is_live && sets.is_none_or(|sets| sets.contains(set)))
    }
}

/// Records of the repository, and its clock.
pub(super) struct Repository {
    pub(super) behaviour: Behaviour,
    /// URL without query.
    pub(super) url: String,
    pub(super) records: BTreeMap<u8, Record>,
    /// Sets that the repository has removed.
    pub(super) removed_sets: BTreeSet<usize>,
    /// True if records have appeared with an old datestamp, and nobody lists everything.
    pub(super) has_backdated: bool,
    pub(super) now: DateTime<Utc>,
    /// Number of responses.
    pub(super) responses: u32,
    /// Number of listed records that are in none of the requested sets.
    pub(super) foreign: usize,
    /// Database that the present request is about.
    database: usize,
}

impl Repository {
    pub(super) fn new(behaviour: Behaviour) -> Self {
        Self {
            behaviour,
            url: String::new(),
            records: BTreeMap::new(),
            removed_sets: BTreeSet::new(),
            has_backdated: false,
            now: Utc::now() - TimeDelta::days(60),
            responses: 0,
            foreign: 0,
            database: 0,
        }
    }

    /// Returns the base URL of a database.
    pub(super) fn base(&self, database: usize) -> String {
        let query = if self.behaviour.query { format!("?db={}", DATABASES[database]) } else { String::new() };
        format!("{}{query}", self.url)
    }

    /// Returns whether a database has a record: the second one has only the first records.
    pub(super) fn has(database: usize, record: u8) -> bool {
        database == 0 || record < 3
    }

    /// Answers a request as the server does.
    pub(super) fn reply(&mut self, request: &ReceivedRequest) -> Reply {
        let url = url::Url::parse(&format!("http://h{}", request.path)).unwrap();
        let query: BTreeMap<String, String> = url.query_pairs().into_owned().collect();
        let mut cookies = request.header("cookie").split("; ");
        if self.behaviour.cookies == Cookies::Check && !cookies.any(|cookie| cookie == SEEN) {
            let headers = vec![("location", request.path.clone()), ("set-cookie", format!("{SEEN}; Path=/"))];
            return Reply::Answer(307, headers, String::new());
        }
        let place = cookies.find_map(|cookie| cookie.strip_prefix(PLACE));
        let (document, next) = self.answer(&query, place);
        let charset = self.behaviour.declared_charset;
        let mut headers = vec![("content-type", format!("text/xml; charset={charset}"))];
        headers.extend(next.map(|next| ("set-cookie", format!("{PLACE}{next}; Path=/"))));
        let accepts_gzip = request.header("accept-encoding").contains("gzip");
        let body = match self.behaviour.compressed {
            Compressed::Gzip if accepts_gzip => {
                headers.push(("content-encoding", "gzip".to_owned()));
                let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
                encoder.write_all(document.as_bytes()).unwrap();
                encoder.finish().unwrap()
            }
            Compressed::Deflate => {
                headers.push(("content-encoding", "deflate".to_owned()));
                let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
                encoder.write_all(document.as_bytes()).unwrap();
                encoder.finish().unwrap()
            }
            Compressed::Gzip | Compressed::No => document.into_bytes(),
        };
        Reply::Bytes(200, headers, body)
    }

    /// Answers a request of the protocol; returns the place of the next page too, if a cookie has it.
    fn answer(&mut self, query: &BTreeMap<String, String>, place: Option<&str>) -> (String, Option<String>) {
        self.responses += 1;
        let argument = |name: &str| query.get(name).map(String::as_str).unwrap_or_default();
        self.database = DATABASES.iter().position(|name| *name == argument("db")).unwrap_or_default();
        let mut next = None;
        let content = match argument("verb") {
            "Identify" => self.identify(),
            "GetRecord" => self.single(argument("identifier")),
            "ListSets" => {
                let sets = SETS.iter().enumerate().filter(|(set, _)| !self.removed_sets.contains(set));
                let set =
                    |(_, name): (_, &&str)| format!("<set><setSpec>{name}</setSpec><setName>{name}</setName></set>");
                format!("<ListSets>{}</ListSets>", sets.map(set).collect::<String>())
            }
            verb => {
                let content;
                (content, next) = self.list(verb, query, place);
                content
            }
        };
        let document = format!(
            "{}<?xml version=\"1.0\" encoding=\"{}\"?>\
             <OAI-PMH xmlns=\"http://www.openarchives.org/OAI/2.0/\"><responseDate>{}</responseDate>\
             <request>{}</request>{content}</OAI-PMH>",
            self.behaviour.before_documents,
            self.behaviour.declared_charset,
            date(self.shown_now()),
            self.base(self.database)
        );
        (document, next)
    }

    /// Returns the time of the present response.
    fn shown_now(&self) -> DateTime<Utc> {
        self.now + TimeDelta::seconds(self.responses.into())
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
            self.base(self.database)
        )
    }

    /// Answers `GetRecord` with the newest live row, or with the newest tombstone.
    fn single(&self, wanted: &str) -> String {
        let is_known = |number: u8| {
            Self::has(self.database, number)
                && !(self.behaviour.has_undelivered && number == Behaviour::UNDELIVERED)
                && identifier(number) == wanted
        };
        let found = self.records.iter().find(|(number, _)| is_known(**number));
        let row = found.and_then(|(_, record)| record.rows.values().max_by_key(|row| (row.is_live, row.date)));
        match (found, row) {
            (Some((number, record)), Some(row)) => {
                let row = self.as_shown(row.clone());
                format!("<GetRecord>{}</GetRecord>", self.record_xml(*number, record, &row))
            }
            _ => "<error code=\"idDoesNotExist\">no such record</error>".to_owned(),
        }
    }

    /// Answers `ListRecords` and `ListIdentifiers`. The token, with the cookie if there is one, is the whole state of the list.
    fn list(&mut self, verb: &str, query: &BTreeMap<String, String>, place: Option<&str>) -> (String, Option<String>) {
        let parts: Vec<_> = match query.get("resumptionToken") {
            Some(token) => token.split('!').map(str::to_owned).collect(),
            None => {
                let argument = |name: &str| query.get(name).cloned().unwrap_or_default();
                vec![argument("from"), argument("until"), argument("set"), "0".to_owned()]
            }
        };
        let [from, until, set, offset] = parts.as_slice() else { panic!("{query:?}") };
        let is_in_cookie = offset == "cookie";
        let offset: usize = if is_in_cookie { place.unwrap_or("0") } else { offset }.parse().unwrap();
        let rows = self.rows(from, until, if self.behaviour.forgets_sets && offset > 0 { "" } else { set });
        if rows.is_empty() {
            return ("<error code=\"noRecordsMatch\">none</error>".to_owned(), None);
        }
        let page: Vec<_> = rows.iter().skip(offset).take(PAGE).collect();
        let record = |(number, row): &&(u8, Row)| match verb {
            "ListIdentifiers" => header(*number, &self.records[number], row),
            _ => self.record_xml(*number, &self.records[number], row),
        };
        let content: String = page.iter().map(record).collect();
        let behaviour = &self.behaviour;
        // The gateway says of such a record that it does not exist for `GetRecord`.
        let is_undelivered =
            |number: u8| behaviour.lists_identifiers && behaviour.has_undelivered && number == Behaviour::UNDELIVERED;
        let is_foreign = |(number, row): &&&(u8, Row)| {
            row.is_live
                && !is_undelivered(*number)
                && !self.records[number].is_live_in(self.behaviour.followed())
                && !self.behaviour.sets.is_empty()
        };
        self.foreign += page.iter().filter(is_foreign).count();
        let next = offset + PAGE;
        let has_next = next < rows.len();
        let place = has_next && self.behaviour.cookies == Cookies::Place;
        let token_place = if place { "cookie".to_owned() } else { next.to_string() };
        let token = match (has_next, offset) {
            (true, _) => format!(
                "<resumptionToken completeListSize=\"{}\" cursor=\"{offset}\">{from}!{until}!{set}!{token_place}\
                 </resumptionToken>",
                rows.len()
            ),
            (false, 0) => String::new(),
            (false, _) => "<resumptionToken/>".to_owned(),
        };
        (format!("<{verb}>{content}{token}</{verb}>"), place.then(|| next.to_string()))
    }

    fn is_in_set(&self, row_set: usize, set: &str) -> bool {
        let name = SETS[row_set];
        set.is_empty() || name == set || self.behaviour.capitals == Capitals::Ignored && name.eq_ignore_ascii_case(set)
    }

    /// Returns the rows of a list by their datestamps: of one set, or the newest row of each record.
    pub(super) fn rows(&self, from: &str, until: &str, set: &str) -> Vec<(u8, Row)> {
        let in_list = |(number, record): (&u8, &Record)| {
            let mut rows = record.rows.iter().filter(|(row_set, _)| self.is_in_set(**row_set, set));
            // Without a set, the record is live if any of its rows is.
            let row = rows.by_ref().map(|(_, row)| row).max_by_key(|row| (row.is_live, row.date))?;
            let newest = if set.is_empty() { record.rows.values().map(|row| row.date).max()? } else { row.date };
            Self::has(self.database, *number).then(|| (*number, Row::new(row.is_live, newest)))
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
            self.behaviour.is_dated_now
                || (from.is_empty() || *date(row.date) >= *from) && (until.is_empty() || *date(row.date) <= *until)
        };
        rows.sort_by_key(|(number, row)| (row.date, *number, row.is_double));
        rows.extend(stale);
        rows.retain(is_asked_for);
        rows.into_iter().map(|(number, row)| (number, self.as_shown(row))).collect()
    }

    fn as_shown(&self, row: Row) -> Row {
        if self.behaviour.is_dated_now { Row { date: self.shown_now(), ..row } } else { row }
    }

    /// Returns a record as this response has it.
    fn record_xml(&self, number: u8, record: &Record, row: &Row) -> String {
        let namespaces = if self.behaviour.moves_namespaces { self.responses % FORMS } else { 0 };
        let xml = xml(number, record, row, Form { database: self.database, namespaces });
        if !self.behaviour.nonces {
            return xml;
        }
        let nonce = format!("<dc:description>{}</dc:description></oai_dc:dc>", self.responses);
        xml.replace("</oai_dc:dc>", &nonce)
    }

    pub(super) fn store(&mut self, record: u8, set: usize, date: DateTime<Utc>) {
        let record = self.records.entry(record).or_default();
        record.version += 1;
        record.silent_changes = 0;
        record.rows.entry(set).or_insert(Row::new(true, date)).is_live = true;
        record.rows.values_mut().filter(|row| row.is_live).for_each(|row| row.date = date);
        self.removed_sets.remove(&set);
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
