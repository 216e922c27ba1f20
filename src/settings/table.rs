//! Tables of settings, and the macro that declares them.

use utoipa::openapi::Schema;

use super::{Content, Setting, SettingError, SettingErrors, ValueType};

/// Specification of a key.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Name in the table.
    pub name: &'static str,
    /// Lines of the sentence that says what the key means, as they are written.
    pub(crate) lines: &'static [&'static str],
    /// Whether the table must contain the key.
    pub required: bool,
    /// Kind of the content, for people who are shown the value.
    pub(crate) content: Content,
    /// Returns the JSON schema of the value, without the sentence.
    pub(crate) schema: fn() -> Schema,
    /// Checks the value alone.
    pub(crate) check: fn(&Setting) -> Result<(), SettingErrors>,
}

impl Key {
    /// Returns the sentence that says what the key means, in one line.
    #[must_use]
    pub fn about(&self) -> String {
        self.lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
    }
}

/// A table whose keys are declared by [`settings!`](super::settings).
pub trait Table: Sized {
    /// All keys.
    const KEYS: &'static [Key];

    /// Reads the keys of this table among others, which are not checked.
    ///
    /// # Errors
    /// Fails if a key is missing, or a value is wrong.
    fn read_part(table: &Setting) -> Result<Self, SettingErrors>;

    /// Reads the table.
    ///
    /// # Errors
    /// Fails if a key is unknown or missing, or a value is wrong. A key that is missing beside one that is unknown is not
    /// reported, because it is probably misspelt.
    fn read_table(table: &Setting) -> Result<Self, SettingErrors> {
        let mut errors = table.unknown_keys(&Self::KEYS.iter().map(|key| key.name).collect::<Vec<_>>())?;
        match Self::read_part(table) {
            Ok(read) if errors.is_empty() => return Ok(read),
            Ok(_) => {}
            Err(SettingErrors(wrong)) => {
                let is_misspelt = !errors.is_empty();
                let is_unexplained = |error: &SettingError| match error {
                    SettingError::Missing { key } => !(is_misspelt && table.is_table_of(key)),
                    SettingError::Unknown { .. } | SettingError::Invalid { .. } => true,
                };
                errors.extend(wrong.into_iter().filter(is_unexplained));
            }
        }
        Err(SettingErrors(errors))
    }
}

/// Reads the keys of a table one after the other, and collects their errors.
pub struct Reader<'s> {
    table: &'s Setting,
    errors: Vec<SettingError>,
}

impl<'s> Reader<'s> {
    /// Creates the reader of a table.
    #[must_use]
    pub fn new(table: &'s Setting) -> Self {
        Self { table, errors: Vec::new() }
    }

    /// Reads a key; `None` if it is wrong or missing.
    pub fn key<T: ValueType>(&mut self, name: &str, default: Option<fn() -> T::Value>) -> Option<T::Value> {
        let read = match self.table.entry(name) {
            Ok(setting) if setting.is_given() => T::read(&setting),
            Ok(setting) => {
                default.map(|default| default()).or_else(T::absent).ok_or_else(|| T::missing(&setting).into())
            }
            // The table itself is reported once.
            Err(error) if self.errors.is_empty() => Err(error.into()),
            Err(_) => return None,
        };
        read.map_err(|SettingErrors(errors)| self.errors.extend(errors)).ok()
    }

    /// Returns the errors.
    #[must_use]
    pub fn errors(self) -> SettingErrors {
        SettingErrors(self.errors)
    }
}

/// Returns the names of `N` keys.
#[must_use]
pub const fn names<const N: usize>(keys: &[Key]) -> [&'static str; N] {
    let mut names = [""; N];
    let mut at = 0;
    while at < N {
        names[at] = keys[at].name;
        at += 1;
    }
    names
}

/// Returns the keys of two tables, `N` in all.
#[must_use]
pub const fn joined<const N: usize>(one: &[Key], other: &[Key]) -> [Key; N] {
    let mut keys = [one[0]; N];
    let mut at = 1;
    while at < N {
        keys[at] = if at < one.len() { one[at] } else { other[at - one.len()] };
        at += 1;
    }
    keys
}

/// Declares a table of settings. A member has the type that its [`ValueType`] yields. `as` gives it a name that differs from
/// its key, and `=` a default; without a default, the key is required unless its type is an `Option`. The comment is the
/// sentence about the key.
///
/// ```ignore
/// settings! {
///     /// `[server]`
///     pub struct ServerConfig {
///         /// maximum time to stop.
///         pub grace as "grace_seconds": Seconds<1, 600> = Duration::from_secs(10),
///     }
/// }
/// ```
macro_rules! settings {
    (
        $(#[$of_table:meta])*
        $table_vis:vis struct $Table:ident {
            $(
                $(#[doc = $about:literal])+
                $vis:vis $member:ident $(as $key:literal)?: $type:ty $(= $default:expr)?,
            )*
        }
    ) => {
        $(#[$of_table])*
        $table_vis struct $Table {
            $($(#[doc = $about])+ $vis $member: <$type as $crate::settings::ValueType>::Value,)*
        }

        impl $crate::settings::Table for $Table {
            const KEYS: &'static [$crate::settings::Key] = &[$($crate::settings::Key {
                name: $crate::settings::settings!(@name $member $($key)?),
                lines: &[$($about),+],
                required: $crate::settings::settings!(@required $type $(, $default)?),
                content: <$type as $crate::settings::ValueType>::CONTENT,
                schema: <$type as $crate::settings::ValueType>::schema,
                check: |setting| <$type as $crate::settings::ValueType>::read(setting).map(drop),
            }),*];

            fn read_part(table: &$crate::settings::Setting) -> Result<Self, $crate::settings::SettingErrors> {
                let mut reader = $crate::settings::Reader::new(table);
                $(let $member = reader.key::<$type>(
                    $crate::settings::settings!(@name $member $($key)?),
                    $crate::settings::settings!(@default $($default)?),
                );)*
                match ($($member,)*) {
                    ($(Some($member),)*) => Ok(Self { $($member),* }),
                    _ => Err(reader.errors()),
                }
            }
        }

        impl $crate::settings::ValueType for $Table {
            type Value = Self;
            const CONTENT: $crate::settings::Content =
                $crate::settings::Content::Table(<Self as $crate::settings::Table>::KEYS);

            fn read(setting: &$crate::settings::Setting) -> Result<Self, $crate::settings::SettingErrors> {
                <Self as $crate::settings::Table>::read_table(setting)
            }

            fn schema() -> utoipa::openapi::Schema {
                $crate::settings::object_schema(<Self as $crate::settings::Table>::KEYS).into()
            }
        }
    };
    (@name $member:ident) => { stringify!($member) };
    (@name $member:ident $key:literal) => { $key };
    (@required $type:ty) => { !<$type as $crate::settings::ValueType>::OPTIONAL };
    (@required $type:ty, $default:expr) => { false };
    (@default) => { None };
    (@default $default:expr) => { Some(|| $default) };
}
pub(crate) use settings;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::{Table, joined, names};
    use crate::settings::{Flag, List, Origins, Seconds, Setting, Text, Whole};

    settings! {
        struct Inner {
            /// Needed.
            needed: Flag,
        }
    }

    settings! {
        struct Outer {
            /// A number,
            /// in two lines.
            number: Whole<u8, 1, 9> = 3,
            /// A time.
            time as "time_seconds": Option<Seconds<1, 60>>,
            /// A list.
            list: List<Text>,
            /// A table.
            inner: Inner,
        }
    }

    fn read(value: Value) -> Result<Outer, Vec<String>> {
        let table = Setting::root(value, Origins::default()).read::<Outer>();
        table.map_err(|errors| errors.0.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn tables_have_defaults_and_names_of_their_own() {
        let table =
            read(json!({ "list": ["a"], "inner": { "needed": true }, "time_seconds": 7 })).unwrap_or_else(|_| panic!());
        assert_eq!((table.number, table.time), (3, Some(Duration::from_secs(7))));
        assert_eq!((table.list, table.inner.needed), (vec!["a".to_owned()], true));
        assert_eq!(names(Outer::KEYS), ["number", "time_seconds", "list", "inner"]);
        assert_eq!(Outer::KEYS[0].about(), "A number, in two lines.");
        assert_eq!(Outer::KEYS.iter().map(|key| key.required).collect::<Vec<_>>(), [false, false, true, true]);
        let both: [_; 5] = joined(Outer::KEYS, Inner::KEYS);
        assert_eq!(names(&both), ["number", "time_seconds", "list", "inner", "needed"]);
    }

    #[test]
    fn all_errors_of_a_table_are_found() {
        let errors = read(json!({ "number": 10, "time_seconds": "x", "inner": {} })).err().unwrap();
        let expected = [
            "the setting number in the defaults is wrong: it is 10; give a whole number from 1 to 9",
            "the setting time_seconds in the defaults is wrong: it is \"x\"; give a whole number from 1 to 60",
            "the setting list is missing; add it to []",
            "the setting inner.needed is missing; add it to [inner]",
        ];
        assert_eq!(errors, expected);
    }

    #[test]
    fn nothing_is_missing_beside_a_misspelt_key() {
        let errors = read(json!({ "lst": ["a"], "inner": {} })).err().unwrap();
        let expected = [
            "unknown setting lst in the defaults; did you mean list?",
            "the setting inner.needed is missing; add it to [inner]",
        ];
        assert_eq!(errors, expected);
    }
}
