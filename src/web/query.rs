//! Strict parsing of query parameters: an unknown parameter is a mistake of the client, and an ignored filter would
//! return too much.
//!
//! This is a separate deserializer, because serde's messages do not name the parameter, do not suggest the nearest
//! name, and do not support repeated parameters.

use std::{collections::BTreeMap, fmt};

use axum::{extract::FromRequestParts, http::request::Parts};
use serde::{
    Deserializer,
    de::{DeserializeOwned, DeserializeSeed, IntoDeserializer, MapAccess, Visitor, value::SeqDeserializer},
    forward_to_deserialize_any,
};
use url::form_urlencoded;

use super::{Problem, ProblemCode, extract::describe_type};
use crate::{suggestion::nearest_name, text::line};

/// Query parameters, deserialized as `T`, a struct that names every parameter. It must not flatten another struct,
/// because that hides the names. A `Vec` accepts a repeated parameter.
///
/// Any other parameter is [`ProblemCode::InvalidQuery`], with its name in the member `parameter`.
#[derive(Clone, Copy, Debug)]
pub struct Query<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Ok(Self::parse(parts.uri.query().unwrap_or(""))?)
    }
}

impl<T: DeserializeOwned> Query<T> {
    /// Parses a query without its question mark.
    ///
    /// # Errors
    /// When a parameter is unknown, missing, repeated or of the wrong type.
    pub fn parse(query: &str) -> Result<Self, InvalidQuery> {
        let mut parameters = Parameters(BTreeMap::new());
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            parameters.0.entry(name.into_owned()).or_default().push(value.into_owned());
        }
        T::deserialize(parameters).map(Self)
    }
}

/// Maximum length of an error message, which may repeat a value of the query, in characters.
const MAX_MESSAGE: usize = 400;

/// Reason why a query is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct InvalidQuery {
    parameter: Option<String>,
    detail: String,
}

impl InvalidQuery {
    fn unknown(name: &str, known: &[&str]) -> Self {
        let name: String = name.chars().take(64).collect();
        let name = name.as_str();
        let hint = match nearest_name(name, known.iter().copied()) {
            Some(nearest) => format!("did you mean {nearest:?}?"),
            None if known.is_empty() => "there are none here.".to_owned(),
            None => format!("there are {}.", known.join(", ")),
        };
        Self { parameter: Some(name.to_owned()), detail: format!("There is no parameter {name:?}; {hint}") }
    }

    fn of(self, name: &str) -> Self {
        let detail = format!("The parameter {name:?} is wrong: {}.", self.detail);
        Self { parameter: Some(name.to_owned()), detail }
    }
}

impl serde::de::Error for InvalidQuery {
    fn custom<T: fmt::Display>(message: T) -> Self {
        // The message may repeat input of the client.
        Self { parameter: None, detail: line(&message.to_string(), MAX_MESSAGE).to_string() }
    }

    fn missing_field(field: &'static str) -> Self {
        Self { parameter: Some(field.to_owned()), detail: format!("The parameter {field:?} is missing.") }
    }
}

impl From<InvalidQuery> for Problem {
    fn from(invalid: InvalidQuery) -> Self {
        let problem = Self::new(ProblemCode::InvalidQuery, invalid.detail);
        match invalid.parameter {
            Some(parameter) => problem.with("parameter", parameter),
            None => problem,
        }
    }
}

/// All parameters, each with its values in order of appearance.
struct Parameters(BTreeMap<String, Vec<String>>);

impl<'de> Deserializer<'de> for Parameters {
    type Error = InvalidQuery;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, InvalidQuery> {
        match self.0.keys().find(|name| !fields.contains(&name.as_str())) {
            Some(unknown) => Err(InvalidQuery::unknown(unknown, fields)),
            None => self.deserialize_map(visitor),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, InvalidQuery> {
        visitor.visit_map(Entries { remaining: self.0.into_iter(), current: None })
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, InvalidQuery> {
        self.deserialize_map(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct enum identifier ignored_any
    }
}

struct Entries {
    remaining: std::collections::btree_map::IntoIter<String, Vec<String>>,
    current: Option<(String, Vec<String>)>,
}

impl<'de> MapAccess<'de> for Entries {
    type Error = InvalidQuery;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, InvalidQuery> {
        self.current = self.remaining.next();
        self.current.as_ref().map(|(name, _)| seed.deserialize(name.as_str().into_deserializer())).transpose()
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, InvalidQuery> {
        let (name, values) = self.current.take().unwrap_or_default();
        seed.deserialize(Values(values)).map_err(|error| error.of(&name))
    }
}

/// Values of one parameter.
struct Values(Vec<String>);

impl Values {
    fn single(mut self) -> Result<String, InvalidQuery> {
        match self.0.len() {
            1 => Ok(self.0.pop().unwrap_or_default()),
            _ => Err(serde::de::Error::custom("it may be given only once")),
        }
    }

    fn parse<N: std::str::FromStr>(self) -> Result<N, InvalidQuery> {
        let value = self.single()?;
        let expected = describe_type(std::any::type_name::<N>());
        value.parse().map_err(|_| serde::de::Error::custom(format!("{value:?} is not {expected}")))
    }
}

macro_rules! parse_scalars {
    ($($method:ident => $visit:ident,)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, InvalidQuery> {
            visitor.$visit(self.parse()?)
        })*
    };
}

impl<'de> Deserializer<'de> for Values {
    type Error = InvalidQuery;

    parse_scalars! {
        deserialize_bool => visit_bool,
        deserialize_i8 => visit_i8,
        deserialize_i16 => visit_i16,
        deserialize_i32 => visit_i32,
        deserialize_i64 => visit_i64,
        deserialize_u8 => visit_u8,
        deserialize_u16 => visit_u16,
        deserialize_u32 => visit_u32,
        deserialize_u64 => visit_u64,
        deserialize_f64 => visit_f64,
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, InvalidQuery> {
        visitor.visit_string(self.single()?)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, InvalidQuery> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, InvalidQuery> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, InvalidQuery> {
        visitor.visit_seq(SeqDeserializer::new(self.0.into_iter().map(|value| Values(vec![value]))))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, InvalidQuery> {
        visitor.visit_enum(self.single()?.into_deserializer())
    }

    forward_to_deserialize_any! {
        i128 u128 f32 char str string bytes byte_buf unit unit_struct tuple tuple_struct map struct identifier
        ignored_any
    }
}

impl<'de> IntoDeserializer<'de, InvalidQuery> for Values {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::{super::Problem, Query};

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Change {
        Add,
        Update,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Page {
        after: u64,
        limit: Option<u16>,
        #[serde(default)]
        source: Vec<String>,
        #[serde(default)]
        change: Vec<Change>,
        object: Option<std::net::IpAddr>,
    }

    #[test]
    fn every_parameter_is_parsed() {
        let Query(page) =
            Query::<Page>::parse("after=7&source=a%2Fb&limit=10&source=c+d&change=add&change=update&object=::1")
                .unwrap();
        let expected = Page {
            after: 7,
            limit: Some(10),
            source: vec!["a/b".to_owned(), "c d".to_owned()],
            change: vec![Change::Add, Change::Update],
            object: Some("::1".parse().unwrap()),
        };
        assert_eq!(page, expected);
    }

    #[test]
    fn errors_name_the_parameter() {
        for (query, parameter, detail) in [
            ("after=1&limt=2", "limt", r#"There is no parameter "limt"; did you mean "limit"?"#),
            ("after=1&x=", "x", r#"There is no parameter "x"; there are after, limit, source, change, object."#),
            ("limit=2", "after", r#"The parameter "after" is missing."#),
            ("after=1&after=2", "after", r#"The parameter "after" is wrong: it may be given only once."#),
            ("after=-1", "after", r#"The parameter "after" is wrong: "-1" is not a whole number, 0 or more."#),
            ("after=1&limit=", "limit", r#"The parameter "limit" is wrong: "" is not a whole number, 0 or more."#),
            ("after=1&object=h", "object", r#"The parameter "object" is wrong: invalid IP address syntax."#),
            (
                "after=1&change=add&change=no",
                "change",
                r#"The parameter "change" is wrong: unknown variant `no`, expected `add` or `update`."#,
            ),
        ] {
            let problem = Problem::from(Query::<Page>::parse(query).unwrap_err());
            assert_eq!(problem.detail(), detail, "{query}");
            assert!(problem.to_json().contains(&format!("\"parameter\":\"{parameter}\"")), "{query}");
        }
    }
}
