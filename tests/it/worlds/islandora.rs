//! World of an Islandora whose events have neither an identifier nor a time, and whose entities change their addresses.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::worlds::{ItemTruth, Truth, World, driver, rig::Rig};

const DRUPAL: [&str; 3] = ["http://islandora.example.org", "https://islandora.example.org", "http://default"];
const FEDORA: &str = "http://localhost:8080/fcrepo/rest";

/// Names of files as they were uploaded, and as the REST API of Fedora spells them.
const FILES: [(&str, &str); 4] = [
    ("page.jpg", "page.jpg"),
    ("ground floor.tif", "ground%20floor.tif"),
    ("plan{1}.tif", "plan%7B1%7D.tif"),
    ("q?#1, 50%.mp3", "q%3F%231,%2050%25.mp3"),
];

/// Kind of an entity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Node,
    Media,
    File,
}

/// Number of an entity among those of its kind.
pub(crate) type Entity = (Kind, u8);

/// What the events of this Islandora lack.
#[derive(Clone, Debug)]
pub(crate) struct Habits {
    /// Scheme and host of Drupal's addresses change between events.
    moving_host: bool,
    /// Addresses have a language prefix in every second event.
    language: bool,
    /// A deletion names no addresses.
    deletes_without_addresses: bool,
    /// The link to the file that a media describes has no address.
    null_describes: bool,
}

/// Act of an editor.
#[derive(Clone, Debug)]
pub(crate) enum Edit {
    Save { entity: Entity },
    Delete { entity: Entity },
}

/// Islandora with the entities that it has.
pub(crate) struct Islandora {
    habits: Habits,
    /// The addresses of each entity in its last event, and all that it had before.
    entities: BTreeMap<Entity, (BTreeSet<String>, BTreeSet<String>)>,
    sent: usize,
}

fn urn((kind, number): Entity) -> String {
    format!("urn:uuid:{:08}-5555-4555-8555-555555555555", (kind as usize) * 100 + usize::from(number))
}

impl Islandora {
    /// Returns the links of an entity in the next event, and the addresses of its items.
    fn links(&self, (kind, number): Entity) -> (Vec<Value>, BTreeSet<String>) {
        let drupal = if self.habits.moving_host { DRUPAL[self.sent % DRUPAL.len()] } else { DRUPAL[0] };
        let language = if self.habits.language && self.sent.is_multiple_of(2) { "/fr" } else { "" };
        let path = match kind {
            Kind::Node => format!("{drupal}{language}/node/{number}"),
            Kind::Media => format!("{drupal}{language}/media/{number}"),
            Kind::File => format!("{drupal}/_flysystem/fedora/2026-11/{}", FILES[usize::from(number)].1),
        };
        if kind == Kind::File {
            let canonical = json!({ "name": "Canonical", "type": "Link", "href": path, "mediaType": "image/tiff", "rel": "canonical" });
            let copy = format!("{FEDORA}/2026-11/{}", FILES[usize::from(number)].1);
            return (vec![canonical], [path, copy].into());
        }
        let items = [format!("{path}?_format=json"), format!("{path}?_format=jsonld")];
        let mut links = vec![json!({ "name": "Canonical", "type": "Link", "href": path, "rel": "canonical" })];
        for item in &items {
            links.push(json!({ "name": "Data", "type": "Link", "href": item, "rel": "alternate" }));
        }
        if kind == Kind::Media {
            let file = if self.habits.null_describes { Value::Null } else { "http://default/f.tif".into() };
            links.push(json!({ "name": "Describes", "type": "Link", "href": file, "rel": "describes" }));
        }
        (links, items.into())
    }

    async fn send(&mut self, entity: Entity, kind: &str, links: Value, rig: &mut Rig) -> Result<(), String> {
        self.sent += 1;
        let mut event = json!({
            "@context": "https://www.w3.org/ns/activitystreams",
            "actor": { "type": "Person", "id": "urn:uuid:0b3c5f0e-58f1-4c38-8b5e-6d6f3a1c2d4e" },
            "object": { "id": urn(entity), "url": links, "isNewVersion": false },
            "target": FEDORA,
            "type": kind,
            "summary": format!("{kind} an entity"),
        });
        if entity.0 == Kind::File {
            let copy = format!("{FEDORA}/2026-11/{}", FILES[usize::from(entity.1)].0);
            event["attachment"] =
                json!({ "type": "Object", "content": { "fedora_uri": copy }, "mediaType": "application/json" });
        }
        let headers = [("content-type", "application/json".to_owned())];
        let response = rig.post("islandora", &headers, event.to_string().as_bytes()).await;
        let is_repeat = response.repeated && ["duplicate", "unchanged"].contains(&response.outcome());
        if response.outcome() == "accepted" || is_repeat {
            Ok(())
        } else {
            Err(format!("{event} is answered {response:?}"))
        }
    }
}

impl World for Islandora {
    type Switches = Habits;
    type Step = Edit;

    const NAME: &'static str = "islandora";

    fn switches() -> BoxedStrategy<Habits> {
        any::<[bool; 4]>()
            .prop_map(|[moving_host, language, deletes_without_addresses, null_describes]| Habits {
                moving_host,
                language,
                deletes_without_addresses,
                null_describes,
            })
            .boxed()
    }

    fn step() -> BoxedStrategy<Edit> {
        let entity = || (prop_oneof![Just(Kind::Node), Just(Kind::Media), Just(Kind::File)], 0..4u8);
        prop_oneof![
            3 => entity().prop_map(|entity| Edit::Save { entity }),
            1 => entity().prop_map(|entity| Edit::Delete { entity }),
        ]
        .boxed()
    }

    async fn begin(habits: Habits) -> Self {
        Self { habits, entities: BTreeMap::new(), sent: 0 }
    }

    fn settings(&self) -> String {
        String::new()
    }

    async fn live(&mut self, edit: Edit, rig: &mut Rig) -> Result<(), String> {
        match edit {
            Edit::Save { entity } => {
                let (links, items) = self.links(entity);
                let kind = if self.entities.contains_key(&entity) { "Update" } else { "Create" };
                self.send(entity, kind, links.into(), rig).await?;
                let (current, former) = self.entities.entry(entity).or_default();
                former.append(current);
                *current = items;
            }
            Edit::Delete { entity } => {
                if self.entities.remove(&entity).is_some() {
                    let (links, _) = self.links(entity);
                    let links = if self.habits.deletes_without_addresses { Value::Null } else { links.into() };
                    self.send(entity, "Delete", links, rig).await?;
                }
            }
        }
        Ok(())
    }

    async fn fall_quiet(&mut self, _: &mut Rig) -> Result<(), String> {
        Ok(())
    }

    fn truth(&self) -> Truth {
        let mut truth = Truth::default();
        for (entity, (current, former)) in &self.entities {
            for uri in current {
                let item = ItemTruth { object: urn(*entity), public: true, ..ItemTruth::default() };
                truth.items.insert(uri.clone(), item);
            }
            // An address of an earlier event may be a translation that is still there.
            truth.unsettled.extend(former.difference(current).cloned());
        }
        truth
    }
}

#[test]
fn islandora_and_registry_agree() {
    driver::run::<Islandora>();
}
