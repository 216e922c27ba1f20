//! `/oai`: the registry as a repository with OAI-PMH 2.0, the protocol for metadata harvesting.
//!
//! A record is an object with its items ([`record`]). Its datestamp is the time at which the gateway accepted the newest facts
//! about it ([`acceptance`](crate::journal::acceptance)). `docs/oai-pmh.md` has the requirements of the protocol, each with
//! the test that shows it.
//!
//! * `arguments` parses requests, and `document` writes the envelope of responses;
//! * `answer` decides about the response to a request;
//! * `catalogue` has the formats and sets that the repository offers, and `descriptions` the formats of kept records;
//! * `list` writes pages of records, whose state is in a `token`;
//! * `set` and `set_lists` are the sets; `schemas` serves the schemas of the formats.

mod answer;
mod arguments;
mod catalogue;
mod descriptions;
mod document;
mod error;
mod list;
mod record;
pub mod schemas;
mod set;
mod set_lists;
mod token;

use std::{sync::Arc, time::Duration};

use axum::{
    extract::{RawQuery, State},
    http::{
        HeaderMap, Method,
        header::{CONTENT_TYPE, IF_NONE_MATCH},
    },
    response::Response,
};
use serde::Deserialize;
use tokio::sync::{OnceCell, Semaphore};

pub use self::set::ConfiguredSet;
use self::{
    answer::Request,
    arguments::Arguments,
    catalogue::Catalogue,
    descriptions::FormatDescriptions,
    error::{ErrorCode, OaiError},
    set_lists::SetLists,
};
use super::registry_view::RegistryView;
use crate::{
    files::FileStore,
    format::{Limits, oai_pmh::kept_record::KeptRecords},
    journal::Journal,
    web::{Body, Problem, ProblemCode, ReadPermit, Spool, problems},
};

/// Media type of POST requests (section 3.1.1.2).
const FORM: &str = "application/x-www-form-urlencoded";

/// Time after which a harvester may try again if too many requests are served: few harvesters can wait for less.
const RETRY_AFTER: Duration = Duration::from_secs(10);

named_values! {
    /// Support for deleted records, which `Identify` declares (section 2.5.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum DeletedRecords {
        /// All lists have deleted records.
        Persistent = "persistent",
        /// Lists without `from` and `until` have none.
        Transient = "transient",
    }
}

named_values! {
    /// Identifiers of kept records, in the formats of their repositories.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum IdentifierKind {
        /// URI of the object.
        #[default]
        Uri = "uri",
        /// Identifier in the repository.
        Original = "original",
    }
}

/// Settings of the repository.
#[derive(Clone, Debug)]
pub struct OaiPmhSettings {
    /// Name of the repository.
    pub repository_name: String,
    /// E-mail address of its administrator.
    pub admin_email: String,
    /// Number of records on a page.
    pub page: usize,
    /// Support for deleted records.
    pub deleted: DeletedRecords,
    /// Maximum number of requests that are served at the same time.
    pub requests: usize,
    /// Identifiers of kept records.
    pub identifiers: IdentifierKind,
    /// Limits on the form of kept records.
    pub limits: Limits,
    /// Sets of the configuration.
    pub sets: Arc<[ConfiguredSet]>,
}

/// Lists the records that harvests keep at present.
pub type ListKeptRecords = Arc<dyn Fn() -> Vec<KeptRecords> + Send + Sync>;

/// The repository. Clones share it.
#[derive(Clone)]
pub struct OaiPmh(Arc<Repository>);

struct Repository {
    journal: Journal,
    spool: Spool,
    base_url: String,
    settings: OaiPmhSettings,
    places: Semaphore,
    sets: SetLists,
    descriptions: FormatDescriptions,
    kept: ListKeptRecords,
    files: Option<FileStore>,
    /// Key of the tokens, once it was needed.
    key: OnceCell<[u8; 16]>,
}

impl OaiPmh {
    /// Creates the repository of a journal. `files` has the records that harvests keep.
    #[must_use]
    pub fn new(
        (journal, spool): (Journal, Spool),
        (files, kept): (Option<FileStore>, ListKeptRecords),
        public_url: &str,
        settings: OaiPmhSettings,
    ) -> Self {
        Self(Arc::new(Repository {
            journal,
            spool,
            base_url: format!("{public_url}/oai"),
            places: Semaphore::new(settings.requests),
            settings,
            sets: SetLists::default(),
            descriptions: FormatDescriptions::default(),
            kept,
            files,
            key: OnceCell::new(),
        }))
    }

    async fn serve(
        &self,
        permit: &ReadPermit,
        arguments: Result<Arguments, Vec<OaiError>>,
        method: &Method,
        headers: &HeaderMap,
    ) -> Result<Response, Problem> {
        let sight = RegistryView::of(permit)?;
        let Ok(_place) = self.0.places.try_acquire() else {
            let detail = format!(
                "{} requests of OAI-PMH are being served. Wait for the time of Retry-After.",
                self.0.settings.requests
            );
            return Err(Problem::new(ProblemCode::Unavailable, detail).retry_after(RETRY_AFTER));
        };
        let request = Request { repository: Arc::clone(&self.0), sight, arguments };
        Ok(request.answer(headers).await?.respond(method, headers))
    }
}

impl Repository {
    /// Returns what the repository offers at present.
    fn catalogue(&self) -> Catalogue {
        let OaiPmhSettings { identifiers, limits, sets, .. } = &self.settings;
        Catalogue::new((self.kept)(), self.files.clone(), (*identifiers, *limits), Arc::clone(sets))
    }
}

/// Returns the repository, if it is configured.
fn configured(repository: Option<OaiPmh>) -> Result<OaiPmh, Problem> {
    repository.ok_or_else(|| {
        let detail = "This gateway is no repository with OAI-PMH: oai_pmh.admin_email is not set, and each response to \
                      Identify contains the address.";
        Problem::new(ProblemCode::NotFound, detail)
    })
}

/// Arguments of a request (section 4).
#[derive(Deserialize, utoipa::IntoParams, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
#[schema(as = OaiPmhArguments)]
#[expect(dead_code, reason = "errors in arguments are part of the protocol; this describes them")]
struct ArgumentList {
    /// `Identify`, `ListMetadataFormats`, `ListSets`, `ListIdentifiers`, `ListRecords` or `GetRecord`.
    #[param(required = false)]
    verb: Option<String>,
    /// URI of an object, or identifier of a kept record in its repository.
    #[param(required = false)]
    identifier: Option<String>,
    /// `oai_dc`, `content-change`, or a format in which harvests keep their records.
    #[param(required = false)]
    metadata_prefix: Option<String>,
    /// Date from which on the records have changed, as in `2026-11-29` or `2026-11-29T08:49:37Z`.
    #[param(required = false)]
    from: Option<String>,
    /// Date until which the records have changed, in the same form.
    #[param(required = false)]
    until: Option<String>,
    /// Set of the records.
    #[param(required = false)]
    set: Option<String>,
    /// Token of the page before, without other arguments than `verb`.
    #[param(required = false)]
    resumption_token: Option<String>,
}

problems!(GetProblems: NotFound, Unavailable);
problems!(PostProblems: NotFound, BadRequest, BodyTooLarge, UnsupportedEncoding, Unavailable);

/// The registry as a repository with OAI-PMH 2.0. Errors of the protocol are part of its responses.
///
/// # Errors
/// `not-found` if the repository is not configured; `unavailable`, with `Retry-After`, if too many requests are being served or
/// the journal cannot be read.
#[utoipa::path(
    get,
    path = "/oai",
    operation_id = "getOaiPmh",
    tag = "out",
    params(ArgumentList),
    responses(
        (status = 200, description = "The response.", body = String, content_type = "text/xml"),
        (status = 304, description = "Not modified."),
        GetProblems,
    ),
)]
pub async fn get(
    State(repository): State<Option<OaiPmh>>,
    permit: ReadPermit,
    method: Method,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let arguments = Arguments::parse(query.unwrap_or_default().as_bytes());
    configured(repository)?.serve(&permit, arguments, &method, &headers).await
}

/// The registry as a repository with OAI-PMH 2.0, with the arguments as a form. Arguments in the query are illegal.
///
/// # Errors
/// As the same request with GET; `body-too-large`; `bad-request`; `unsupported-encoding`.
#[utoipa::path(
    post,
    path = "/oai",
    operation_id = "postOaiPmh",
    tag = "out",
    request_body(content = ArgumentList, content_type = "application/x-www-form-urlencoded"),
    responses((status = 200, description = "The response.", body = String, content_type = "text/xml"), PostProblems),
)]
pub async fn post(
    State(repository): State<Option<OaiPmh>>,
    permit: ReadPermit,
    method: Method,
    mut headers: HeaderMap,
    RawQuery(query): RawQuery,
    Body(body): Body,
) -> Result<Response, Problem> {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let is_form = content_type.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(FORM);
    let bad = |text: String| Err(vec![OaiError::new(ErrorCode::BadArgument, text)]);
    let arguments = if query.is_some_and(|query| !query.is_empty()) {
        bad("The arguments of a POST request are in its body, and not in its URL.".to_owned())
    } else if is_form {
        Arguments::parse(&body)
    } else {
        bad(format!("The body of a POST request is {FORM}."))
    };
    headers.remove(IF_NONE_MATCH);
    configured(repository)?.serve(&permit, arguments, &method, &headers).await
}
