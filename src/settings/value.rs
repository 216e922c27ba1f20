//! Types of values. Each reads a setting and describes the values that it accepts.

use std::{marker::PhantomData, time::Duration};

use serde::de::{DeserializeOwned, IntoDeserializer, value};
use utoipa::{
    PartialSchema,
    openapi::{
        ArrayBuilder, ObjectBuilder, RefOr, Schema, Type,
        schema::{AdditionalProperties, OneOfBuilder, SchemaType},
    },
};

use super::{Content, Setting, SettingError, SettingErrors, string_schema};
use crate::{named::NamedValue, suggestion::advice};

/// Form of a text in a configuration, for error messages.
const TEXT: &str = "text in quotation marks";

/// Type of the value of a setting.
pub trait ValueType {
    /// Type of the value after reading.
    type Value;

    /// Whether a table can be without such a key.
    const OPTIONAL: bool = false;

    /// Kind of the content, for people who are shown the value.
    const CONTENT: Content = Content::Plain;

    /// Reads a setting that is given.
    ///
    /// # Errors
    /// Fails if the value has another type or is out of range.
    fn read(setting: &Setting) -> Result<Self::Value, SettingErrors>;

    /// Returns the value of a key that is not given; `None` if it must be given.
    fn absent() -> Option<Self::Value> {
        None
    }

    /// Returns the error for a key that must be given.
    fn missing(setting: &Setting) -> SettingError {
        setting.missing()
    }

    /// Returns the JSON schema.
    fn schema() -> Schema;
}

/// A value that need not be given.
impl<T: ValueType> ValueType for Option<T> {
    type Value = Option<T::Value>;
    const OPTIONAL: bool = true;
    const CONTENT: Content = T::CONTENT;

    fn read(setting: &Setting) -> Result<Self::Value, SettingErrors> {
        if setting.is_given() { T::read(setting).map(Some) } else { Ok(None) }
    }

    fn absent() -> Option<Self::Value> {
        Some(None)
    }

    fn schema() -> Schema {
        T::schema()
    }
}

/// A boolean.
pub struct Flag;

impl ValueType for Flag {
    type Value = bool;

    fn read(setting: &Setting) -> Result<bool, SettingErrors> {
        Ok(setting.boolean()?)
    }

    fn schema() -> Schema {
        ObjectBuilder::new().schema_type(SchemaType::Type(Type::Boolean)).into()
    }
}

/// A whole number from `MIN` to `MAX`, both included, as an `N`.
pub struct Whole<N, const MIN: u64, const MAX: u64>(PhantomData<N>);

impl<N: TryFrom<u64>, const MIN: u64, const MAX: u64> ValueType for Whole<N, MIN, MAX> {
    type Value = N;

    fn read(setting: &Setting) -> Result<N, SettingErrors> {
        let expected = format!("a whole number from {MIN} to {MAX}");
        let number = setting.whole_number(&expected)?;
        let in_range = (MIN..=MAX).contains(&number).then(|| N::try_from(number).ok()).flatten();
        let reason = || format!("it is {number}; give {expected}");
        in_range.ok_or_else(|| setting.invalid(reason()).into())
    }

    fn schema() -> Schema {
        let number = |number: u64| usize::try_from(number).ok();
        let integer = ObjectBuilder::new().schema_type(SchemaType::Type(Type::Integer));
        integer.minimum(number(MIN)).maximum(number(MAX)).into()
    }
}

/// A time in whole seconds, from `MIN` to `MAX`.
pub struct Seconds<const MIN: u64, const MAX: u64>;

impl<const MIN: u64, const MAX: u64> ValueType for Seconds<MIN, MAX> {
    type Value = Duration;

    fn read(setting: &Setting) -> Result<Duration, SettingErrors> {
        Whole::<u64, MIN, MAX>::read(setting).map(Duration::from_secs)
    }

    fn schema() -> Schema {
        Whole::<u64, MIN, MAX>::schema()
    }
}

/// A text, as a `T`.
pub struct Text<T = String>(PhantomData<T>);

impl<T: DeserializeOwned> ValueType for Text<T> {
    type Value = T;

    fn read(setting: &Setting) -> Result<T, SettingErrors> {
        let text = IntoDeserializer::<value::Error>::into_deserializer(setting.text(TEXT)?);
        T::deserialize(text).map_err(|error| setting.invalid(error.to_string()).into())
    }

    fn schema() -> Schema {
        string_schema(&[]).into()
    }
}

/// A type that is parsed from a text.
pub trait TextType {
    /// Type of the parsed text.
    type Value;

    /// Whether the text may be a secret, intended or by mistake.
    const MAY_BE_SECRET: bool = false;

    /// Expected form, for the error about a value that is no text.
    const EXPECTED: &'static str = TEXT;

    /// Parses the text. The error says what is wrong with it; it contains no secret.
    ///
    /// # Errors
    /// Fails if the text is none of the type.
    fn parse(text: &str) -> Result<Self::Value, String>;
}

impl<T: TextType> ValueType for T {
    type Value = T::Value;
    const CONTENT: Content = if T::MAY_BE_SECRET { Content::Secret } else { Content::Plain };

    fn read(setting: &Setting) -> Result<Self::Value, SettingErrors> {
        T::parse(&setting.text(T::EXPECTED)?).map_err(|reason| setting.invalid(reason).into())
    }

    fn schema() -> Schema {
        string_schema(&[]).into()
    }
}

/// A list.
pub struct List<T>(PhantomData<T>);

impl<T: ValueType> ValueType for List<T> {
    type Value = Vec<T::Value>;
    const CONTENT: Content = T::CONTENT;

    fn read(setting: &Setting) -> Result<Self::Value, SettingErrors> {
        setting.elements()?.iter().map(T::read).collect()
    }

    fn schema() -> Schema {
        ArrayBuilder::new().items(RefOr::T(T::schema())).into()
    }
}

/// An enum whose values are named in a setting.
pub trait Choose: NamedValue + 'static {
    /// Noun for the named things, for the error about an unknown name: "there is no WHAT \"NAME\"".
    const WHAT: &'static str;

    /// Returns the error about an unknown name.
    fn unknown(name: &str, known: &[&str]) -> String {
        let what = if Self::WHAT.is_empty() { String::new() } else { format!("{} ", Self::WHAT) };
        format!("there is no {what}{name:?}; {}", advice(name, known))
    }
}

/// The name of one of the values of an enum.
pub struct Choice<T>(PhantomData<T>);

impl<T: Choose> ValueType for Choice<T> {
    type Value = T;

    fn read(setting: &Setting) -> Result<T, SettingErrors> {
        let name = setting.text(TEXT)?;
        let found = T::all().iter().copied().find(|value| value.name() == name);
        let known = || T::all().iter().map(|value| value.name()).collect::<Vec<_>>();
        found.ok_or_else(|| setting.invalid(T::unknown(&name, &known())).into())
    }

    fn schema() -> Schema {
        let names: Vec<_> = T::all().iter().map(|value| value.name()).collect();
        string_schema(&names).into()
    }
}

/// A text that contains a secret: `"…"`, `{ file = "PATH" }` or `{ env = "NAME" }`. It is resolved later, because a file or a
/// variable may be there for some commands only.
pub struct SecretText;

impl ValueType for SecretText {
    type Value = Setting;
    const CONTENT: Content = Content::Secret;

    fn read(setting: &Setting) -> Result<Setting, SettingErrors> {
        Ok(setting.clone().secret())
    }

    fn schema() -> Schema {
        let variable =
            string_schema(&[]).description(Some("Environment variable of the gateway that contains the value."));
        let reference = ObjectBuilder::new().property("env", variable).required("env");
        let reference = reference.additional_properties(Some(AdditionalProperties::FreeForm(false)));
        OneOfBuilder::new().item(string_schema(&[])).item(reference).into()
    }
}

/// Any value, which is read later.
pub struct Any;

impl ValueType for Any {
    type Value = Setting;
    const CONTENT: Content = Content::Undeclared;

    fn read(setting: &Setting) -> Result<Setting, SettingErrors> {
        Ok(setting.clone())
    }

    fn schema() -> Schema {
        ObjectBuilder::new().schema_type(SchemaType::AnyValue).into()
    }
}

/// A value with a structure of its own.
pub struct Structure<T>(PhantomData<T>);

impl<T: DeserializeOwned + PartialSchema> ValueType for Structure<T> {
    type Value = T;

    fn read(setting: &Setting) -> Result<T, SettingErrors> {
        Ok(setting.structure()?)
    }

    fn schema() -> Schema {
        match T::schema() {
            RefOr::T(schema) => schema,
            RefOr::Ref(_) => Any::schema(),
        }
    }
}
