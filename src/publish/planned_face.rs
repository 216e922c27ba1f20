//! A face of a run, with its edition. Its functions run on blocking threads.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::{DocumentName, Edition, Face, run::RunError};
use crate::web::{Problem, ProblemCode, Representation, Spool};

/// A face with its edition.
pub(super) struct PlannedFace {
    pub(super) face: Arc<dyn Face>,
    pub(super) edition: Arc<Edition>,
    /// Number of the first closed document.
    pub(super) first: u64,
}

impl PlannedFace {
    /// Lists documents, or reads what a list depends on. It needs no permit, because it renders nothing.
    ///
    /// # Errors
    /// Fails if the face does, or `stop` is cancelled.
    pub(super) async fn list<T: Send + 'static>(
        &self,
        stop: &CancellationToken,
        list: impl FnOnce(&dyn Face, &Edition) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, RunError> {
        let (face, edition) = (Arc::clone(&self.face), Arc::clone(&self.edition));
        let listing = tokio::task::spawn_blocking(move || list(&*face, &edition));
        let listed = async { listing.await.unwrap_or_else(|failed| Err(Problem::internal(failed))) };
        outcome(self.face.name(), stop.run_until_cancelled(listed).await)
    }

    /// Renders a document when there is room in the spool. The permit ends with the rendering, so an upload delays no reader of
    /// the gateway.
    ///
    /// # Errors
    /// Fails if the face does, or `stop` is cancelled.
    pub(super) async fn render(
        &self,
        spool: &Spool,
        stop: &CancellationToken,
        document: &DocumentName,
    ) -> Result<Representation, RunError> {
        let (face, edition, name) = (Arc::clone(&self.face), Arc::clone(&self.edition), document.clone());
        let rendered = async {
            let permit = match face.renders_lists() {
                true => spool.list_permit().await,
                false => spool.document_permit().await,
            };
            Spool::blocking(permit, move || face.render(&edition, &name)).await
        };
        outcome(&document.path, stop.run_until_cancelled(rendered).await)
    }
}

/// Returns the result of a face, or that the run was stopped. `subject` is the subject of an error.
fn outcome<T>(subject: &str, result: Option<Result<T, Problem>>) -> Result<T, RunError> {
    let result = result.ok_or(RunError::Stopped)?;
    result.map_err(|problem| match problem.code() {
        ProblemCode::Gone => RunError::Removed(subject.to_owned()),
        _ => RunError::Render { subject: subject.to_owned(), reason: problem.detail().to_owned() },
    })
}
