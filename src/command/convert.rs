//! `tidings convert`: what would come out of this message? Without a journal: what only the
//! registry could tell (a state before, the items of a purge) stays as the source told it.

use std::{
    io,
    path::{Path, PathBuf},
};

use clap::Args;
use tidings::{
    format::{
        DIALECTS, DialectKind, FORMATS, FormatKind, Headers, Limits, Message, Reading, Redacted, Rejection, dialect,
    },
    journal::settle::{SourcePolicy, settle_alone},
    model::{Draft, SourceName},
};

use super::{Failure, file, print, say};

const EXAMPLES: &str = "\
Examples:
  tidings convert --dialect fedora-apim message.xml
  tidings convert --dialect fedora-events --format json event.json
  tidings convert --dialect fedora-events --header 'org.fcrepo.jms.baseURL: http://h' \\
                  --header 'org.fcrepo.jms.identifier: /a' -
  tidings convert --dialect sfm --settings '{\"base_url\": \"https://sfm.example.org\"}' \\
                  --header 'Routing-Key: harvest.stop.twitter.twitter_sample' stop.json
  curl -s https://example.org/message.xml | tidings convert --dialect content-change -

Exit codes:
  0  done, or the message tells of nothing that changed (standard error says why)
  1  the message cannot be read (standard error names the place and the reason)
  2  wrong usage";

/// Show what would come out of one message.
///
/// The message is read in the dialect and written in the format to standard output. No journal is
/// needed or touched.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Convert {
    /// The dialect of the message.
    #[arg(long, value_name = "NAME")]
    dialect: String,
    /// The format to write: atom, json, xml, cloudevents or activitystreams.
    #[arg(long, value_name = "NAME", default_value = "atom")]
    format: String,
    /// The dialect's settings, as under [sources.NAME.settings].
    #[arg(long, value_name = "JSON", value_parser = json)]
    settings: Option<serde_json::Value>,
    /// A header that came with the message; may be given several times.
    #[arg(long = "header", value_name = "NAME: VALUE", value_parser = file::header)]
    headers: Vec<(String, String)>,
    /// The message; - is standard input.
    #[arg(value_name = "FILE", default_value = "-")]
    file: PathBuf,
}

impl Convert {
    pub(super) fn run(self) -> Result<(), Failure> {
        let kind = known_dialect(&self.dialect)?;
        let format = known_format(&self.format)?;
        let dialect = (kind.build)(self.settings.unwrap_or_default(), Limits::default()).map_err(|error| {
            Failure::Usage(format!("--settings: the dialect {} does not take them: {error}", kind.name))
        })?;
        let body = read(&self.file)?;
        let headers: Headers = self.headers.into_iter().collect();
        let content_type = headers.get("content-type").unwrap_or_else(|| file::media_type(&self.file));
        let without = match kind.redact.map(|redact| redact(&body)) {
            None | Some(Redacted::AsItCame | Redacted::Opaque) => None,
            Some(Redacted::Without(body)) => Some(body),
            Some(Redacted::Blanked(_, rejection)) => return Err(refused(&self.file, &rejection)),
        };
        let body = without.as_ref().unwrap_or(&body);
        match dialect.read(&Message { content_type: Some(content_type), headers: &headers, body }) {
            Ok(Reading::Drafts(drafts)) => {
                drafts.into_vec().into_iter().try_for_each(|draft| match emit(draft, format)? {
                    Some(written) => print(&written),
                    None => {
                        say("nothing changed: only properties did, and content and state stand");
                        Ok(())
                    }
                })
            }
            Ok(Reading::Nothing(reason)) => {
                say(&format!("nothing changed: {reason}"));
                Ok(())
            }
            Err(rejection) => Err(refused(&self.file, &rejection)),
        }
    }
}

fn refused(file: &Path, rejection: &Rejection) -> Failure {
    Failure::Failed(format!("{}: {rejection}", file.display()))
}

/// clap would take any text for a JSON string.
fn json(text: &str) -> Result<serde_json::Value, serde_json::Error> {
    serde_json::from_str(text)
}

fn known_dialect(name: &str) -> Result<&'static DialectKind, Failure> {
    dialect(name).ok_or_else(|| {
        let known: Vec<&str> = DIALECTS.iter().map(|kind| kind.name).collect();
        Failure::Usage(format!("--dialect: there is no dialect {name:?}; there are {}", known.join(", ")))
    })
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let bytes = if path == Path::new("-") { file::read_bounded(io::stdin().lock()) } else { file::read(path) };
    bytes.map_err(|error| Failure::Failed(file::cannot_read(path, &error)))
}

/// What comes out of one draft, on its own, in that format.
fn emit(draft: Draft, format: &FormatKind) -> Result<Option<Vec<u8>>, Failure> {
    let name = SourceName::parse("convert").map_err(|error| Failure::Failed(error.to_string()))?;
    let policy = SourcePolicy { name, metadata_changes: false };
    Ok(settle_alone(draft, &policy).map(|modification| {
        let mut written = (format.write_modification)(&modification);
        if !written.ends_with(b"\n") {
            written.push(b'\n');
        }
        written
    }))
}

/// A format of which the body, which is all that is written, says all.
fn known_format(name: &str) -> Result<&'static FormatKind, Failure> {
    tidings::format::format(name).filter(|kind| kind.is_whole()).ok_or_else(|| {
        let known: Vec<&str> = FORMATS.iter().filter(|kind| kind.is_whole()).map(|kind| kind.name).collect();
        Failure::Usage(format!("--format: there is no format {name:?}; there are {}", known.join(", ")))
    })
}
