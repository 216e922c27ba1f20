//! Repository with OAI-PMH 2.0 whose content a test scripts, with a switch for each misbehaviour of real repositories.

mod response;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use chrono::Utc;
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate, matchers::any};

pub(crate) use self::response::record_xml;

/// Time of the oldest record, in seconds since 1970: 2020-01-01.
const OLDEST: i64 = 1_577_836_800;

/// Deviation from the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Misbehaviour {
    /// Records contain characters that XML does not allow, raw and as references.
    IllegalCharacters,
    /// Records contain bare ampersands and entities of HTML.
    BareAmpersands,
    /// Responses declare UTF-8, and are in windows-1252.
    WrongEncoding,
    /// Responses declare and have ISO-8859-1.
    DeclaredLatin1,
    /// The first responses with a token are truncated.
    Truncated(u32),
    /// The first lists are pages of HTML with the status 200.
    Html(u32),
    /// Bodies are compressed without a header.
    GzipWithoutHeader,
    /// Bodies have a header for compression, and are not compressed.
    GzipHeaderOnly,
    /// Compressed bodies are broken.
    BrokenGzip,
    /// The token of each page is that of the page itself, from the third page on.
    RepeatedPage,
    /// After the last page follows the first one.
    Circle,
    /// Pages without records, each with a token, follow the second page.
    EmptyPages(usize),
    /// The last page has a token, whose page is an empty list.
    TokenToEmptyPage,
    /// The last page has a token, whose page is `noRecordsMatch`.
    TokenToNoRecords,
    /// The announced size of the list.
    Announces(u64),
    /// The last pages are missing: the third page has no token.
    EndsEarly,
    /// Each page begins with the last record of the page before.
    Overlapping,
    /// The first tokens are refused.
    RefusedTokens(u32),
    /// All tokens are refused, so that a list has one page.
    NoTokens,
    /// Tokens are not decoded.
    UndecodedTokens,
    /// Requests with a token need the metadata prefix.
    TokensNeedPrefix,
    /// White space and CDATA surround the tokens.
    SpacedTokens,
    /// The first lists have this status and no OAI-PMH, and `Retry-After` as a date.
    Busy(u16, u32),
    /// Errors of the protocol have the status 422, and every response has `Retry-After`.
    ErrorStatus,
    /// Requests are redirected, and lose their query.
    Redirects,
    /// `Identify` announces seconds, and lists accept days only.
    DaysOnly,
    /// Lists accept no dates.
    NoDates,
    /// Dates of requests are ignored.
    IgnoredDates,
    /// Lists with more than this number of records get the status 413.
    Refused(usize),
    /// The earliest datestamp is later than the data.
    LateEarliest,
    /// Datestamps have fractions and offsets, or are missing.
    OddDatestamps,
    /// Empty lists are empty elements instead of errors.
    EmptyElements,
    /// The first lists are the error `InternalException`.
    UnknownErrors(u32),
    /// Deleted records have metadata, and the status in capitals.
    DeletedWithMetadata,
    /// `GetRecord` fails with the status 500.
    RecordsFail,
    /// `GetRecord` of this record fails with the status 500.
    RecordFails(usize),
    /// `GetRecord` knows no record.
    RecordsUnknown,
    /// Every seventh record has no metadata, two roots, or broken markup.
    BrokenRecords,
}

/// A record; without metadata it is deleted.
#[derive(Clone, Debug)]
pub(crate) struct ScriptedRecord {
    /// Time of the last change, in seconds since 1970.
    pub(crate) datestamp: i64,
    /// Title, which is all of the metadata.
    pub(crate) title: Option<String>,
    pub(crate) sets: Vec<String>,
    /// XML in the container `about`.
    pub(crate) about: String,
}

/// Content and behaviour.
pub(crate) struct Script {
    pub(crate) records: BTreeMap<String, ScriptedRecord>,
    pub(crate) misbehaviours: Vec<Misbehaviour>,
    pub(crate) page_size: usize,
    pub(crate) granularity: &'static str,
    pub(crate) deleted_record: &'static str,
    /// Base URL that `Identify` reports.
    pub(crate) base_url: String,
    /// Sets of `ListSets`; none for a repository without sets.
    pub(crate) sets: Vec<String>,
    /// Queries of the requests, decoded.
    pub(crate) requests: Vec<BTreeMap<String, String>>,
    /// Times at which the requests arrived.
    pub(crate) arrivals: Vec<Instant>,
    /// Time until each response.
    pub(crate) response_time: Duration,
    /// Number of misbehaviours with a limited number of times so far.
    failures: u32,
    /// Whether the present request is `ListIdentifiers`.
    lists_identifiers: bool,
    /// Whether the present request accepts compressed responses.
    accepts_gzip: bool,
}

/// Running repository.
pub(crate) struct ScriptedRepository {
    server: MockServer,
    script: Arc<Mutex<Script>>,
}

struct Handler(Arc<Mutex<Script>>);

impl ScriptedRepository {
    /// Starts a repository with this number of records, which were changed a minute apart.
    pub(crate) async fn start(records: usize) -> Self {
        let server = MockServer::start().await;
        let script = Script {
            records: BTreeMap::new(),
            misbehaviours: Vec::new(),
            page_size: 10,
            granularity: "YYYY-MM-DDThh:mm:ssZ",
            deleted_record: "persistent",
            base_url: format!("{}/oai", server.uri()),
            sets: Vec::new(),
            requests: Vec::new(),
            arrivals: Vec::new(),
            response_time: Duration::ZERO,
            failures: 0,
            lists_identifiers: false,
            accepts_gzip: false,
        };
        let script = Arc::new(Mutex::new(script));
        Mock::given(any()).respond_with(Handler(Arc::clone(&script))).mount(&server).await;
        let repository = Self { server, script };
        for number in 0..records {
            repository.put(&identifier(number), &format!("Title {number}"), number as i64 * 60);
        }
        repository
    }

    pub(crate) fn url(&self) -> String {
        format!("{}/oai", self.server.uri())
    }

    pub(crate) fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap()
    }

    pub(crate) fn misbehave(&self, misbehaviours: &[Misbehaviour]) {
        let mut script = self.script();
        script.misbehaviours = misbehaviours.to_vec();
        script.failures = 0;
    }

    /// Stores a record that was changed this number of seconds after the oldest one.
    pub(crate) fn put(&self, identifier: &str, title: &str, after: i64) {
        let record = ScriptedRecord {
            datestamp: OLDEST + after,
            title: Some(title.to_owned()),
            sets: Vec::new(),
            about: String::new(),
        };
        self.script().records.insert(identifier.to_owned(), record);
    }

    /// Stores a record that was changed now.
    pub(crate) fn put_now(&self, identifier: &str, title: &str) {
        self.put(identifier, title, Utc::now().timestamp() - OLDEST);
    }

    /// Deletes a record now, and leaves a tombstone.
    pub(crate) fn delete_now(&self, identifier: &str) {
        let mut script = self.script();
        let record = script.records.get_mut(identifier).unwrap();
        (record.title, record.datestamp) = (None, Utc::now().timestamp());
    }

    /// Returns the header `From` of each request.
    pub(crate) async fn senders(&self) -> Vec<Option<String>> {
        let requests = self.server.received_requests().await.unwrap();
        let sender = |request: &Request| request.headers.get("from").map(|from| from.to_str().unwrap().to_owned());
        requests.iter().map(sender).collect()
    }

    /// Removes a record without a tombstone.
    pub(crate) fn lose(&self, identifier: &str) {
        assert!(self.script().records.remove(identifier).is_some());
    }

    /// Returns the identifiers that were requested with `GetRecord`.
    pub(crate) fn requested_records(&self) -> Vec<String> {
        let script = self.script();
        let records =
            script.requests.iter().filter(|request| request.get("verb").is_some_and(|verb| verb == "GetRecord"));
        records.map(|request| request["identifier"].clone()).collect()
    }

    /// Returns the lists that were requested without a token.
    pub(crate) fn first_pages(&self) -> Vec<BTreeMap<String, String>> {
        let is_first = |request: &&BTreeMap<String, String>| {
            request.get("verb").is_some_and(|verb| verb.starts_with("List")) && !request.contains_key("resumptionToken")
        };
        self.script().requests.iter().filter(is_first).cloned().collect()
    }
}

/// Returns the identifier of a record of [`ScriptedRepository::start`].
pub(crate) fn identifier(number: usize) -> String {
    format!("oai:repository.example:{number:05}")
}

impl Respond for Handler {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        let response_time = {
            let mut script = self.0.lock().unwrap();
            script.arrivals.push(Instant::now());
            script.response_time
        };
        self.response(request).set_delay(response_time)
    }
}

impl Handler {
    fn response(&self, request: &Request) -> ResponseTemplate {
        let mut script = self.0.lock().unwrap();
        if script.has(Misbehaviour::Redirects) && request.url.path() == "/oai" {
            return ResponseTemplate::new(301).insert_header("location", "/moved");
        }
        let decoded =
            |pair: (std::borrow::Cow<'_, str>, std::borrow::Cow<'_, str>)| (pair.0.into_owned(), pair.1.into_owned());
        let mut query: BTreeMap<String, String> = request.url.query_pairs().map(decoded).collect();
        if script.has(Misbehaviour::UndecodedTokens)
            && let Some(raw) = request
                .url
                .query()
                .unwrap_or_default()
                .split('&')
                .find_map(|pair| pair.strip_prefix("resumptionToken="))
        {
            query.insert("resumptionToken".to_owned(), raw.to_owned());
        }
        script.requests.push(query.clone());
        let accepted = request.headers.get("accept-encoding");
        script.accepts_gzip = accepted.is_some_and(|accepted| accepted.to_str().unwrap().contains("gzip"));
        let verb = query.get("verb").map_or("", String::as_str);
        if verb == "Identify" {
            let identify = script.identify();
            return script.envelope(&identify, false);
        }
        if verb == "ListSets" {
            return script.set_page(query.get("resumptionToken").map(String::as_str));
        }
        if verb == "ListMetadataFormats" {
            return script.formats();
        }
        if verb == "GetRecord" {
            return script.single(&query["identifier"]);
        }
        script.list(&query)
    }
}
