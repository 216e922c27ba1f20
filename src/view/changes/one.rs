//! `GET /changes/{id}`: one change, by its identifier or number, in the format that the client accepts.

use std::{io::Write, sync::Arc};

use axum::{
    extract::State,
    http::{HeaderMap, Method},
    response::Response,
};

use super::{
    super::{gone, html, journal_problem, store_problem},
    Changes, html as change_html,
};
use crate::{
    format::FORMATS,
    journal::RecordedChange,
    model::{Change, ChangeId, Filter, Seq},
    web::{
        CachePolicy, DocumentWriter, Path, Problem, ProblemCode, ReadPermit, Spool, negotiated_media_type, problems,
        spool_problem,
    },
};

problems!(OneProblems: NotFound, Gone, NotAcceptable, Unavailable, DamagedChange);

/// Name of a change in a request.
#[derive(Clone, Copy)]
enum ChangeName {
    Id(ChangeId),
    Number(Seq),
}

impl ChangeName {
    fn parse(name: &str) -> Option<Self> {
        let is_number = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
        let number = || name.parse().ok().filter(|_| is_number).map(|number| Self::Number(Seq(number)));
        number().or_else(|| ChangeId::parse(name).ok().map(Self::Id))
    }

    /// Returns the change with this name as the reader sees it.
    fn visible_change(self, recorded: &Arc<RecordedChange>, filter: &Filter) -> Result<Arc<RecordedChange>, Problem> {
        let visible = recorded.filtered(filter).map_err(store_problem)?;
        visible.ok_or_else(|| match self {
            Self::Id(id) => unknown_id(&id.to_string()),
            Self::Number(seq) => {
                let detail = format!("You may see no change with the number {seq}.");
                Problem::new(ProblemCode::NotFound, detail)
            }
        })
    }

    /// Returns the cache policy of the change under this name. The identifier names one change for ever, but after a
    /// restore or a failover the number may be that of another.
    fn cache_policy(self) -> CachePolicy {
        match self {
            Self::Id(_) => CachePolicy::Immutable,
            Self::Number(_) => CachePolicy::Revalidate,
        }
    }
}

impl Changes {
    /// Returns the change with this identifier or number, for readers of the whole journal.
    ///
    /// # Errors
    /// `not-found`; `gone`; `unavailable` if the journal cannot be read.
    pub async fn find(&self, name: &str) -> Result<Arc<RecordedChange>, Problem> {
        self.named(ChangeName::parse(name).ok_or_else(|| unknown_id(name))?).await
    }

    async fn named(&self, name: ChangeName) -> Result<Arc<RecordedChange>, Problem> {
        match name {
            ChangeName::Id(id) => {
                let change = self.journal.by_id(id).await.map_err(journal_problem)?;
                change.ok_or_else(|| unknown_id(&id.to_string()))
            }
            ChangeName::Number(seq) => self.numbered(seq).await,
        }
    }

    async fn numbered(&self, seq: Seq) -> Result<Arc<RecordedChange>, Problem> {
        let (first, head) = (self.journal.first(), self.journal.head());
        if seq == Seq::ZERO || seq > head {
            let newest = if head == Seq::ZERO { "it is empty".to_owned() } else { format!("the newest is {head}") };
            let detail = format!("The journal has no change with the number {seq}: {newest}.");
            return Err(Problem::new(ProblemCode::NotFound, detail));
        }
        if seq < first {
            return Err(gone(Seq(seq.0 - 1), first));
        }
        let newest = self.journal.before_within(seq.next(), 1, 1).await.map_err(journal_problem)?;
        newest.into_iter().find(|change| change.seq() == seq).ok_or_else(|| {
            let detail = format!("There is no change with the number {seq}: a restore from a backup skipped it.");
            Problem::new(ProblemCode::NotFound, detail)
        })
    }
}

fn unknown_id(name: &str) -> Problem {
    let name: String = name.chars().take(64).collect();
    let detail = format!(
        "The journal has no change with the identifier {name:?}. GET /changes lists all changes; a change is found by its \
         identifier, a UUID, or by its number."
    );
    Problem::new(ProblemCode::NotFound, detail)
}

/// One change as an Atom feed (the message of version 0.1), JSON, the model's XML, a CloudEvent, an ActivityStreams 2
/// activity, or a page for people, depending on `Accept`. The change never changes.
///
/// # Errors
/// `not-found`; `gone` if the number is that of a change that has been removed; `not-acceptable`; `damaged-change`;
/// `unavailable` if the journal cannot be read.
#[utoipa::path(
    get,
    path = "/changes/{id}",
    operation_id = "getChange",
    tag = "out",
    params(
        ("id" = String, Path, description = "Identifier of the change (a UUID, or `urn:uuid:` and a UUID) or its number."),
    ),
    responses(
        (status = 200, description = "The change.", content(
            (String = "application/atom+xml"), (Change = "application/json"), (String = "application/xml"),
            (Value = "application/cloudevents+json"), (Value = "application/activity+json"), (String = "text/html"),
        )),
        (status = 304, description = "Not modified."),
        OneProblems,
    ),
)]
pub async fn change(
    State(view): State<Changes>,
    permit: ReadPermit,
    Path(name): Path<String>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let formats = || FORMATS.iter().copied().filter(|format| format.is_self_contained());
    let offered: Vec<_> = formats().map(|format| format.media_type).chain([html::HTML]).collect();
    let chosen = negotiated_media_type(&headers, &offered)?;
    let name = ChangeName::parse(&name).ok_or_else(|| unknown_id(&name))?;
    let page_permit = view.readers.spool().page_permit().await;
    let recorded = view.named(name).await?;
    // A change that the reader may not see is as unknown as one that does not exist.
    let filter = Filter { view: permit.view().cloned(), ..Filter::default() };
    let format = formats().find(|format| format.media_type == chosen);
    let spool = view.readers.spool().clone();
    if chosen == html::HTML {
        let head = view.journal.head();
        let write = move || {
            let visible = name.visible_change(&recorded, &filter)?;
            change_html::page(&spool, visible.change().map_err(store_problem)?, head, &permit)
        };
        let page = Spool::blocking(page_permit, write).await?;
        return Ok(html::respond(&page, &method, &headers));
    }
    let write = move || {
        let visible = name.visible_change(&recorded, &filter)?;
        let change = visible.change().map_err(store_problem)?;
        let body = format.map(|format| (format.write)(change)).unwrap_or_default();
        let mut document = DocumentWriter::new(&spool);
        document.write_all(&body).map_err(spool_problem)?;
        let document = document.finish(chosen, name.cache_policy()).map_err(spool_problem)?;
        Ok(document.last_modified(change.received.datetime()).varying_by_accept())
    };
    let document = Spool::blocking(page_permit, write).await?;
    Ok(document.respond(&method, &headers))
}
