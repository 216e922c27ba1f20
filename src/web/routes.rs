//! A list of routes, each with the rule of who may use it. There is no way to add one without, and
//! the list can be read, so that a test goes through every route there is.

use std::sync::Arc;

use axum::{
    Router,
    handler::Handler,
    http::Method,
    middleware::from_fn_with_state,
    routing::{self, MethodRouter},
};

use super::access::{Access, Guard, Rule, guard};

/// A method of a path, and who may use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The method; what answers to GET answers to HEAD, by the same rule.
    pub method: Method,
    /// The path, its parameters in braces.
    pub path: &'static str,
    /// Who may use it.
    pub rule: Rule,
}

/// Every route, made of what `S` has.
pub struct Routes<S> {
    routes: Vec<(Route, Make<S>)>,
}

type Make<S> = Box<dyn FnOnce(&S) -> MethodRouter>;

impl<S> Default for Routes<S> {
    fn default() -> Self {
        Self { routes: Vec::new() }
    }
}

impl<S> Routes<S> {
    /// Every route, in the order in which they were added.
    pub fn list(&self) -> impl Iterator<Item = &Route> {
        self.routes.iter().map(|(route, _)| route)
    }

    /// The router, every route guarded by its rule. Where access is open only open routes have a guard: it lets everybody
    /// in, and tells their handlers whether the sender may read.
    pub fn into_router(self, all: &S, access: &Arc<Access>) -> Router {
        self.routes.into_iter().fold(Router::new(), |router, (Route { path, rule, .. }, make)| {
            let handler = make(all);
            let guarded = || from_fn_with_state(Guard { access: Arc::clone(access), rule }, guard);
            let is_guarded = rule == Rule::Open || !access.is_open();
            router.route(path, if is_guarded { handler.route_layer(guarded()) } else { handler })
        })
    }
}

/// The methods of [`Routes`] that add a handler of a method of HTTP: they differ in its name alone.
macro_rules! adds_handlers {
    ($($(#[$about:meta])* $name:ident: $method:ident,)*) => {
        impl<S: 'static> Routes<S> {
            $(
                $(#[$about])*
                #[must_use]
                pub fn $name<H: Handler<T, P>, T: 'static, P: Clone + Send + Sync + 'static>(
                    mut self,
                    path: &'static str,
                    rule: Rule,
                    handler: H,
                    part: fn(&S) -> P,
                ) -> Self {
                    let make = move |all: &S| routing::$name(handler).with_state(part(all));
                    self.routes.push((Route { method: Method::$method, path, rule }, Box::new(make)));
                    self
                }
            )*
        }
    };
}

adds_handlers! {
    /// Adds a handler of GET (and HEAD), which works with the `part` of `S`.
    get: GET,
    /// Adds a handler of POST, which works with the `part` of `S`.
    post: POST,
    /// Adds a handler of PUT, which works with the `part` of `S`.
    put: PUT,
    /// Adds a handler of DELETE, which works with the `part` of `S`.
    delete: DELETE,
}
