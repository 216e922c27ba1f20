//! The settings of the dialect: a map from the parts of a message to the members of a change, with presets.

use serde::Deserialize;
use serde_json::{Map as JsonObject, Value as Json};
use toml::de::{DeTable, DeValue};

use super::{
    kinds::{Kind, Patterns},
    value::{TextValue, UriValue, VariableValue},
};
use crate::{
    format::{InvalidSettings, parse_settings, routing::SystemUrl},
    model::State,
    suggestion::unknown_name,
    template::{Condition, JsonPointer},
};

/// A map for a known sender.
pub(super) struct Preset {
    /// Name in the configuration.
    pub(super) name: &'static str,
    /// Settings as in a configuration.
    pub(super) toml: &'static str,
    /// Whether its templates need `base_url`.
    pub(super) needs_base_url: bool,
}

/// All presets, by name.
pub(super) static PRESETS: [Preset; 3] = [
    Preset { name: "s3", toml: include_str!("presets/s3.toml"), needs_base_url: false },
    Preset { name: "alfresco", toml: include_str!("presets/alfresco.toml"), needs_base_url: true },
    Preset { name: "alma", toml: include_str!("presets/alma.toml"), needs_base_url: true },
];

/// The map of a source.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Map {
    /// Base URL of the sender's things, which templates name.
    pub(super) base_url: Option<SystemUrl>,
    /// Whether the messages are CloudEvents in structured or binary mode.
    #[serde(default)]
    pub(super) cloudevents: bool,
    /// Pointer to a text that has the message as JSON, in an envelope.
    pub(super) unwrap: Option<PointerText>,
    /// Pointer to an array, each of whose elements is an event.
    pub(super) each: Option<PointerText>,
    /// Condition of elements that change nothing.
    pub(super) skip_if: Option<ConditionText>,
    pub(super) object: UriValue,
    /// The item; by default the object.
    pub(super) item: Option<UriValue>,
    pub(super) parent: Option<UriValue>,
    #[serde(default)]
    pub(super) types: Vec<UriValue>,
    pub(super) time: Option<VariableValue>,
    pub(super) id: Option<VariableValue>,
    pub(super) user: Option<TextValue>,
    pub(super) user_uri: Option<UriValue>,
    pub(super) description: Option<TextValue>,
    /// The kind of the event, or a word that `kinds` has; by default `content`.
    pub(super) kind: Option<TextValue>,
    #[serde(default)]
    pub(super) kinds: Patterns<Kind>,
    pub(super) content: Option<Content>,
    pub(super) state: Option<TextValue>,
    #[serde(default)]
    pub(super) states: Patterns<State>,
    /// Time from which the public may see the item.
    pub(super) visible_from: Option<VariableValue>,
    /// Time until which the public may see the item.
    pub(super) visible_until: Option<VariableValue>,
}

/// The map of the content of an item.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Content {
    /// URL of the content; by default the item.
    pub(super) url: Option<UriValue>,
    pub(super) media_type: Option<TextValue>,
    pub(super) size: Option<VariableValue>,
    /// Digest with its algorithm, as in `md5:…`.
    pub(super) digest: Option<VariableValue>,
}

/// A pointer in the settings.
#[derive(Debug)]
pub(super) struct PointerText(pub(super) JsonPointer);

/// A condition in the settings.
#[derive(Debug)]
pub(super) struct ConditionText(pub(super) Condition);

impl<'de> Deserialize<'de> for PointerText {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        JsonPointer::parse(&text).map(Self).map_err(serde::de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for ConditionText {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Condition::parse(&text).map(Self).map_err(serde::de::Error::custom)
    }
}

/// Settings of a source, before and after the preset has filled them in.
pub(super) struct Settings {
    /// The map, with the preset.
    pub(super) map: Map,
    /// Name of the preset, if there is one.
    pub(super) preset: Option<&'static str>,
    /// The settings that the source itself has.
    own: JsonObject<String, Json>,
}

impl Settings {
    /// Reads the settings of a source.
    ///
    /// # Errors
    /// Fails with the key if a setting is unknown, missing or wrong.
    pub(super) fn read(settings: Json) -> Result<Self, InvalidSettings> {
        let mut own = match settings {
            Json::Object(own) => own,
            Json::Null => JsonObject::new(),
            _ => return Err(InvalidSettings::new("give a table".to_owned())),
        };
        let preset = own.remove("preset").map(|name| preset(&name)).transpose()?;
        let mut all = preset.map_or_else(|| Ok(Json::Object(JsonObject::new())), Preset::settings)?;
        merge(&mut all, &own);
        let map: Map = parse_settings(all)?;
        if let Some(preset) = preset.filter(|preset| preset.needs_base_url && map.base_url.is_none()) {
            let reason =
                format!("base_url is missing, which the preset {} needs: give the URL of the sender", preset.name);
            return Err(InvalidSettings::new(reason));
        }
        if map.states.is_empty() || map.state.is_some() {
            Ok(Self { map, preset: preset.map(|preset| preset.name), own })
        } else {
            Err(InvalidSettings::new("states has words of the sender; give state, from where they come".to_owned()))
        }
    }

    /// Returns the preset from which a setting comes; `None` if the source has it itself.
    pub(super) fn preset_of(&self, key: &str) -> Option<&'static str> {
        let mut parts = key.split('.');
        let first = parts.next().and_then(|part| self.own.get(part));
        let is_own = first.and_then(|first| parts.try_fold(first, |value, part| value.get(part))).is_some();
        self.preset.filter(|_| !is_own)
    }
}

impl Preset {
    fn settings(&self) -> Result<Json, InvalidSettings> {
        let table = DeTable::parse(self.toml);
        let table = table.map_err(|error| InvalidSettings::new(format!("preset {}: {error}", self.name)))?;
        Ok(table_as_json(table.get_ref()))
    }
}

fn table_as_json(table: &DeTable<'_>) -> Json {
    Json::Object(table.iter().map(|(key, value)| (key.get_ref().to_string(), as_json(value.get_ref()))).collect())
}

/// Converts a value of a preset. Presets have texts, flags, lists and tables.
fn as_json(value: &DeValue<'_>) -> Json {
    match value {
        DeValue::String(text) => Json::String(text.to_string()),
        DeValue::Boolean(flag) => Json::Bool(*flag),
        DeValue::Array(list) => list.iter().map(|element| as_json(element.get_ref())).collect(),
        DeValue::Table(table) => table_as_json(table),
        DeValue::Integer(_) | DeValue::Float(_) | DeValue::Datetime(_) => Json::Null,
    }
}

fn preset(name: &Json) -> Result<&'static Preset, InvalidSettings> {
    let Some(name) = name.as_str() else { return Err(InvalidSettings::new("preset: give text".to_owned())) };
    PRESETS.iter().find(|preset| preset.name == name).ok_or_else(|| {
        let known: Vec<_> = PRESETS.iter().map(|preset| preset.name).collect();
        InvalidSettings::new(unknown_name("preset", name, &known))
    })
}

/// Puts the settings of a source over those of a preset. Tables are merged key by key.
fn merge(all: &mut Json, own: &JsonObject<String, Json>) {
    let Json::Object(all) = all else { return };
    for (key, value) in own {
        match (all.get_mut(key), value) {
            (Some(below @ Json::Object(_)), Json::Object(value)) => merge(below, value),
            _ => drop(all.insert(key.clone(), value.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{PRESETS, Settings};

    #[test]
    fn presets_are_valid() {
        for preset in &PRESETS {
            let settings = json!({ "preset": preset.name, "base_url": "https://h.example" });
            assert_eq!(Settings::read(settings).unwrap().preset, Some(preset.name));
            let without = Settings::read(json!({ "preset": preset.name }));
            assert_eq!(without.is_err(), preset.needs_base_url, "{}", preset.name);
        }
    }

    #[test]
    fn errors_name_the_key_and_the_remedy() {
        for (settings, expected) in [
            (json!({}), "object is missing"),
            (json!({ "preset": "s4" }), "there is no preset \"s4\"; did you mean \"s3\"? There are s3, alfresco, alma"),
            (json!({ "preset": "alma" }), "base_url is missing, which the preset alma needs"),
            (json!({ "object": "data/id" }), "object: give a JSON pointer, as in \"/data/id\", or a template"),
            (json!({ "object": "/a~b" }), "object: in a JSON pointer, write ~0"),
            (json!({ "object": "/a", "each": "a" }), "each: a JSON pointer begins with a slash"),
            (json!({ "object": "/a", "time": "{{ element.time" }), "time: line 1 of the template: syntax error"),
            (json!({ "object": "/a", "time": "{{ element.time|shout }}" }), "time: line 1 of the template: unknown"),
            (json!({ "object": "/a", "time": "created" }), "time: give a JSON pointer"),
            (json!({ "object": "/a", "skip_if": "element.a ==" }), "skip_if: line 1 of the template"),
            (
                json!({ "object": "/a", "kinds": { "x": "change" } }),
                "kinds.x: there is no \"change\"; there are content",
            ),
            (
                json!({ "object": "/a", "states": { "x": "hidden" }, "state": "/s" }),
                "states.x: \"hidden\" is not a state",
            ),
            (json!({ "object": "/a", "states": { "x": "ACTIVE" } }), "states has words of the sender; give state"),
            (json!({ "object": "/a", "content": { "mediaType": "/x" } }), "there is no setting \"mediaType\""),
            (json!({ "object": "/a", "types": "/types" }), "types: give a list"),
            (json!({ "object": "/a", "visible_from": "2030-02-03" }), "visible_from: give a JSON pointer"),
            (json!({ "object": "/a", "base_url": "h.example" }), "base_url: "),
        ] {
            let error = Settings::read(settings.clone()).err().unwrap().to_string();
            assert!(error.starts_with(expected), "{settings}: {error}");
        }
    }

    #[test]
    fn settings_of_the_source_count_before_the_preset() {
        let own = json!({ "preset": "s3", "content": { "size": "/size" }, "kinds": { "ObjectAcl:*": "ignore" } });
        let settings = Settings::read(own).unwrap();
        assert_eq!(settings.preset_of("content.size"), None);
        assert_eq!(settings.preset_of("content.url"), Some("s3"));
        assert_eq!(settings.preset_of("object"), Some("s3"));
        assert!(settings.map.kinds.find("ObjectTagging:Put").is_some());
    }
}
