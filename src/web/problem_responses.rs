//! The problem documents that a route can return, for the description of the HTTP interface.
//!
//! Each handler declares its problems with [`problems!`]; the problems common to all routes are added here.

use std::{borrow::Cow, collections::BTreeMap};

use axum::http::StatusCode;
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{
        ContentBuilder, HeaderBuilder, ObjectBuilder, Ref, RefOr, Response, ResponseBuilder, Schema, Type,
        schema::{AdditionalProperties, SchemaType},
    },
};

use super::{Problem, ProblemCode};

/// Problems that every route can return.
const COMMON_PROBLEMS: [ProblemCode; 8] = [
    ProblemCode::AddressTooLong,
    ProblemCode::HeadTooLarge,
    ProblemCode::Unauthorized,
    ProblemCode::Forbidden,
    ProblemCode::CrossSiteRequest,
    ProblemCode::MisdirectedRequest,
    ProblemCode::Timeout,
    ProblemCode::Internal,
];

/// Declares a type `$name` for the `responses` of a `utoipa::path`. It stands for these problems and the problems
/// common to all routes.
macro_rules! problems {
    ($name:ident: $($code:ident),* $(,)?) => {
        struct $name;

        impl utoipa::IntoResponses for $name {
            fn responses() -> std::collections::BTreeMap<String, utoipa::openapi::RefOr<utoipa::openapi::Response>> {
                $crate::web::problem_responses(&[$($crate::web::ProblemCode::$code),*])
            }
        }
    };
}

pub(crate) use problems;

/// Returns a response for each status of these problems and of the problems common to all routes.
#[must_use]
pub fn problem_responses(codes: &[ProblemCode]) -> BTreeMap<String, RefOr<Response>> {
    let mut statuses: BTreeMap<StatusCode, Vec<ProblemCode>> = BTreeMap::new();
    for code in codes.iter().chain(&COMMON_PROBLEMS) {
        statuses.entry(code.status()).or_default().push(*code);
    }
    let entry = |(status, codes): (StatusCode, Vec<_>)| (status.as_str().to_owned(), response(status, &codes).into());
    statuses.into_iter().map(entry).collect()
}

fn response(status: StatusCode, codes: &[ProblemCode]) -> Response {
    let summaries: Vec<String> = codes.iter().map(|code| format!("`{}`: {}.", code.code(), code.summary())).collect();
    let document = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
    let response = ResponseBuilder::new().description(summaries.join(" ")).content(Problem::MEDIA_TYPE, document);
    if status == StatusCode::SERVICE_UNAVAILABLE {
        let seconds = ObjectBuilder::new().schema_type(SchemaType::Type(Type::Integer)).minimum(Some(0));
        let about = "Number of seconds after which to retry, if known.";
        let header = HeaderBuilder::new().schema(Some(seconds)).description(Some(about)).build();
        return response.header("Retry-After", header).build();
    }
    response.build()
}

/// Schema of the document that [`Problem::to_json`] writes.
impl PartialSchema for Problem {
    fn schema() -> RefOr<Schema> {
        let text =
            |about: &str| ObjectBuilder::new().schema_type(SchemaType::Type(Type::String)).description(Some(about));
        let kinds = ProblemCode::ALL.map(|code| format!("urn:tidings:problem:{}", code.code()));
        let status =
            ObjectBuilder::new().schema_type(SchemaType::Type(Type::Integer)).minimum(Some(400)).maximum(Some(599));
        ObjectBuilder::new()
            .description(Some("A problem document (RFC 9457). Some problems have extension members."))
            .property("type", text("Identifies the kind of problem; branch on it.").enum_values(Some(kinds)))
            .property("title", text("Reason phrase of the status code."))
            .property("status", status.description(Some("The status code of the response.")))
            .property("detail", text("Explains what is wrong, where, and what to do."))
            .property("instance", text("URI of this occurrence, if it has one."))
            .required("type")
            .required("title")
            .required("status")
            .required("detail")
            .additional_properties(Some(AdditionalProperties::FreeForm(true)))
            .into()
    }
}

impl ToSchema for Problem {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("Problem")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::{ProblemCode, problem_responses};

    #[test]
    fn problems_of_one_status_share_one_response() {
        let responses =
            problem_responses(&[ProblemCode::InvalidQuery, ProblemCode::BadRequest, ProblemCode::Unavailable]);
        let responses: Value = serde_json::to_value(responses).unwrap();
        let statuses: Vec<_> = responses.as_object().unwrap().keys().collect();
        assert_eq!(statuses, ["400", "401", "403", "414", "421", "431", "500", "503"]);
        let description = "`invalid-query`: A query parameter is invalid. `bad-request`: The request cannot be parsed.";
        assert_eq!(responses["400"]["description"], description);
        assert!(responses["503"]["headers"]["Retry-After"].is_object());
    }
}
