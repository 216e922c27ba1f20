//! Continuation of a list after a failure: another attempt, another form of the request, or smaller lists.

use super::{
    harvest::{OaiPmhHarvester, first_window, later},
    position::{DateForm, Position, Window},
};
use crate::{
    format::oai_pmh::datestamp_of,
    harvest::{HarvestError, client::RequestError},
    model::Timestamp,
};

/// Number of attempts after which a list is divided or begins again.
pub(super) const ATTEMPTS_BEFORE_RESTART: u32 = 3;

/// Number of times that a list begins again before it is divided into windows.
const MAX_RESTARTS: u32 = 1;

/// Number of successive divisions of a list because the repository failed. It is probably not available then, whatever
/// the size of the list is.
const MAX_OUTAGES: u32 = 5;

impl OaiPmhHarvester {
    /// Decides about a request without a usable response.
    pub(super) fn after_failure(&self, mut position: Position, error: RequestError, attempt: u32) -> HarvestError {
        let reason = match error {
            RequestError::Compression(reason) if !position.quirks.no_compression => {
                position.quirks.no_compression = true;
                return HarvestError::Continue { reason, position: position.text() };
            }
            RequestError::TooLarge(reason) => reason,
            RequestError::Transient { reason, after } => {
                if attempt + 1 < ATTEMPTS_BEFORE_RESTART || after.is_some() {
                    return HarvestError::Retry { reason, after };
                }
                return self.after_outage(position, reason);
            }
            error => return error.into(),
        };
        self.divide(position, &reason)
    }

    /// Decides about an error of the protocol.
    pub(super) fn after_error(&self, mut position: Position, code: &str, text: &str, attempt: u32) -> HarvestError {
        let reason = format!("the repository answers with the error {code}: {text}");
        let Some(list) = &mut position.list else { return HarvestError::fail(reason) };
        let has_token = list.token.is_some();
        let token_needs_encoding = list.token.as_deref().is_some_and(|token| !token.bytes().all(is_unreserved));
        match code {
            "badArgument" if has_token && !list.tried_prefix => {
                list.tried_prefix = true;
                position.quirks.prefix_with_tokens = !position.quirks.prefix_with_tokens;
                HarvestError::Continue { reason, position: position.text() }
            }
            "badResumptionToken" | "noRecordsMatch" | "badArgument" if has_token => {
                if list.tried_prefix {
                    // The prefix was not the reason.
                    list.tried_prefix = false;
                    position.quirks.prefix_with_tokens = !position.quirks.prefix_with_tokens;
                }
                if token_needs_encoding && !list.tried_verbatim {
                    list.tried_verbatim = true;
                    position.quirks.verbatim_tokens = !position.quirks.verbatim_tokens;
                    return HarvestError::Continue { reason, position: position.text() };
                }
                if list.tried_verbatim {
                    // Neither form was accepted, so the form is not the reason.
                    position.quirks.verbatim_tokens = !position.quirks.verbatim_tokens;
                }
                self.divide(position, &reason)
            }
            "badArgument" if self.range(&position) != (None, None) => {
                position.quirks.dates = Some(match position.date_form() {
                    DateForm::Seconds => DateForm::Day,
                    DateForm::Day | DateForm::None => DateForm::None,
                });
                if position.date_form() == DateForm::None
                    && let Some(list) = &mut position.list
                {
                    list.window = None;
                }
                HarvestError::Continue { reason, position: position.text() }
            }
            "badVerb"
            | "badArgument"
            | "cannotDisseminateFormat"
            | "idDoesNotExist"
            | "noMetadataFormats"
            | "noSetHierarchy" => {
                // An administrator changes the settings, so the next run begins anew.
                position.list = None;
                HarvestError::Fail { reason, position: Some(position.text()) }
            }
            _ if attempt + 1 < ATTEMPTS_BEFORE_RESTART => HarvestError::retry(reason),
            _ => self.after_outage(position, reason),
        }
    }

    /// Divides a list at which the repository fails, a few times.
    fn after_outage(&self, mut position: Position, reason: String) -> HarvestError {
        match &mut position.list {
            Some(list) if list.outages < MAX_OUTAGES => {
                list.outages += 1;
                self.divide(position, &reason)
            }
            _ => HarvestError::fail(reason),
        }
    }

    /// Begins a list that cannot be continued again: once as it is, then in windows, and then in smaller windows. A
    /// window of one unit that still fails ends the run. The position stays there.
    fn divide(&self, mut position: Position, reason: &str) -> HarvestError {
        let unit = position.unit();
        let stays = position.text();
        let can_use_dates = position.date_form() != DateForm::None;
        let (from, identity) = (position.list_start(), position.identity.clone());
        let Some(list) = &mut position.list else { return HarvestError::fail(reason) };
        let was_in_middle = list.token.is_some();
        list.restart_list();
        let next = match list.window {
            _ if was_in_middle && list.restarts < MAX_RESTARTS => {
                list.restarts += 1;
                "the list begins again".to_owned()
            }
            _ if !can_use_dates => return HarvestError::Fail { reason: reason.to_owned(), position: Some(stays) },
            None => {
                let start =
                    from.or_else(|| identity.as_ref().and_then(|identity| datestamp_of(&identity.earliest_datestamp)));
                let age = start.map(|start| (Timestamp::now().millis() - start.millis()) / 2000);
                let Some(length) = age.filter(|length| *length >= unit) else {
                    return HarvestError::Fail { reason: reason.to_owned(), position: Some(stays) };
                };
                list.restarts = 0;
                list.window = match from {
                    Some(from) => Some(Window { from: Some(from), until: Some(later(from, length)), seconds: length }),
                    None => identity.as_ref().and_then(|identity| first_window(identity, length)),
                };
                format!("the list is divided into windows of {length} seconds")
            }
            Some(Window { from, seconds, .. }) if seconds > unit => {
                let length = (seconds / 2).max(unit);
                list.restarts = 0;
                list.window = match from {
                    Some(from) => Some(Window { from: Some(from), until: Some(later(from, length)), seconds: length }),
                    None => identity.as_ref().and_then(|identity| first_window(identity, length)),
                };
                format!("the window is halved to {length} seconds")
            }
            Some(Window { from, until, .. }) => {
                let part = match (from, until) {
                    (Some(from), Some(until)) => format!("those from {from} until {until}"),
                    (Some(from), None) => format!("those since {from}"),
                    (None, Some(until)) => format!("those until {until}"),
                    (None, None) => "all of them".to_owned(),
                };
                let advice = if was_in_middle {
                    "; if it refuses its own tokens, it may keep them for a session or a short time only: tell its \
                     administrators"
                } else {
                    ""
                };
                let reason = format!("{reason}; the list of the records was divided down to {part}{advice}");
                return HarvestError::Fail { reason, position: Some(stays) };
            }
        };
        HarvestError::Continue { reason: format!("{reason}; {next}"), position: position.text() }
    }
}

/// Returns whether a character of a token is the same with and without encoding.
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}
