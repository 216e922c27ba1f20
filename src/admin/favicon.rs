//! `GET /favicon.ico`, which every browser requests. The gateway has no icon, and says so without an error.

use axum::{
    http::{StatusCode, header::CACHE_CONTROL},
    response::IntoResponse,
};

use crate::web::problems;

problems!(Problems:);

/// No icon.
#[utoipa::path(
    get,
    path = "/favicon.ico",
    operation_id = "getIcon",
    tag = "administration",
    responses((status = 204, description = "There is no icon."), Problems),
)]
pub async fn icon() -> impl IntoResponse {
    (StatusCode::NO_CONTENT, [(CACHE_CONTROL, "public, max-age=86400")])
}
