//! Errors of the protocol (section 3.6), which are no errors of HTTP.

use crate::web::Problem;

named_values! {
    /// Code of an error.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum ErrorCode {
        BadArgument = "badArgument",
        BadResumptionToken = "badResumptionToken",
        BadVerb = "badVerb",
        CannotDisseminateFormat = "cannotDisseminateFormat",
        IdDoesNotExist = "idDoesNotExist",
        NoMetadataFormats = "noMetadataFormats",
        NoRecordsMatch = "noRecordsMatch",
        NoSetHierarchy = "noSetHierarchy",
    }
}

impl ErrorCode {
    /// Returns whether the element `request` may have the arguments (section 3.2).
    pub(super) fn shows_arguments(self) -> bool {
        !matches!(self, Self::BadVerb | Self::BadArgument)
    }
}

/// Error of the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OaiError {
    pub(super) code: ErrorCode,
    /// Text for people.
    pub(super) text: String,
}

impl OaiError {
    pub(super) fn new(code: ErrorCode, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }

    /// Returns the error for a metadata format that the gateway does not have.
    pub(super) fn unknown_format(prefix: &str) -> Self {
        let text = format!("There is no metadata format {prefix}; ListMetadataFormats lists the formats.");
        Self::new(ErrorCode::CannotDisseminateFormat, text)
    }

    /// Returns the error for an identifier without a record.
    pub(super) fn unknown_identifier() -> Self {
        Self::new(ErrorCode::IdDoesNotExist, "No record has this identifier.")
    }
}

/// Reason why a request has no result.
pub(super) enum Failure {
    /// Errors of the protocol.
    Oai(Vec<OaiError>),
    /// Error of HTTP: the gateway cannot serve the request at present.
    Http(Box<Problem>),
}

impl From<OaiError> for Failure {
    fn from(error: OaiError) -> Self {
        Self::Oai(vec![error])
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self::Http(Box::new(problem))
    }
}
