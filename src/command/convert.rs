//! `tidings convert`: converts one message from a dialect to a format, without a journal. Facts that only the registry
//! knows (the state before a change, the items of a purge) stay as the source reported them.

use std::{
    io,
    path::{Path, PathBuf},
};

use clap::Args;
use tidings::{
    config::{Flags, SourceConfig, unknown_dialect},
    format::{
        DIALECTS, Dialect, DialectKind, ExplainedElement, ExplainedMember, FORMATS, FormatKind, Headers, Limits,
        Message, ParsedMessage, Redaction, Rejection, dialect,
    },
    journal::settle::{SourcePolicy, settle_without_registry},
    model::{Draft, SourceName},
    text,
};

use super::{ConfigFile, Failure, Output, columns::columns, file, output::cell, print, print_text, say};

const EXAMPLES: &str = "\
Examples:
  tidings convert --dialect fedora-apim message.xml
  tidings convert --dialect fedora-events --format json event.json
  tidings convert --dialect fedora-events --header 'org.fcrepo.jms.baseURL: http://h' \\
                  --header 'org.fcrepo.jms.identifier: /a' -
  tidings convert --dialect sfm --settings '{\"base_url\": \"https://sfm.example.org\"}' \\
                  --header 'Routing-Key: harvest.stop.twitter.twitter_sample' stop.json
  tidings convert --config tidings.toml --source uploads --explain message.json
  curl -s https://example.org/message.xml | tidings convert --dialect content-change -

Exit codes:
  0  done, or the message reports no change (standard error says why)
  1  the message cannot be read (standard error says where and why)
  2  wrong usage";

/// Convert one message and print the result.
///
/// The message is read in the given dialect and written to standard output in the given format. The command uses no
/// journal.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Convert {
    /// Dialect of the message.
    #[arg(long, value_name = "NAME", required_unless_present = "source")]
    dialect: Option<String>,
    /// Source of the configuration whose dialect and settings apply.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["dialect", "settings"])]
    source: Option<String>,
    /// Format to write: atom, json, xml, cloudevents, activitystreams, islandora, fileset-result or fileset-file-result.
    #[arg(long, value_name = "NAME", default_value = "atom")]
    format: String,
    /// Settings of the dialect, as in [sources.NAME.settings].
    #[arg(long, value_name = "JSON", value_parser = json)]
    settings: Option<serde_json::Value>,
    /// Show from where in the message each member of the changes comes, instead of the changes; for the dialect mapped.
    #[arg(long)]
    explain: bool,
    /// Header of the message; may be given several times.
    #[arg(long = "header", value_name = "NAME: VALUE", value_parser = file::header)]
    headers: Vec<(String, String)>,
    /// File with the message; - is standard input.
    #[arg(value_name = "FILE", default_value = "-")]
    file: PathBuf,
    #[command(flatten)]
    config: ConfigFile,
}

impl Convert {
    pub(super) fn run(self) -> Result<(), Failure> {
        let format = known_format(&self.format)?;
        let Conversion { policy, kind, dialect } = match (&self.source, &self.dialect) {
            (Some(name), _) => Conversion::configured(name, &self.config)?,
            (None, dialect) => Conversion::of(dialect.as_deref().unwrap_or_default(), self.settings)?,
        };
        let body = read(&self.file)?;
        let headers: Headers = self.headers.into_iter().collect();
        let content_type = headers.get("content-type").unwrap_or_else(|| file::media_type(&self.file));
        let redacted = match kind.redact.map(|redact| redact(&body)) {
            None | Some(Redaction::Unchanged | Redaction::Opaque) => None,
            Some(Redaction::Removed(body)) => Some(body),
            Some(Redaction::Blanked(_, rejection)) => return Err(cannot_convert(&self.file, &rejection)),
        };
        let body = redacted.as_ref().unwrap_or(&body);
        let message = Message { content_type: Some(content_type), headers: &headers, body };
        if self.explain {
            let elements = dialect.explain(&message).ok_or_else(|| {
                Failure::Usage(format!("--explain: the dialect {} has no map that could be explained", kind.name))
            })?;
            print_text(&explained(&elements))?;
        }
        match dialect.read(&message) {
            Ok(ParsedMessage::Drafts(_)) if self.explain => Ok(()),
            Ok(ParsedMessage::Drafts(drafts)) => {
                drafts.into_vec().into_iter().try_for_each(|draft| match write_change(draft, &policy, format) {
                    Some(written) => print(&Output::Message(&written)),
                    None => {
                        say("nothing changed: the message modifies only properties, not content or state");
                        Ok(())
                    }
                })
            }
            Ok(ParsedMessage::NoChange(reason)) => {
                say(&format!("nothing changed: {reason}"));
                Ok(())
            }
            Err(rejection) => Err(cannot_convert(&self.file, &rejection)),
        }
    }
}

/// Formats the origins of all members, with a table for each element of the message.
fn explained(elements: &[ExplainedElement]) -> String {
    let table = |element: &ExplainedElement| {
        let rows = element.members.iter().map(|ExplainedMember { member, value, origin }| {
            let value =
                value.as_ref().map_or_else(|| "(missing)".to_owned(), |value| text::line(value, 200).to_string());
            [member.clone(), value, cell(origin)]
        });
        format!("{}:\n{}", element.place, columns(&["MEMBER", "VALUE", "FROM"], &rows.collect::<Vec<_>>()))
    };
    elements.iter().map(table).collect::<Vec<_>>().join("\n")
}

/// Dialect, settings and policy by which the message is read.
struct Conversion {
    policy: SourcePolicy,
    kind: &'static DialectKind,
    dialect: Box<dyn Dialect>,
}

impl Conversion {
    /// Reads as a source of the configuration does, with its limits.
    fn configured(name: &str, config: &ConfigFile) -> Result<Self, Failure> {
        let parts = config.load(&Flags::default())?;
        let parsed = SourceName::parse(name).ok();
        let source = parsed.clone().map(|name| parts.source(&name)).transpose()?.flatten();
        let Some((name, source)) = parsed.zip(source) else {
            let known = parts.source_names()?.join(", ");
            return Err(Failure::Usage(format!("--source: there is no source {name:?}; there are {known}")));
        };
        let SourceConfig { dialect: kind, settings, metadata_changes, .. } = source;
        let dialect = (kind.build)(settings, parts.limits().message_limits())
            .map_err(|error| Failure::Usage(format!("sources.{name}.settings: {error}")))?;
        Ok(Self { policy: SourcePolicy { name, metadata_changes }, kind, dialect })
    }

    /// Reads in a dialect, with the settings of the command line and the default limits.
    fn of(dialect: &str, settings: Option<serde_json::Value>) -> Result<Self, Failure> {
        let kind = known_dialect(dialect)?;
        let dialect = (kind.build)(settings.unwrap_or_default(), Limits::default())
            .map_err(|error| Failure::Usage(format!("--settings: wrong for the dialect {}: {error}", kind.name)))?;
        let name = SourceName::parse("convert").map_err(|error| Failure::Failed(error.to_string()))?;
        Ok(Self { policy: SourcePolicy { name, metadata_changes: false }, kind, dialect })
    }
}

fn cannot_convert(file: &Path, rejection: &Rejection) -> Failure {
    Failure::Failed(format!("{}: {rejection}", file.display()))
}

/// Parses JSON. Without this parser clap would accept any text as a JSON string.
fn json(text: &str) -> Result<serde_json::Value, serde_json::Error> {
    serde_json::from_str(text)
}

fn known_dialect(name: &str) -> Result<&'static DialectKind, Failure> {
    dialect(name).ok_or_else(|| {
        let known: Vec<&str> = DIALECTS.iter().map(|kind| kind.name).collect();
        Failure::Usage(format!("--dialect: {}", unknown_dialect(name, &known)))
    })
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let bytes = if path == Path::new("-") { file::read_bounded(io::stdin().lock()) } else { file::read(path) };
    bytes.map_err(|error| Failure::Failed(file::cannot_read(path, &error)))
}

/// Writes one draft as a change in the given format; `None` if the draft changes nothing.
fn write_change(draft: Draft, policy: &SourcePolicy, format: &FormatKind) -> Option<Vec<u8>> {
    settle_without_registry(draft, policy).map(|modification| {
        let mut written = (format.write_modification)(&modification);
        if !written.ends_with(b"\n") {
            written.push(b'\n');
        }
        written
    })
}

/// Returns the format with this name. Formats that put facts into headers are excluded, because only the body is
/// written.
fn known_format(name: &str) -> Result<&'static FormatKind, Failure> {
    tidings::format::format(name).filter(|kind| kind.is_self_contained()).ok_or_else(|| {
        let known: Vec<&str> = FORMATS.iter().filter(|kind| kind.is_self_contained()).map(|kind| kind.name).collect();
        Failure::Usage(format!("--format: there is no format {name:?}; there are {}", known.join(", ")))
    })
}
