//! Sets and metadata formats of a repository, for people who set up a harvest, and for remarks.

use std::{path::Path, time::Duration};

pub use super::response::{FormatDescription, SetDescription};
use super::{
    ListVerb, OaiPmhSettings, RecordKeeping,
    client::{Arguments, ReadResponse, RepositoryClient},
    position::Quirks,
};
use crate::{
    harvest::{
        SharedClients, Timeouts,
        client::{ClientContext, RequestError},
    },
    http_client::{ClientError, InvalidOutboundUrl, OutboundPolicy, OutboundUrl},
    transfer::{HarvestBudget, Hosts},
};

/// Maximum number of sets that are read. A repository with more has sets for its machines and not for people.
const MAX_SETS: usize = 100_000;

/// Maximum number of pages of sets.
const MAX_PAGES: usize = 1000;

/// Number of attempts of a request of [`Repository`].
const ATTEMPTS: u32 = 3;

/// Maximum wait before a request of [`Repository`] is repeated; a repository that asks for a longer one is not waited for.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Wait before a request is repeated if the repository asks for none.
const WAIT: Duration = Duration::from_secs(1);

/// Timeouts of the requests of [`Repository`], for which a person waits.
const TIMEOUTS: Timeouts = Timeouts {
    response: Duration::from_secs(60),
    idle: Duration::from_secs(30),
    page: Duration::from_secs(5 * 60),
    busy: Duration::from_secs(5),
};

/// Maximum size of a response for [`Repository`], in bytes.
const PAGE_BYTES: usize = 32 << 20;

/// Reason why the catalogue of a repository cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CatalogueError {
    /// The URL is not one of a repository.
    #[error("it is not the base URL of a repository: {0}")]
    Url(#[from] InvalidOutboundUrl),
    /// The URL has the parameters of a request.
    #[error("it has the parameter verb; give the base URL, without the parameters of a request")]
    Verb,
    /// The HTTP client cannot be set up.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The repository has no usable answer.
    #[error("{0}")]
    Answer(String),
}

/// Repository that a person asks for its sets and formats. It needs no gateway.
pub struct Repository(RepositoryClient);

impl Repository {
    /// Sets up requests to the base URL of a repository, with the user in it. It sends no request yet.
    ///
    /// # Errors
    /// Fails if the text is not a base URL, or the HTTP client cannot be set up.
    pub async fn at(url: &str, temporary: &Path) -> Result<Self, CatalogueError> {
        let url = OutboundUrl::parse(url, &OutboundPolicy::unrestricted())?;
        if url.expose().query_pairs().any(|(name, _)| name == "verb") {
            return Err(CatalogueError::Verb);
        }
        let settings = OaiPmhSettings {
            url,
            ca: None,
            contact: None,
            formerly: None,
            secret_parameters: Vec::new(),
            metadata_prefix: String::new(),
            sets: Vec::new(),
            overlap: None,
            window: None,
            list: ListVerb::default(),
            full_every: None,
            max_deleted_percent: 0,
            records: RecordKeeping::Registry,
            total_bytes: 0,
            page_bytes: PAGE_BYTES,
            timeouts: TIMEOUTS,
        };
        Self::of(&settings, temporary).await
    }

    /// Sets up requests to the repository of a harvest. Bodies are kept in the folder `temporary` while they arrive.
    ///
    /// # Errors
    /// Fails if the HTTP client cannot be set up.
    pub async fn of(settings: &OaiPmhSettings, temporary: &Path) -> Result<Self, CatalogueError> {
        let settings = OaiPmhSettings { timeouts: TIMEOUTS, ..settings.clone() };
        let context = ClientContext {
            hosts: Hosts::default(),
            budget: HarvestBudget::new(4 * PAGE_BYTES, temporary),
            clients: SharedClients::default(),
            is_configured: true,
            redirects: OutboundPolicy::restricted(Default::default()),
            file_policy: OutboundPolicy::unrestricted(),
            max_record_bytes: PAGE_BYTES,
        };
        Ok(Self(RepositoryClient::new(&settings, context).await?))
    }

    /// Returns the sets, in the order of the repository; none if it has no sets.
    ///
    /// # Errors
    /// Fails if the repository has no usable answer after several attempts.
    pub async fn sets(&self) -> Result<Vec<SetDescription>, CatalogueError> {
        self.0.sets(Quirks::default(), ATTEMPTS).await.map_err(|error| CatalogueError::Answer(reason_of(error)))
    }

    /// Returns the metadata formats, in the order of the repository.
    ///
    /// # Errors
    /// As [`Repository::sets`].
    pub async fn formats(&self) -> Result<Vec<FormatDescription>, CatalogueError> {
        let arguments = Arguments { verb: "ListMetadataFormats", others: Vec::new(), verbatim: None };
        let read = self.0.request_again(&arguments, Quirks::default(), ATTEMPTS).await;
        let response = read.map_err(|error| CatalogueError::Answer(reason_of(error)))?.response;
        match response.errors.first() {
            Some((code, text)) => Err(CatalogueError::Answer(protocol_error(arguments.verb, code, text))),
            None => Ok(response.formats),
        }
    }
}

impl RepositoryClient {
    /// Requests all sets, page after page; none if the repository has no sets. Each request has so many attempts.
    pub(super) async fn sets(&self, mut quirks: Quirks, attempts: u32) -> Result<Vec<SetDescription>, RequestError> {
        let (mut sets, mut token, mut tried_verbatim): (Vec<_>, Option<String>, _) = (Vec::new(), None, false);
        let permanent = |reason: &str| RequestError::Permanent(reason.to_owned());
        for _ in 0..MAX_PAGES {
            let mut arguments = Arguments { verb: "ListSets", others: Vec::new(), verbatim: None };
            match token.as_deref() {
                Some(token) if quirks.verbatim_tokens => arguments.verbatim = Some(("resumptionToken", token)),
                Some(token) => arguments.others.push(("resumptionToken", token)),
                None => {}
            }
            let response = self.request_again(&arguments, quirks, attempts).await?.response;
            match response.errors.first() {
                Some((code, _)) if code == "noSetHierarchy" && token.is_none() => return Ok(Vec::new()),
                Some((code, _)) if code != "badVerb" && token.is_some() && !tried_verbatim => {
                    tried_verbatim = true;
                    quirks.verbatim_tokens = !quirks.verbatim_tokens;
                    continue;
                }
                Some((code, text)) => return Err(RequestError::Permanent(protocol_error(arguments.verb, code, text))),
                None => {}
            }
            let is_circle = response.token.is_some() && response.token == token;
            sets.extend(response.sets);
            if sets.len() > MAX_SETS {
                return Err(RequestError::Permanent(format!("the repository has more than {MAX_SETS} sets")));
            }
            if is_circle {
                return Err(permanent("the list of sets does not end: a page leads to itself"));
            }
            (token, tried_verbatim) = (response.token, false);
            if token.is_none() {
                return Ok(sets);
            }
        }
        Err(RequestError::Permanent(format!("the list of sets has more than {MAX_PAGES} pages")))
    }

    /// Sends a request, and repeats it after a passing failure.
    async fn request_again(
        &self,
        arguments: &Arguments<'_>,
        mut quirks: Quirks,
        attempts: u32,
    ) -> Result<ReadResponse, RequestError> {
        let mut failures = 0;
        loop {
            let wait = match self.request(arguments, quirks).await {
                Err(RequestError::Compression(_)) if !quirks.no_compression => {
                    quirks.no_compression = true;
                    continue;
                }
                Err(RequestError::Transient { reason, after }) => {
                    failures += 1;
                    let wait = after.unwrap_or(WAIT);
                    if failures >= attempts || wait > LONGEST_WAIT {
                        return Err(RequestError::Transient { reason, after });
                    }
                    wait
                }
                result => return result,
            };
            tokio::time::sleep(wait).await;
        }
    }
}

fn protocol_error(verb: &str, code: &str, text: &str) -> String {
    format!("the repository answers {verb} with the error {code}: {text}")
}

fn reason_of(error: RequestError) -> String {
    match error {
        RequestError::Transient { reason, after: Some(after) } => {
            format!("{reason}; it asks to wait for {} seconds", after.as_secs())
        }
        RequestError::Transient { reason, after: None }
        | RequestError::Compression(reason)
        | RequestError::TooLarge(reason)
        | RequestError::Permanent(reason) => reason,
    }
}
