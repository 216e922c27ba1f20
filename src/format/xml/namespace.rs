//! Namespaces in XML 1.0: what a prefix stands for, where it stands.

use std::rc::Rc;

use super::ATOM;

/// The namespace of an element.
#[derive(Clone, Debug)]
pub(super) enum Namespace {
    None,
    /// That of Atom, known when it is declared: every element is asked for it.
    Atom,
    /// Shared with every element in it: a name of a megabyte may be that of as many elements.
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

/// What stands before the colon of a name; `None` where nothing does.
///
/// That is not an empty slice, since to compare two of those the C library reads at their addresses,
/// which are no memory, with all bytes masked: where that is done with AVX-512, the read that is
/// suppressed takes nearly as long as all else that is done for an element.
pub(super) type Prefix<'a> = Option<&'a str>;

/// The prefix `name`, which may be empty.
pub(super) fn prefix(name: &str) -> Prefix<'_> {
    Some(name).filter(|name| !name.is_empty())
}

/// The namespace declarations that hold where a document is being read.
#[derive(Default)]
pub(super) struct Scopes<'a>(Vec<Scope<'a>>);

/// A namespace declaration and the depth of the element that has it.
struct Scope<'a> {
    prefix: Prefix<'a>,
    namespace: Namespace,
    depth: usize,
}

impl<'a> Scopes<'a> {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Takes note of a declaration at the element of that depth.
    pub(super) fn declare(&mut self, prefix: Prefix<'a>, namespace: &str, depth: usize) {
        self.0.push(Scope { prefix, namespace: Namespace::named(namespace), depth });
    }

    /// Forgets the declarations of the element of that depth, at its end.
    pub(super) fn leave(&mut self, depth: usize) {
        while self.0.last().is_some_and(|scope| scope.depth == depth) {
            self.0.pop();
        }
    }

    /// The namespace that a prefix stands for; `None` where the prefix is not declared.
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
