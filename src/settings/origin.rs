//! Places where values of the configuration are given.

use std::{collections::BTreeMap, fmt};

/// Place where the value of a setting is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// `config/default.toml`.
    Defaults,
    /// A configuration file.
    File {
        /// Path of the file.
        path: String,
        /// Number of the line, from 1.
        line: usize,
    },
    /// Name of an environment variable.
    Environment(String),
    /// Name of a command-line flag.
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Defaults => f.write_str("in the defaults"),
            Self::File { path, .. } => write!(f, "in {path}"),
            Self::Environment(variable) => write!(f, "from the environment variable {variable}"),
            Self::Flag(flag) => write!(f, "from the flag {flag}"),
        }
    }
}

/// Origin of each value, by the path of its key.
#[derive(Debug, Default)]
pub struct Origins(BTreeMap<String, Origin>);

impl Origins {
    /// Notes the origin of the value at `key`. It replaces what was there, with everything below it.
    pub fn set(&mut self, key: &str, origin: Origin) {
        key.match_indices('.').for_each(|(at, _)| drop(self.0.remove(&key[..at])));
        let below: Vec<_> = self.below(key).map(|(path, _)| path.clone()).collect();
        below.iter().for_each(|path| drop(self.0.remove(path)));
        self.0.insert(key.to_owned(), origin);
    }

    /// Returns the origin of a value. That of a table is the first place in it that is not among the defaults; that of an
    /// element, or of a key that nobody gave, is that of what contains it.
    pub(super) fn of(&self, key: &str) -> Origin {
        let given = || self.below(key).map(|(_, origin)| origin).find(|origin| **origin != Origin::Defaults);
        match self.0.get(key).or_else(given) {
            Some(origin) => origin.clone(),
            None if self.below(key).next().is_some() => Origin::Defaults,
            None => key.rsplit_once(['.', '[']).map_or(Origin::Defaults, |(parent, _)| self.of(parent)),
        }
    }

    /// Returns the values in a table.
    fn below(&self, key: &str) -> impl Iterator<Item = (&String, &Origin)> {
        let table = format!("{key}.");
        self.0.range(table.clone()..).take_while(move |(path, _)| path.starts_with(&table))
    }
}

#[cfg(test)]
mod tests {
    use super::{Origin, Origins};

    #[test]
    fn origin_of_a_table_is_that_of_its_first_own_value() {
        let mut origins = Origins::default();
        let line = |line| Origin::File { path: "my.toml".to_owned(), line };
        origins.set("a.x", Origin::Defaults);
        origins.set("a.y", line(7));
        origins.set("b.x", Origin::Defaults);
        for (key, origin) in [("a.x", Origin::Defaults), ("a", line(7)), ("a.y[0]", line(7)), ("b", Origin::Defaults)] {
            assert_eq!(origins.of(key), origin, "{key}");
        }
    }
}
