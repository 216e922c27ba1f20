//! `tidings tail`: follows the stream of a gateway and prints one line per change.
//!
//! After an interruption the command reconnects and resumes after the last change that it printed. Interruptions are
//! a restart of the gateway, a network failure and a transient status. A permanent refusal ends the command with the
//! message of the gateway.
//!
//! With `--once` the command ends when it has printed the changes up to the head at its start. `--cursor` keeps the number
//! of the last change in a file, so that the next run continues there.

mod cursor;
mod event_stream;
mod follower;
mod line;

use std::path::PathBuf;

use clap::{ArgGroup, Args};
use url::{Url, form_urlencoded};

use self::{follower::Follower, line::LineFormat};
use super::{Failure, gateway::GatewayArgs, http::http_url, runtime};

const EXAMPLES: &str = "\
Examples:
  tidings tail
  tidings tail https://tidings.example.org --after 41
  tidings tail --after 0 --filter change=DELETE --filter object=http://h/objects/demo: --format json
  TIDINGS_TOKEN=tdg_… tidings tail https://tidings.example.org --filter visibility=true
  tidings tail --gateway https://tidings.example.org --once --cursor deleted.cursor --filter change=DELETE

Each line contains the number of the change, the time of receipt, the kind (add, update, delete, state, mixed), the \
source, the object and the number of items. With --format json each line is the change as JSON.

After an interruption the command reconnects, with an increasing pause and no limit, and resumes after the last change \
that it printed. It ends at Ctrl-C or when the output pipe is closed, and prints the option that resumes at this point.

With --once it ends when it has printed all changes up to the newest one at its start, and gives up after five failures \
in a row. --cursor stores the number of the last change after its line is written; a run that is killed prints the changes \
of its last second again, and loses none. If the file does not exist, the first run starts as --after says, or else with \
the next change.

Exit codes:
  0  ended by Ctrl-C, by a closed output pipe, or with --once because all changes are printed
  1  the gateway refused the request, or with --once cannot be reached, or the cursor cannot be used; standard error says \
why
  2  wrong usage or configuration";

/// Follow the changes of a gateway.
#[derive(Args)]
#[command(after_help = EXAMPLES, group(ArgGroup::new("start").args(["after", "cursor"]).multiple(true)))]
pub(super) struct Tail {
    /// URL of the gateway or of its stream, instead of `--gateway`.
    #[arg(value_name = "URL", value_parser = http_url)]
    url: Option<Url>,
    #[command(flatten)]
    gateway: GatewayArgs,
    /// Number of the change after which to start; 0 starts with the first change. Default: start with the next change.
    #[arg(long, value_name = "N")]
    after: Option<u64>,
    /// File with the number of the last change that was printed. The command starts after that change, and stores the new
    /// number. If the file does not exist, it is made, and the command starts as `--after` says.
    #[arg(long, value_name = "FILE")]
    cursor: Option<PathBuf>,
    /// End when all changes up to the newest one at the start are printed, for cron.
    #[arg(long, requires = "start")]
    once: bool,
    /// Filter condition, with the query parameters of /feed, as in change=DELETE; may be given several times.
    #[arg(long, value_name = "NAME=VALUE", value_parser = condition)]
    filter: Vec<(String, String)>,
    /// Output format.
    #[arg(long, value_enum, default_value_t = LineFormat::Text)]
    format: LineFormat,
    /// Maximum time without data, heartbeats included, before the command reconnects, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86400))]
    timeout: u64,
}

fn condition(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("give NAME=VALUE, as in change=DELETE")?;
    match name {
        "after" => Err("give --after instead".to_owned()),
        "format" => Err("give --format instead".to_owned()),
        _ => Ok((name.to_owned(), value.to_owned())),
    }
}

impl Tail {
    pub(super) fn run(self) -> Result<(), Failure> {
        let follower = Follower::new(self)?;
        let runtime = runtime(tokio::runtime::Builder::new_current_thread())?;
        let result = runtime.block_on(follower.run());
        // Does not wait for a pending DNS lookup, or for output that nobody reads.
        runtime.shutdown_background();
        result
    }
}

/// Returns the URL of a resource of a gateway, with a query. The gateway may be given by the URL of its stream.
fn gateway_url(gateway: &Url, resource: &str, query: &[(String, String)]) -> Url {
    let mut url = gateway.clone();
    url.set_fragment(None);
    let path = url.path().trim_end_matches('/');
    let is_stream = path.ends_with("/stream");
    let path = format!("{}/{resource}", path.strip_suffix("/stream").unwrap_or(path));
    url.set_path(&path);
    // A query of the stream is a filter.
    let own = if is_stream && resource == "stream" { gateway.query().unwrap_or_default() } else { "" };
    let query = form_urlencoded::Serializer::new(own.to_owned()).extend_pairs(query).finish();
    url.set_query(Some(query.as_str()).filter(|query| !query.is_empty()));
    url
}

#[cfg(test)]
mod tests {
    use super::{Url, condition, gateway_url};

    #[test]
    fn stream_url_accepts_a_gateway_or_its_stream() {
        let address = |url: &str, filter: &[&str]| {
            let filter: Vec<_> = filter.iter().map(|text| condition(text).unwrap()).collect();
            gateway_url(&Url::parse(url).unwrap(), "stream", &filter).to_string()
        };
        assert_eq!(address("http://h:8080", &[]), "http://h:8080/stream");
        assert_eq!(address("https://h/tidings/", &[]), "https://h/tidings/stream");
        let filtered = address("http://h/stream?source=a", &["object=http://h/1?a=b&c", "change=ADD"]);
        assert_eq!(filtered, "http://h/stream?source=a&object=http%3A%2F%2Fh%2F1%3Fa%3Db%26c&change=ADD");
        assert!(condition("DELETE").is_err() && condition("after=1").is_err() && condition("format=xml").is_err());
    }
}
