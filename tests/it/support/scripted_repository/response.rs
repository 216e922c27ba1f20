//! Responses of the scripted repository, each with the misbehaviours that are switched on.

use std::{collections::BTreeMap, io::Write};

use chrono::{DateTime, SecondsFormat, Utc};
use wiremock::ResponseTemplate;

use super::{Misbehaviour, OLDEST, Script, ScriptedRecord};

impl Script {
    pub(super) fn has(&self, misbehaviour: Misbehaviour) -> bool {
        self.misbehaviours.contains(&misbehaviour)
    }

    fn find<T>(&self, of: impl Fn(Misbehaviour) -> Option<T>) -> Option<T> {
        self.misbehaviours.iter().copied().find_map(of)
    }

    /// Returns whether a misbehaviour that occurs this number of times occurs now.
    fn fails(&mut self, times: Option<u32>) -> bool {
        let fails = times.is_some_and(|times| self.failures < times);
        self.failures += u32::from(fails);
        fails
    }

    pub(super) fn identify(&self) -> String {
        let earliest = if self.has(Misbehaviour::LateEarliest) { OLDEST + 600 } else { OLDEST };
        format!(
            "<Identify><repositoryName>Scripted</repositoryName><baseURL>{}</baseURL>\
             <protocolVersion>2.0</protocolVersion><adminEmail>admin@repository.example</adminEmail>\
             <earliestDatestamp>{}</earliestDatestamp><deletedRecord>{}</deletedRecord><granularity>{}</granularity>\
             </Identify>",
            escape(&self.base_url),
            time(earliest),
            self.deleted_record,
            self.granularity
        )
    }

    /// Answers `ListSets`; the token is the number of the sets before.
    pub(super) fn set_page(&mut self, token: Option<&str>) -> ResponseTemplate {
        let unknown = self.find(|one| if let Misbehaviour::UnknownErrors(times) = one { Some(times) } else { None });
        if self.fails(unknown) {
            return ResponseTemplate::new(500);
        }
        if self.sets.is_empty() {
            return self.error("noSetHierarchy", "no sets");
        }
        let start = token.map_or(0, |token| token.strip_prefix("from ").unwrap().parse().unwrap());
        let set = |spec: &String| format!("<set><setSpec>{spec}</setSpec><setName>Name of {spec}</setName></set>");
        let sets: String = self.sets.iter().skip(start).take(self.page_size).map(set).collect();
        let next = start + self.page_size;
        let token = if self.has(Misbehaviour::RepeatedPage) {
            "<resumptionToken>from 0</resumptionToken>".to_owned()
        } else if next < self.sets.len() {
            format!("<resumptionToken>from {next}</resumptionToken>")
        } else {
            "<resumptionToken/>".to_owned()
        };
        self.envelope(&format!("<ListSets>{sets}{token}</ListSets>"), false)
    }

    pub(super) fn formats(&mut self) -> ResponseTemplate {
        let format = "<metadataFormat><metadataPrefix>oai_dc</metadataPrefix>\
             <schema>http://www.openarchives.org/OAI/2.0/oai_dc.xsd</schema>\
             <metadataNamespace>http://www.openarchives.org/OAI/2.0/oai_dc/</metadataNamespace></metadataFormat>";
        self.envelope(&format!("<ListMetadataFormats>{format}</ListMetadataFormats>"), false)
    }

    pub(super) fn list(&mut self, query: &BTreeMap<String, String>) -> ResponseTemplate {
        self.lists_identifiers = query["verb"] == "ListIdentifiers";
        let has_token = query.contains_key("resumptionToken");
        if let Some((status, _)) =
            self.find(|one| if let Misbehaviour::Busy(status, times) = one { Some((status, times)) } else { None })
        {
            let times = self.find(|one| if let Misbehaviour::Busy(_, times) = one { Some(times) } else { None });
            if self.fails(times) {
                let date = httpdate::fmt_http_date(std::time::SystemTime::now());
                return ResponseTemplate::new(status).insert_header("retry-after", date).set_body_string("busy");
            }
        }
        let html = self.find(|one| if let Misbehaviour::Html(times) = one { Some(times) } else { None });
        if self.fails(html) {
            return ResponseTemplate::new(200).set_body_raw("<!DOCTYPE html><html><p>Log in", "text/html");
        }
        let unknown = self.find(|one| if let Misbehaviour::UnknownErrors(times) = one { Some(times) } else { None });
        if self.fails(unknown) {
            return self.error("InternalException", "index");
        }
        let refused = self.find(|one| if let Misbehaviour::RefusedTokens(times) = one { Some(times) } else { None });
        if has_token && (self.has(Misbehaviour::NoTokens) || self.fails(refused)) {
            return self.error("badResumptionToken", "expired");
        }
        if self.has(Misbehaviour::TokensNeedPrefix) && has_token && !query.contains_key("metadataPrefix") {
            return self.error("badArgument", "metadataPrefix is missing");
        }
        let arguments = match query.get("resumptionToken") {
            Some(token) => match parse_token(token) {
                Some(arguments) => arguments,
                None => return self.error("badResumptionToken", "unknown"),
            },
            None => Arguments {
                offset: 0,
                from: query.get("from").cloned().unwrap_or_default(),
                until: query.get("until").cloned().unwrap_or_default(),
                set: query.get("set").cloned().unwrap_or_default(),
            },
        };
        let has_dates = !arguments.from.is_empty() || !arguments.until.is_empty();
        let has_times = arguments.from.contains('T') || arguments.until.contains('T');
        if (self.has(Misbehaviour::NoDates) && has_dates) || (self.has(Misbehaviour::DaysOnly) && has_times) {
            return self.error("badArgument", "illegal date");
        }
        let selected = self.selected(&arguments);
        let limit = self.find(|one| if let Misbehaviour::Refused(limit) = one { Some(limit) } else { None });
        if limit.is_some_and(|limit| selected.len() > limit) {
            return ResponseTemplate::new(413).set_body_string("too many records");
        }
        self.page(&arguments, &selected, has_token)
    }

    /// Responds to `GetRecord`.
    pub(super) fn single(&mut self, identifier: &str) -> ResponseTemplate {
        let failing = self.find(|one| if let Misbehaviour::RecordFails(number) = one { Some(number) } else { None });
        if self.has(Misbehaviour::RecordsFail) || failing.is_some_and(|number| super::identifier(number) == identifier)
        {
            return ResponseTemplate::new(500).set_body_string("out of memory");
        }
        match self.records.get(identifier).filter(|_| !self.has(Misbehaviour::RecordsUnknown)) {
            Some(record) => {
                let content = format!("<GetRecord>{}</GetRecord>", record_xml(identifier, record));
                self.envelope(&content, false)
            }
            None => self.error("idDoesNotExist", "no such record"),
        }
    }

    /// Returns the records of a list, in order of their datestamps.
    fn selected(&self, arguments: &Arguments) -> Vec<(String, ScriptedRecord)> {
        let is_selected = |record: &ScriptedRecord| {
            let date = time(record.datestamp);
            let is_after = arguments.from.is_empty() || date.as_str() >= arguments.from.as_str();
            let until = &arguments.until;
            let is_before = until.is_empty() || date[..until.len().min(date.len())] <= **until;
            let in_set = arguments.set.is_empty() || record.sets.contains(&arguments.set);
            in_set && ((is_after && is_before) || self.has(Misbehaviour::IgnoredDates))
        };
        let records = self.records.iter().filter(|(_, record)| is_selected(record));
        let mut records: Vec<_> = records.map(|(identifier, record)| (identifier.clone(), record.clone())).collect();
        records.sort_by(|(one, record), (other, beside)| (record.datestamp, one).cmp(&(beside.datestamp, other)));
        records
    }

    fn page(
        &mut self,
        arguments: &Arguments,
        selected: &[(String, ScriptedRecord)],
        has_token: bool,
    ) -> ResponseTemplate {
        let empty_pages = self.find(|one| if let Misbehaviour::EmptyPages(pages) = one { Some(pages) } else { None });
        let size = self.page_size;
        // Empty pages have offsets of their own, after the second page.
        let hole = empty_pages.map_or(0..0, |pages| 2 * size..2 * size + pages * size);
        let offset = arguments.offset;
        let is_hole = hole.contains(&offset);
        let first = if offset >= hole.end { offset - hole.len() } else { offset };
        let first = if self.has(Misbehaviour::Overlapping) && first > 0 { first - 1 } else { first };
        let page: Vec<_> = if is_hole { Vec::new() } else { selected.iter().skip(first).take(size).cloned().collect() };
        if page.is_empty() && !is_hole {
            return if self.has(Misbehaviour::EmptyElements) || (has_token && self.has(Misbehaviour::TokenToEmptyPage)) {
                self.envelope("<ListRecords></ListRecords>", has_token)
            } else {
                self.error("noRecordsMatch", "none")
            };
        }
        let mut next = offset + size;
        let end = selected.len() + hole.len();
        let mut is_last = next >= end;
        if self.has(Misbehaviour::TokenToEmptyPage) || self.has(Misbehaviour::TokenToNoRecords) {
            is_last = false;
        }
        if self.has(Misbehaviour::RepeatedPage) && offset >= 2 * size {
            (next, is_last) = (offset, false);
        }
        if self.has(Misbehaviour::Circle) && is_last {
            (next, is_last) = (0, false);
        }
        if self.has(Misbehaviour::EndsEarly) && offset >= 2 * size {
            is_last = true;
        }
        let announced = self.find(|one| if let Misbehaviour::Announces(size) = one { Some(size) } else { None });
        let announced = announced.unwrap_or(selected.len() as u64);
        let records: String = page
            .iter()
            .enumerate()
            .map(|(index, (identifier, record))| self.record(index, identifier, record))
            .map(|record| if self.lists_identifiers { header_of(&record) } else { record })
            .collect();
        let token = if is_last { String::new() } else { Arguments { offset: next, ..arguments.clone() }.token() };
        let token = match self.has(Misbehaviour::SpacedTokens) && !is_last {
            true => format!("\n  <![CDATA[{}]]>{}\n", &token[..3], escape(&token[3..])),
            false => escape(&token),
        };
        let verb = if self.lists_identifiers { "ListIdentifiers" } else { "ListRecords" };
        let list = format!(
            "<{verb}>{records}<resumptionToken completeListSize=\"{announced}\" cursor=\"{offset}\">{token}</resumptionToken></{verb}>"
        );
        self.envelope(&list, has_token)
    }

    fn record(&self, index: usize, identifier: &str, record: &ScriptedRecord) -> String {
        let mut xml = record_xml(identifier, record);
        let title = record.title.as_ref().map(|title| escape(title)).unwrap_or_default();
        if self.has(Misbehaviour::IllegalCharacters) {
            xml = xml.replace(&title, &format!("\u{1a}{title}&#xfffe;\u{0}&#55349;"));
        }
        if self.has(Misbehaviour::BareAmpersands) {
            // Titles end with "R&amp;D\u{A0}é".
            xml = xml.replace("R&amp;D\u{A0}é", "R&D&nbsp;&eacute;");
        }
        if self.has(Misbehaviour::OddDatestamps) {
            let date = time(record.datestamp);
            let odd = match index % 4 {
                0 => date.replace('Z', ".123Z"),
                1 => DateTime::from_timestamp(record.datestamp + 7200, 0)
                    .unwrap()
                    .format("%Y-%m-%dT%H:%M:%S+02:00")
                    .to_string(),
                2 => date.to_lowercase(),
                _ => String::new(),
            };
            xml = xml.replace(&date, &odd);
        }
        if self.has(Misbehaviour::DeletedWithMetadata) && record.title.is_none() {
            xml = xml
                .replace("\"deleted\"", "\"Deleted\"")
                .replace("</record>", &format!("{}</record>", metadata("old")));
        }
        if self.has(Misbehaviour::BrokenRecords) && index == 6 {
            let number: usize = identifier[identifier.len() - 5..].parse().unwrap();
            xml = match number / 10 % 3 {
                0 => format!("<record>{}</record>", &xml[8..xml.find("<metadata>").unwrap()]),
                1 => xml.replace("</metadata>", "<second/></metadata>"),
                _ => xml.replace(&title, "a < b"),
            };
        }
        xml
    }

    fn error(&mut self, code: &str, text: &str) -> ResponseTemplate {
        let status = if self.has(Misbehaviour::ErrorStatus) { 422 } else { 200 };
        self.envelope_with(status, &format!("<error code=\"{code}\">{text}</error>"), false)
    }

    pub(super) fn envelope(&mut self, content: &str, has_token: bool) -> ResponseTemplate {
        self.envelope_with(200, content, has_token)
    }

    fn envelope_with(&mut self, status: u16, content: &str, has_token: bool) -> ResponseTemplate {
        let encoding = if self.has(Misbehaviour::DeclaredLatin1) { "ISO-8859-1" } else { "UTF-8" };
        let text = format!(
            "<?xml version=\"1.0\" encoding=\"{encoding}\"?>\n<OAI-PMH xmlns=\"http://www.openarchives.org/OAI/2.0/\" \
             xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\"><responseDate>{}</responseDate>\
             <request>{}</request>{content}</OAI-PMH>",
            time(Utc::now().timestamp()),
            escape(&self.base_url)
        );
        let mut body = match self.has(Misbehaviour::DeclaredLatin1) || self.has(Misbehaviour::WrongEncoding) {
            true => text.chars().map(|c| u8::try_from(u32::from(c)).unwrap_or(b'?')).collect(),
            false => text.into_bytes(),
        };
        let truncated = self.find(|one| if let Misbehaviour::Truncated(times) = one { Some(times) } else { None });
        if has_token && self.fails(truncated) {
            body.truncate(body.len() * 2 / 3);
        }
        let mut response = ResponseTemplate::new(status);
        if self.has(Misbehaviour::GzipWithoutHeader) || (self.has(Misbehaviour::BrokenGzip) && self.accepts_gzip) {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(&body).unwrap();
            body = encoder.finish().unwrap();
        }
        if self.has(Misbehaviour::BrokenGzip) && self.accepts_gzip {
            body.truncate(body.len() / 2);
            response = response.insert_header("content-encoding", "gzip");
        }
        if self.has(Misbehaviour::GzipHeaderOnly) {
            response = response.insert_header("content-encoding", "gzip");
        }
        if self.has(Misbehaviour::ErrorStatus) {
            response = response.insert_header("retry-after", "59");
        }
        response.set_body_raw(body, "text/xml; charset=utf-8")
    }
}

/// Arguments of a list, and the number of its records that came before.
#[derive(Clone, Debug)]
struct Arguments {
    offset: usize,
    from: String,
    until: String,
    set: String,
}

impl Arguments {
    /// Returns a token with characters that need encoding.
    fn token(&self) -> String {
        let Self { offset, from, until, set } = self;
        format!("{offset}/{from}+{until}={set}!")
    }
}

fn parse_token(token: &str) -> Option<Arguments> {
    let (offset, rest) = token.strip_suffix('!')?.split_once('/')?;
    let (from, rest) = rest.split_once('+')?;
    let (until, set) = rest.split_once('=')?;
    Some(Arguments {
        offset: offset.parse().ok()?,
        from: from.to_owned(),
        until: until.to_owned(),
        set: set.to_owned(),
    })
}

/// Returns a well-formed record as XML.
pub(crate) fn record_xml(identifier: &str, record: &ScriptedRecord) -> String {
    let header = format!(
        "<header{}><identifier>{}</identifier><datestamp>{}</datestamp>{}</header>",
        if record.title.is_none() { " status=\"deleted\"" } else { "" },
        escape(identifier),
        time(record.datestamp),
        record.sets.iter().map(|set| format!("<setSpec>{set}</setSpec>")).collect::<String>()
    );
    let metadata = record.title.as_ref().map_or_else(String::new, |title| metadata(&escape(title)));
    format!("<record>{header}{metadata}{}</record>", record.about)
}

/// Returns the metadata. Each line of the title is a title of its own.
fn metadata(title: &str) -> String {
    let titles: String = title.split('\n').map(|title| format!("<dc:title>{title}</dc:title>")).collect();
    format!(
        "<metadata><oai_dc:dc xmlns:oai_dc=\"http://www.openarchives.org/OAI/2.0/oai_dc/\" \
         xmlns:dc=\"http://purl.org/dc/elements/1.1/\">{titles}</oai_dc:dc></metadata>"
    )
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

fn time(seconds: i64) -> String {
    DateTime::from_timestamp(seconds, 0).unwrap().to_rfc3339_opts(SecondsFormat::Secs, true)
}

/// Returns the header of a record.
fn header_of(record: &str) -> String {
    let end = "</header>";
    record[record.find("<header").unwrap()..record.find(end).unwrap() + end.len()].to_owned()
}
