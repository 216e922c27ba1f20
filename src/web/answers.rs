//! The problem documents that a route can answer, as the description of the HTTP interface has them.
//!
//! Each handler names its problems beside it, with [`problems!`]; what every route can answer is
//! added here.

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

/// What every route can answer, whatever its handler does.
const EVERYWHERE: [ProblemCode; 8] = [
    ProblemCode::AddressTooLong,
    ProblemCode::HeadTooLarge,
    ProblemCode::Unauthorized,
    ProblemCode::Forbidden,
    ProblemCode::CrossSiteRequest,
    ProblemCode::MisdirectedRequest,
    ProblemCode::Timeout,
    ProblemCode::Internal,
];

/// Declares a type of that name that stands for these problems, and those that every route can
/// answer, in the `responses` of a `utoipa::path`.
macro_rules! problems {
    ($name:ident: $($code:ident),* $(,)?) => {
        struct $name;

        impl utoipa::IntoResponses for $name {
            fn responses() -> std::collections::BTreeMap<String, utoipa::openapi::RefOr<utoipa::openapi::Response>> {
                $crate::web::problem_answers(&[$($crate::web::ProblemCode::$code),*])
            }
        }
    };
}

pub(crate) use problems;

/// An answer for each status of these problems and of those that every route can answer.
#[must_use]
pub fn problem_answers(codes: &[ProblemCode]) -> BTreeMap<String, RefOr<Response>> {
    let mut statuses: BTreeMap<StatusCode, Vec<ProblemCode>> = BTreeMap::new();
    for code in codes.iter().chain(&EVERYWHERE) {
        statuses.entry(code.status()).or_default().push(*code);
    }
    let told = |(status, codes): (StatusCode, Vec<_>)| (status.as_str().to_owned(), answer(status, &codes).into());
    statuses.into_iter().map(told).collect()
}

fn answer(status: StatusCode, codes: &[ProblemCode]) -> Response {
    let told: Vec<String> = codes.iter().map(|code| format!("`{}`: {}.", code.code(), code.title())).collect();
    let document = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
    let answer = ResponseBuilder::new().description(told.join(" ")).content(Problem::MEDIA_TYPE, document);
    if status == StatusCode::SERVICE_UNAVAILABLE {
        let seconds = ObjectBuilder::new().schema_type(SchemaType::Type(Type::Integer)).minimum(Some(0));
        let about = "After how many seconds to try again, where that is known.";
        let header = HeaderBuilder::new().schema(Some(seconds)).description(Some(about)).build();
        return answer.header("Retry-After", header).build();
    }
    answer.build()
}

/// The document that [`Problem::to_json`] writes.
impl PartialSchema for Problem {
    fn schema() -> RefOr<Schema> {
        let text =
            |about: &str| ObjectBuilder::new().schema_type(SchemaType::Type(Type::String)).description(Some(about));
        let kinds = ProblemCode::ALL.map(|code| format!("urn:tidings:problem:{}", code.code()));
        let status =
            ObjectBuilder::new().schema_type(SchemaType::Type(Type::Integer)).minimum(Some(400)).maximum(Some(599));
        ObjectBuilder::new()
            .description(Some("A problem document (RFC 9457). Some problems have members of their own."))
            .property("type", text("What sort of problem it is; branch on it.").enum_values(Some(kinds)))
            .property("title", text("The same for every problem of the type."))
            .property("status", status.description(Some("The status code of the answer.")))
            .property("detail", text("What is wrong, where, and what to do."))
            .property("instance", text("The address of this occurrence, where it has one."))
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

    use super::{ProblemCode, problem_answers};

    #[test]
    fn problems_of_one_status_are_one_answer() {
        let answers = problem_answers(&[ProblemCode::InvalidQuery, ProblemCode::BadRequest, ProblemCode::Unavailable]);
        let answers: Value = serde_json::to_value(answers).unwrap();
        let statuses: Vec<_> = answers.as_object().unwrap().keys().collect();
        assert_eq!(statuses, ["400", "401", "403", "414", "421", "431", "500", "503"]);
        let told = "`invalid-query`: The query is invalid. `bad-request`: The request cannot be read.";
        assert_eq!(answers["400"]["description"], told);
        assert!(answers["503"]["headers"]["Retry-After"].is_object());
    }
}
