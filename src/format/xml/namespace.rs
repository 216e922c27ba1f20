//! Namespaces in XML 1.0: resolves prefixes in their scopes.

use std::rc::Rc;

use super::ATOM;

/// Namespace of an element.
#[derive(Clone, Debug)]
pub(super) enum Namespace {
    None,
    /// Atom. Recognized at its declaration, because every element is compared with it.
    Atom,
    /// Another namespace. Its name is shared by all elements, because a name of a megabyte may apply to many of
    /// them.
    Other(Rc<str>),
}

impl Namespace {
    fn named(name: &str) -> Self {
        if name == ATOM { Self::Atom } else { Self::Other(name.into()) }
    }

    pub(super) fn name(&self) -> Option<&str> {
        match self {
            Self::None => None,
            Self::Atom => Some(ATOM),
            Self::Other(name) => Some(name),
        }
    }
}

/// Prefix of a name; `None` if it has none.
///
/// An empty slice is not used. To compare two empty slices, the C library performs a fully masked read at their
/// addresses, which are not mapped. With AVX-512, suppressing that read takes nearly as long as all other work
/// on an element.
pub(super) type Prefix<'a> = Option<&'a str>;

/// Converts a prefix, which may be empty.
pub(super) fn prefix(name: &str) -> Prefix<'_> {
    Some(name).filter(|name| !name.is_empty())
}

/// Namespace declarations in scope.
#[derive(Default)]
pub(super) struct Scopes<'a>(Vec<Scope<'a>>);

/// A namespace declaration, and the depth of its element.
struct Scope<'a> {
    prefix: Prefix<'a>,
    namespace: Namespace,
    depth: usize,
}

impl<'a> Scopes<'a> {
    /// Returns the number of declarations.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Records a declaration at an element of this depth.
    pub(super) fn declare(&mut self, prefix: Prefix<'a>, namespace: &str, depth: usize) {
        self.0.push(Scope { prefix, namespace: Namespace::named(namespace), depth });
    }

    /// Removes the declarations of an element of this depth, at its end.
    pub(super) fn leave(&mut self, depth: usize) {
        while self.0.last().is_some_and(|scope| scope.depth == depth) {
            self.0.pop();
        }
    }

    /// Returns the declarations that no inner one replaces, outermost first.
    pub(super) fn visible(&self) -> impl Iterator<Item = (Prefix<'a>, &Namespace)> {
        self.0.iter().enumerate().filter_map(|(at, scope)| {
            let is_replaced = self.0[at + 1..].iter().any(|inner| inner.prefix == scope.prefix);
            (!is_replaced).then_some((scope.prefix, &scope.namespace))
        })
    }

    /// Returns the namespace of a prefix; `None` if the prefix is not declared.
    pub(super) fn namespace(&self, prefix: Prefix<'_>) -> Option<Namespace> {
        let declared = self.0.iter().rev().find(|scope| scope.prefix == prefix);
        match (declared, prefix) {
            (Some(scope), _) => Some(scope.namespace.clone()),
            (None, None) => Some(Namespace::None),
            (None, Some("xml")) => Some(Namespace::named("http://www.w3.org/XML/1998/namespace")),
            (None, Some(_)) => None,
        }
    }
}
