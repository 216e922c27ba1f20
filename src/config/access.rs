//! `[access]`: reads the tokens and what readers without one may see, and refuses a public gateway without access control.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use utoipa::openapi::Schema;

use super::{
    error::{ConfigError, ConfigErrors},
    server::ServerConfig,
    source_names::refuse_unknown_sources,
};
use crate::{
    model::{Filter, ReaderView, SourceName, UriPrefix},
    settings::{
        Any, Choice, Choose, Flag, List, Setting, SettingError, SettingErrors, Text, TextType, ValueType, settings,
    },
    suggestion::nearest_name,
    web::{Access, PublicAccess, Scope, Secret, SecretDigest, Surface, Token},
};

settings! {
    /// `[access]`
    pub(super) struct AccessTable {
        /// Tokens by their names.
        pub(super) tokens: Option<Any>,
        /// `[access.public]`: what readers without a token may see. Default: nothing.
        pub(super) public: Option<PublicTable>,
    }
}

settings! {
    /// `[access.public]`
    pub(super) struct PublicTable {
        /// Surfaces that need no token: "feed", "changes", "stream", "live", "objects", "snapshot", "oai", "iiif", "ldes" and
        /// "resourcesync".
        surfaces: List<Choice<Surface>>,
        /// Sources whose changes everybody may see; not with "objects", "snapshot", "oai" and "resourcesync".
        /// Default: all.
        sources: List<Text<SourceName>> = Vec::new(),
        /// Beginnings of the URIs of the objects that everybody may see. Default: all.
        objects: List<Text<UriPrefix>> = Vec::new(),
    }
}

settings! {
    /// The table `view` of a token.
    pub(super) struct ViewTable {
        /// Sources of the changes. Default: all.
        sources: List<Text<SourceName>> = Vec::new(),
        /// Beginnings of the URIs of the objects. Default: all.
        objects: List<Text<UriPrefix>> = Vec::new(),
        /// Whether the owner sees only what the public sees, and no names of users. Default: false.
        public: Flag = false,
    }
}

settings! {
    /// One table `[access.tokens.NAME]`.
    pub(super) struct TokenTable {
        /// SHA-256 of the token in hexadecimal digits. The token itself is stored nowhere.
        sha256: Digest,
        /// Permissions: "publish:SOURCE" posts to the hook of that source, "publish:*" to every hook, "read" reads
        /// the feed, the changes and the objects, "admin" permits everything.
        scopes: Scopes,
        /// Time at which the token expires, as in "2027-01-01T00:00:00Z". Default: never.
        expires: Option<Expiry>,
        /// Part of the journal that the owner may see, with the scope "read" alone: beginnings of the URIs of `objects`,
        /// `sources` of the changes, and with `public = true` only what the public sees. Default: everything.
        view: Option<ViewTable>,
    }
}

/// Reads the tokens. `sources` contains the names of all configured sources, including disabled ones.
pub(super) fn tokens(tokens: &Setting, sources: &[String]) -> Result<Vec<Token>, ConfigErrors> {
    let mut errors = ConfigErrors::default();
    let tokens = tokens.entries()?.into_iter();
    let tokens = tokens.filter_map(|(name, table)| errors.keep(token(name, &table, sources))).collect();
    errors.or(tokens)
}

fn token(name: String, table: &Setting, sources: &[String]) -> Result<Token, SettingErrors> {
    // Token names have the same syntax as source names, so that each layer of the configuration can contain them.
    SourceName::parse(&name).map_err(|error| table.invalid(error.to_string()))?;
    let TokenTable { sha256: digest, scopes, expires, view } = table.read::<TokenTable>()?;
    for scope in &scopes {
        if let Scope::PublishTo(source) = scope
            && !sources.contains(source)
        {
            return Err(table.at("scopes").invalid(no_such_source(sources, source)).into());
        }
    }
    let view = view.map(|view| view_of_token(view, &scopes, &table.at("view"), sources)).transpose()?;
    Ok(Token { name, digest, scopes, expires, view })
}

fn view_of_token(
    view: ViewTable,
    scopes: &[Scope],
    table: &Setting,
    sources: &[String],
) -> Result<Arc<ReaderView>, SettingError> {
    if scopes.iter().any(|scope| *scope != Scope::Read) {
        return Err(
            table.invalid("only a token with the scope \"read\" alone can have a view; make a token for reading")
        );
    }
    let ViewTable { sources: of, objects, public } = view;
    let view = read_view(of, objects, public, table, sources)?;
    if view == ReaderView::default() {
        return Err(table.invalid("it has no condition; give objects, sources or public = true"));
    }
    Ok(Arc::new(view))
}

/// Reads what readers without a token may see. `access` is the access without it.
pub(super) fn public_access(
    public: PublicTable,
    access: &Access,
    table: &Setting,
    sources: &[String],
) -> Result<PublicAccess, SettingError> {
    let PublicTable { surfaces, sources: of, objects } = public;
    if surfaces.is_empty() {
        return Err(table.at("surfaces").invalid("it is empty; give a surface, or remove the table"));
    }
    if access.is_open() {
        let reason = "without a token and a signature, everything else is open, too; make a token for yourself with \
                      `tidings token --scope admin`";
        return Err(table.invalid(reason));
    }
    let combines_sources = |surface: &&Surface| {
        matches!(surface, Surface::Objects | Surface::Snapshot | Surface::Oai | Surface::ResourceSync)
    };
    let of_registry = surfaces.iter().find(combines_sources);
    if let Some(surface) = of_registry.filter(|_| !of.is_empty()) {
        let reason = format!(
            "the surface {:?} combines the facts of all sources; select objects instead, or leave the surface out",
            surface.name()
        );
        return Err(table.at("sources").invalid(reason));
    }
    let view = read_view(of, objects, true, table, sources)?;
    Ok(PublicAccess { surfaces: surfaces.into(), view: Arc::new(view) })
}

pub(super) fn read_view(
    sources: Vec<SourceName>,
    objects: Vec<UriPrefix>,
    public: bool,
    table: &Setting,
    known: &[String],
) -> Result<ReaderView, SettingError> {
    refuse_unknown_sources(&sources, known, &table.at("sources"))?;
    for (key, length) in [("sources", sources.len()), ("objects", objects.len())] {
        if length > Filter::MAX_VALUES {
            return Err(table
                .at(key)
                .invalid(format!("it has {length} values; the maximum is {}", Filter::MAX_VALUES)));
        }
    }
    Ok(ReaderView { sources, objects, public })
}

impl Choose for Surface {
    const WHAT: &'static str = "surface for readers without a token";
}

fn no_such_source(sources: &[String], source: &str) -> String {
    match nearest_name(source, sources.iter().map(String::as_str)) {
        Some(nearest) => {
            format!("one of the scopes names a source that does not exist; did you mean publish:{nearest}?")
        }
        None => format!("one of the scopes names a source that does not exist; there are {}", sources.join(", ")),
    }
}

/// Refuses a public socket address if there is no access control and `server.insecure` is false.
pub(super) fn refuse_open(server: &ServerConfig, access: &Access) -> Result<(), ConfigError> {
    let on_loopback = server.listen.ip().to_canonical().is_loopback();
    if on_loopback || server.insecure || !access.is_open() {
        Ok(())
    } else {
        Err(ConfigError::NoAccessControl { address: server.listen })
    }
}

/// Minimum length of a random secret, in bytes.
const MIN_SECRET: usize = 16;

/// Texts whose SHA-256 is in the examples of standards and libraries, and could be copied from there.
const KNOWN_TOKENS: [&str; 2] = ["abc", ""];

/// SHA-256 of a token. The error does not repeat the text, because it may be the token itself by mistake.
struct Digest;

impl TextType for Digest {
    type Value = SecretDigest;
    const MAY_BE_SECRET: bool = true;

    fn parse(text: &str) -> Result<SecretDigest, String> {
        let digest = SecretDigest::parse(text);
        if digest.is_some_and(|digest| KNOWN_TOKENS.iter().any(|known| Secret::new(*known).digest() == digest)) {
            let reason = "everybody knows the token that has this SHA-256, because examples have it; make a token with \
                          `tidings token`";
            return Err(reason.to_owned());
        }
        let reason = match text {
            // Only `tidings token` makes texts that begin so.
            token if token.starts_with("tdg_") => {
                "it is a token and not its SHA-256; make a new token with `tidings token`, because this one is now in a \
                 file, and give the SHA-256 that it prints"
            }
            _ => "it is not the 64 hexadecimal digits of a SHA-256; `tidings token` makes a token and prints them",
        };
        digest.ok_or_else(|| reason.to_owned())
    }
}

/// A list of permissions.
struct Scopes;

impl ValueType for Scopes {
    type Value = Vec<Scope>;

    fn read(setting: &Setting) -> Result<Vec<Scope>, SettingErrors> {
        let texts = setting.read::<List<Text>>()?;
        let scope = |text: &String| {
            // A longer text, or one with digits or an underscore, may be a secret.
            let is_word = text.bytes().all(|byte| byte.is_ascii_lowercase() || b":*-".contains(&byte));
            let shown = if is_word && text.len() < MIN_SECRET { format!(" {text:?}") } else { String::new() };
            let unknown = || format!("there is no such scope{shown}; there are read, admin, publish:SOURCE, publish:*");
            Scope::parse(text).ok_or_else(|| setting.invalid(unknown()))
        };
        if texts.is_empty() {
            return Err(setting.invalid("it is empty; give at least one scope").into());
        }
        Ok(texts.iter().map(scope).collect::<Result<_, _>>()?)
    }

    fn schema() -> Schema {
        List::<Text>::schema()
    }
}

/// The time at which a token expires.
struct Expiry;

impl TextType for Expiry {
    type Value = DateTime<Utc>;

    fn parse(text: &str) -> Result<DateTime<Utc>, String> {
        let expected = "it is not a point in time; give one as in 2027-01-01T00:00:00Z";
        let time = DateTime::parse_from_rfc3339(text).map_err(|_| expected.to_owned())?;
        Ok(time.to_utc())
    }
}
