//! `tidings harvests sets` and `tidings harvests formats`: what a repository with OAI-PMH offers. They ask the repository itself.

use serde::Serialize;
use serde_json::json;
use tidings::{
    config::ConfigParts,
    harvest::oai_pmh::{CatalogueError, FormatDescription, Repository, SetDescription},
};
use url::Url;

use super::{Failure, Output, columns::columns, output::cell, print, runtime};

/// Question to a repository.
#[derive(Clone, Copy)]
pub(super) enum Question {
    /// Its sets.
    Sets,
    /// Its metadata formats.
    Formats,
}

/// Asks the repository at a base URL, or that of a configured source, and prints the answer.
///
/// # Errors
/// Fails if there is no such source, or the repository has no usable answer.
pub(super) fn ask(
    question: Question,
    place: &str,
    config: impl FnOnce() -> Result<ConfigParts, Failure>,
    json: bool,
) -> Result<(), Failure> {
    let runtime = runtime(tokio::runtime::Builder::new_current_thread())?;
    let temporary = std::env::temp_dir();
    let (repository, shown) = if place.contains("://") {
        (runtime.block_on(Repository::at(place, &temporary)), without_secrets(place))
    } else {
        let config = config()?.all()?;
        let source = config.sources.iter().find(|(name, _)| name.as_str() == place).map(|(_, source)| source);
        let harvest = source.and_then(|source| source.transport.harvest());
        let settings = harvest.and_then(|harvest| harvest.kind.oai_pmh()).ok_or_else(|| {
            Failure::Usage(format!(
                "{} is no source with the transport oai-pmh; give its name in the configuration, or the base URL of a repository",
                cell(place)
            ))
        })?;
        (runtime.block_on(Repository::of(settings, &temporary)), place.to_owned())
    };
    let failed = |error: CatalogueError| match error {
        CatalogueError::Url(_) | CatalogueError::Verb => Failure::Usage(format!("{shown}: {error}")),
        _ => Failure::Failed(format!("{shown}: {error}")),
    };
    let repository = repository.map_err(failed)?;
    let written = match question {
        Question::Sets => {
            let sets = runtime.block_on(repository.sets()).map_err(failed)?;
            written(json, "sets", &sets, &set_table(&sets))
        }
        Question::Formats => {
            let formats = runtime.block_on(repository.formats()).map_err(failed)?;
            written(json, "formats", &formats, &format_table(&formats))
        }
    };
    // Does not wait for a pending DNS lookup.
    runtime.shutdown_background();
    written
}

fn written(json: bool, name: &str, answer: &[impl Serialize], table: &str) -> Result<(), Failure> {
    match json {
        true => print(&Output::Json(&format!("{:#}\n", json!({ name: answer })))),
        false => print(&Output::Text(table)),
    }
}

/// Returns a URL without user, password and query.
fn without_secrets(url: &str) -> String {
    let Ok(mut url) = Url::parse(url) else { return "the URL".to_owned() };
    // They fail only for URLs that have no user.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.to_string()
}

fn set_table(sets: &[SetDescription]) -> String {
    if sets.is_empty() {
        return "the repository has no sets\n".to_owned();
    }
    let rows = sets.iter().map(|set| [cell(&set.spec), cell(&set.name)]);
    columns(&["SET", "NAME"], &rows.collect::<Vec<_>>())
}

fn format_table(formats: &[FormatDescription]) -> String {
    if formats.is_empty() {
        return "the repository names no metadata formats\n".to_owned();
    }
    let rows = formats.iter().map(|format| [cell(&format.prefix), cell(&format.namespace), cell(&format.schema)]);
    columns(&["PREFIX", "NAMESPACE", "SCHEMA"], &rows.collect::<Vec<_>>())
}
