//! Query parameters that select changes, shared by the feed, the pages of changes and the stream.
//!
//! Queries are parsed strictly, by a struct that names every parameter and flattens none. Therefore each view has its
//! own struct, and this macro declares the shared parameters.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use url::form_urlencoded;

use crate::{
    model::{Filter, Timestamp, deserialize_str},
    web::{Problem, ProblemCode, ReadPermit},
};

/// Declares a struct of query parameters: those of a [`Filter`], followed by those of the view. Its method `filter`
/// returns the filter.
macro_rules! with_filter {
    ($(#[$about:meta])* $visibility:vis struct $name:ident { $($(#[$of_own:meta])* $own:ident: $type:ty,)* }) => {
        $(#[$about])*
        #[derive(Debug, serde::Deserialize, utoipa::IntoParams)]
        #[into_params(parameter_in = Query)]
        $visibility struct $name {
            /// On the change: its source is one of these.
            #[serde(default)]
            #[param(max_items = 50)]
            source: Vec<$crate::model::SourceName>,
            /// On the change: the URI of its object begins with one of these.
            #[serde(default)]
            #[param(max_items = 50)]
            object: Vec<$crate::model::UriPrefix>,
            /// On the change: its object belongs to one of these.
            #[serde(default)]
            #[param(max_items = 50)]
            parent: Vec<$crate::model::Uri>,
            /// On the change: its object has one of these types.
            #[serde(default, rename = "type")]
            #[param(max_items = 50)]
            types: Vec<$crate::model::Uri>,
            /// On an item: its change type is one of these, in upper or lower case.
            #[serde(default)]
            #[param(max_items = 50)]
            change: Vec<$crate::model::ItemChangeKind>,
            /// On an item: its content has one of these media types, if the change contains the media type.
            #[serde(default)]
            #[param(max_items = 50)]
            media_type: Vec<$crate::model::MediaRange>,
            /// On an item: its state after the change is one of these.
            #[serde(default)]
            #[param(max_items = 50)]
            state: Vec<$crate::model::State>,
            /// On the change: it was received at this time or later. A date alone is the start of its day in UTC.
            #[param(value_type = $crate::model::Timestamp, required = false)]
            since: Option<$crate::view::parameters::Since>,
            /// `true` selects only changes that affect what the public can see, and shows them as the public sees
            /// them.
            #[serde(default)]
            #[param(value_type = bool, required = false)]
            visibility: Option<bool>,
            $($(#[$of_own])* $own: $type,)*
        }

        impl $name {
            /// Moves the filter out of the parameters, within what the reader may see. Sorts the values and removes
            /// duplicates, because order and repetition have no meaning.
            ///
            /// # Errors
            /// `invalid-query` or `forbidden`, with the name of the parameter.
            fn filter(&mut self, permit: &$crate::web::ReadPermit) -> Result<$crate::model::Filter, $crate::web::Problem> {
                use std::mem::take;
                use $crate::view::parameters::{permitted, sorted_unique};
                let filter = $crate::model::Filter {
                    sources: sorted_unique("source", take(&mut self.source))?,
                    objects: sorted_unique("object", take(&mut self.object))?,
                    parents: sorted_unique("parent", take(&mut self.parent))?,
                    types: sorted_unique("type", take(&mut self.types))?,
                    changes: sorted_unique("change", take(&mut self.change))?,
                    media_types: sorted_unique("media_type", take(&mut self.media_type))?,
                    states: sorted_unique("state", take(&mut self.state))?,
                    since: self.since.map(|since| since.0),
                    visibility: self.visibility.unwrap_or(false),
                    view: None,
                };
                permitted(filter, self.visibility, permit)
            }
        }
    };
}

pub(super) use with_filter;

/// The parameter `since`: a time, or a date as the start of its day.
#[derive(Clone, Copy, Debug)]
pub(super) struct Since(pub(super) Timestamp);

impl<'de> Deserialize<'de> for Since {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize_str(deserializer, |text| {
            Timestamp::parse_or_day(text).map(Self).map_err(|error| match text.rsplit_once(' ') {
                // In a query, + stands for a blank.
                Some((time, offset)) if offset.starts_with(|c: char| c.is_ascii_digit()) && time.contains(':') => {
                    format!("{error}, and the + before an offset as %2B")
                }
                _ => error.to_string(),
            })
        })
    }
}

/// Reads the JSON body of a request.
pub(super) fn json_body<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(body)
        .map_err(|error| Problem::new(ProblemCode::BadRequest, format!("The body is invalid: {error}.")))
}

pub(super) fn sorted_unique<T: Ord>(name: &str, mut values: Vec<T>) -> Result<Vec<T>, Problem> {
    if values.len() > Filter::MAX_VALUES {
        let detail = format!("The parameter {name:?} is wrong: it may be given at most {} times.", Filter::MAX_VALUES);
        return Err(Problem::new(ProblemCode::InvalidQuery, detail).with("parameter", name));
    }
    values.sort();
    values.dedup();
    Ok(values)
}

/// Returns the filter within what the reader may see. `visibility` is the parameter, if it is given.
///
/// # Errors
/// `forbidden` if a parameter asks for more. The answer is the same for sources and objects that exist.
pub(super) fn permitted(filter: Filter, visibility: Option<bool>, permit: &ReadPermit) -> Result<Filter, Problem> {
    let Some(view) = permit.view() else { return Ok(filter) };
    let excess = if view.public && visibility == Some(false) {
        Some("visibility")
    } else if filter.sources.iter().any(|source| !view.covers_source(source)) {
        Some("source")
    } else if filter.objects.iter().any(|prefix| !view.covers_prefix(prefix)) {
        Some("object")
    } else {
        None
    };
    match excess {
        Some(parameter) => Err(outside_view(parameter)),
        None => Ok(Filter { view: Some(Arc::clone(view)), ..filter }),
    }
}

/// Returns the problem of a parameter that asks for more than the reader may see.
pub(super) fn outside_view(parameter: &str) -> Problem {
    let detail = format!(
        "The parameter {parameter:?} asks for more than you may see. Omit it to get all that you may see, or send a token \
         that may see more."
    );
    Problem::new(ProblemCode::Forbidden, detail).with("parameter", parameter)
}

/// Returns the canonical query of a filter.
pub(super) fn filter_query(filter: &Filter) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(filter.sources.iter().map(|source| ("source", source.as_str())));
    query.extend_pairs(filter.objects.iter().map(|prefix| ("object", prefix.as_str())));
    query.extend_pairs(filter.parents.iter().map(|uri| ("parent", uri.as_str())));
    query.extend_pairs(filter.types.iter().map(|uri| ("type", uri.as_str())));
    query.extend_pairs(filter.changes.iter().map(|kind| ("change", kind.as_str())));
    query.extend_pairs(filter.media_types.iter().map(|range| ("media_type", range.as_str())));
    query.extend_pairs(filter.states.iter().map(|state| ("state", state.as_str())));
    if let Some(since) = filter.since {
        query.append_pair("since", &since.to_string());
    }
    if filter.visibility {
        query.append_pair("visibility", "true");
    }
    query.finish()
}
