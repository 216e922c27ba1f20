//! `POST /reload`: reads the configuration again.

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use serde::Serialize;
use utoipa::ToSchema;

use crate::web::{Problem, ProblemCode, problems};

/// Reads the configuration again, and returns the names of the changed tables; or its errors. The call blocks.
pub type ReloadConfig = Arc<dyn Fn() -> Result<Vec<String>, String> + Send + Sync>;

/// Effect of a reload.
#[derive(Serialize, ToSchema)]
#[schema(as = Reload)]
struct ReloadView {
    /// The tables of the configuration that have changed. If there are any, the gateway begins again with them, and new
    /// connections wait meanwhile; otherwise only the certificate is read again.
    changed: Vec<String>,
}

problems!(Problems: NotFound, InvalidConfiguration, Unavailable);

/// Reads the configuration again. If it has changed, the gateway finishes the requests that it has accepted, and begins again
/// in the same process. If it is wrong, the gateway continues with the former one.
///
/// # Errors
/// `invalid-configuration` with all errors; `not-found` if the gateway has no configuration that it could read again.
#[utoipa::path(
    post,
    path = "/reload",
    operation_id = "reload",
    tag = "administration",
    responses((status = 200, description = "The configuration is read.", body = ReloadView), Problems),
)]
pub async fn reload(State(reload): State<Option<ReloadConfig>>) -> Result<Response, Problem> {
    let reload = reload.ok_or_else(|| Problem::new(ProblemCode::NotFound, "The gateway cannot reload."))?;
    let reloaded = tokio::task::spawn_blocking(move || reload()).await.map_err(Problem::internal)?;
    let changed = reloaded.map_err(|errors| {
        let detail = format!("The gateway continues with the former configuration: {errors}.");
        Problem::new(ProblemCode::InvalidConfiguration, detail)
    })?;
    Ok(Json(ReloadView { changed }).into_response())
}
