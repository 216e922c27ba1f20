//! The part of the gateway that a set of documents is about.

use std::sync::Arc;

use serde::Deserialize;
use url::form_urlencoded;

use crate::{
    model::{Filter, ReaderView, Uri, UriPrefix},
    view::{
        parameters::{permitted, sorted_unique},
        registry_view::RegistryView,
    },
    web::{Problem, Query, ReadPermit},
};

/// Query of the documents.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ScopeQuery {
    /// Beginnings of the URIs of the objects whose items are the resources. Default: all objects.
    #[serde(default)]
    #[param(max_items = 50)]
    object: Vec<UriPrefix>,
}

/// The resources that documents are about. Its conditions are facts of an object that never change, so that no resource
/// leaves the scope without a deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Scope {
    objects: Vec<UriPrefix>,
    view: Option<Arc<ReaderView>>,
}

impl Scope {
    /// Parses a query of a reader.
    ///
    /// # Errors
    /// `invalid-query`; `forbidden` if the query asks for more than the reader may see, or the reader may see only the changes
    /// of some sources, because the registry combines those of all.
    pub(super) fn parse(query: &str, permit: &ReadPermit) -> Result<Self, Problem> {
        RegistryView::of(permit)?;
        let Query(ScopeQuery { object }) = Query::<ScopeQuery>::parse(query)?;
        let objects = sorted_unique("object", object)?;
        permitted(Filter { objects: objects.clone(), ..Filter::default() }, None, permit)?;
        Ok(Self { objects, view: permit.view().cloned() })
    }

    /// Returns whether the scope has conditions on objects.
    pub(super) fn has_objects(&self) -> bool {
        !self.objects.is_empty()
    }

    /// Returns the query of links between the documents, with its question mark; empty if there are no conditions.
    pub(super) fn query(&self) -> String {
        if self.objects.is_empty() {
            return String::new();
        }
        let mut query = form_urlencoded::Serializer::for_suffix("?".to_owned(), 1);
        query.extend_pairs(self.objects.iter().map(|prefix| ("object", prefix.as_str())));
        query.finish()
    }

    /// Returns the filter of the changes, as the public sees them.
    pub(super) fn filter(&self) -> Filter {
        Filter { objects: self.objects.clone(), visibility: true, view: self.view.clone(), ..Filter::default() }
    }

    /// Returns whether the items of an object belong to the scope.
    pub(super) fn covers(&self, object: &Uri) -> bool {
        let is_selected = self.objects.is_empty() || self.objects.iter().any(|prefix| prefix.is_prefix_of(object));
        is_selected && self.view.as_ref().is_none_or(|view| view.covers_object(object))
    }

    /// Returns whether caches may keep the documents for ever. What a view shows depends on the configuration.
    pub(super) fn is_fixed(&self) -> bool {
        self.view.is_none()
    }
}
