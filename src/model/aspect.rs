//! Aspects: facts about an object or an item that change independently of each other.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

named_values! {
    /// A fact that has its own clock in the registry. Events of one object may arrive out of order, and an older
    /// change of content must neither hide a newer change of state nor be hidden by it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub enum Aspect {
        /// Existence of an item.
        Existence = "existence",
        /// Content location of an item.
        Content = "content",
        /// State of an item.
        State = "state",
        /// Parent of an object.
        Parent = "parent",
        /// Types of an object.
        Types = "types",
    }
}

impl Aspect {
    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// A set of aspects, in JSON a list of their names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AspectSet(u8);

impl AspectSet {
    /// The empty set.
    pub const EMPTY: Self = Self(0);

    /// Returns the aspects with these names, separated by white space (an XML Schema list). Ignores unknown names, which
    /// are from a later version.
    #[must_use]
    pub fn of_names(names: &str) -> Self {
        let aspect = |name| Aspect::ALL.into_iter().find(|aspect| aspect.name() == name);
        names.split_whitespace().filter_map(aspect).collect()
    }

    /// Adds an aspect.
    pub fn insert(&mut self, aspect: Aspect) {
        self.0 |= aspect.bit();
    }

    /// Returns whether the set contains the aspect.
    #[must_use]
    pub fn contains(self, aspect: Aspect) -> bool {
        self.0 & aspect.bit() != 0
    }

    /// Returns whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0 == 0
    }

    /// Returns the aspects of the set, in order of declaration.
    pub fn iter(self) -> impl Iterator<Item = Aspect> {
        Aspect::ALL.into_iter().filter(move |aspect| self.contains(*aspect))
    }
}

/// Writes the names separated by spaces (an XML Schema list).
impl fmt::Display for AspectSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.iter().enumerate().try_for_each(|(index, aspect)| {
            f.write_str(if index == 0 { "" } else { " " })?;
            f.write_str(aspect.name())
        })
    }
}

impl FromIterator<Aspect> for AspectSet {
    fn from_iter<I: IntoIterator<Item = Aspect>>(aspects: I) -> Self {
        let mut set = Self::EMPTY;
        aspects.into_iter().for_each(|aspect| set.insert(aspect));
        set
    }
}

impl Serialize for AspectSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<'de> Deserialize<'de> for AspectSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Vec::<Aspect>::deserialize(deserializer)?.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::{Aspect, AspectSet};

    #[test]
    fn an_aspect_has_one_name() {
        for aspect in Aspect::ALL {
            assert_eq!(serde_json::to_value(aspect).unwrap(), aspect.name());
        }
        let set = AspectSet::from_iter([Aspect::State, Aspect::Content]);
        assert_eq!(set.to_string(), "content state");
        assert_eq!(AspectSet::of_names(" state\ncontent colour"), set);
    }
}
