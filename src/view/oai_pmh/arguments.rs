//! Arguments of a request: which are allowed, and in which form (sections 3.1.1, 3.6 and 4 of the protocol).

use chrono::{NaiveDate, NaiveDateTime, NaiveTime};

use super::error::{ErrorCode, OaiError};
use crate::{journal::acceptance::AcceptanceTime, model::Timestamp};

/// Seconds of a day.
const DAY_SECONDS: i64 = 24 * 60 * 60;

/// Maximum size of all arguments, in bytes. The largest legal ones are a token and its verb.
const MAX_BYTES: usize = 64 << 10;

/// Maximum number of errors in a response. A request can have any number of illegal arguments.
const MAX_ERRORS: usize = 16;

named_values! {
    /// Request of the protocol.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum Verb {
        Identify = "Identify",
        ListMetadataFormats = "ListMetadataFormats",
        ListSets = "ListSets",
        ListIdentifiers = "ListIdentifiers",
        ListRecords = "ListRecords",
        GetRecord = "GetRecord",
    }
}

/// Arguments that a verb requires, and that it allows.
fn arguments_of(verb: Verb) -> (&'static [&'static str], &'static [&'static str]) {
    match verb {
        Verb::Identify => (&[], &[]),
        Verb::ListMetadataFormats => (&[], &["identifier"]),
        Verb::ListSets => (&[], &["resumptionToken"]),
        Verb::ListIdentifiers | Verb::ListRecords => {
            (&["metadataPrefix"], &["metadataPrefix", "from", "until", "set", "resumptionToken"])
        }
        Verb::GetRecord => (&["identifier", "metadataPrefix"], &["identifier", "metadataPrefix"]),
    }
}

/// A request with legal arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Arguments {
    pub(super) verb: Verb,
    /// The arguments as received, in the order of the request, for the element `request`.
    pub(super) received: Vec<(String, String)>,
}

impl Arguments {
    /// Parses the query of a GET request, or the body of a POST request.
    ///
    /// # Errors
    /// All errors, at most [`MAX_ERRORS`].
    pub(super) fn parse(form: &[u8]) -> Result<Self, Vec<OaiError>> {
        if form.len() > MAX_BYTES {
            let text = format!("The arguments have more than {MAX_BYTES} bytes.");
            return Err(vec![OaiError::new(ErrorCode::BadArgument, text)]);
        }
        let received: Vec<(String, String)> =
            url::form_urlencoded::parse(form).map(|(name, value)| (name.into_owned(), value.into_owned())).collect();
        let mut verbs = received.iter().filter(|(name, _)| name == "verb").map(|(_, value)| value.as_str());
        let verb = match (verbs.next(), verbs.next()) {
            (Some(name), None) => Verb::ALL.into_iter().find(|verb| verb.name() == name).ok_or("unknown"),
            (Some(_), Some(_)) => Err("repeated"),
            (None, _) => Err("missing"),
        };
        let verb = verb.map_err(|how| {
            let names = Verb::ALL.map(Verb::name).join(", ");
            vec![OaiError::new(ErrorCode::BadVerb, format!("The argument verb is {how}; give one of {names}."))]
        })?;
        let parsed = Self { verb, received };
        let errors = parsed.errors();
        if errors.is_empty() { Ok(parsed) } else { Err(errors) }
    }

    fn errors(&self) -> Vec<OaiError> {
        let (required, allowed) = arguments_of(self.verb);
        let bad = |text: String| OaiError::new(ErrorCode::BadArgument, text);
        let mut errors = Vec::new();
        let mut seen: Vec<&str> = Vec::new();
        for (name, value) in self.received.iter().filter(|(name, _)| name != "verb") {
            if errors.len() >= MAX_ERRORS {
                break;
            }
            if !allowed.contains(&name.as_str()) {
                let name = crate::text::line(name, 80);
                errors.push(bad(format!("The argument \"{name}\" is not one of {}.", self.verb.name())));
            } else if seen.contains(&name.as_str()) {
                errors.push(bad(format!("The argument {name} is repeated.")));
            } else if let Some(reason) = syntax_error(name, value) {
                errors.push(bad(format!("The argument {name} {reason}.")));
            }
            seen.push(name);
        }
        let has_token = self.get("resumptionToken").is_some();
        if has_token && self.received.len() > 2 {
            errors.push(bad("A resumptionToken excludes all other arguments.".to_owned()));
        }
        let lacking = required.iter().filter(|name| !has_token && self.get(name).is_none());
        errors.extend(lacking.map(|name| bad(format!("The argument {name} is missing."))));
        if errors.is_empty()
            && let Err(reason) = self.window()
        {
            errors.push(bad(reason));
        }
        errors
    }

    /// Returns the value of an argument.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.received.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    /// Returns the begin and the end of the selected time, the latter not included.
    ///
    /// # Errors
    /// The reason why `from` and `until` are illegal.
    pub(super) fn window(&self) -> Result<(Option<AcceptanceTime>, Option<AcceptanceTime>), String> {
        let date = |name: &str| self.get(name).and_then(RequestDate::parse);
        let (from, until) = (date("from"), date("until"));
        if let (Some(from), Some(until)) = (from, until) {
            if from.is_day != until.is_day {
                return Err("The arguments from and until have different granularities.".to_owned());
            }
            if from.begin > until.begin {
                return Err("The argument from is later than until.".to_owned());
            }
        }
        Ok((from.map(|from| from.begin), until.map(RequestDate::end)))
    }
}

/// Returns what is wrong with the syntax of a value. The schema of the protocol has the same patterns.
fn syntax_error(name: &str, value: &str) -> Option<&'static str> {
    let is_unreserved = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.!~*'()".contains(&byte))
    };
    match name {
        "metadataPrefix" if !is_unreserved(value) => Some("is not a prefix of a metadata format"),
        "set" if !value.split(':').all(is_unreserved) => Some("is not a setSpec"),
        "from" | "until" if RequestDate::parse(value).is_none() => {
            Some("is not a date as in 2026-11-29 or 2026-11-29T08:49:37Z")
        }
        _ => None,
    }
}

/// Date of a request, in one of the two granularities.
#[derive(Clone, Copy, Debug)]
struct RequestDate {
    begin: AcceptanceTime,
    is_day: bool,
}

impl RequestDate {
    /// Parses one of the two legal forms (section 3.3).
    fn parse(text: &str) -> Option<Self> {
        let is_like = |pattern: &str| {
            text.len() == pattern.len()
                && text.bytes().zip(pattern.bytes()).all(|(byte, expected)| match expected {
                    b'0' => byte.is_ascii_digit(),
                    expected => byte == expected,
                })
        };
        let time = if is_like("0000-00-00") {
            NaiveDate::parse_from_str(text, "%Y-%m-%d").ok()?.and_time(NaiveTime::MIN)
        } else if is_like("0000-00-00T00:00:00Z") {
            NaiveDateTime::parse_from_str(text, "%Y-%m-%dT%H:%M:%SZ").ok()?
        } else {
            return None;
        };
        let millis = time.and_utc().timestamp().checked_mul(1000)?;
        let begin = AcceptanceTime::from(Timestamp::from_millis(millis)?);
        Some(Self { begin, is_day: text.len() == "0000-00-00".len() })
    }

    /// Returns the end of the second, or of the day.
    fn end(self) -> AcceptanceTime {
        let seconds = if self.is_day { DAY_SECONDS } else { 1 };
        AcceptanceTime(self.begin.0.saturating_add(seconds.saturating_mul(1_000_000)))
    }
}

#[cfg(test)]
mod tests {
    use super::{AcceptanceTime, Arguments, ErrorCode};

    fn codes(query: &str) -> Vec<ErrorCode> {
        Arguments::parse(query.as_bytes()).err().unwrap_or_default().iter().map(|error| error.code).collect()
    }

    #[test]
    fn arguments_are_those_of_the_protocol() {
        use ErrorCode::{BadArgument, BadVerb};
        for query in ["", "verb=", "verb=identify", "verb=Identify&verb=Identify", "junk", "metadataPrefix=oai_dc"] {
            assert_eq!(codes(query), [BadVerb], "{query}");
        }
        for query in [
            "verb=Identify&set=a",
            "verb=GetRecord&identifier=urn:a",
            "verb=GetRecord&metadataPrefix=oai_dc",
            "verb=ListRecords",
            "verb=ListRecords&metadataPrefix=oai_dc&metadataPrefix=oai_dc",
            "verb=ListRecords&metadataPrefix=a%20b",
            "verb=ListRecords&metadataPrefix=",
            "verb=ListRecords&metadataPrefix=oai_dc&resumptionToken=a",
            "verb=ListSets&resumptionToken=a&resumptionToken=b",
            "verb=ListRecords&metadataPrefix=oai_dc&set=a::b",
            "verb=ListRecords&metadataPrefix=oai_dc&from=2026-11",
            "verb=ListRecords&metadataPrefix=oai_dc&from=2026-11-31",
            "verb=ListRecords&metadataPrefix=oai_dc&from=2026-11-29T08:49:37",
            "verb=ListRecords&metadataPrefix=oai_dc&from=2026-11-29T08:49:37.5Z",
            "verb=ListRecords&metadataPrefix=oai_dc&until=+026-11-29",
            "verb=ListRecords&metadataPrefix=oai_dc&from=2026-11-29&until=2026-11-29T08:49:37Z",
            "verb=ListRecords&metadataPrefix=oai_dc&from=2026-11-29&until=2026-11-28",
        ] {
            assert!(codes(query).contains(&BadArgument), "{query}: {:?}", codes(query));
        }
        assert_eq!(codes("verb=GetRecord&x=1&y=2").len(), 4);
        let many = "&x=1".repeat(1000);
        assert!(codes(&format!("verb=Identify{many}")).len() <= 16);
        let long = "x".repeat(70_000);
        assert_eq!(codes(&format!("verb=GetRecord&metadataPrefix=oai_dc&identifier=urn:{long}")), [BadArgument]);
        for query in [
            "verb=Identify",
            "metadataPrefix=oai_dc&verb=ListRecords",
            "verb=ListRecords&metadataPrefix=oai_dc&from=2026-11-29&until=2026-11-29&set=a:b",
            "verb=ListRecords&resumptionToken=a%2Bb",
            "verb=GetRecord&metadataPrefix=x&identifier=any%20thing",
        ] {
            assert_eq!(codes(query), [], "{query}");
        }
    }

    #[test]
    fn window_includes_both_ends() {
        let window = |dates: &str| {
            let query = format!("verb=ListRecords&metadataPrefix=oai_dc{dates}");
            Arguments::parse(query.as_bytes()).unwrap().window().unwrap()
        };
        let day = 24 * 60 * 60 * 1_000_000;
        let time = |micros| Some(AcceptanceTime(micros));
        assert_eq!(window(""), (None, None));
        assert_eq!(window("&from=1970-01-02&until=1970-01-02"), (time(day), time(2 * day)));
        let seconds = "&from=1970-01-02T00:00:01Z&until=1970-01-02T00:00:01Z";
        assert_eq!(window(seconds), (time(day + 1_000_000), time(day + 2_000_000)));
    }
}
