//! `tidings crawl`: harvests records from a target on D-Bus, and prints each as a line of JSON.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use clap::Args;
use serde::Serialize;
use tidings::{
    dbus::{self, Bus, BusError, CallError, Connection, Name, Path},
    delivery::xesam::{CRAWLER_INTERFACE, TARGET_INTERFACE},
    model::Timestamp,
};
use tokio::sync::mpsc;
use zbus::object_server::ResponseDispatchNotifier;

use super::{Failure, Output, runtime, say};

const EXAMPLES: &str = "\
Examples:
  tidings crawl
  tidings crawl --since 2026-01-02T03:04:05Z --content xesam:Image --field xesam:url
  tidings crawl --bus unix:path=/run/user/1000/bus | jq -r .uri

Each line is a record, or {\"cleanUp\":true}: then the records so far are no longer valid, and all records follow. A pipe \
that is not read pauses the target.

It ends at Ctrl-C, when the output pipe is closed, or when the target ends it, and prints the option that continues at \
this point. The records of the last second then come again.

Exit codes:
  0  ended by Ctrl-C or by a closed output pipe
  1  the bus or the target has failed, or the target has ended the crawler; standard error says why
  2  wrong usage";

/// Path of the crawler on the bus.
const CRAWLER: &str = "/org/tidings/Crawler";

/// Harvest records from a Xesam target on D-Bus, of Tidings or of another program.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Crawl {
    /// Bus: session, system, or an address.
    #[arg(long, default_value = "session", value_parser = Bus::parse)]
    bus: Bus,
    /// Name of the target on the bus.
    #[arg(long, default_value = "org.tidings.Tidings1", value_parser = Name::parse)]
    name: Name,
    /// Path of the target.
    #[arg(long, default_value = "/org/freedesktop/xesam/pmh/Target", value_parser = Path::parse)]
    path: Path,
    /// Time after which to begin, as in 2026-01-02T03:04:05Z or in seconds since 1970. Default: get everything.
    #[arg(long, value_name = "TIME", default_value = "0", hide_default_value = true, value_parser = seconds)]
    since: u64,
    /// Name of a field to get; may be given several times. Default: all.
    #[arg(long, value_name = "NAME")]
    field: Vec<String>,
    /// Content category to get, with the categories below it; may be given several times. Default: all.
    #[arg(long, value_name = "CATEGORY")]
    content: Vec<String>,
    /// Source category to get, with the categories below it; may be given several times. Default: all.
    #[arg(long, value_name = "CATEGORY")]
    source: Vec<String>,
    /// Maximum number of records in a batch; 0 leaves the choice to the target.
    #[arg(long, value_name = "RECORDS", default_value_t = 0)]
    batch: u32,
}

/// Parses a time as whole seconds since 1970.
fn seconds(text: &str) -> Result<u64, String> {
    if let Ok(seconds) = text.parse() {
        return Ok(seconds);
    }
    let time = Timestamp::parse(text).map_err(|error| error.to_string())?;
    u64::try_from(time.millis().div_euclid(1000)).map_err(|_| "give a time after 1970".to_owned())
}

/// Reason why the crawler ends.
enum End {
    Interrupted,
    OutputClosed,
    /// The target or another program has called `Invalidate`, with this text.
    Invalidated(String),
    Failed(String),
}

/// A record as it is printed.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    uri: &'a str,
    time: &'a str,
    state: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    content: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    source: &'a str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    fields: &'a [(String, String)],
}

/// A record as it arrives: URI, timestamp, content category, source category, state, and fields.
type Payload = (String, String, String, String, u64, Vec<(String, String)>);

/// Object that the target calls.
struct Crawler {
    /// Whole second of the last printed record.
    second: Arc<AtomicU64>,
    ends: mpsc::Sender<End>,
}

#[zbus::interface(name = "org.freedesktop.xesam.pmh.Crawler", introspection_docs = false)]
impl Crawler {
    /// Prints records. The answer follows when they are printed.
    async fn update_records(&self, payloads: Vec<Payload>) {
        let last = payloads.last().and_then(|(_, time, ..)| seconds(time).ok());
        let mut lines = String::new();
        for (uri, time, content, source, state, fields) in &payloads {
            let state = if *state == 2 { "deleted" } else { "normal" };
            let line = Line { uri, time, state, content, source, fields };
            // Texts can always be written as JSON.
            lines += &serde_json::to_string(&line).unwrap_or_default();
            lines.push('\n');
        }
        if self.print(lines).await
            && let Some(last) = last
        {
            self.second.store(last, Ordering::Relaxed);
        }
    }

    /// Prints that all records so far are no longer valid.
    async fn clean_up(&self) {
        self.print("{\"cleanUp\":true}\n".to_owned()).await;
    }

    /// Ends the crawler, after the answer.
    fn invalidate(&self, debug_message: String) -> ResponseDispatchNotifier<()> {
        let (answer, answered) = ResponseDispatchNotifier::new(());
        let ends = self.ends.clone();
        tokio::spawn(async move {
            answered.await;
            let _ = ends.send(End::Invalidated(debug_message)).await;
        });
        answer
    }
}

impl Crawler {
    /// Writes to standard output, on a thread that may wait. Returns whether it was written.
    async fn print(&self, lines: String) -> bool {
        let write = move || Output::Json(&lines).write();
        let end = match tokio::task::spawn_blocking(write).await {
            Ok(Ok(())) => return true,
            Ok(Err(error)) if error.kind() == io::ErrorKind::BrokenPipe => End::OutputClosed,
            Ok(Err(error)) => End::Failed(format!("cannot write to standard output: {error}")),
            Err(error) => End::Failed(error.to_string()),
        };
        self.end(end).await;
        false
    }

    async fn end(&self, end: End) {
        // Only the first end is received.
        let _ = self.ends.send(end).await;
    }
}

impl Crawl {
    pub(super) fn run(self) -> Result<(), Failure> {
        let runtime = runtime(tokio::runtime::Builder::new_multi_thread())?;
        let second = Arc::new(AtomicU64::new(self.since));
        let end = runtime.block_on(self.crawl(Arc::clone(&second)));
        // Does not wait for output that nobody reads.
        runtime.shutdown_background();
        let second = second.load(Ordering::Relaxed);
        if second > 0 {
            say(&format!("continue with --since {second}"));
        }
        match end {
            End::Interrupted | End::OutputClosed => Ok(()),
            End::Invalidated(reason) if reason.is_empty() => {
                Err(Failure::Failed("the crawler was invalidated without a reason".to_owned()))
            }
            End::Invalidated(reason) => Err(Failure::Failed(format!("the crawler was invalidated: {reason}"))),
            End::Failed(reason) => Err(Failure::Failed(reason)),
        }
    }

    async fn crawl(self, second: Arc<AtomicU64>) -> End {
        let failed = |error: BusError| End::Failed(error.to_string());
        let (ends, mut ended) = mpsc::channel(1);
        let path = match Path::parse(CRAWLER) {
            Ok(path) => path,
            Err(error) => return End::Failed(error.to_string()),
        };
        let (connection, mut incoming) = match Connection::open(&self.bus, &path, Crawler { second, ends }).await {
            Ok(opened) => opened,
            Err(error) => return failed(error),
        };
        let interrupted = async {
            let _ = tokio::signal::ctrl_c().await;
            End::Interrupted
        };
        let crawling = async {
            if let Err(end) = self.install(&connection).await {
                return end;
            }
            ended.recv().await.unwrap_or(End::Interrupted)
        };
        let end = tokio::select! {
            end = crawling => end,
            end = interrupted => end,
            () = async { while incoming.next_signal().await.is_some() {} } => failed(BusError::Closed),
        };
        // So the target frees the crawler at once. The draft demands it of a crawler that is invalidated.
        if !matches!(end, End::Failed(_)) {
            let _ = connection.emit(&path, CRAWLER_INTERFACE, "Invalidated", "the crawler has ended").await;
        }
        end
    }

    /// Installs the crawler.
    async fn install(&self, connection: &Connection) -> Result<(), End> {
        let failed = |error: &dyn std::fmt::Display| End::Failed(error.to_string());
        let object = zbus::wire::ObjectPath::try_from(CRAWLER).map_err(|error| failed(&error))?;
        let arguments = (self.since, &self.field, &self.content, &self.source, self.batch, object);
        let target = (self.name.as_str(), &self.path);
        let call = dbus::message(target, (TARGET_INTERFACE, "ListRecords"), &arguments);
        let call = call.map_err(|error| failed(&error))?;
        let reply = async { connection.call(&call).await?.receive().await };
        reply.await.map_err(|error: CallError| match error {
            CallError::Gone { .. } => {
                End::Failed(format!("no target {} is on the bus {}: {error}", target.0, self.bus))
            }
            other => failed(&other),
        })?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::seconds;

    #[test]
    fn time_is_a_date_or_a_number_of_seconds() {
        for (text, expected) in [
            ("0", 0),
            ("1795000000", 1_795_000_000),
            ("1970-01-01T00:01:00.999Z", 60),
            ("2026-01-02T03:04:05Z", 1_767_323_045),
        ] {
            assert_eq!(seconds(text), Ok(expected), "{text}");
        }
        assert!(seconds("1969-01-01T00:00:00Z").is_err() && seconds("yesterday").is_err());
    }
}
