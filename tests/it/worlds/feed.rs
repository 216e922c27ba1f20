//! World of a publisher with several feeds that share entries.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use chrono::{DateTime, TimeDelta, Utc};
use proptest::prelude::*;

use crate::{
    support::http_receiver::{Receiver, Reply},
    worlds::{ItemTruth, Refusals, Truth, World, driver, rig::Rig},
};

/// Names of the feeds.
const FEEDS: [&str; 3] = ["all", "category", "podcast"];

/// Date that nobody can read.
const UNREADABLE_DATE: &str = "some day";

/// Number of looks after which a change at each look counts no more.
const NOISY_LOOKS: usize = 4;

/// Form of the feeds of this publisher.
#[derive(Clone, Debug)]
pub(crate) struct Publisher {
    /// For each feed: it says that it is complete, so what it no longer lists is gone.
    complete: [bool; 3],
    is_rss: bool,
    /// Characters before each document.
    before_documents: &'static str,
    /// Charset that the response declares, whatever the bytes are.
    declared_charset: &'static str,
    /// Format of the dates, for `strftime`; all of them are in use.
    dates: &'static str,
    /// The publisher's template writes the time of the request into each document.
    stamps: bool,
    /// The URLs of files have another token in each response.
    tokens: bool,
    /// The entries have another nonce in each response.
    nonces: bool,
    /// The server says that its documents were modified in 2041, and that nothing has changed since.
    is_of_the_future: bool,
}

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
    Harvest {
        feed: usize,
    },
}

/// Entry in a feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Listing {
    has_file: bool,
}

struct Site {
    publisher: Publisher,
    feeds: [BTreeMap<u8, Listing>; 3],
    versions: BTreeMap<u8, u32>,
    requests: u32,
    /// Time from which the dates of the entries are counted back.
    began: DateTime<Utc>,
}

impl Site {
    fn document(&self, feed: usize) -> String {
        let content = if self.publisher.is_rss { self.rss(feed) } else { self.atom(feed) };
        format!("{}<?xml version=\"1.0\" encoding=\"{}\"?>{content}", self.publisher.before_documents, self.charset())
    }

    fn charset(&self) -> &str {
        self.publisher.declared_charset
    }

    fn date(&self, entry: u8) -> String {
        let day = TimeDelta::days(40 - i64::from(entry)) - TimeDelta::hours(self.versions[&entry].into());
        (self.began - day).format(self.publisher.dates).to_string()
    }

    fn nonce(&self) -> String {
        if self.publisher.nonces { format!("nonce {}", self.requests) } else { String::new() }
    }

    /// Returns the URL of a file as this response has it.
    fn file_url(&self, entry: u8) -> String {
        let token = if self.publisher.tokens { format!("?token={}", self.requests) } else { String::new() };
        format!("{}{token}", file(entry))
    }

    fn stamp(&self) -> String {
        if self.publisher.stamps { format!("<!-- {} -->", self.requests) } else { String::new() }
    }

    fn rss(&self, feed: usize) -> String {
        let complete = if self.publisher.complete[feed] { "<fh:complete/>" } else { "" };
        let item = |(entry, listing): (&u8, &Listing)| {
            let file = if listing.has_file {
                format!("<enclosure url=\"{}\" type=\"audio/mpeg\" length=\"1024\"/>", self.file_url(*entry))
            } else {
                String::new()
            };
            format!(
                "<item><title>Straße {entry} … {} {}</title><guid>{}</guid><pubDate>{}</pubDate>{file}</item>",
                self.versions[entry],
                self.nonce(),
                uri(*entry),
                self.date(*entry)
            )
        };
        let items: String = self.feeds[feed].iter().map(item).collect();
        format!(
            "<rss version=\"2.0\" xmlns:fh=\"http://purl.org/syndication/history/1.0\"><channel><title>{}</title>\
             <link>http://p.example.org/</link><description>d</description>{complete}{items}{}</channel></rss>",
            FEEDS[feed],
            self.stamp()
        )
    }

    fn atom(&self, feed: usize) -> String {
        let complete = if self.publisher.complete[feed] { "<fh:complete/>" } else { "" };
        let entry = |(entry, listing): (&u8, &Listing)| {
            let file = if listing.has_file {
                let url = self.file_url(*entry);
                format!("<link rel=\"enclosure\" href=\"{url}\" type=\"audio/mpeg\" length=\"1024\"/>")
            } else {
                String::new()
            };
            format!(
                "<entry><id>{}</id><title>Straße {entry} … {} {}</title><updated>{}</updated>{file}</entry>",
                uri(*entry),
                self.versions[entry],
                self.nonce(),
                self.date(*entry)
            )
        };
        let entries: String = self.feeds[feed].iter().map(entry).collect();
        format!(
            "<feed xmlns=\"http://www.w3.org/2005/Atom\" xmlns:fh=\"http://purl.org/syndication/history/1.0\">\
             <id>tag:p.example.org,2026:{}</id><title>t</title><updated>2026-01-01T00:00:00Z</updated>{complete}\
             {entries}{}</feed>",
            FEEDS[feed],
            self.stamp()
        )
    }
}

fn uri(entry: u8) -> String {
    format!("tag:p.example.org,2026:{entry}")
}

fn file(entry: u8) -> String {
    format!("http://p.example.org/files/{entry}.mp3")
}

/// What the harvests of the feeds have seen.
#[derive(Default)]
struct Seen {
    /// Entries of the last document of each feed.
    shown: [BTreeMap<u8, Listing>; 3],
    /// For each feed the entries that it has shown, whether with a file or not, until a complete feed drops them.
    remembered: [BTreeMap<u8, Listing>; 3],
    /// Entries that exist.
    entries: BTreeSet<u8>,
    /// Entries whose file exists.
    files: BTreeSet<u8>,
}

impl Seen {
    /// Notes a document. A feed withdraws a file by showing the entry without it, and a complete feed what it no longer has. A
    /// thing exists until no feed claims it any more.
    fn note(&mut self, feed: usize, listed: BTreeMap<u8, Listing>, is_complete: bool) {
        let others = |feeds: &[BTreeMap<u8, Listing>; 3], entry: &u8| -> Vec<Listing> {
            let others = feeds.iter().enumerate().filter(|(other, _)| *other != feed);
            others.filter_map(|(_, entries)| entries.get(entry).copied()).collect()
        };
        let is_elsewhere = |seen: &Self, entry: &u8| others(&seen.remembered, entry).iter().any(|other| other.has_file);
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
}

impl FeedWorld {
    fn with<T>(&self, act: impl FnOnce(&mut Site) -> T) -> T {
        act(&mut self.site.lock().unwrap())
    }

    async fn harvest(&mut self, feed: usize, rig: &mut Rig) -> Result<(), String> {
        let run = rig.harvest(FEEDS[feed]).await;
        if run["state"] != "completed" {
            return Err(format!("a run is {run}"));
        }
        let is_undated = self.with(|site| site.publisher.dates == UNREADABLE_DATE);
        let is_said = run["reason"].as_str().is_some_and(|reason| reason.contains("are not readable"));
        // A kill loses the remarks of the pages before it.
        let must_say = is_undated && run["records"] != 0 && !rig.was_interrupted;
        if is_said && !is_undated || must_say && !is_said {
            return Err(format!("the dates are unreadable: {is_undated}; the run is {run}"));
        }
        let (listed, is_complete) = self.with(|site| (site.feeds[feed].clone(), site.publisher.complete[feed]));
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
        (any::<[bool; 3]>(), any::<[bool; 5]>(), before, charset, dates)
            .prop_map(|(complete, switches, before_documents, declared_charset, dates)| {
                let [is_rss, stamps, tokens, nonces, is_of_the_future] = switches;
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
                }
            })
            .boxed()
    }

    fn step() -> BoxedStrategy<Act> {
        let place = || (0..5u8, 0..FEEDS.len());
        prop_oneof![
            6 => (place(), any::<bool>()).prop_map(|((entry, feed), has_file)| Act::List { entry, feed, has_file }),
            2 => (0..5u8).prop_map(|entry| Act::Edit { entry }),
            3 => place().prop_map(|(entry, feed)| Act::Drop { entry, feed }),
            6 => (0..FEEDS.len()).prop_map(|feed| Act::Harvest { feed }),
        ]
        .boxed()
    }

    async fn begin(publisher: Publisher) -> Self {
        let site =
            Site { publisher, feeds: Default::default(), versions: BTreeMap::new(), requests: 0, began: Utc::now() };
        let site = Arc::new(Mutex::new(site));
        let server = Receiver::start({
            let site = Arc::clone(&site);
            move |_, request| {
                let mut site = site.lock().unwrap();
                site.requests += 1;
                let Some(feed) = FEEDS.iter().position(|name| request.path == format!("/{name}")) else {
                    return Reply::of(404);
                };
                let media_type = if site.publisher.is_rss { "application/rss+xml" } else { "application/atom+xml" };
                let media_type = format!("{media_type}; charset={}", site.charset());
                let mut headers = vec![("content-type", media_type)];
                if site.publisher.is_of_the_future {
                    if !request.header("if-modified-since").is_empty() {
                        return Reply::of(304);
                    }
                    headers.push(("last-modified", "Sat, 16 Nov 2041 19:11:00 GMT".to_owned()));
                }
                Reply::Answer(200, headers, site.document(feed))
            }
        })
        .await;
        Self { site, server, seen: Seen::default() }
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
            Act::Drop { entry, feed } => self.with(|site| {
                site.feeds[feed].remove(&entry);
            }),
        }
        Ok(())
    }

    async fn fall_quiet(&mut self, rig: &mut Rig) -> Result<(), String> {
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
        let after = rig.gateway().head().await;
        if after == head { Ok(()) } else { Err(format!("runs without news make {} changes", after - head)) }
    }

    fn truth(&self) -> Truth {
        let mut truth = Truth { refused: Refusals::Any, ..Truth::default() };
        for entry in &self.seen.entries {
            let item = ItemTruth { object: uri(*entry), public: true, ..ItemTruth::default() };
            truth.items.insert(uri(*entry), item.clone());
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
