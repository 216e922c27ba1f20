//! World of a plug-in that posts the changes of a small repository to the hook `content-change`.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::worlds::{ItemTruth, Refusals, Truth, World, driver, rig::Rig};

const BASE: &str = "http://repository.example.org/things";

/// Identifier of an event in the plug-in's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Identifier {
    Missing,
    IdempotencyKey,
    SourceEventId,
}

/// Time of an event in the plug-in's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Time {
    Missing,
    /// In every second message.
    Sometimes,
    Always,
}

/// Spelling of a time, as the libraries of programming languages write it.
#[derive(Clone, Copy, Debug)]
enum TimeSpelling {
    Milliseconds,
    WholeSeconds,
    /// Milliseconds in every second message, and else whole seconds.
    Mixed,
    OffsetWithoutColon,
    Blank,
}

/// Habits of the plug-in.
#[derive(Clone, Debug)]
pub(crate) struct Habits {
    identifier: Identifier,
    time: Time,
    spelling: TimeSpelling,
    /// Seconds by which the plug-in's clock is fast.
    skew: i8,
    /// Missing members are written as `null`.
    nulls: bool,
    /// The plug-in leaves it to the gateway to decide between ADD and UPDATE.
    plain_content: bool,
}

/// Act of an editor.
#[derive(Clone, Debug)]
pub(crate) enum Edit {
    /// Stores an image of this size, new or again.
    Store {
        thing: u8,
        image: u8,
        size: u8,
    },
    Withdraw {
        thing: u8,
        image: u8,
    },
    Publish {
        thing: u8,
        image: u8,
    },
    Delete {
        thing: u8,
        image: u8,
    },
    Purge {
        thing: u8,
    },
    /// The plug-in sends its last message again, because it has seen no response.
    SendAgain,
    /// A message that was stuck for an hour arrives: the deletion of an image that has been stored again since.
    OldDelete {
        thing: u8,
        image: u8,
    },
    /// The plug-in uses the key of its last message for another thing.
    ReuseKey {
        thing: u8,
    },
}

/// Message of the plug-in.
#[derive(Clone)]
struct Message {
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
    /// True if the gateway can recognise a repetition: the message has an identifier.
    has_identifier: bool,
}

/// Plug-in with the images that its repository has.
pub(crate) struct PlugIn {
    habits: Habits,
    images: BTreeMap<(u8, u8), Image>,
    sent: u64,
    last: Option<Message>,
    refused: usize,
}

#[derive(Clone, Copy)]
struct Image {
    size: u64,
    public: bool,
}

fn thing_uri(thing: u8) -> String {
    format!("{BASE}/{thing}")
}

fn image_uri(thing: u8, image: u8) -> String {
    format!("{BASE}/{thing}/images/{image}")
}

impl PlugIn {
    /// Returns a message with the identifier and the time that are this plug-in's habit.
    fn message(&mut self, body: Value) -> Message {
        self.sent += 1;
        let Value::Object(mut body) = body else { unreachable!("messages are objects") };
        let mut headers = vec![("content-type", "application/json".to_owned())];
        let id = format!("event-{}", self.sent);
        match self.habits.identifier {
            Identifier::Missing => {}
            Identifier::IdempotencyKey => headers.push(("idempotency-key", id)),
            Identifier::SourceEventId => _ = body.insert("sourceEventId".to_owned(), id.into()),
        }
        if self.habits.time == Time::Always || (self.habits.time == Time::Sometimes && self.sent.is_multiple_of(2)) {
            body.insert("time".to_owned(), self.time(0).into());
        }
        self.finished(headers, body)
    }

    /// Returns a message with these members, and `null` for the others if that is the plug-in's habit.
    fn finished(&self, headers: Vec<(&'static str, String)>, mut body: Map<String, Value>) -> Message {
        if self.habits.nulls {
            for member in ["parent", "types", "description", "time", "sourceEventId", "purge", "user"] {
                body.entry(member).or_insert(Value::Null);
            }
        }
        let has_identifier = self.habits.identifier != Identifier::Missing;
        Message { headers, body: serde_json::to_vec(&body).unwrap(), has_identifier }
    }

    /// Returns the time by the plug-in's clock, so many seconds ago.
    fn time(&self, seconds_ago: i64) -> String {
        let time = chrono::Utc::now() + chrono::TimeDelta::seconds(i64::from(self.habits.skew) - seconds_ago);
        let format = match self.habits.spelling {
            TimeSpelling::Mixed if self.sent.is_multiple_of(2) => "%Y-%m-%dT%H:%M:%S%.3fZ",
            TimeSpelling::Milliseconds => "%Y-%m-%dT%H:%M:%S%.3fZ",
            TimeSpelling::Mixed | TimeSpelling::WholeSeconds => "%Y-%m-%dT%H:%M:%SZ",
            TimeSpelling::OffsetWithoutColon => "%Y-%m-%dT%H:%M:%S+0000",
            TimeSpelling::Blank => "%Y-%m-%d %H:%M:%S",
        };
        time.format(format).to_string()
    }

    fn content(thing: u8, image: u8, size: u64) -> Value {
        json!({ "url": image_uri(thing, image), "size": size, "mediaType": "image/jpeg" })
    }

    fn about(thing: u8, item: &Value) -> Value {
        json!({ "object": thing_uri(thing), "items": [item] })
    }

    /// Sends a message about an event that has happened; the gateway must accept it as such.
    async fn send(&mut self, message: Message, rig: &mut Rig) -> Result<(), String> {
        let response = rig.post("content-change", &message.headers, &message.body).await;
        // Without an identifier the gateway takes a repetition for an event, which may change nothing.
        let is_repeat = response.repeated && ["duplicate", "unchanged"].contains(&response.outcome());
        if response.outcome() != "accepted" && !is_repeat {
            return Err(format!("{} is answered {response:?}", String::from_utf8_lossy(&message.body)));
        }
        self.last = Some(message);
        Ok(())
    }

    async fn send_again(&mut self, rig: &mut Rig) -> Result<(), String> {
        let Some(message) = self.last.clone().filter(|message| message.has_identifier) else { return Ok(()) };
        let response = rig.post("content-change", &message.headers, &message.body).await;
        if response.outcome() == "duplicate" { Ok(()) } else { Err(format!("a repetition is answered {response:?}")) }
    }

    /// Sends the last key with another thing: the gateway must say that this is a fault of the plug-in.
    async fn reuse_key(&mut self, thing: u8, rig: &mut Rig) -> Result<(), String> {
        if self.habits.identifier != Identifier::IdempotencyKey {
            return Ok(());
        }
        let Some(last) = self.last.clone().filter(|message| message.has_identifier) else { return Ok(()) };
        let other = format!("{BASE}/other-{thing}");
        let body = json!({ "object": other, "items": [{ "uri": format!("{other}/image"), "change": "ADD" }] });
        let response = rig.post("content-change", &last.headers, body.to_string().as_bytes()).await;
        self.refused += 1;
        if response.repeated {
            // The gateway may have been killed after it had put the first copy into the quarantine.
            let refused = rig.gateway().json("/quarantine?limit=1000").await["messages"].as_array().unwrap().len();
            self.refused = refused.clamp(self.refused, self.refused + 1);
        }
        if response.status == 422 { Ok(()) } else { Err(format!("a used key is answered {response:?}")) }
    }
}

impl World for PlugIn {
    type Switches = Habits;
    type Step = Edit;

    const NAME: &'static str = "plug_in";

    fn switches() -> BoxedStrategy<Habits> {
        let identifier =
            prop_oneof![Just(Identifier::Missing), Just(Identifier::IdempotencyKey), Just(Identifier::SourceEventId)];
        let time = prop_oneof![Just(Time::Missing), Just(Time::Sometimes), Just(Time::Always)];
        let spelling = prop_oneof![
            Just(TimeSpelling::Milliseconds),
            Just(TimeSpelling::WholeSeconds),
            Just(TimeSpelling::Mixed),
            Just(TimeSpelling::OffsetWithoutColon),
            Just(TimeSpelling::Blank),
        ];
        (identifier, time, spelling, -3..=3i8, any::<bool>(), any::<bool>())
            .prop_map(|(identifier, time, spelling, skew, nulls, plain_content)| Habits {
                identifier,
                time,
                spelling,
                skew,
                nulls,
                plain_content,
            })
            .boxed()
    }

    fn step() -> BoxedStrategy<Edit> {
        let image = || (0..3u8, 0..3u8);
        prop_oneof![
            6 => (image(), 1..4u8).prop_map(|((thing, image), size)| Edit::Store { thing, image, size }),
            3 => image().prop_map(|(thing, image)| Edit::Withdraw { thing, image }),
            3 => image().prop_map(|(thing, image)| Edit::Publish { thing, image }),
            2 => image().prop_map(|(thing, image)| Edit::Delete { thing, image }),
            1 => (0..3u8).prop_map(|thing| Edit::Purge { thing }),
            2 => Just(Edit::SendAgain),
            1 => image().prop_map(|(thing, image)| Edit::OldDelete { thing, image }),
            1 => (0..3u8).prop_map(|thing| Edit::ReuseKey { thing }),
        ]
        .boxed()
    }

    async fn begin(habits: Habits) -> Self {
        Self { habits, images: BTreeMap::new(), sent: 0, last: None, refused: 0 }
    }

    fn settings(&self) -> String {
        String::new()
    }

    async fn live(&mut self, edit: Edit, rig: &mut Rig) -> Result<(), String> {
        match edit {
            Edit::Store { thing, image, size } => {
                let size = u64::from(size) * 1024;
                let known = self.images.get(&(thing, image)).copied();
                let mut item = json!({ "uri": image_uri(thing, image), "content": Self::content(thing, image, size) });
                if !self.habits.plain_content {
                    item["change"] = if known.is_some() { "UPDATE" } else { "ADD" }.into();
                    if known.is_none() {
                        item["stateAfter"] = "ACTIVE".into();
                    }
                }
                let message = self.message(Self::about(thing, &item));
                self.send(message, rig).await?;
                self.images.insert((thing, image), Image { size, public: known.is_none_or(|known| known.public) });
            }
            Edit::Withdraw { thing, image } | Edit::Publish { thing, image } => {
                let public = matches!(edit, Edit::Publish { .. });
                let Some(known) = self.images.get(&(thing, image)).copied() else { return Ok(()) };
                if known.public == public {
                    return Ok(());
                }
                let state = if public { "ACTIVE" } else { "INACTIVE" };
                let item = json!({ "uri": image_uri(thing, image), "stateAfter": state });
                let message = self.message(Self::about(thing, &item));
                self.send(message, rig).await?;
                self.images.insert((thing, image), Image { public, ..known });
            }
            Edit::Delete { thing, image } => {
                if self.images.remove(&(thing, image)).is_some() {
                    let item = json!({ "uri": image_uri(thing, image), "change": "DELETE" });
                    let message = self.message(Self::about(thing, &item));
                    self.send(message, rig).await?;
                }
            }
            Edit::Purge { thing } => {
                let before = self.images.len();
                self.images.retain(|(of, _), _| *of != thing);
                if self.images.len() < before {
                    let message = self.message(json!({ "object": thing_uri(thing), "purge": true }));
                    self.send(message, rig).await?;
                }
            }
            Edit::SendAgain => self.send_again(rig).await?,
            Edit::OldDelete { thing, image } => {
                // Without times nobody can know that the message is old.
                if self.habits.time == Time::Always && self.images.contains_key(&(thing, image)) {
                    let item = json!({ "uri": image_uri(thing, image), "change": "DELETE" });
                    let mut body = Self::about(thing, &item).as_object().unwrap().clone();
                    body.insert("time".to_owned(), self.time(3600).into());
                    let headers = vec![("content-type", "application/json".to_owned())];
                    let message = Message { has_identifier: false, ..self.finished(headers, body) };
                    self.send(message, rig).await?;
                }
            }
            Edit::ReuseKey { thing } => self.reuse_key(thing, rig).await?,
        }
        Ok(())
    }

    async fn fall_quiet(&mut self, _: &mut Rig) -> Result<(), String> {
        Ok(())
    }

    fn truth(&self) -> Truth {
        let item = |((thing, image), known): (&(u8, u8), &Image)| {
            let item = ItemTruth {
                object: thing_uri(*thing),
                public: known.public,
                size: Some(known.size),
                ..ItemTruth::default()
            };
            (image_uri(*thing, *image), item)
        };
        // A purge names the object, and not its images.
        Truth {
            items: self.images.iter().map(item).collect(),
            refused: Refusals::Exactly(self.refused),
            ..Truth::default()
        }
    }
}

#[test]
fn plug_in_and_registry_agree() {
    driver::run::<PlugIn>();
}
