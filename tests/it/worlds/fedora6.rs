//! World of a Fedora 6 whose events reach the hook `fedora`, from its topic or from its HTTP forwarder.

mod event;

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, TimeDelta, Utc};
use proptest::prelude::*;

use self::event::{BASE, Behaviour, Event, Form, NAMES, PROXY, Transfer};
use crate::{
    support::crawled_repository::{self, CrawledRepository, Resource},
    worlds::{ItemTruth, Truth, World, driver, rig::Rig},
};

/// Number of the only file; all other resources are containers, besides its description.
const FILE: u8 = 6;

/// Number of the description of the file, which has it as long as it exists.
const DESCRIPTION: u8 = 7;

/// Seconds by which the clock of the repository is slow. What happens while the gateway hears nothing has the right time, so
/// that it is newer by the whole seconds of HTTP.
const CLOCK_SLOW: i64 = 60;

/// Act of a client of the repository, or of the broker that has its events.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// Stores a resource, new or again.
    Put { name: u8 },
    /// Deletes a resource with those below it, each in an event of its own, and perhaps the tombstone too.
    Delete { name: u8, purge: bool },
    /// One transaction that stores a resource, changes it, and perhaps deletes it. Fedora sends one event for it.
    Transaction { name: u8, delete: bool },
    /// The broker delivers the last event again.
    Redeliver,
    /// An event about the deletion of an earlier version of a resource arrives an hour late.
    OldDelete { name: u8 },
}

/// Repository with the resources that it has.
pub(crate) struct Fedora6 {
    behaviour: Behaviour,
    /// The resources with the times of their last modifications.
    resources: BTreeMap<u8, DateTime<Utc>>,
    last: Option<Event>,
    sent: u64,
    /// True while the gateway hears nothing.
    is_silent: bool,
    /// Resources that were modified meanwhile.
    unseen: BTreeSet<u8>,
    /// The REST API.
    server: CrawledRepository<crawled_repository::Fedora6>,
}

impl Fedora6 {
    /// Returns the next event about a resource.
    fn event(&mut self, name: u8, kinds: &[&str], seconds_ago: i64) -> Event {
        self.sent += 1;
        self.behaviour.event(self.sent, self.now() - TimeDelta::seconds(seconds_ago), name, kinds)
    }

    /// Returns the time by the clock of the repository.
    fn now(&self) -> DateTime<Utc> {
        if self.is_silent { Utc::now() } else { Utc::now() - TimeDelta::seconds(CLOCK_SLOW) }
    }

    /// Stores a resource; returns false if it is there already.
    fn store(&mut self, name: u8) -> bool {
        if self.is_silent {
            self.unseen.insert(name);
        }
        self.resources.insert(name, self.now()).is_none()
    }

    /// Creates the file of a new description and the description of a new file, and deletes the description with its file.
    async fn complete_file(&mut self, is_deletion: bool, rig: &mut Rig) -> Result<(), String> {
        let has = |name: u8| self.resources.contains_key(&name);
        let (name, kind) = match (has(FILE), has(DESCRIPTION)) {
            (true, false) => (DESCRIPTION, "Create"),
            (false, true) if is_deletion => (DESCRIPTION, "Delete"),
            (false, true) => (FILE, "Create"),
            _ => return Ok(()),
        };
        if kind == "Delete" {
            self.resources.remove(&name);
        } else {
            self.store(name);
        }
        let event = self.event(name, &[kind], 0);
        self.send(event, rig).await
    }

    /// Sends an event about something that has happened; the gateway must accept it as such.
    async fn send(&mut self, event: Event, rig: &mut Rig) -> Result<(), String> {
        if self.is_silent {
            return Ok(());
        }
        let headers: Vec<_> = event.headers.iter().map(|(name, value)| (*name, value.clone())).collect();
        let response = rig.post("fedora", &headers, &event.body).await;
        let is_repeat = response.repeated && ["duplicate", "unchanged"].contains(&response.outcome());
        if response.outcome() != "accepted" && !is_repeat {
            return Err(format!("{} {headers:?} is answered {response:?}", String::from_utf8_lossy(&event.body)));
        }
        self.last = Some(event);
        Ok(())
    }

    fn has_identifiers(&self) -> bool {
        self.behaviour.transfer != Transfer::BareForwarder
    }
}

impl World for Fedora6 {
    type Switches = Behaviour;
    type Step = Act;

    const NAME: &'static str = "fedora6";

    fn switches() -> BoxedStrategy<Behaviour> {
        let transfer = prop_oneof![
            3 => Just(Transfer::Event),
            1 => Just(Transfer::Forwarder),
            1 => Just(Transfer::BareForwarder),
            1 => Just(Transfer::Headers),
        ];
        let form = prop_oneof![
            3 => Just(Form::Activity),
            1 => Just(Form::LakeSuperior),
            1 => Just(Form::Provenance),
            1 => Just(Form::ProvenanceWithNumber),
        ];
        (transfer, form, any::<[bool; 7]>())
            .prop_map(|(transfer, form, switches)| {
                let [
                    raw_paths,
                    old_descriptions,
                    slash_after_base,
                    proxy,
                    slash_after_path,
                    untyped_deletes,
                    shuffled_kinds,
                ] = switches;
                Behaviour {
                    transfer,
                    form,
                    untyped_deletes,
                    shuffled_kinds,
                    // Header fields of HTTP are ASCII, so the raw paths of a broker's headers cannot come this way.
                    raw_paths: raw_paths && transfer == Transfer::Event,
                    old_descriptions,
                    slash_after_base,
                    proxy,
                    slash_after_path,
                }
            })
            .boxed()
    }

    fn step() -> BoxedStrategy<Act> {
        let name = || 0..u8::try_from(NAMES.len()).unwrap();
        prop_oneof![
            5 => name().prop_map(|name| Act::Put { name }),
            3 => (name(), any::<bool>()).prop_map(|(name, purge)| Act::Delete { name, purge }),
            2 => (name(), any::<bool>()).prop_map(|(name, delete)| Act::Transaction { name, delete }),
            2 => Just(Act::Redeliver),
            1 => name().prop_map(|name| Act::OldDelete { name }),
        ]
        .boxed()
    }

    async fn begin(behaviour: Behaviour) -> Self {
        let contents = crawled_repository::Fedora6 { resources: BTreeMap::new(), sends_fedora_types: true };
        let server = CrawledRepository::start(contents).await;
        let (resources, unseen) = (BTreeMap::new(), BTreeSet::new());
        Self { behaviour, resources, last: None, sent: 0, is_silent: false, unseen, server }
    }

    fn settings(&self) -> String {
        let repository = format!(
            "[sources.fedora.repository]\nurl = \"{}\"\npublic_urls = [\"{BASE}\", \"{PROXY}\"]\n",
            self.server.url()
        );
        if !self.behaviour.proxy {
            return repository;
        }
        format!(
            "[sources.fedora]\ntransport = \"http\"\ndialect = \"fedora-events\"\n\
             settings = {{ base_url = \"{BASE}\", other_base_urls = [\"{PROXY}\"] }}\n{repository}"
        )
    }

    fn audited(&self) -> &'static [&'static str] {
        &["fedora"]
    }

    fn show(&mut self) {
        let mut shown = BTreeMap::from([(String::new(), Resource::default())]);
        let path = |name: u8| format!("/{}", NAMES[usize::from(name)].1);
        for (name, modified) in self.resources.iter().filter(|(name, _)| **name != DESCRIPTION) {
            let description_modified = self.resources.get(&DESCRIPTION).copied().filter(|_| *name == FILE);
            let size = (*name == FILE).then_some(17);
            let resource = Resource { size, is_gone: false, modified: Some(*modified), description_modified };
            shown.insert(path(*name), resource);
        }
        self.server.change(|contents| contents.resources = shown);
    }

    async fn live_unseen(&mut self, act: Act, rig: &mut Rig) -> Result<(), String> {
        self.is_silent = true;
        let lived = match act {
            Act::Redeliver | Act::OldDelete { .. } => Ok(()),
            act => self.live(act, rig).await,
        };
        self.is_silent = false;
        lived
    }

    fn unseen_contents(&self) -> BTreeSet<String> {
        // Without the times of events, nothing is newer.
        let unseen = self.unseen.iter().filter(|_| self.has_identifiers());
        unseen.map(|name| format!("{BASE}/{}", NAMES[usize::from(*name)].1)).collect()
    }

    async fn live(&mut self, act: Act, rig: &mut Rig) -> Result<(), String> {
        match act {
            Act::Put { name } => {
                let kind = if self.store(name) { "Create" } else { "Update" };
                let event = self.event(name, &[kind], 0);
                self.send(event, rig).await?;
                self.complete_file(false, rig).await?;
            }
            Act::Delete { name, purge } => {
                let name = if name == DESCRIPTION { FILE } else { name };
                let below = format!("{}/", NAMES[usize::from(name)].0);
                let is_below = |other: &u8| NAMES[usize::from(*other)].0.starts_with(&below);
                let below: Vec<_> = self.resources.keys().copied().filter(is_below).collect();
                if self.resources.remove(&name).is_some() {
                    for name in below {
                        self.resources.remove(&name);
                        let event = self.event(name, &["Delete"], 0);
                        self.send(event, rig).await?;
                    }
                    let event = self.event(name, &["Delete"], 0);
                    self.send(event, rig).await?;
                    if purge && self.behaviour.transfer == Transfer::Event && self.behaviour.form == Form::Activity {
                        // The tombstone is no news, so the journal need not have the event.
                        let event = self.event(name, &["Purge"], 0);
                        if !self.is_silent {
                            rig.post("fedora", &event.headers, &event.body).await;
                        }
                    }
                }
            }
            Act::Transaction { name, delete } => {
                let name = if delete && name == DESCRIPTION { FILE } else { name };
                let is_new = !self.resources.contains_key(&name);
                let mut kinds = if is_new { vec!["Create", "Update"] } else { vec!["Update"] };
                if delete {
                    if is_new {
                        return Ok(());
                    }
                    kinds.push("Delete");
                    self.resources.remove(&name);
                } else {
                    self.store(name);
                }
                let event = self.event(name, &kinds, 0);
                self.send(event, rig).await?;
                self.complete_file(delete, rig).await?;
            }
            Act::Redeliver => {
                let Some(event) = self.last.clone().filter(|_| self.has_identifiers()) else { return Ok(()) };
                let response = rig.post("fedora", &event.headers, &event.body).await;
                if response.outcome() != "duplicate" {
                    return Err(format!("an event that is delivered again is answered {response:?}"));
                }
            }
            Act::OldDelete { name } => {
                if self.has_identifiers() && self.resources.contains_key(&name) {
                    let event = self.event(name, &["Delete"], 3600);
                    self.send(event, rig).await?;
                }
            }
        }
        Ok(())
    }

    async fn fall_quiet(&mut self, _: &mut Rig) -> Result<(), String> {
        Ok(())
    }

    fn truth(&self) -> Truth {
        let item = |name: &u8| {
            let uri = format!("{BASE}/{}", NAMES[usize::from(*name)].1);
            (uri.clone(), ItemTruth { object: uri, public: true, ..ItemTruth::default() })
        };
        let items = self.resources.keys().map(item).collect();
        Truth { items, one_resource_for_each_event: true, ..Truth::default() }
    }
}

#[test]
fn fedora6_and_registry_agree() {
    driver::run::<Fedora6>();
}
