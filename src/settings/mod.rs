//! Specifications of settings. A table of the configuration, of a source or of a definition over HTTP is declared once,
//! with [`settings!`]: each key with its type, its default and one sentence. From that come the struct of the values, the
//! check of types, ranges and names, the JSON schema, and the comparison with the comments in `config/default.toml`.
//!
//! This module knows no table. It reads a [`Setting`], which has its key and the place where it is given, so that each
//! error names them.

mod error;
mod origin;
mod redaction;
mod schema;
mod setting;
mod table;
mod value;

pub use error::{SettingError, SettingErrors};
pub use origin::{Origin, Origins};
pub use redaction::{Content, RedactedSetting, Shape};
pub use schema::{object_schema, string_schema};
pub use setting::Setting;
pub(crate) use table::settings;
pub use table::{Key, Reader, Table, joined, names};
pub use value::{Any, Choice, Choose, Flag, List, Seconds, SecretText, Structure, Text, TextType, ValueType, Whole};
