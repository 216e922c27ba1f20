//! World of a Fedora 3, which sends the messages of one call from threads of their own, so that they arrive in any order.

use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};

use proptest::prelude::*;

use crate::{
    support::{
        crawled_repository::{self, CrawledRepository, Datastream, Object},
        fedora3_messages::{BASE, Call, date},
    },
    worlds::{ItemTruth, Truth, World, driver, rig::Rig},
};

const DATASTREAMS: [&str; 3] = ["DC", "OBJ", "TN"];
const RELATIONS: &str = "RELS-EXT";

/// Behaviour of this Fedora and its broker.
#[derive(Clone, Debug)]
pub(crate) struct Behaviour {
    /// The number of messages that overtake each other: they arrive in reverse order. One keeps the order.
    overtaking: usize,
    /// Another service sends `modifyObject` messages without a change, to force an index run.
    nudges: bool,
}

/// What a client of the repository does.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    Ingest {
        object: u8,
    },
    AddDatastream {
        object: u8,
        datastream: usize,
        is_active: bool,
    },
    ModifyDatastream {
        object: u8,
        datastream: usize,
    },
    /// Sets the state, also to the one that it has.
    SetDatastreamState {
        object: u8,
        datastream: usize,
        is_active: bool,
    },
    /// One `PUT` of the REST API that sets state, content and versioning: each is a message, in any order.
    PutDatastream {
        object: u8,
        datastream: usize,
        is_active: bool,
    },
    PurgeDatastream {
        object: u8,
        datastream: usize,
    },
    SetObjectState {
        object: u8,
        is_active: bool,
    },
    /// Adds a relationship, or fails to because it is there: then the call returns `false`.
    AddRelationship {
        object: u8,
        is_new: bool,
    },
    PurgeObject {
        object: u8,
    },
    /// The broker delivers its last message again.
    Redeliver,
}

/// Repository with the items of its objects: none for the object itself, else the name of the datastream. Each item has
/// its state, if a message has told one.
pub(crate) struct Fedora3 {
    behaviour: Behaviour,
    objects: BTreeMap<u8, BTreeMap<Option<&'static str>, Option<bool>>>,
    sent: u64,
    waiting: Vec<String>,
    last: Option<String>,
    /// Number of the call that has made the content of an item.
    made: BTreeMap<(u8, Option<&'static str>), u64>,
    /// True while the gateway hears nothing.
    is_silent: bool,
    /// Items whose content was made meanwhile.
    unseen: BTreeSet<String>,
    /// The REST API.
    server: CrawledRepository<crawled_repository::Fedora3>,
}

fn pid(object: u8) -> String {
    format!("demo:{object}")
}

fn uri(object: u8, datastream: Option<&str>) -> String {
    let object = format!("{BASE}/objects/{}", pid(object));
    datastream.map_or(object.clone(), |name| format!("{object}/datastreams/{name}/content"))
}

fn letter(is_active: bool) -> &'static str {
    if is_active { "A" } else { "I" }
}

impl Fedora3 {
    /// Writes the message of a call; it leaves the repository with others that it may overtake.
    async fn call(
        &mut self,
        object: u8,
        method: &str,
        parameters: &[(&str, &str)],
        returned: Option<&str>,
        rig: &mut Rig,
    ) -> Result<(), String> {
        self.sent += 1;
        self.note_content(object, method, parameters, returned);
        let pid = pid(object);
        self.waiting.push(Call { number: self.sent, method, pid: &pid, parameters, returned }.message());
        if self.waiting.len() >= self.behaviour.overtaking { self.flush(rig).await } else { Ok(()) }
    }

    async fn flush(&mut self, rig: &mut Rig) -> Result<(), String> {
        while let Some(message) = self.waiting.pop() {
            self.deliver(&message, rig).await?;
            self.last = Some(message);
        }
        Ok(())
    }

    /// Notes which content a call makes.
    fn note_content(&mut self, object: u8, method: &str, parameters: &[(&str, &str)], returned: Option<&str>) {
        let named = parameters.iter().find(|(name, _)| *name == "dsID");
        let named = named.and_then(|(_, id)| DATASTREAMS.into_iter().find(|known| known == id));
        let item = match method {
            "ingest" => None,
            "addDatastream" | "modifyDatastreamByValue" | "modifyDatastreamByReference" => named,
            "addRelationship" if returned == Some("true") => Some(RELATIONS),
            _ => return,
        };
        self.made.insert((object, item), self.sent);
        if self.is_silent && item.is_some() {
            self.unseen.insert(uri(object, item));
        }
    }

    async fn deliver(&self, message: &str, rig: &mut Rig) -> Result<String, String> {
        if self.is_silent {
            return Ok("accepted".to_owned());
        }
        let headers = [("content-type", "application/atom+xml".to_owned())];
        let response = rig.post("fedora3", &headers, message.as_bytes()).await;
        let outcome = response.outcome().to_owned();
        if ["accepted", "duplicate", "unchanged"].contains(&&*outcome) {
            Ok(outcome)
        } else {
            Err(format!("{message} is answered {response:?}"))
        }
    }

    fn has(&self, object: u8, datastream: &'static str) -> bool {
        self.objects.get(&object).is_some_and(|items| items.contains_key(&Some(datastream)))
    }
}

impl World for Fedora3 {
    type Switches = Behaviour;
    type Step = Act;

    const NAME: &'static str = "fedora3";

    fn switches() -> BoxedStrategy<Behaviour> {
        (1..4usize, any::<bool>()).prop_map(|(overtaking, nudges)| Behaviour { overtaking, nudges }).boxed()
    }

    fn step() -> BoxedStrategy<Act> {
        let object = || 0..3u8;
        let place = || (0..3u8, 0..DATASTREAMS.len());
        prop_oneof![
            4 => object().prop_map(|object| Act::Ingest { object }),
            5 => (place(), any::<bool>())
                .prop_map(|((object, datastream), is_active)| Act::AddDatastream { object, datastream, is_active }),
            3 => place().prop_map(|(object, datastream)| Act::ModifyDatastream { object, datastream }),
            3 => (place(), any::<bool>())
                .prop_map(|((object, datastream), is_active)| Act::SetDatastreamState { object, datastream, is_active }),
            2 => (place(), any::<bool>())
                .prop_map(|((object, datastream), is_active)| Act::PutDatastream { object, datastream, is_active }),
            2 => place().prop_map(|(object, datastream)| Act::PurgeDatastream { object, datastream }),
            2 => (object(), any::<bool>()).prop_map(|(object, is_active)| Act::SetObjectState { object, is_active }),
            2 => (object(), any::<bool>()).prop_map(|(object, is_new)| Act::AddRelationship { object, is_new }),
            1 => object().prop_map(|object| Act::PurgeObject { object }),
            1 => Just(Act::Redeliver),
        ]
        .boxed()
    }

    async fn begin(behaviour: Behaviour) -> Self {
        let server = CrawledRepository::start(crawled_repository::Fedora3::with(0)).await;
        let (objects, made, unseen) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        Self { behaviour, objects, sent: 0, waiting: Vec::new(), last: None, made, is_silent: false, unseen, server }
    }

    fn settings(&self) -> String {
        let url = self.server.url();
        format!("[sources.fedora3.repository]\nurl = \"{url}\"\npublic_urls = [\"{BASE}\"]\n")
    }

    fn audited(&self) -> &'static [&'static str] {
        &["fedora3"]
    }

    fn show(&mut self) {
        let state = |is_active: Option<bool>| if is_active.unwrap_or(true) { 'A' } else { 'I' };
        let object = |(number, items): (&u8, &BTreeMap<Option<&'static str>, Option<bool>>)| {
            let created = |item| date(self.made[&(*number, item)]);
            let datastream = |(id, is_active): (&Option<&'static str>, &Option<bool>)| {
                Some(Datastream { id: (*id)?, state: state(*is_active), created: created(*id) })
            };
            let shown = Object {
                state: state(items[&None]),
                created: created(None),
                datastreams: items.iter().filter_map(datastream).collect(),
                relations: String::new(),
            };
            (pid(*number), shown)
        };
        let objects = self.objects.iter().map(object).collect();
        self.server.change(|contents| contents.objects = objects);
    }

    async fn live_unseen(&mut self, act: Act, rig: &mut Rig) -> Result<(), String> {
        self.is_silent = true;
        match act {
            Act::Redeliver => {}
            act => self.live(act, rig).await?,
        }
        self.flush(rig).await?;
        self.is_silent = false;
        Ok(())
    }

    fn unseen_contents(&self) -> BTreeSet<String> {
        self.unseen.clone()
    }

    async fn live(&mut self, act: Act, rig: &mut Rig) -> Result<(), String> {
        match act {
            Act::Ingest { object } => {
                if let Entry::Vacant(place) = self.objects.entry(object) {
                    place.insert([(None, None)].into());
                    let returned = pid(object);
                    self.call(object, "ingest", &[("logMessage", "null")], Some(&returned), rig).await?;
                }
            }
            Act::AddDatastream { object, datastream, is_active } => {
                let name = DATASTREAMS[datastream];
                if self.objects.contains_key(&object) && !self.has(object, name) {
                    self.objects.entry(object).or_default().insert(Some(name), Some(is_active));
                    let parameters = [("dsID", name), ("dsState", letter(is_active))];
                    self.call(object, "addDatastream", &parameters, Some(name), rig).await?;
                }
            }
            Act::ModifyDatastream { object, datastream } => {
                let name = DATASTREAMS[datastream];
                if self.has(object, name) {
                    let parameters = [("dsID", name), ("dsContent", "[OMITTED]")];
                    self.call(object, "modifyDatastreamByValue", &parameters, None, rig).await?;
                }
            }
            Act::SetDatastreamState { object, datastream, is_active } => {
                let name = DATASTREAMS[datastream];
                if self.has(object, name) {
                    self.objects.entry(object).or_default().insert(Some(name), Some(is_active));
                    let parameters = [("dsID", name), ("dsState", letter(is_active))];
                    self.call(object, "setDatastreamState", &parameters, None, rig).await?;
                }
            }
            Act::PutDatastream { object, datastream, is_active } => {
                let name = DATASTREAMS[datastream];
                if self.has(object, name) {
                    self.objects.entry(object).or_default().insert(Some(name), Some(is_active));
                    let calls = [
                        ("setDatastreamState", ("dsState", letter(is_active))),
                        ("modifyDatastreamByReference", ("dsLocation", "null")),
                        ("modifyDatastreamByValue", ("dsContent", "[OMITTED]")),
                        ("setDatastreamVersionable", ("versionable", "true")),
                    ];
                    for (method, parameter) in calls {
                        self.call(object, method, &[("dsID", name), parameter], None, rig).await?;
                    }
                }
            }
            Act::PurgeDatastream { object, datastream } => {
                let name = DATASTREAMS[datastream];
                if self.has(object, name) {
                    self.objects.entry(object).or_default().remove(&Some(name));
                    let parameters = [("dsID", name), ("startDT", "null"), ("endDT", "null")];
                    self.call(object, "purgeDatastream", &parameters, Some("[OMITTED]"), rig).await?;
                }
            }
            Act::SetObjectState { object, is_active } => {
                if let Some(items) = self.objects.get_mut(&object) {
                    let state = if self.behaviour.nudges { "null" } else { letter(is_active) };
                    if !self.behaviour.nudges {
                        items.insert(None, Some(is_active));
                    }
                    let parameters = [("state", state), ("label", "null"), ("logMessage", "null")];
                    self.call(object, "modifyObject", &parameters, None, rig).await?;
                }
            }
            Act::AddRelationship { object, is_new } => {
                if let Some(items) = self.objects.get_mut(&object) {
                    if is_new {
                        items.entry(Some(RELATIONS)).or_insert(Some(true));
                    }
                    let parameters = [("relationship", "info:x"), ("object", "info:fedora/demo:9")];
                    let returned = if is_new { "true" } else { "false" };
                    self.call(object, "addRelationship", &parameters, Some(returned), rig).await?;
                }
            }
            Act::PurgeObject { object } => {
                if self.objects.remove(&object).is_some() {
                    self.call(object, "purgeObject", &[("logMessage", "null")], None, rig).await?;
                }
            }
            Act::Redeliver => {
                if let Some(message) = self.last.clone() {
                    let outcome = self.deliver(&message, rig).await?;
                    if outcome == "accepted" {
                        return Err(format!("{message} is delivered again, and becomes another change"));
                    }
                }
            }
        }
        Ok(())
    }

    async fn fall_quiet(&mut self, rig: &mut Rig) -> Result<(), String> {
        self.flush(rig).await
    }

    fn truth(&self) -> Truth {
        let mut truth = Truth::default();
        for (object, items) in &self.objects {
            for (name, is_active) in items {
                let item =
                    ItemTruth { object: uri(*object, None), public: is_active.unwrap_or(true), ..ItemTruth::default() };
                truth.items.insert(uri(*object, *name), item);
            }
        }
        truth
    }
}

#[test]
fn fedora3_and_registry_agree() {
    driver::run::<Fedora3>();
}
