//! The next request of a harvest, and the position after its response.

use std::{
    future::ready,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use chrono::{DateTime, SecondsFormat, Utc};
use futures_util::future::BoxFuture;

use super::{
    ListVerb, OaiPmhSettings,
    client::{Arguments, ReadResponse, RepositoryClient},
    listing::{newest_of_each, undelivered_remark},
    position::{
        DateForm, ListPosition, Position, PositionSettings, RepositoryIdentity, SweepPosition, SweepStage, Window,
    },
    record_store::RecordStore,
    response::{IdentifyFields, ListText, RecordList},
};
use crate::{
    format::oai_pmh::{datestamp_of, kept_record::KeptRecords},
    harvest::{
        AddedHeaders, HarvestError, Harvester, Page, PageEnd, Records, client::RequestError, membership::pending_before,
    },
    intake::Incoming,
    journal::{
        Journal,
        harvest::{FormerRecords, ListedRecords},
    },
    model::{SourceName, Timestamp, Uri},
};

/// Maximum number of successive pages without records.
const MAX_EMPTY_PAGES: u32 = 10;

/// Maximum number of pages of one list.
const MAX_PAGES: u64 = 1_000_000;

/// Part of the announced records below which a list counts as short, in percent.
const COMPLETE_PERCENT: u64 = 90;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Overlap of two runs if datestamps have seconds: indexes of repositories lag behind their datestamps.
const OVERLAP_OF_SECONDS: Duration = Duration::from_secs(15 * 60);

/// Harvest of one repository.
pub(super) struct OaiPmhHarvester {
    pub(super) settings: OaiPmhSettings,
    pub(super) place: PositionSettings,
    pub(super) source: SourceName,
    pub(super) journal: Journal,
    pub(super) client: RepositoryClient,
    pub(super) max_record_bytes: usize,
    /// Place of the copies of the records, if the harvest keeps them.
    pub(super) record_store: Option<RecordStore>,
    /// Difference that the last count check has found, in records.
    pub(super) difference: AtomicU64,
}

impl Harvester for OaiPmhHarvester {
    fn describe(&self) -> String {
        super::HarvesterSettings::describe(&self.settings)
    }

    fn difference(&self) -> Option<u64> {
        Some(self.difference.load(Ordering::Relaxed))
    }

    fn page<'a>(&'a self, position: &'a str, attempt: u32) -> BoxFuture<'a, Result<Page, HarvestError>> {
        Box::pin(self.next_page(self.position(position), attempt))
    }

    fn keep(&self, messages: Vec<(usize, Incoming)>) -> BoxFuture<'_, Result<AddedHeaders, HarvestError>> {
        match &self.record_store {
            Some(store) => Box::pin(store.keep(&self.journal, self.client.budget(), messages)),
            None => Box::pin(ready(Ok(AddedHeaders::default()))),
        }
    }

    fn may_request_ahead(&self, position: &str) -> bool {
        // The search for missing records reads the journal.
        self.position(position).sweep.is_none()
    }

    fn audit_position(&self, position: &str) -> String {
        self.position(position).of_audit().text()
    }

    fn object<'a>(&'a self, position: &'a str, object: &'a Uri) -> BoxFuture<'a, Result<Records, HarvestError>> {
        Box::pin(self.record_of(self.position(position), object))
    }

    fn rest(&self) {
        self.client.rest();
    }

    fn announced(&self, position: &str) -> Option<u64> {
        self.position(position).list?.announced
    }

    fn stored_bytes(&self, position: &str) -> Option<u64> {
        self.record_store.as_ref().map(|store| store.stored_bytes(self.position(position).stored_bytes))
    }

    fn kept_records(&self) -> Vec<KeptRecords> {
        // Records of earlier versions have URIs without the query of the base URL.
        let mut base_urls = vec![self.place.place.base_url.clone(), self.settings.url_without_query()];
        base_urls.truncate(if self.place.adoptable.is_some() { 2 } else { 1 });
        let kept = |base_url| KeptRecords {
            source: self.source.clone(),
            base_url,
            prefix: self.settings.metadata_prefix.clone(),
        };
        if self.record_store.is_some() { base_urls.into_iter().map(kept).collect() } else { Vec::new() }
    }
}

impl OaiPmhHarvester {
    /// Parses a position. It gets the newest size of the stored records, which are stored while the page after theirs is
    /// requested.
    fn position(&self, text: &str) -> Position {
        let mut position = Position::parse(text, &self.place, &self.source);
        if let Some(store) = &self.record_store {
            position.stored_bytes = store.stored_bytes(position.stored_bytes);
        }
        position
    }

    async fn next_page(&self, mut position: Position, attempt: u32) -> Result<Page, HarvestError> {
        if let Some(sweep) = position.sweep.take() {
            return self.sweep(position, sweep, attempt).await;
        }
        let mut remarks = Vec::new();
        if position.list.is_none() && self.is_retirement_requested(&position).await? {
            return self
                .retire(position, SweepPosition { stage: SweepStage::Former, ..SweepPosition::default() })
                .await;
        }
        if position.list.is_none() {
            remarks = self.begin(&mut position).await?;
        }
        let ReadResponse { response, mut text, is_repaired, remark } = match self.request_list(&position).await {
            Ok(read) => read,
            Err(error) => return Err(self.after_failure(position, error, attempt)),
        };
        remarks.extend(remark);
        let date = response.date.as_deref().and_then(datestamp_of);
        let mut list = match (response.errors.first(), response.list) {
            (Some((code, text)), _) if code != "noRecordsMatch" => {
                return Err(self.after_error(position, code, text, attempt));
            }
            (None, Some(list)) => list,
            // An empty list has no other form. In the middle of a list it is the end, unless records are missing.
            (Some(_), _) if position.list.as_ref().is_none_or(|list| list.token.is_none() || is_long_enough(list)) => {
                RecordList::default()
            }
            (Some((code, text)), _) => return Err(self.after_error(position, code, text, attempt)),
            (None, None) => {
                let error = RequestError::Transient {
                    reason: "the response has neither a list nor an error".to_owned(),
                    after: None,
                };
                return Err(self.after_failure(position, error, attempt));
            }
        };
        let mut within = None;
        if self.settings.list == ListVerb::Identifiers {
            text = ListText::none();
            let last = position.list.as_ref().and_then(|list| list.within.as_deref());
            let completed = self.complete_records(list.records, last, position.quirks, attempt).await?;
            (list.records, within) = completed;
            remarks.extend(undelivered_remark(&list.records));
        }
        if list.records.is_empty() && list.token.is_none() {
            text = ListText::none();
            remarks.extend(self.empty_list_remark(&position).await);
        }
        let page = ReadPage { list, within, text, date };
        Ok(Page { is_repaired, ..self.page_of(position, page, remarks) })
    }

    /// Begins a run: asks the repository for facts about itself. Returns remarks about their changes.
    async fn begin(&self, position: &mut Position) -> Result<Vec<String>, HarvestError> {
        let arguments = Arguments { verb: "Identify", others: Vec::new(), verbatim: None };
        let read = match self.client.request(&arguments, position.quirks).await {
            Err(RequestError::Compression(reason)) if !position.quirks.no_compression => {
                position.quirks.no_compression = true;
                return Err(HarvestError::Continue { reason, position: position.text() });
            }
            result => result?,
        };
        if let Some((code, text)) = read.response.errors.first() {
            return Err(HarvestError::fail(format!("the repository answers Identify with the error {code}: {text}")));
        }
        let Some(fields) = read.response.identify else {
            return Err(HarvestError::retry("the response to Identify has no facts about the repository"));
        };
        let identity = RepositoryIdentity::from(fields);
        let mut remarks = Vec::from_iter(read.remark);
        if let Some(former) = &position.identity {
            for (what, before, now) in [
                ("base URL", &former.base_url, &identity.base_url),
                ("granularity", &former.granularity, &identity.granularity),
                ("support of deleted records", &former.deleted_record, &identity.deleted_record),
                ("earliest datestamp", &former.earliest_datestamp, &identity.earliest_datestamp),
            ] {
                if before != now {
                    remarks.push(format!("the repository has changed its {what} from {before:?} to {now:?}"));
                }
            }
        }
        remarks.extend(self.former_remarks(position).await?);
        let is_asked = self.is_full_list_requested(position.full).await?;
        let is_full = is_asked
            || self.is_full_list_due(&identity.deleted_record, position.full)
            || self.differs_in_number(position, &identity.deleted_record, &mut remarks).await?;
        if is_full {
            // If the numbers differed, the run after the list shows whether it has found the difference.
            position.counted = (self.difference.load(Ordering::Relaxed) == 0).then(Timestamp::now);
        }
        let waiting = self.journal.listed_counts(self.source.clone(), pending_before()).await?.missing;
        let start = position.from.filter(|_| !is_full);
        let window = match (start, self.settings.window) {
            (None, Some(length)) => first_window(&identity, seconds(length)),
            _ => None,
        };
        position.identity = Some(identity);
        let started = Some(Timestamp::now());
        let has_waiting = waiting > 0;
        position.list = Some(ListPosition { started, is_full, window, has_waiting, ..ListPosition::default() });
        Ok(remarks)
    }

    async fn request_list(&self, position: &Position) -> Result<ReadResponse, RequestError> {
        let list = position.list.as_ref();
        let verb = match self.settings.list {
            ListVerb::Records => "ListRecords",
            ListVerb::Identifiers => "ListIdentifiers",
        };
        let mut arguments = Arguments { verb, others: Vec::new(), verbatim: None };
        let (from, until) = self.range(position);
        let prefix = ("metadataPrefix", self.settings.metadata_prefix.as_str());
        match list.and_then(|list| list.token.as_deref()) {
            Some(token) if position.quirks.verbatim_tokens => arguments.verbatim = Some(("resumptionToken", token)),
            Some(token) => arguments.others.push(("resumptionToken", token)),
            None => {
                arguments.others.push(prefix);
                let set = list.and_then(|list| self.settings.sets.get(list.set));
                arguments.others.extend(set.map(|set| ("set", set.as_str())));
                arguments.others.extend(from.as_deref().map(|from| ("from", from)));
                arguments.others.extend(until.as_deref().map(|until| ("until", until)));
            }
        }
        if position.quirks.prefix_with_tokens && list.is_some_and(|list| list.token.is_some()) {
            arguments.others.push(prefix);
        }
        self.client.request(&arguments, position.quirks).await
    }

    /// Returns the arguments `from` and `until` of the present list.
    pub(super) fn range(&self, position: &Position) -> (Option<String>, Option<String>) {
        let window = position.list.as_ref().and_then(|list| list.window);
        let (from, until) = match window {
            Some(window) => (window.from, window.until),
            None => (position.list_start(), None),
        };
        let form = position.date_form();
        let text = |time: Timestamp| match form {
            DateForm::Seconds => Some(time.datetime().to_rfc3339_opts(SecondsFormat::Secs, true)),
            DateForm::Day => Some(time.datetime().format("%Y-%m-%d").to_string()),
            DateForm::None => None,
        };
        (from.and_then(text), until.and_then(text))
    }

    /// Returns a page and the position after it.
    fn page_of(&self, mut position: Position, page: ReadPage, mut remarks: Vec<String>) -> Page {
        let ReadPage {
            list: RecordList { records, namespaces, token, complete_list_size, cursor },
            within,
            text,
            date,
        } = page;
        // A repository without a valid date is trusted less, because its clock is unknown.
        let response_date = date.unwrap_or_else(|| earlier(Timestamp::now(), Duration::from_secs(60 * 60)));
        let mut list = position.list.take().unwrap_or_default();
        list.began.get_or_insert(response_date);
        list.pages += 1;
        list.records += records.len() as u64;
        list.announced = complete_list_size.filter(|size| *size > 0).or(list.announced);
        list.outages = 0;
        list.empty_pages = if records.is_empty() { list.empty_pages + 1 } else { 0 };
        let dates = records.iter().filter_map(|record| datestamp_of(&record.datestamp));
        list.newest = list.newest.max(dates.filter(|date| *date <= response_date).max());
        let cycle = token.as_deref().is_some_and(|token| list.cycle.note(&records, token, cursor));
        let is_end = within.is_none()
            && (token.is_none() || (records.is_empty() && list.announced.is_some_and(|size| list.records >= size)));
        let endless = if is_end {
            None
        } else if cycle {
            Some(format!("the list does not end: page {} repeats an earlier page", list.pages))
        } else if list.empty_pages >= MAX_EMPTY_PAGES {
            Some(format!("the list has {MAX_EMPTY_PAGES} successive pages without records"))
        } else if list.pages >= MAX_PAGES {
            Some(format!("the list has more than {MAX_PAGES} pages"))
        } else {
            None
        };
        list.has_waiting |= records.iter().any(|record| record.is_deleted);
        let former = position.take_new_former().map_or(FormerRecords::Keep, FormerRecords::Rename);
        let records = self.with_listings(newest_of_each(records, &text), &position, &list);
        let place = self.place_of(&position);
        let records = self.records(records, text, namespaces, date, &place);
        let listed = ListedRecords { at: list.started, former, ..ListedRecords::default() };
        let end = match endless {
            // The next run begins anew at the mark of the last complete run.
            Some(reason) => PageEnd::Failed(reason),
            None if within.is_some() => {
                list.within = within;
                position.list = Some(list);
                PageEnd::More
            }
            None if is_end => self.end_list(&mut position, list, &mut remarks),
            None => {
                (list.token, list.within, list.tried_verbatim, list.tried_prefix) = (token, None, false, false);
                position.list = Some(list);
                PageEnd::More
            }
        };
        Page { remarks, listed, ..Page::new(records, position.text(), end) }
    }

    /// Moves the position past the end of a list.
    fn end_list(&self, position: &mut Position, mut list: ListPosition, remarks: &mut Vec<String>) -> PageEnd {
        if let Some(size) = list.announced.filter(|_| !is_long_enough(&list)) {
            let (is_known, records) = (position.short_list == Some((size, list.records)), list.records);
            let reason = format!("the list has {records} records, but the repository announced {size}");
            if !is_known {
                position.short_list = Some((size, records));
                return PageEnd::Failed(reason);
            }
            // The same numbers as in the run before: the announcement is wrong.
            remarks.push(reason);
            list.is_short = true;
        }
        list.restart_list();
        list.restarts = 0;
        if let Some(Window { until: Some(until), seconds, .. }) = list.window {
            let length = seconds.saturating_mul(2);
            let end = later(until, length);
            let end = Some(end).filter(|end| *end < list.began.unwrap_or_else(Timestamp::now));
            list.window = Some(Window { from: Some(until), until: end, seconds: length });
            position.list = Some(list);
            return PageEnd::More;
        }
        list.set += 1;
        if list.set < self.settings.sets.len() {
            let start = position.from.filter(|_| !list.is_full);
            list.window = match (start, self.settings.window, &position.identity) {
                (None, Some(length), Some(identity)) => first_window(identity, seconds(length)),
                _ => None,
            };
            position.list = Some(list);
            return PageEnd::More;
        }
        position.from = Some(self.next_from(position, &list));
        position.short_list = None;
        self.begin_sweep(position, &list, remarks)
    }

    /// Returns the mark of the next run. It is never before the present one, and so never goes back.
    fn next_from(&self, position: &Position, list: &ListPosition) -> Timestamp {
        let overlap = self.settings.overlap.unwrap_or(match position.date_form() {
            DateForm::Seconds => OVERLAP_OF_SECONDS,
            DateForm::Day | DateForm::None => DAY,
        });
        let mark = earlier(list.began.unwrap_or_else(Timestamp::now), overlap);
        let mark = list.newest.map_or(mark, |newest| mark.min(newest));
        position.from.map_or(mark, |from| mark.max(from))
    }
}

/// A page as the repository has sent it.
struct ReadPage {
    list: RecordList,
    /// Identifier of the last record, if the page of identifiers has more.
    within: Option<String>,
    text: ListText,
    date: Option<Timestamp>,
}

impl Position {
    /// Returns the form of dates that the repository accepts.
    pub(super) fn date_form(&self) -> DateForm {
        let announced = self.identity.as_ref().map_or("", |identity| identity.granularity.as_str());
        let is_fine = announced.len() > "YYYY-MM-DD".len();
        self.quirks.dates.unwrap_or(if is_fine { DateForm::Seconds } else { DateForm::Day })
    }

    /// Returns the length of the smallest window, in seconds.
    pub(super) fn unit(&self) -> i64 {
        if self.date_form() == DateForm::Seconds { 1 } else { 24 * 60 * 60 }
    }
}

impl From<IdentifyFields> for RepositoryIdentity {
    fn from(fields: IdentifyFields) -> Self {
        let IdentifyFields { base_url, granularity, deleted_record, earliest_datestamp } = fields;
        Self { base_url, granularity, deleted_record: deleted_record.to_ascii_lowercase(), earliest_datestamp }
    }
}

/// Returns the first window of a back-fill: everything up to its end, because the earliest datestamp is often wrong.
/// `None` if no datestamp is known.
pub(super) fn first_window(identity: &RepositoryIdentity, length: i64) -> Option<Window> {
    let start = datestamp_of(&identity.earliest_datestamp)?;
    let until = later(start, length);
    (until < Timestamp::now()).then_some(Window { from: None, until: Some(until), seconds: length })
}

/// Returns whether a list has about as many records as the repository has announced.
fn is_long_enough(list: &ListPosition) -> bool {
    list.announced.is_none_or(|size| list.records >= size.saturating_mul(COMPLETE_PERCENT) / 100)
}

fn seconds(length: Duration) -> i64 {
    i64::try_from(length.as_secs()).unwrap_or(i64::MAX)
}

pub(super) fn later(time: Timestamp, seconds: i64) -> Timestamp {
    let millis = time.millis().saturating_add(seconds.saturating_mul(1000));
    Timestamp::from_millis(millis).unwrap_or_else(|| Timestamp::from_datetime(DateTime::<Utc>::MAX_UTC))
}

fn earlier(time: Timestamp, by: Duration) -> Timestamp {
    let millis = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
    Timestamp::from_millis(time.millis().saturating_sub(millis)).unwrap_or(Timestamp::EPOCH)
}
