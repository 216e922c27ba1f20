//! `tidings compare`: compares the copy of a mirror with the registry of a gateway, by the digests of `docs/compare.md`.

mod copy;

use std::{
    fs::File,
    io::{self, BufReader},
    path::PathBuf,
    time::Duration,
};

use clap::{Args, ValueEnum};
use reqwest::{Method, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tidings::model::{DigestSum, SubscriptionName, Uri, UriPrefix};

use self::copy::{Copy, CopyFacts, Sum};
use super::{
    Failure, Output,
    bulk::{CommandError, with_gateway},
    gateway::{Gateway, GatewayArgs, GatewayError},
    http::backoff,
    output::counted,
    print, say,
};

const EXAMPLES: &str = "\
Examples:
  tidings compare copy.jsonl
  tidings compare copy.jsonl --subscription solr
  psql --tuples-only --no-align --file copy.sql | tidings compare - --visibility
  tidings compare uris.jsonl --facts existence
  tidings compare copy.jsonl --send solr

The file has a line for each item of the mirror: {\"object\": URI, \"uri\": URI, \"state\": …, \"content\": {…}}, or the URI \
of the object, a blank and a digest. docs/compare.md has the digest, and recipes for Solr and SQL. The token needs the scope \
read, and admin with --subscription and --send.

Exit codes:
  0  the mirror has what it should have
  1  there are differences, which standard output lists
  2  the file, an option or the gateway is wrong, or the gateway cannot be reached; standard error says why";

/// Number of parts of the first range, and of later ones.
const FIRST_PARTS: usize = 256;
const PARTS: usize = 16;

/// Maximum number of ranges of a request.
const RANGES: usize = 256;

/// Maximum number of objects whose changes one request sends again, and of changes that it examines.
const SENT_OBJECTS: usize = 1000;
const SENT_RANGE: u64 = 100_000;

/// Number of attempts while the gateway cannot be reached, and while it reads its registry.
const ATTEMPTS: u32 = 6;
const PASSES: u32 = 360;

/// Compare the copy of a mirror with the registry, and list the objects that differ.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Compare {
    #[command(flatten)]
    gateway: GatewayArgs,
    /// File with a line for each item of the mirror; - is standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Facts to compare.
    #[arg(long, value_enum, default_value_t = Facts::All)]
    facts: Facts,
    /// Take the filter of this subscription.
    #[arg(long, value_name = "NAME", value_parser = SubscriptionName::parse,
        conflicts_with_all = ["object", "parent", "object_type", "visibility"])]
    subscription: Option<SubscriptionName>,
    /// The mirror has only objects whose URIs begin with this. May be given several times.
    #[arg(long, value_name = "PREFIX", value_parser = UriPrefix::parse)]
    object: Vec<UriPrefix>,
    /// The mirror has only objects that belong to this one. May be given several times.
    #[arg(long, value_name = "URI", value_parser = Uri::parse)]
    parent: Vec<Uri>,
    /// The mirror has only objects of this type. May be given several times.
    #[arg(long = "type", value_name = "URI", value_parser = Uri::parse)]
    object_type: Vec<Uri>,
    /// The mirror has only what the public sees.
    #[arg(long)]
    visibility: bool,
    /// Send the changes of the objects that differ to this subscription again, marked as repeats. Its filter is the one to
    /// compare with, unless options give another.
    #[arg(long, value_name = "NAME", value_parser = SubscriptionName::parse)]
    send: Option<SubscriptionName>,
    /// Print JSON, one object on each line, for programs.
    #[arg(long)]
    json: bool,
}

/// Facts to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
enum Facts {
    /// Items with their states and contents.
    All,
    /// Which items there are.
    Existence,
}

/// Difference of an object of the mirror.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    /// The mirror lacks it.
    Missing,
    /// The mirror should not have it.
    Extra,
    /// The mirror has other facts.
    Different,
}

/// An object that differs.
#[derive(Serialize)]
struct Difference {
    object: String,
    difference: Kind,
}

/// A range of objects to ask for.
#[derive(Clone, Serialize)]
struct Range {
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    through: Option<String>,
}

/// Response of the gateway.
#[derive(Deserialize)]
struct Digests {
    head: u64,
    ranges: Vec<DividedRange>,
}

#[derive(Deserialize)]
struct DividedRange {
    after: Option<String>,
    through: Option<String>,
    parts: Option<Vec<Part>>,
    objects: Option<Vec<Object>>,
}

#[derive(Deserialize)]
struct Part {
    through: Option<String>,
    objects: u64,
    items: u64,
    digest: DigestSum,
}

#[derive(Deserialize)]
struct Object {
    uri: String,
    items: u64,
    digest: DigestSum,
}

impl Compare {
    pub(super) fn run(self) -> Result<(), Failure> {
        let found = with_gateway(&self.gateway, async |gateway| self.compare(&gateway).await);
        match found {
            // 1 is for differences.
            Err(Failure::Failed(reason)) => Err(Failure::Usage(reason)),
            found => found,
        }
    }

    async fn compare(&self, gateway: &Gateway) -> Result<(), CommandError> {
        let filter = self.filter(gateway).await?;
        let is_public = filter["visibility"].as_bool().unwrap_or_default();
        let facts = CopyFacts { has_all: self.facts == Facts::All, is_public };
        let copy = self
            .read_copy(facts)
            .map_err(|reason| CommandError::Failure(Failure::Usage(format!("{}: {reason}", self.file.display()))))?;
        let mut comparison = Comparison { copy: &copy, differences: Vec::new(), requests: 0, head: 0 };
        comparison.run(gateway, self.facts, &filter).await?;
        let Comparison { mut differences, requests, head, .. } = comparison;
        differences.sort_by(|one, other| one.object.cmp(&other.object));
        self.print(&differences)?;
        let count = |kind| differences.iter().filter(|one| one.difference == kind).count();
        say(&format!(
            "compared {} with the registry at change {head} in {}: {} missing, {} extra, {} different",
            counted(copy.sum(None, None).objects, "object"),
            counted(requests, "request"),
            count(Kind::Missing),
            count(Kind::Extra),
            count(Kind::Different)
        ));
        if differences.is_empty() {
            return Ok(());
        }
        if let Some(name) = &self.send {
            send_again(gateway, name, &differences, head).await?;
        }
        Err(CommandError::Failure(Failure::Printed(1)))
    }

    /// Returns the filter of the mirror, as JSON.
    async fn filter(&self, gateway: &Gateway) -> Result<Value, CommandError> {
        let is_given = self.visibility
            || [self.object.len(), self.parent.len(), self.object_type.len()].into_iter().any(|count| count > 0);
        let named = self.subscription.as_ref().or(self.send.as_ref().filter(|_| !is_given));
        let Some(name) = named else {
            return Ok(json!({
                "objects": self.object.iter().map(UriPrefix::as_str).collect::<Vec<_>>(),
                "parents": self.parent, "types": self.object_type, "visibility": self.visibility,
            }));
        };
        let subscription = gateway.request(Method::GET, &format!("/subscriptions/{name}"), None).await?;
        Ok(match subscription["definition"]["filter"].clone() {
            Value::Null => json!({}),
            filter => filter,
        })
    }

    fn read_copy(&self, facts: CopyFacts) -> Result<Copy, String> {
        if self.file.as_os_str() == "-" {
            return Copy::read(BufReader::new(io::stdin().lock()), facts);
        }
        let file = File::open(&self.file).map_err(|error| error.to_string())?;
        Copy::read(BufReader::with_capacity(1 << 20, file), facts)
    }

    fn print(&self, differences: &[Difference]) -> Result<(), Failure> {
        let mut text = String::new();
        for one in differences {
            if self.json {
                text += &format!("{}\n", serde_json::to_value(one).unwrap_or_default());
            } else {
                let kind = match one.difference {
                    Kind::Missing => "missing",
                    Kind::Extra => "extra",
                    Kind::Different => "different",
                };
                text += &format!("{kind:9}  {}\n", one.object);
            }
        }
        print(&if self.json { Output::Json(&text) } else { Output::Text(&text) })
    }
}

/// A comparison, from the first range to the last differing object.
struct Comparison<'c> {
    copy: &'c Copy,
    differences: Vec<Difference>,
    requests: u64,
    head: u64,
}

impl Comparison<'_> {
    async fn run(&mut self, gateway: &Gateway, facts: Facts, filter: &Value) -> Result<(), GatewayError> {
        let mut ranges = vec![Range { after: None, through: None }];
        let mut parts = FIRST_PARTS;
        while !ranges.is_empty() {
            let rest = ranges.split_off(ranges.len().min(RANGES));
            let body = json!({ "ranges": ranges, "parts": parts, "facts": facts, "filter": filter });
            let response = request_patiently(gateway, &body).await?;
            let digests: Digests =
                serde_json::from_value(response).map_err(|error| GatewayError::unexpected_body(&error))?;
            self.requests += 1;
            self.head = self.head.max(digests.head);
            let next = digests.ranges.into_iter().flat_map(|range| self.examine(range));
            ranges = next.collect();
            ranges.extend(rest);
            parts = PARTS;
        }
        Ok(())
    }

    /// Compares a range, and returns its parts that differ.
    fn examine(&mut self, range: DividedRange) -> Vec<Range> {
        if let Some(objects) = range.objects {
            self.list(range.after.as_deref(), range.through.as_deref(), &objects);
            return Vec::new();
        }
        let mut differing = Vec::new();
        let mut after = range.after;
        for part in range.parts.unwrap_or_default() {
            let own = self.copy.sum(after.as_deref(), part.through.as_deref());
            let theirs = Sum { objects: part.objects, items: part.items, digest: part.digest };
            if theirs.objects == 0 {
                self.list(after.as_deref(), part.through.as_deref(), &[]);
            } else if own != theirs {
                differing.push(Range { after, through: part.through.clone() });
            }
            after = part.through;
        }
        differing
    }

    /// Compares all objects of a range with those of the registry.
    fn list(&mut self, after: Option<&str>, through: Option<&str>, registered: &[Object]) {
        let mut own = self.copy.objects(after, through).iter().peekable();
        let mut add =
            |object: &str, difference| self.differences.push(Difference { object: object.to_owned(), difference });
        for object in registered {
            while let Some((uri, _)) = own.next_if(|(uri, _)| **uri < *object.uri) {
                add(uri, Kind::Extra);
            }
            match own.next_if(|(uri, _)| **uri == *object.uri) {
                None => add(&object.uri, Kind::Missing),
                Some((_, sum)) if (sum.items, sum.digest) != (object.items, object.digest) => {
                    add(&object.uri, Kind::Different);
                }
                Some(_) => {}
            }
        }
        own.for_each(|(uri, _)| add(uri, Kind::Extra));
    }
}

/// Asks for digests, again while the gateway reads its registry or cannot be reached for a short time.
async fn request_patiently(gateway: &Gateway, body: &Value) -> Result<Value, GatewayError> {
    let (mut failures, mut passes) = (0, 0);
    let mut waits = backoff();
    loop {
        match gateway.request(Method::POST, "/registry/digests", Some(body.clone())).await {
            Err(error) if error.status == Some(StatusCode::SERVICE_UNAVAILABLE) && passes < PASSES => {
                passes += 1;
                say(&error.reason);
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            Err(error) if error.is_transient && failures < ATTEMPTS => {
                failures += 1;
                tokio::time::sleep(waits.next_wait()).await;
            }
            answer => return answer,
        }
    }
}

/// Has the changes of the objects sent to a subscription again, from the oldest one in the journal on.
async fn send_again(
    gateway: &Gateway,
    name: &SubscriptionName,
    differences: &[Difference],
    head: u64,
) -> Result<(), GatewayError> {
    let oldest = gateway.request(Method::GET, "/changes?limit=1", None).await?;
    let first = oldest["changes"][0]["seq"].as_u64().unwrap_or(1);
    let mut sent = 0;
    for differences in differences.chunks(SENT_OBJECTS) {
        let objects: Vec<_> = differences.iter().map(|one| &one.object).collect();
        let mut from = first;
        while from <= head {
            let to = head.min(from.saturating_add(SENT_RANGE - 1));
            let body = json!({ "from": from, "to": to, "objects": objects });
            let path = format!("/subscriptions/{name}/replay");
            sent += gateway.request(Method::POST, &path, Some(body)).await?["changes"].as_u64().unwrap_or_default();
            from = to + 1;
        }
    }
    say(&format!(
        "{} of {} sent to the subscription {name} again, marked as repeats",
        counted(sent, "change"),
        counted(differences.len() as u64, "object")
    ));
    Ok(())
}
