//! List of routes with their access rules. A route cannot be added without a rule, and the list can be read, so that
//! a test checks every route. Paths and methods are declared at the handlers.

use std::sync::Arc;

use axum::{Router, http::Method, middleware::from_fn_with_state, routing::MethodRouter};
use utoipa::openapi::{ComponentsBuilder, Info, OpenApi, PathItem, Paths, security::SecurityRequirement};
use utoipa_axum::router::UtoipaMethodRouter;

use super::access::{Access, RouteGuard, Rule, guard};

/// Method of a path, with its access rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The method. GET routes also serve HEAD, with the same rule.
    pub method: Method,
    /// The path, with parameters in braces.
    pub path: String,
    /// The access rule.
    pub rule: Rule,
}

/// All routes. `S` is the state that their handlers are created from.
pub struct Routes<S> {
    routes: Vec<Route>,
    handlers: Vec<(String, Rule, MakeHandlers<S>)>,
    interface: OpenApi,
}

type MakeHandlers<S> = Box<dyn FnOnce(&S) -> MethodRouter>;

impl<S> Default for Routes<S> {
    fn default() -> Self {
        let interface = OpenApi::new(Info::default(), Paths::new());
        Self { routes: Vec::new(), handlers: Vec::new(), interface }
    }
}

impl<S: 'static> Routes<S> {
    /// Adds the handlers of one path, as [`utoipa_axum::routes`] creates them. `part` selects their state from `S`.
    #[must_use]
    pub fn add<P: Clone + Send + Sync + 'static>(
        mut self,
        rule: Rule,
        (schemas, mut paths, handlers): UtoipaMethodRouter<P>,
        part: fn(&S) -> P,
    ) -> Self {
        for (path, item) in &mut paths.paths {
            let PathItem { get, post, put, delete, .. } = item;
            for operation in [get, post, put, delete].into_iter().flatten() {
                operation.security = Some(requirements(rule));
            }
            let route = |method| Route { method, path: path.clone(), rule };
            self.routes.extend(methods(item).map(route));
            let handlers = handlers.clone();
            self.handlers.push((path.clone(), rule, Box::new(move |all| handlers.with_state(part(all)))));
        }
        let mut description = OpenApi::new(Info::default(), paths);
        description.components = Some(ComponentsBuilder::new().schemas_from_iter(schemas).build());
        self.interface.merge(description);
        self
    }

    /// Returns all routes in the order of their addition.
    pub fn list(&self) -> impl Iterator<Item = &Route> {
        self.routes.iter()
    }

    /// Returns the description of all routes.
    pub fn into_interface(self) -> OpenApi {
        self.interface
    }

    /// Returns the router, with a guard for each route. If access is open, only open routes need one: it reports to
    /// their handlers that the sender may read.
    pub fn into_router(self, all: &S, access: &Arc<Access>) -> Router {
        self.handlers.into_iter().fold(Router::new(), |router, (path, rule, make)| {
            let handlers = make(all);
            let guarded = || from_fn_with_state(RouteGuard { access: Arc::clone(access), rule }, guard);
            let is_guarded = rule == Rule::Open || !access.is_open();
            router.route(&path, if is_guarded { handlers.route_layer(guarded()) } else { handlers })
        })
    }
}

/// Describes a rule as OpenAPI does: each requirement is an alternative, with the scope of the token. The empty one is for a
/// gateway without access control. An open route has no requirement.
fn requirements(rule: Rule) -> Vec<SecurityRequirement> {
    let (scope, is_signed) = match rule {
        Rule::Open => return Vec::new(),
        Rule::Read | Rule::View(_) => ("read", false),
        Rule::Admin => ("admin", false),
        Rule::Publish => ("publish", true),
    };
    let of_token = ["token", "password"].map(|scheme| SecurityRequirement::new(scheme, [scope]));
    let signature = is_signed.then(|| SecurityRequirement::new("signature", [""; 0]));
    [SecurityRequirement::default()].into_iter().chain(of_token).chain(signature).collect()
}

fn methods(item: &PathItem) -> impl Iterator<Item = Method> {
    let PathItem { get, post, put, delete, .. } = item;
    let handled = [(get, Method::GET), (post, Method::POST), (put, Method::PUT), (delete, Method::DELETE)];
    handled.into_iter().filter_map(|(operation, method)| operation.as_ref().map(|_| method))
}
