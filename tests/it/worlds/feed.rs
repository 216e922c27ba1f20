//! World of a publisher with several feeds that share entries.

mod site;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use proptest::prelude::*;

use self::site::{FEEDS, Key, Listing, Publisher, Site, Trouble, UNREADABLE_DATE, file, uri};
use crate::{
    support::http_receiver::Receiver,
    worlds::{ItemTruth, Refusals, Truth, World, driver, rig::Rig},
};

/// Number of looks after which a change at each look counts no more.
const NOISY_LOOKS: usize = 4;

/// Act of an editor, or of the harvester.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// Lists an entry in a feed, with or without a file.
    List {
        entry: u8,
        feed: usize,
        has_file: bool,
    },
    Edit {
        entry: u8,
    },
    /// Takes an entry out of a feed, for example because newer ones have come.
    Drop {
        entry: u8,
        feed: usize,
    },
    /// The publisher's software gives all entries new ids, and leaves their links.
    Rotate,
    /// Something is wrong with the next response.
    Fail {
        trouble: Trouble,
    },
    Harvest {
        feed: usize,
    },
}

/// What the harvests of the feeds have seen.
#[derive(Default)]
struct Seen {
    /// Entries of the last document of each feed.
    shown: [BTreeMap<Key, Listing>; 3],
    /// For each feed the entries that it has shown, whether with a file or not, until a complete feed drops them.
    remembered: [BTreeMap<Key, Listing>; 3],
    /// Entries that exist.
    entries: BTreeSet<Key>,
    /// Entries whose file exists.
    files: BTreeSet<Key>,
}

impl Seen {
    /// Notes a document. A feed withdraws a file by showing the entry without it, and a complete feed what it no longer has. A
    /// thing exists until no feed claims it any more.
    fn note(&mut self, feed: usize, listed: BTreeMap<Key, Listing>, is_complete: bool) {
        let others = |feeds: &[BTreeMap<Key, Listing>; 3], entry: &Key| -> Vec<Listing> {
            let others = feeds.iter().enumerate().filter(|(other, _)| *other != feed);
            others.filter_map(|(_, entries)| entries.get(entry).copied()).collect()
        };
        let is_elsewhere =
            |seen: &Self, entry: &Key| others(&seen.remembered, entry).iter().any(|other| other.has_file);
        for (entry, listing) in &listed {
            self.entries.insert(*entry);
            self.remembered[feed].insert(*entry, *listing);
            if listing.has_file {
                self.files.insert(*entry);
            } else if !is_elsewhere(self, entry) {
                self.files.remove(entry);
            }
        }
        let former = std::mem::replace(&mut self.shown[feed], listed);
        for entry in former.keys().filter(|entry| is_complete && !self.shown[feed].contains_key(entry)) {
            self.remembered[feed].remove(entry);
            let is_shown = !others(&self.shown, entry).is_empty();
            if !is_shown {
                self.entries.remove(entry);
            }
            if !is_shown || !is_elsewhere(self, entry) {
                self.files.remove(entry);
            }
        }
    }
}

/// Publisher with what the harvests have seen.
pub(crate) struct FeedWorld {
    site: Arc<Mutex<Site>>,
    server: Receiver,
    seen: Seen,
    /// Versions and forms in which the harvests have last seen the entries.
    described: BTreeMap<Key, (u32, Listing)>,
    /// Entries of several feeds, since audits have begun. An audit of one of them knows what the others had at their last
    /// runs.
    shared: BTreeSet<Key>,
}

impl FeedWorld {
    fn with<T>(&self, act: impl FnOnce(&mut Site) -> T) -> T {
        act(&mut self.site.lock().unwrap())
    }

    async fn harvest(&mut self, feed: usize, rig: &mut Rig) -> Result<(), String> {
        let run = rig.harvest(FEEDS[feed]).await;
        let served = self.with(|site| site.served);
        match (served, run["state"].as_str()) {
            (None | Some(Trouble::Empty), Some("completed")) => {}
            (Some(Trouble::Truncated | Trouble::Maintenance), Some("failed")) => return Ok(()),
            _ => return Err(format!("after a document with {served:?} a run is {run}")),
        }
        let reason = run["reason"].as_str().unwrap_or_default();
        let is_empty = served == Some(Trouble::Empty);
        let (listed, is_complete) = self.with(|site| {
            let listed = if is_empty { BTreeMap::new() } else { site.listed(feed) };
            (listed, site.publisher.complete[feed])
        });
        let is_renamed = !listed.is_empty()
            && listed.keys().all(|key| {
                let former = |shown: &&Key| shown.entry == key.entry && shown.build < key.build;
                self.seen.shown[feed].keys().any(|shown| former(&shown))
            });
        if is_renamed && !rig.was_interrupted && !reason.contains("new ids") {
            return Err(format!("all entries have new ids; the run is {run}"));
        }
        let is_undated = self.with(|site| site.publisher.dates == UNREADABLE_DATE);
        let is_said = reason.contains("are not readable");
        // A kill loses the remarks of the pages before it. A document without entries has no dates.
        let must_say = is_undated && !listed.is_empty() && run["records"] != 0 && !rig.was_interrupted;
        if is_said && !is_undated || must_say && !is_said {
            return Err(format!("the dates are unreadable: {is_undated}; the run is {run}"));
        }
        let versions = self.with(|site| site.versions.clone());
        self.described.extend(listed.iter().map(|(key, listing)| (*key, (versions[&key.entry], *listing))));
        self.seen.note(feed, listed, is_complete);
        Ok(())
    }
}

impl World for FeedWorld {
    type Switches = Publisher;
    type Step = Act;

    const NAME: &'static str = "feed";

    fn switches() -> BoxedStrategy<Publisher> {
        let before = prop_oneof![4 => Just(""), 1 => Just("\u{feff}"), 1 => Just("\r\n"), 1 => Just("\r\n\u{feff}")];
        let charset = prop_oneof![4 => Just("utf-8"), 1 => Just("iso-8859-1"), 1 => Just("windows-1252")];
        let dates = prop_oneof![
            3 => Just("%a, %d %b %Y %H:%M:%S GMT"),
            1 => Just("%Y-%m-%dT%H:%M:%SZ"),
            1 => Just("%Y-%m-%dT%H:%M:%S"),
            1 => Just("%Y-%m-%d %H:%M:%S"),
            1 => Just("%A, %d-%b-%y %H:%M:%S GMT"),
            1 => Just("%Y-%m-%dT%H:%MZ"),
            1 => Just("%Y%m%dT%H%M%SZ"),
            1 => Just("%a %b %e %H:%M:%S %Y"),
            1 => Just("%a, %b %d %Y %H:%M:%S +0000"),
            1 => Just("%a, %d %b %Y %H:%M:%S GMT+0000"),
            1 => Just(UNREADABLE_DATE),
        ];
        (any::<[bool; 3]>(), any::<[bool; 6]>(), before, charset, dates)
            .prop_map(|(complete, switches, before_documents, declared_charset, dates)| {
                let [is_rss, stamps, tokens, nonces, is_of_the_future, has_local_ids] = switches;
                Publisher {
                    complete,
                    is_rss,
                    before_documents,
                    declared_charset,
                    dates,
                    stamps,
                    tokens,
                    nonces,
                    is_of_the_future,
                    has_local_ids,
                }
            })
            .boxed()
    }

    fn step() -> BoxedStrategy<Act> {
        let place = || (0..5u8, 0..FEEDS.len());
        let trouble = prop_oneof![Just(Trouble::Empty), Just(Trouble::Truncated), Just(Trouble::Maintenance)];
        prop_oneof![
            12 => (place(), any::<bool>()).prop_map(|((entry, feed), has_file)| Act::List { entry, feed, has_file }),
            1 => Just(Act::Rotate),
            2 => trouble.prop_map(|trouble| Act::Fail { trouble }),
            4 => (0..5u8).prop_map(|entry| Act::Edit { entry }),
            6 => place().prop_map(|(entry, feed)| Act::Drop { entry, feed }),
            12 => (0..FEEDS.len()).prop_map(|feed| Act::Harvest { feed }),
        ]
        .boxed()
    }

    async fn begin(publisher: Publisher) -> Self {
        let site = Arc::new(Mutex::new(Site::new(publisher)));
        let server = Receiver::start({
            let site = Arc::clone(&site);
            move |_, request| site.lock().unwrap().reply(request)
        })
        .await;
        site.lock().unwrap().address = server.address.to_string();
        Self { site, server, seen: Seen::default(), described: BTreeMap::new(), shared: BTreeSet::new() }
    }

    fn settings(&self) -> String {
        let source = |name: &&str| {
            format!(
                "[sources.{name}]\ntransport = \"feed\"\ndialect = \"feed\"\nurl = \"http://{}/{name}\"\nmode = \"once\"\n",
                self.server.address
            )
        };
        FEEDS.iter().map(source).collect()
    }

    async fn live(&mut self, act: Act, rig: &mut Rig) -> Result<(), String> {
        match act {
            Act::Harvest { feed } => return self.harvest(feed, rig).await,
            Act::List { entry, feed, has_file } => self.with(|site| {
                site.versions.entry(entry).or_default();
                site.feeds[feed].insert(entry, Listing { has_file });
            }),
            Act::Edit { entry } => self.with(|site| {
                if let Some(version) = site.versions.get_mut(&entry) {
                    *version += 1;
                }
            }),
            Act::Rotate => self.with(|site| site.build += 1),
            Act::Fail { trouble } => self.with(|site| site.trouble = Some(trouble)),
            Act::Drop { entry, feed } => self.with(|site| {
                site.feeds[feed].remove(&entry);
            }),
        }
        Ok(())
    }

    async fn fall_quiet(&mut self, rig: &mut Rig) -> Result<(), String> {
        self.with(|site| site.trouble = None);
        // The second look finds what the first one has handed over to another feed.
        let looks = if self.with(|site| site.publisher.nonces) { NOISY_LOOKS } else { 2 };
        for feed in (0..looks).flat_map(|_| 0..FEEDS.len()) {
            self.harvest(feed, rig).await?;
        }
        let head = rig.gateway().head().await;
        // The publisher corrects the declaration of the encoding, which changes no text.
        self.with(|site| site.publisher.declared_charset = "utf-8");
        for feed in 0..FEEDS.len() {
            self.harvest(feed, rig).await?;
        }
        rig.no_changes_after(head).await
    }

    fn audited(&self) -> &'static [&'static str] {
        &FEEDS
    }

    fn show(&mut self) {
        let (listed, complete) = self.with(|site| ([0, 1, 2].map(|feed| site.listed(feed)), site.publisher.complete));
        let feeds = self.seen.remembered.iter().chain(&listed);
        let mut of_feeds = BTreeMap::<Key, BTreeSet<usize>>::new();
        for (number, entries) in feeds.enumerate() {
            entries.keys().for_each(|key| _ = of_feeds.entry(*key).or_default().insert(number % FEEDS.len()));
        }
        let shared = of_feeds.into_iter().filter(|(_, feeds)| feeds.len() > 1);
        self.shared.extend(shared.map(|(key, _)| key));
        for (feed, listed) in listed.into_iter().enumerate() {
            self.seen.note(feed, listed, complete[feed]);
        }
    }

    async fn live_unseen(&mut self, act: Act, rig: &mut Rig) -> Result<(), String> {
        match act {
            Act::List { .. } | Act::Edit { .. } | Act::Drop { .. } | Act::Rotate => self.live(act, rig).await,
            Act::Fail { .. } | Act::Harvest { .. } => Ok(()),
        }
    }

    fn unseen_contents(&self) -> BTreeSet<String> {
        let address = self.server.address.to_string();
        self.with(|site| {
            // An entry that changes in each response differs in nothing.
            let feeds = if site.publisher.nonces { 0..0 } else { 0..FEEDS.len() };
            let listed = feeds.flat_map(|feed| site.listed(feed));
            let is_edited = |(key, listing): &(Key, Listing)| {
                self.described.get(key) != Some(&(site.versions[&key.entry], *listing))
            };
            listed.filter(is_edited).map(|(key, _)| uri(key, &address)).collect()
        })
    }

    fn truth(&self) -> Truth {
        let mut truth = Truth { refused: Refusals::Any, ..Truth::default() };
        let address = self.server.address.to_string();
        truth.unsettled = self.shared.iter().flat_map(|key| [uri(*key, &address), file(*key)]).collect();
        for entry in self.seen.entries.iter().filter(|entry| !self.shared.contains(entry)) {
            let uri = uri(*entry, &self.server.address.to_string());
            let item = ItemTruth { object: uri.clone(), public: true, ..ItemTruth::default() };
            truth.items.insert(uri, item.clone());
            if self.seen.files.contains(entry) {
                truth.items.insert(file(*entry), item);
            }
        }
        truth
    }
}

#[test]
fn feed_and_registry_agree() {
    driver::run::<FeedWorld>();
}
