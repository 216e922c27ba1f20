//! Simulated publisher: its entries, and the documents of its feeds.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};

use crate::support::http_receiver::{ReceivedRequest, Reply};

/// Names of the feeds.
pub(super) const FEEDS: [&str; 3] = ["all", "category", "podcast"];

/// Date that nobody can read.
pub(super) const UNREADABLE_DATE: &str = "some day";

/// Form of the feeds of this publisher.
#[derive(Clone, Debug)]
pub(crate) struct Publisher {
    /// For each feed: it says that it is complete, so what it no longer lists is gone.
    pub(super) complete: [bool; 3],
    pub(super) is_rss: bool,
    /// Characters before each document.
    pub(super) before_documents: &'static str,
    /// Charset that the response declares, whatever the bytes are.
    pub(super) declared_charset: &'static str,
    /// Format of the dates, for `strftime`; all of them are in use.
    pub(super) dates: &'static str,
    /// The publisher's template writes the time of the request into each document.
    pub(super) stamps: bool,
    /// The URLs of files have another token in each response.
    pub(super) tokens: bool,
    /// The entries have another nonce in each response.
    pub(super) nonces: bool,
    /// The server says that its documents were modified in 2041, and that nothing has changed since.
    pub(super) is_of_the_future: bool,
    /// The ids look like URIs, and mean something in their feed alone.
    pub(super) has_local_ids: bool,
}

/// Entry in a feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Listing {
    pub(super) has_file: bool,
}

/// An entry with one of its ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) entry: u8,
    /// Number of times that all entries had got new ids.
    pub(super) build: u32,
    /// The feed, if the id means something in it alone.
    pub(super) feed: Option<usize>,
}

/// What is wrong with the next response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The document has no entries.
    Empty,
    /// The document ends in its first entry.
    Truncated,
    /// A page says that the site is being maintained.
    Maintenance,
}

pub(super) struct Site {
    pub(super) publisher: Publisher,
    /// Address of the server.
    pub(super) address: String,
    pub(super) feeds: [BTreeMap<u8, Listing>; 3],
    pub(super) versions: BTreeMap<u8, u32>,
    /// Number of times that all entries have got new ids.
    pub(super) build: u32,
    pub(super) trouble: Option<Trouble>,
    /// What was wrong with the newest document.
    pub(super) served: Option<Trouble>,
    pub(super) requests: u32,
    /// Time from which the dates of the entries are counted back.
    began: DateTime<Utc>,
}

impl Site {
    pub(super) fn new(publisher: Publisher) -> Self {
        Self {
            publisher,
            address: String::new(),
            feeds: Default::default(),
            versions: BTreeMap::new(),
            build: 0,
            trouble: None,
            served: None,
            requests: 0,
            began: Utc::now(),
        }
    }

    /// Answers a request for a feed.
    pub(super) fn reply(&mut self, request: &ReceivedRequest) -> Reply {
        self.requests += 1;
        let Some(feed) = FEEDS.iter().position(|name| request.path == format!("/{name}")) else {
            return Reply::of(404);
        };
        self.served = None;
        let media_type = if self.publisher.is_rss { "application/rss+xml" } else { "application/atom+xml" };
        let media_type = format!("{media_type}; charset={}", self.charset());
        let mut headers = vec![("content-type", media_type)];
        if self.publisher.is_of_the_future {
            if !request.header("if-modified-since").is_empty() {
                return Reply::of(304);
            }
            headers.push(("last-modified", "Sat, 16 Nov 2041 19:11:00 GMT".to_owned()));
        }
        self.served = self.trouble.take();
        match self.served {
            None => Reply::Answer(200, headers, self.document(feed)),
            Some(Trouble::Empty) => {
                let entries = std::mem::take(&mut self.feeds[feed]);
                let document = self.document(feed);
                self.feeds[feed] = entries;
                Reply::Answer(200, headers, document)
            }
            Some(Trouble::Truncated) => {
                let mut document = self.document(feed);
                let start = document.find("<item>").or_else(|| document.find("<entry>"));
                let end = start.map_or_else(|| document.find("<title>").unwrap(), |start| start + "<entry>".len());
                document.truncate(end);
                Reply::Answer(200, headers, document)
            }
            Some(Trouble::Maintenance) => {
                let headers = vec![("content-type", "text/html".to_owned())];
                Reply::Answer(200, headers, "<html><title>We will be back soon</title></html>".to_owned())
            }
        }
    }

    /// Returns the present keys of the entries of a feed.
    pub(super) fn listed(&self, feed: usize) -> BTreeMap<Key, Listing> {
        self.feeds[feed].iter().map(|(entry, listing)| (self.key(feed, *entry), *listing)).collect()
    }

    fn key(&self, feed: usize, entry: u8) -> Key {
        Key { entry, build: self.build, feed: self.publisher.has_local_ids.then_some(feed) }
    }

    fn document(&self, feed: usize) -> String {
        let content = if self.publisher.is_rss { self.rss(feed) } else { self.atom(feed) };
        format!("{}<?xml version=\"1.0\" encoding=\"{}\"?>{content}", self.publisher.before_documents, self.charset())
    }

    pub(super) fn charset(&self) -> &str {
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
    fn file_url(&self, key: Key) -> String {
        let token = if self.publisher.tokens { format!("?token={}", self.requests) } else { String::new() };
        format!("{}{token}", file(key))
    }

    fn stamp(&self) -> String {
        if self.publisher.stamps { format!("<!-- {} -->", self.requests) } else { String::new() }
    }

    fn rss(&self, feed: usize) -> String {
        let complete = if self.publisher.complete[feed] { "<fh:complete/>" } else { "" };
        let item = |(entry, listing): (&u8, &Listing)| {
            let file = if listing.has_file {
                format!(
                    "<enclosure url=\"{}\" type=\"audio/mpeg\" length=\"1024\"/>",
                    self.file_url(self.key(feed, *entry))
                )
            } else {
                String::new()
            };
            format!(
                "<item><title>Straße {entry} … {} {}</title><guid isPermaLink=\"false\">{}</guid>\
                 <link>{}</link><pubDate>{}</pubDate>{file}</item>",
                self.versions[entry],
                self.nonce(),
                id(self.key(feed, *entry)),
                link(*entry),
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
                let url = self.file_url(self.key(feed, *entry));
                format!("<link rel=\"enclosure\" href=\"{url}\" type=\"audio/mpeg\" length=\"1024\"/>")
            } else {
                String::new()
            };
            format!(
                "<entry><id>{}</id><title>Straße {entry} … {} {}</title><link href=\"{}\"/>\
                 <updated>{}</updated>{file}</entry>",
                id(self.key(feed, *entry)),
                self.versions[entry],
                self.nonce(),
                link(*entry),
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

/// Returns the id of an entry.
fn id(key: Key) -> String {
    let build = if key.build == 0 { String::new() } else { format!("-{}", key.build) };
    match key.feed {
        None => format!("tag:p.example.org,2026:{}{build}", key.entry),
        Some(_) => format!("story:{}{build}", key.entry),
    }
}

/// Returns the URI of an entry.
pub(super) fn uri(key: Key, address: &str) -> String {
    match key.feed {
        None => id(key),
        Some(feed) => format!("http://{address}/{}#{}", FEEDS[feed], id(key).replace(':', "%3A")),
    }
}

/// Returns the page of an entry, which stays the same when its id does not.
fn link(entry: u8) -> String {
    format!("http://p.example.org/pages/{entry}")
}

/// Returns the URL of the file of an entry.
pub(super) fn file(key: Key) -> String {
    let feed = key.feed.map_or_else(String::new, |feed| format!("{feed}/"));
    format!("http://p.example.org/files/{feed}{}/{}.mp3", key.build, key.entry)
}
