//! The query parameters by which readers of the feed and of the stream say which changes they want.
//!
//! The query is read strictly, by a struct that names every parameter and flattens none, so each view has a
//! struct of its own. What they share stands here once.

use crate::{
    model::Filter,
    web::{Problem, ProblemCode},
};

/// Declares a struct of query parameters: those of a [`Filter`], and then those of the view. Its
/// `filter` takes the former.
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
            /// On an item: one of these happened to it.
            #[serde(default)]
            #[param(max_items = 50)]
            change: Vec<$crate::model::ItemChangeKind>,
            /// On an item: its content is of one of these media types, as far as the change tells one.
            #[serde(default)]
            #[param(max_items = 50)]
            media_type: Vec<$crate::model::MediaRange>,
            /// On an item: it is in one of these states after the change.
            #[serde(default)]
            #[param(max_items = 50)]
            state: Vec<$crate::model::State>,
            /// On the change: it was received at that time or later.
            #[param(value_type = $crate::model::Timestamp, required = false)]
            since: Option<$crate::model::Timestamp>,
            /// Whether to show only what changes what the public can see, as the public sees it.
            #[serde(default)]
            #[param(value_type = bool, required = false)]
            visibility: bool,
            $($(#[$of_own])* $own: $type,)*
        }

        impl $name {
            /// Takes out which changes are wanted. The order and the repetition of values mean nothing and are
            /// dropped.
            ///
            /// # Errors
            /// `invalid-query`, with the name of the parameter.
            fn filter(&mut self) -> Result<$crate::model::Filter, $crate::web::Problem> {
                use std::mem::take;
                use $crate::view::parameters::in_order;
                Ok($crate::model::Filter {
                    sources: in_order("source", take(&mut self.source))?,
                    objects: in_order("object", take(&mut self.object))?,
                    parents: in_order("parent", take(&mut self.parent))?,
                    types: in_order("type", take(&mut self.types))?,
                    changes: in_order("change", take(&mut self.change))?,
                    media_types: in_order("media_type", take(&mut self.media_type))?,
                    states: in_order("state", take(&mut self.state))?,
                    since: self.since,
                    visibility: self.visibility,
                })
            }
        }
    };
}

pub(super) use with_filter;

pub(super) fn in_order<T: Ord>(name: &str, mut values: Vec<T>) -> Result<Vec<T>, Problem> {
    if values.len() > Filter::MAX_VALUES {
        let detail = format!("The parameter {name:?} is wrong: it may be given at most {} times.", Filter::MAX_VALUES);
        return Err(Problem::new(ProblemCode::InvalidQuery, detail).with("parameter", name));
    }
    values.sort();
    values.dedup();
    Ok(values)
}
