//! Fingerprint of a configuration: which of its tables have changed since it was loaded before.

use std::{collections::BTreeMap, fs};

use serde_json::Value;
use sha2::{Digest, Sha256};

/// Digests of the tables of a configuration, by name. A digest covers the files that contain secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprint(BTreeMap<String, [u8; 32]>);

impl Fingerprint {
    /// Returns the fingerprint of the merged tables.
    pub(super) fn of(root: &Value) -> Self {
        let tables = root.as_object().into_iter().flatten();
        let digest = |(name, table): (&String, &Value)| {
            let mut digest = Sha256::new();
            digest.update(table.to_string());
            for_each_secret_file(table, &mut |path| {
                // A file that cannot be read is an error of the configuration, which is reported elsewhere.
                digest.update(fs::read(path).unwrap_or_default());
            });
            (name.clone(), digest.finalize().into())
        };
        Self(tables.map(digest).collect())
    }

    /// Returns the names of the tables that differ.
    #[must_use]
    pub fn changed_tables(&self, former: &Self) -> Vec<String> {
        let names = self.0.keys().chain(former.0.keys());
        let mut changed: Vec<_> = names.filter(|name| self.0.get(*name) != former.0.get(*name)).cloned().collect();
        changed.sort();
        changed.dedup();
        changed
    }
}

/// Calls `each` with the path of each value that is given as `{ file = "PATH" }`.
fn for_each_secret_file(value: &Value, each: &mut impl FnMut(&str)) {
    match value {
        Value::Object(table) => match table.get("file") {
            Some(Value::String(path)) if table.len() == 1 => each(path),
            _ => table.values().for_each(|value| for_each_secret_file(value, each)),
        },
        Value::Array(values) => values.iter().for_each(|value| for_each_secret_file(value, each)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::Fingerprint;

    #[test]
    fn a_table_changes_with_its_text_and_with_the_files_of_its_secrets() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secret");
        fs::write(&file, "one").unwrap();
        let secret = json!({ "file": file });
        let config = |filter: &str| json!({ "log": { "filter": filter }, "sources": { "s": { "url": [secret] } } });
        let first = Fingerprint::of(&config("info"));
        assert!(Fingerprint::of(&config("info")).changed_tables(&first).is_empty());
        assert_eq!(Fingerprint::of(&config("debug")).changed_tables(&first), ["log"]);
        fs::write(&file, "two").unwrap();
        assert_eq!(Fingerprint::of(&config("info")).changed_tables(&first), ["sources"]);
        assert_eq!(Fingerprint::of(&json!({ "log": { "filter": "info" } })).changed_tables(&first), ["sources"]);
    }
}
