//! `GET /oai/schemas/{name}`: the schemas of the metadata format `content-change`, which the records name.

use axum::{
    http::{HeaderMap, Method},
    response::Response,
};

use crate::web::{CachePolicy, Path, Problem, ProblemCode, Representation, problems};

/// The schemas by their names.
const SCHEMAS: [(&str, &str); 3] = [
    (super::catalogue::CONTENT_CHANGE_SCHEMA, include_str!("../../../xsd/content-change-message-0.1.xsd")),
    ("content-change-additions.xsd", include_str!("../../../xsd/content-change-additions.xsd")),
    ("model-types.xsd", include_str!("../../../xsd/model-types.xsd")),
];

problems!(Problems: NotFound);

/// A schema of the metadata format `content-change` of `/oai`, which the records name as their schema.
///
/// # Errors
/// `not-found`.
#[utoipa::path(
    get,
    path = "/oai/schemas/{name}",
    operation_id = "getOaiPmhSchema",
    tag = "out",
    params(("name" = String, Path, description = "Name of the file.")),
    responses(
        (status = 200, description = "The schema.", body = String, content_type = "application/xml"),
        (status = 304, description = "Not modified."),
        Problems,
    ),
)]
pub async fn one(Path(name): Path<String>, method: Method, headers: HeaderMap) -> Result<Response, Problem> {
    let schema = SCHEMAS.iter().find(|(schema, _)| *schema == name);
    let (_, text) = schema.ok_or_else(|| Problem::new(ProblemCode::NotFound, "There is no schema of this name."))?;
    Ok(Representation::new("application/xml", *text, CachePolicy::Revalidate).respond(&method, &headers))
}
