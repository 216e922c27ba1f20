//! Settings as people may see them: each value with its key and its origin, and without secrets.

use serde_json::Value;
use url::Url;

use super::{Key, Origin, Setting};
use crate::suggestion::is_variable_name;

/// Text that stands for a secret.
const SECRET: &str = "\"(secret)\"";

/// Declaration of the content of a value.
#[derive(Clone, Copy, Debug)]
pub enum Content {
    /// The value may be shown.
    Plain,
    /// The value is a secret, or a reference to one.
    Secret,
    /// The value is a table of these keys.
    Table(&'static [Key]),
    /// The declaration does not say it. [`Shape`] does.
    Undeclared,
}

/// Content of a value whose declaration leaves it open.
pub enum Shape {
    /// The value may be shown.
    Plain,
    /// The value is a secret.
    Secret,
    /// The value is a table of the keys of all these tables.
    Table(Vec<&'static [Key]>),
}

/// A value with its key and its origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedactedSetting {
    /// Path of the key, as in TOML.
    pub key: String,
    /// Value in TOML, without secrets.
    pub value: String,
    /// Place of the value.
    pub origin: Origin,
}

impl Setting {
    /// Returns all values of a table in the order of their keys. A key that is not among `keys` counts as a secret, and
    /// `shape` decides about the entries of a table whose declaration does not say what they contain.
    #[must_use]
    pub fn redacted(&self, keys: &[&'static [Key]], shape: &dyn Fn(&Self) -> Shape) -> Vec<RedactedSetting> {
        let mut listing = Listing { shape, shown: Vec::new() };
        listing.table("", self, keys);
        listing.shown
    }
}

/// The values that are shown so far. Each function takes the path of a key as TOML writes it, because a name may have dots.
struct Listing<'s> {
    shape: &'s dyn Fn(&Setting) -> Shape,
    shown: Vec<RedactedSetting>,
}

impl Listing<'_> {
    fn table(&mut self, path: &str, table: &Setting, keys: &[&'static [Key]]) {
        for (name, setting) in table.entries().unwrap_or_default() {
            let path = below(path, &name);
            let declared = keys.iter().copied().flatten().find(|key| key.name == name);
            match declared.map_or(Content::Secret, |key| key.content) {
                Content::Plain => self.plain(&path, &setting),
                Content::Secret => self.secret(&path, &setting),
                Content::Table(keys) => self.table(&path, &setting, &[keys]),
                Content::Undeclared if matches!((self.shape)(&setting), Shape::Plain) => self.plain(&path, &setting),
                Content::Undeclared => self.undeclared(&path, &setting),
            }
        }
    }

    fn undeclared(&mut self, path: &str, table: &Setting) {
        let Ok(entries) = table.entries() else { return self.secret(path, table) };
        for (name, entry) in entries {
            let path = below(path, &name);
            match (self.shape)(&entry) {
                Shape::Plain => self.plain(&path, &entry),
                Shape::Secret => self.secret(&path, &entry),
                Shape::Table(keys) => self.table(&path, &entry, &keys),
            }
        }
    }

    /// Shows a value, or each value of a table.
    fn plain(&mut self, path: &str, setting: &Setting) {
        match setting.entries() {
            Ok(entries) => entries.iter().for_each(|(name, entry)| self.plain(&below(path, name), entry)),
            Err(_) => self.show(path, setting, toml(setting.value())),
        }
    }

    /// Shows where a secret is, or that there is one.
    fn secret(&mut self, path: &str, setting: &Setting) {
        self.show(path, setting, secret(setting.value()));
    }

    fn show(&mut self, path: &str, setting: &Setting, value: String) {
        if setting.is_given() {
            self.shown.push(RedactedSetting { key: path.to_owned(), value, origin: setting.origin() });
        }
    }
}

/// Returns the path of a key in a table.
fn below(path: &str, name: &str) -> String {
    let name = toml_name(name);
    if path.is_empty() { name } else { format!("{path}.{name}") }
}

/// Returns a secret without its secret part: the reference to it, or the server of a URL.
fn secret(value: &Value) -> String {
    match value {
        Value::Array(elements) => format!("[{}]", elements.iter().map(secret).collect::<Vec<_>>().join(", ")),
        Value::Object(reference) if reference.len() == 1 => match (reference.get("file"), reference.get("env")) {
            (Some(Value::String(path)), _) => format!("{{ file = {} }}", toml(&path.as_str().into())),
            // A text that is no name may be the secret itself.
            (_, Some(Value::String(name))) if is_variable_name(name) => format!("{{ env = {name:?} }}"),
            _ => SECRET.to_owned(),
        },
        Value::String(text) => server(text).map_or_else(|| SECRET.to_owned(), |server| toml(&server.into())),
        _ => SECRET.to_owned(),
    }
}

/// Returns the server of a URL, without user, password, path and query; `None` if the text is no such URL.
fn server(text: &str) -> Option<String> {
    let url = Url::parse(text).ok()?;
    let host = url.host_str().filter(|host| !host.is_empty())?;
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    Some(format!("{}://{host}{port}/…", url.scheme()))
}

/// Returns a value in TOML. A URL with a user or a password is reduced to its server, because somebody may have written one
/// where none belongs.
fn toml(value: &Value) -> String {
    match value {
        Value::Array(elements) => format!("[{}]", elements.iter().map(toml).collect::<Vec<_>>().join(", ")),
        Value::Object(table) => {
            let entries: Vec<_> =
                table.iter().map(|(name, value)| format!("{} = {}", toml_name(name), toml(value))).collect();
            format!("{{ {} }}", entries.join(", "))
        }
        Value::String(text) => {
            let has_user = Url::parse(text).is_ok_and(|url| !url.username().is_empty() || url.password().is_some());
            match server(text).filter(|_| has_user) {
                Some(server) => Value::from(server).to_string(),
                // JSON and TOML write texts in the same way.
                None => value.to_string(),
            }
        }
        scalar => scalar.to_string(),
    }
}

/// Returns a part of a key, in quotation marks if it needs them.
fn toml_name(name: &str) -> String {
    let is_bare = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    if is_bare { name.to_owned() } else { Value::from(name).to_string() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{secret, toml};

    #[test]
    fn secrets_are_replaced() {
        for (value, shown) in [
            (json!("hush hush hush"), "\"(secret)\""),
            (json!(7), "\"(secret)\""),
            (json!("amqp://me:hush@broker.example:5671/v"), "\"amqp://broker.example:5671/…\""),
            (json!("https://h.example/hush?key=hush"), "\"https://h.example/…\""),
            (json!("postgres://me:hush@a,b/hush"), "\"postgres://a,b/…\""),
            (json!({ "env": "WEBHOOK_SECRET" }), "{ env = \"WEBHOOK_SECRET\" }"),
            (json!({ "env": "hush0hush0hush0hush0" }), "\"(secret)\""),
            (json!({ "file": "/etc/key" }), "{ file = \"/etc/key\" }"),
            (json!({ "value": "hush" }), "\"(secret)\""),
            (json!(["hush", { "env": "A_B" }]), "[\"(secret)\", { env = \"A_B\" }]"),
        ] {
            assert_eq!(secret(&value), shown, "{value}");
        }
    }

    #[test]
    fn values_are_toml() {
        for (value, shown) in [
            (json!("a\"b\n"), r#""a\"b\n""#),
            (json!([1, 1.5, true]), "[1, 1.5, true]"),
            (json!([{ "name": "q", "a.b": [] }]), "[{ \"a.b\" = [], name = \"q\" }]"),
            (json!("http://me:hush@h.example/rest"), "\"http://h.example/…\""),
            (json!("http://h.example/rest"), "\"http://h.example/rest\""),
        ] {
            assert_eq!(toml(&value), shown);
        }
    }
}
