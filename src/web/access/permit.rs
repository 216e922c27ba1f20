//! Permits to read: what the guard of a route lets a reader see.
//!
//! The guard serves a reader who may see only a part of the journal in two cases alone: if the rule of the route names a
//! surface that such readers may use, and if the handler has taken the [`ReadPermit`] of the request. So a handler that
//! knows nothing of permits serves nobody who needs one.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use axum::{extract::FromRequestParts, http::request::Parts};

use crate::model::ReaderView;

named_values! {
    /// Surface that can be open to readers without a token, by its name in the configuration.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Surface {
        /// `/feed`, with its style.
        Feed = "feed",
        /// `/changes`.
        Changes = "changes",
        /// `/stream`.
        Stream = "stream",
        /// The stream, which the page at `/live` shows.
        Live = "live",
        /// `/objects`.
        Objects = "objects",
        /// `/snapshot`.
        Snapshot = "snapshot",
        /// `/oai`.
        Oai = "oai",
        /// `/iiif`.
        Iiif = "iiif",
        /// `/ldes`.
        Ldes = "ldes",
        /// `/resourcesync`.
        ResourceSync = "resourcesync",
    }
}

/// Access of readers without a token.
#[derive(Clone, Debug)]
pub struct PublicAccess {
    /// Surfaces that they may use.
    pub surfaces: Arc<[Surface]>,
    /// Part of the journal that they may see.
    pub view: Arc<ReaderView>,
}

/// Decision of access control about what the reader of a request may see. An extractor for handlers.
#[derive(Clone, Debug)]
pub struct ReadPermit {
    view: Option<Arc<ReaderView>>,
    /// Surfaces of readers without a token; `None` for others, who may use all.
    surfaces: Option<Arc<[Surface]>>,
}

impl ReadPermit {
    /// Returns the permit of a reader who may see everything.
    #[must_use]
    pub fn whole() -> Self {
        Self::of_view(None)
    }

    /// Returns the permit of a reader who may see this part, and use all surfaces.
    #[must_use]
    pub fn of_view(view: Option<Arc<ReaderView>>) -> Self {
        Self { view, surfaces: None }
    }

    /// Returns the permit of readers without a token.
    pub(super) fn of_public(public: &PublicAccess) -> Self {
        Self { view: Some(Arc::clone(&public.view)), surfaces: Some(Arc::clone(&public.surfaces)) }
    }

    /// Returns the part of the journal that the reader may see; `None` if everything.
    #[must_use]
    pub fn view(&self) -> Option<&Arc<ReaderView>> {
        self.view.as_ref()
    }

    /// Returns whether the reader may use this surface, so that a link to it works.
    #[must_use]
    pub fn allows(&self, surface: Surface) -> bool {
        self.surfaces.as_ref().is_none_or(|surfaces| surfaces.contains(&surface))
    }

    /// Returns whether the reader has no token, and access is not open.
    #[must_use]
    pub fn is_public(&self) -> bool {
        self.surfaces.is_some()
    }
}

/// A permit in the extensions of a request, until the handler takes it.
#[derive(Clone)]
pub(super) struct PermitSlot {
    permit: ReadPermit,
    is_taken: Arc<AtomicBool>,
}

impl PermitSlot {
    pub(super) fn new(permit: ReadPermit) -> Self {
        Self { permit, is_taken: Arc::default() }
    }

    pub(super) fn permit(&self) -> &ReadPermit {
        &self.permit
    }

    /// Returns whether the handler has taken the permit.
    pub(super) fn is_taken(&self) -> bool {
        self.is_taken.load(Ordering::Relaxed)
    }
}

/// A request without a slot is that of a reader who may see everything.
impl<S: Sync> FromRequestParts<S> for ReadPermit {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get::<PermitSlot>().map_or_else(Self::whole, |slot| {
            slot.is_taken.store(true, Ordering::Relaxed);
            slot.permit.clone()
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use axum::{
        Router,
        body::Body,
        http::{Request, StatusCode},
        middleware::from_fn_with_state,
        routing::{MethodRouter, get},
    };
    use tower_service::Service;

    use super::{Arc, PublicAccess, ReadPermit, ReaderView, Surface};
    use crate::web::{
        Access, Rule, Scope, Secret, Token,
        access::{RouteGuard, guard},
    };

    /// Returns the status of a route with this rule and handler for a request with or without the token of a view.
    async fn status(rule: Rule, handler: MethodRouter, token: Option<&str>) -> StatusCode {
        let view = Arc::new(ReaderView { public: true, ..ReaderView::default() });
        let owner = Token {
            name: "owner".to_owned(),
            digest: Secret::new("tdg_1").digest(),
            scopes: vec![Scope::Read],
            expires: None,
            view: Some(Arc::clone(&view)),
        };
        let public = PublicAccess { surfaces: [Surface::Feed].into(), view };
        let access = Arc::new(Access::new(vec![owner], BTreeMap::new()).with_public(public));
        let layer = from_fn_with_state(RouteGuard { access, rule }, guard);
        let mut router = Router::new().route("/", handler.route_layer(layer));
        let request = Request::builder().uri("/");
        let request = token.iter().fold(request, |request, token| request.header("authorization", *token));
        router.call(request.body(Body::empty()).unwrap()).await.unwrap().status()
    }

    #[tokio::test]
    async fn reader_of_a_part_is_served_only_by_a_handler_with_a_permit() {
        let with_permit = || get(async |permit: ReadPermit| assert!(permit.view().is_some()));
        let without_permit = || get(async || {});
        let owner = Some("Bearer tdg_1");
        for (surfaces, public) in [(&[Surface::Feed][..], 200), (&[Surface::Changes], 401), (&[], 401)] {
            let rule = Rule::View(surfaces);
            assert_eq!(status(rule, with_permit(), None).await, public, "{surfaces:?}");
            assert_eq!(status(rule, with_permit(), owner).await, 200, "{surfaces:?}");
            // The handler would show everything.
            assert_eq!(status(rule, without_permit(), owner).await, 500, "{surfaces:?}");
        }
        assert_eq!(status(Rule::View(&[Surface::Feed]), without_permit(), None).await, 500);
        assert_eq!(status(Rule::Read, with_permit(), owner).await, 403);
        assert_eq!(status(Rule::Admin, with_permit(), owner).await, 403);
    }
}
