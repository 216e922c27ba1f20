//! A list of routes, each with the rule of who may use it. There is no way to add one without, and
//! the list can be read, so that a test goes through every route there is. Paths and methods stand above the handlers.

use std::sync::Arc;

use axum::{Router, http::Method, middleware::from_fn_with_state, routing::MethodRouter};
use utoipa::openapi::{ComponentsBuilder, Info, OpenApi, PathItem, Paths};
use utoipa_axum::router::UtoipaMethodRouter;

use super::access::{Access, OutboundPolicy, Rule, guard};

/// A method of a path, and who may use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The method; what answers to GET answers to HEAD, by the same rule.
    pub method: Method,
    /// The path, its parameters in braces.
    pub path: String,
    /// Who may use it.
    pub rule: Rule,
}

/// Every route, made of what `S` has.
pub struct Routes<S> {
    routes: Vec<Route>,
    handlers: Vec<(String, Rule, Make<S>)>,
    interface: OpenApi,
}

type Make<S> = Box<dyn FnOnce(&S) -> MethodRouter>;

impl<S> Default for Routes<S> {
    fn default() -> Self {
        let interface = OpenApi::new(Info::default(), Paths::new());
        Self { routes: Vec::new(), handlers: Vec::new(), interface }
    }
}

impl<S: 'static> Routes<S> {
    /// Adds handlers of one path, as [`utoipa_axum::routes`] makes them, which work with the `part` of `S`.
    #[must_use]
    pub fn add<P: Clone + Send + Sync + 'static>(
        mut self,
        rule: Rule,
        (schemas, paths, handlers): UtoipaMethodRouter<P>,
        part: fn(&S) -> P,
    ) -> Self {
        for (path, item) in &paths.paths {
            let route = |method| Route { method, path: path.clone(), rule };
            self.routes.extend(methods(item).map(route));
            let handlers = handlers.clone();
            self.handlers.push((path.clone(), rule, Box::new(move |all| handlers.with_state(part(all)))));
        }
        let mut described = OpenApi::new(Info::default(), paths);
        described.components = Some(ComponentsBuilder::new().schemas_from_iter(schemas).build());
        self.interface.merge(described);
        self
    }

    /// Every route, in the order in which they were added.
    pub fn list(&self) -> impl Iterator<Item = &Route> {
        self.routes.iter()
    }

    /// The description of every route.
    pub fn into_interface(self) -> OpenApi {
        self.interface
    }

    /// The router, every route guarded by its rule. Where access is open only open routes have a guard: it lets everybody
    /// in, and tells their handlers whether the sender may read.
    pub fn into_router(self, all: &S, access: &Arc<Access>) -> Router {
        self.handlers.into_iter().fold(Router::new(), |router, (path, rule, make)| {
            let handlers = make(all);
            let guarded = || from_fn_with_state(OutboundPolicy { access: Arc::clone(access), rule }, guard);
            let is_guarded = rule == Rule::Open || !access.is_open();
            router.route(&path, if is_guarded { handlers.route_layer(guarded()) } else { handlers })
        })
    }
}

fn methods(item: &PathItem) -> impl Iterator<Item = Method> {
    let PathItem { get, post, put, delete, .. } = item;
    let handled = [(get, Method::GET), (post, Method::POST), (put, Method::PUT), (delete, Method::DELETE)];
    handled.into_iter().filter_map(|(operation, method)| operation.as_ref().map(|_| method))
}
