//! Error messages of the configuration: each names the setting, its place and the fix in one or two sentences.

use std::{collections::BTreeMap, ffi::OsString, fs, os::unix::ffi::OsStringExt};

use serde::Deserialize;
use serde_json::Value;
use tidings::{
    config::{Config, Flags},
    format::{
        Dialect, DialectKind, InvalidSettings, Limits, Message, Reading, Rejection, Repeats, RepositoryApi,
        RepositoryKind, settings,
    },
};

/// Dialects of the default configuration, as stubs: the tests do not depend on the settings of the real
/// dialects.
pub(crate) static DIALECTS: [&DialectKind; 6] = [
    &kind("fedora-apim", Some(RepositoryApi::Fedora3)),
    &kind("fedora-events", Some(RepositoryApi::Ldp)),
    &kind("islandora", Some(RepositoryApi::Ldp)),
    &kind("sfm", None),
    &kind("hoarder", None),
    &kind("content-change", None),
];

const fn kind(name: &'static str, api: Option<RepositoryApi>) -> DialectKind {
    let repository = match api {
        Some(api) => Some(RepositoryKind { api, not_walkable: None }),
        None => None,
    };
    DialectKind {
        name,
        about: "",
        accepts: &[],
        headers: &[],
        repeats: Repeats::SameBody,
        redact: None,
        repository,
        sample_settings: &["{}"],
        build,
    }
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct StubSettings {
    #[serde(rename = "base_url")]
    _base_url: Option<String>,
    #[serde(rename = "files_url")]
    _files_url: Option<String>,
    #[serde(rename = "files_path")]
    _files_path: Option<String>,
    #[serde(rename = "templates")]
    _templates: Option<BTreeMap<String, String>>,
    #[serde(rename = "depth")]
    _depth: Option<u8>,
    #[serde(rename = "names")]
    _names: Vec<String>,
}

struct StubDialect;

impl Dialect for StubDialect {
    fn read(&self, _: &Message<'_>) -> Result<Reading, Rejection> {
        Ok(Reading::Nothing("it is a test"))
    }
}

fn build(value: Value, _: Limits) -> Result<Box<dyn Dialect>, InvalidSettings> {
    settings::<StubSettings>(value).map(|_| Box::new(StubDialect) as Box<dyn Dialect>)
}

/// Loads a configuration with this file content and this environment. Error messages name the file `my.toml`.
pub(crate) fn load(file: &str, environment: &[(&str, &str)]) -> Result<Config, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("my.toml");
    fs::write(&path, file).unwrap();
    let environment = environment.iter().map(|(name, value)| (name.into(), value.into()));
    Config::load_with(Some(&path), environment, &Flags::default(), &DIALECTS)
        .map_err(|error| error.to_string().replace(path.to_str().unwrap(), "my.toml"))
}

#[test]
fn error_in_a_file_names_the_key_and_the_fix() {
    for (file, message) in [
        (
            "[server]\nlisten = ",
            "the configuration file my.toml is not TOML: line 2, column 10: string values must be quoted, expected literal string",
        ),
        ("[server]\nlistn = 1", "unknown setting server.listn in my.toml; did you mean server.listen?"),
        (
            "[server]\nxyzzy = 1",
            "unknown setting server.xyzzy in my.toml; server has listen, public_url, hosts, grace_seconds, heartbeat_seconds, insecure, tls.",
        ),
        ("[sever]\nlisten = 1", "unknown setting sever in my.toml; did you mean server?"),
        (
            "listen = 1",
            "unknown setting listen in my.toml; the tables are server, journal, limits, log, delivery, hub, access, sources, \
             subscriptions.",
        ),
        ("server = 1", "the setting server in my.toml is wrong: it is 1; give a table"),
        (
            "[server]\nhosts = [\"http://tidings\"]",
            "the setting server.hosts in my.toml is wrong: \"http://tidings\" is not a host name; give host names without \
             scheme and port, as in tidings.internal; IP addresses need no entry",
        ),
        (
            "[server]\nlisten = 8080",
            "the setting server.listen in my.toml is wrong: it is 8080; give text in quotation marks",
        ),
        (
            "[server]\nlisten = \"localhost\"",
            "the setting server.listen in my.toml is wrong: it is \"localhost\"; give an IP address and a port, as in 127.0.0.1:8395 or [::1]:8395",
        ),
        (
            "[server]\npublic_url = \"ftp://h/\"",
            "the setting server.public_url in my.toml is wrong: it is neither http nor https; give a URL as in https://tidings.example.org",
        ),
        (
            "[server]\npublic_url = \"https://me:secret@h/\"",
            "the setting server.public_url in my.toml is wrong: it has a user, a query or a fragment; give a URL as in https://tidings.example.org",
        ),
        (
            "[server]\ngrace_seconds = 0",
            "the setting server.grace_seconds in my.toml is wrong: it is 0; give a whole number from 1 to 600",
        ),
        (
            "[server]\ngrace_seconds = -1",
            "the setting server.grace_seconds in my.toml is wrong: it is -1; give a whole number",
        ),
        (
            "[server]\ngrace_seconds = 1.5",
            "the setting server.grace_seconds in my.toml is wrong: it is 1.5; give a whole number",
        ),
        ("[journal]\nqueue = true", "the setting journal.queue in my.toml is wrong: it is true; give a whole number"),
        ("[journal]\nqueue = \"7\"", "the setting journal.queue in my.toml is wrong: it is \"7\"; give a whole number"),
        (
            "[delivery]\nallow = [\"10.0.0.1/8\"]",
            "the setting delivery.allow in my.toml is wrong: \"10.0.0.1/8\" is not the first address of its network; \
             give a network (\"10.0.0.0/8\", \"fd00::/8\"), an address, or a host name",
        ),
        (
            "[journal]\ndata = \"\"",
            "the setting journal.data in my.toml is wrong: it is empty; give the path of a folder",
        ),
        (
            "[limits]\nbody_bytes = 9999999999",
            "the setting limits.body_bytes in my.toml is wrong: it is 9999999999; give a whole number from 1024 to 1073741824",
        ),
        (
            "[log]\nfilter = \"tidings=loud\"",
            "the setting log.filter in my.toml is wrong: it is \"tidings=loud\"; give a level (error, warn, info, debug, trace, off), or directives, as in warn,tidings=debug",
        ),
        (
            "[log]\nfilter = \"verbose\"",
            "the setting log.filter in my.toml is wrong: it is \"verbose\"; \"verbose\" is not a level; give a level (error, warn, info, debug, trace, off), or directives, as in warn,tidings=debug",
        ),
        (
            "[limits]\nheld_bytes = 1048576",
            "the setting limits.held_bytes in my.toml is wrong: it is 1048576, less than the maximum size of one message, 4194304 (limits.body_bytes); give at least that",
        ),
        (
            "[limits]\nbody_bytes = 1073741824",
            "the setting limits.held_bytes in the defaults is wrong: it is 268435456, less than the maximum size of one message, 1073741824 (limits.body_bytes); give at least that",
        ),
        (
            "[limits]\nstreams = 900",
            "the setting limits.streams in my.toml is wrong: it is 900, but each stream needs one of the 800 connections (limits.connections); give less",
        ),
        (
            "[sources.Fedora]\nenabled = true",
            "the setting sources.Fedora in my.toml is wrong: \"Fedora\" is not a name; use a-z, 0-9, - and _, starting with a letter or digit, at most 64 in all",
        ),
        (
            "[sources.fedora33]\nenabled = false",
            "the setting sources.fedora33.transport is missing; add it to [sources.fedora33]",
        ),
        ("[sources.x]\ntransport = \"http\"", "the setting sources.x.dialect is missing; add it to [sources.x]"),
        (
            "[sources.fedora]\ndialekt = \"x\"",
            "unknown setting sources.fedora.dialekt in my.toml; did you mean sources.fedora.dialect?",
        ),
        (
            "[sources.fedora]\ndialect = \"fedora-apm\"",
            "the setting sources.fedora.dialect in my.toml is wrong: there is no dialect \"fedora-apm\"; did you mean \"fedora-apim\"? There are fedora-apim, fedora-events, islandora, sfm, hoarder, content-change",
        ),
        (
            "[sources.fedora]\ntransport = \"amq\"",
            "the setting sources.fedora.transport in my.toml is wrong: there is no transport \"amq\"; did you mean \"amqp\"? There are http, amqp, stomp",
        ),
        (
            "[sources.fedora]\nenabled = \"yes\"",
            "the setting sources.fedora.enabled in my.toml is wrong: it is \"yes\"; give true or false",
        ),
        (
            "[sources.fedora.settings]\nbase = \"x\"",
            "sources.fedora.settings is wrong for the dialect fedora-events: there is no setting \"base\"; there are base_url, files_url, files_path, templates, depth, names",
        ),
        (
            "[sources.fedora]\nsettings = { names = [1] }",
            "sources.fedora.settings is wrong for the dialect fedora-events: names[0]: give text",
        ),
    ] {
        assert_eq!(load(file, &[]).map(|_| ()), Err(message.to_owned()), "{file}");
    }
}

/// Secret in a wrong place or with a wrong syntax.
const SECRET: &str = "tdg_5ecre7";

#[test]
fn error_about_a_secret_does_not_contain_it() {
    let digest = "0".repeat(64);
    let token = |settings: &str| format!("[access.tokens.x]\n{settings}\n");
    let full = |settings: &str| token(&format!("sha256 = \"{digest}\"\nscopes = [\"read\"]\n{settings}"));
    let scopes = |scopes: &str| token(&format!("sha256 = \"{digest}\"\nscopes = {scopes}"));
    let signature = |given: &str| format!("[sources.fedora]\nsignature = {given}");
    let wrong = |key: &str, reason: &str| format!("the setting {key} in my.toml is wrong: {reason}");
    let no_digest = "it is not the 64 hexadecimal digits of a SHA-256; `tidings token` makes a token and prints them";
    let no_scope = "one of the scopes is not valid; there are publish:SOURCE, publish:*, read, admin";
    let secret = "sources.fedora.signature.secret";
    for (file, message) in [
        (token(&format!("sha256 = \"{SECRET}\"\nscopes = [\"read\"]")), wrong("access.tokens.x.sha256", no_digest)),
        (token("sha256 = 53637\nscopes = [\"read\"]"), wrong("access.tokens.x.sha256", "give text in quotation marks")),
        (
            token("scopes = [\"read\"]"),
            "the setting access.tokens.x.sha256 is missing; add it to [access.tokens.x]".to_owned(),
        ),
        (
            token(&format!("sha256 = \"{digest}\"")),
            "the setting access.tokens.x.scopes is missing; add it to [access.tokens.x]".to_owned(),
        ),
        (
            token(&format!("token = \"{SECRET}\"")),
            "unknown setting access.tokens.x.token in my.toml; access.tokens.x has sha256, scopes, expires. The token itself is \
             not stored: put its SHA-256 into sha256; `tidings token` prints both."
                .to_owned(),
        ),
        (format!("[access.tokens]\nx = \"{SECRET}\""), wrong("access.tokens.x", "give a table")),
        (format!("[access]\ntokens = \"{SECRET}\""), wrong("access.tokens", "give a table")),
        (scopes(&format!("\"{SECRET}\"")), wrong("access.tokens.x.scopes", "give a list")),
        (scopes(&format!("[\"{SECRET}\"]")), wrong("access.tokens.x.scopes", no_scope)),
        (scopes("[]"), wrong("access.tokens.x.scopes", "it is empty; give at least one scope")),
        (
            scopes("[\"publish:fedra\"]"),
            wrong(
                "access.tokens.x.scopes",
                "one of the scopes names a source that does not exist; did you mean publish:fedora?",
            ),
        ),
        (
            scopes(&format!("[\"publish:{SECRET}\"]")),
            wrong(
                "access.tokens.x.scopes",
                "one of the scopes names a source that does not exist; there are content-change, fedora, fedora3, islandora",
            ),
        ),
        (
            full("expires = \"tomorrow\""),
            wrong("access.tokens.x.expires", "it is not a point in time; give one as in 2027-01-01T00:00:00Z"),
        ),
        (signature(&format!("\"{SECRET}\"")), wrong("sources.fedora.signature", "give a table")),
        (
            signature(&format!("{{ key = \"{SECRET}\" }}")),
            "unknown setting sources.fedora.signature.key in my.toml; sources.fedora.signature has secret.".to_owned(),
        ),
        (
            signature("{}"),
            "the setting sources.fedora.signature.secret is missing; add it to [sources.fedora.signature]".to_owned(),
        ),
        (
            signature(&format!("{{ secret = \"{SECRET}\" }}")),
            wrong(secret, "it is too short to be safe; give at least 16 random bytes"),
        ),
        (signature("{ secret = 1234567890123456 }"), wrong(secret, "give text in quotation marks")),
        (
            signature(&format!("{{ secret = {{ file = \"{SECRET}\" }} }}")),
            wrong(secret, "cannot read its file: No such file or directory (os error 2)"),
        ),
        (
            signature(&format!("{{ secret = {{ env = \"{SECRET}\" }} }}")),
            wrong(secret, "the environment variable that it names is not set"),
        ),
        (signature("{ secret = { file = \"a\", env = \"b\" } }"), wrong(secret, "give either file or env")),
        (
            format!("[sources.fedora.signature]\nsecret = \"{SECRET}\n"),
            "the configuration file my.toml is not TOML: line 2, column 21: invalid basic string, expected `\"`"
                .to_owned(),
        ),
        (
            "[server.tls]\nkey = \"key.pem\"".to_owned(),
            "the setting server.tls.certificate is missing; add it to [server.tls]".to_owned(),
        ),
    ] {
        assert!(!message.contains(SECRET));
        assert_eq!(load(&file, &[]).map(|_| ()), Err(message), "{file}");
    }
}

#[test]
fn error_about_a_queue_does_not_contain_its_password() {
    let password = "hush-hush";
    let source = |lines: &str| format!("[sources.q]\ntransport = \"amqp\"\ndialect = \"islandora\"\n{lines}");
    let url = |url: &str| source(&format!("queue = \"q\"\nurl = {url}"));
    let good = |lines: &str| url(&format!("\"amqp://me:{password}@h\"\n{lines}"));
    let wrong = |key: &str, reason: &str| format!("the setting sources.q.{key} in my.toml is wrong: {reason}");
    let address = |reason: &str| {
        wrong("url", &format!("it {reason}; use one such as amqp://user:password@broker.example.org:5672/%2f"))
    };
    let unreadable = "cannot read its file: No such file or directory (os error 2)";
    for (file, message) in [
        (source("queue = \"q\""), "the setting sources.q.url is missing; add it to [sources.q]".to_owned()),
        (
            source(&format!("url = \"amqp://me:{password}@h\"")),
            "the setting sources.q.queue is missing; add it to [sources.q]".to_owned(),
        ),
        (url(&format!("\"http://me:{password}@h\"")), address("is neither amqp nor amqps")),
        (url(&format!("\"{password}\"")), address("is not a URL")),
        (
            url(&format!("\"amqp://me:{password}@h/\"")),
            address("ends in a slash: leave it out, or name the virtual host / by /%2f"),
        ),
        (url("7"), wrong("url", "give text in quotation marks")),
        (url(&format!("[\"{password}\"]")), wrong("url", "give text in quotation marks")),
        (url(&format!("{{ file = \"{password}\" }}")), wrong("url", unreadable)),
        (
            url(&format!("{{ env = \"{password}\" }}")),
            wrong("url", "the environment variable that it names is not set"),
        ),
        (
            url(&format!("{{ value = \"{password}\" }}")),
            "unknown setting sources.q.url.value in my.toml; sources.q.url has file, env.".to_owned(),
        ),
        (good("prefetch = 0"), wrong("prefetch", "it is 0; give a whole number from 1 to 65535")),
        (good("prefetch = 70000"), wrong("prefetch", "it is 70000; give a whole number from 1 to 65535")),
        (
            good("queue_type = \"quorun\""),
            wrong(
                "queue_type",
                "there is no type of queue \"quorun\"; did you mean \"quorum\"? There are quorum, classic",
            ),
        ),
        (good("bindings = [\"#\"]"), wrong("bindings", "bindings need an exchange; give both")),
        (good("exchange = \"\""), wrong("exchange", "it is empty; give a name")),
        (
            good(&format!("exchange = \"{}\"", "x".repeat(256))),
            wrong("exchange", "it has more than 255 bytes, the maximum in AMQP"),
        ),
        (good("ca = \"ca.pem\""), wrong("ca", "the connection is not encrypted; give a URL with amqps, or leave ca out")),
        (good("rate = 5"), wrong("rate", "it is a setting of the transport \"http\", but this source has \"amqp\"")),
        (
            "[sources.fedora]\nqueue = \"q\"".to_owned(),
            "the setting sources.fedora.queue in my.toml is wrong: it is a setting of the transport \"amqp\", but this source \
             has \"http\""
                .to_owned(),
        ),
        (good("quue = 1"), "unknown setting sources.q.quue in my.toml; did you mean sources.q.queue?".to_owned()),
    ] {
        assert!(!message.contains(password));
        assert_eq!(load(&file, &[]).map(|_| ()), Err(message), "{file}");
    }
    let config = load(&good("exchange = \"e\""), &[]).unwrap();
    assert!(!format!("{config:?}").contains(password));
    load(&url("{ env = \"BROKER\" }"), &[("BROKER", " amqps://h\n")]).unwrap();
}

#[test]
fn error_about_a_stomp_destination_does_not_contain_its_password() {
    let password = "hush-hush";
    let source = |lines: &str| format!("[sources.q]\ntransport = \"stomp\"\ndialect = \"islandora\"\n{lines}");
    let good = |lines: &str| source(&format!("url = \"stomp://me:{password}@h\"\ndestination = \"/topic/t\"\n{lines}"));
    let wrong = |key: &str, reason: &str| format!("the setting sources.q.{key} in my.toml is wrong: {reason}");
    let address = |reason: &str| {
        wrong("url", &format!("it {reason}; use one such as stomp://user:password@broker.example.org:61613"))
    };
    let url = |url: &str| source(&format!("destination = \"/queue/q\"\nurl = \"{url}\""));
    for (file, message) in [
        (
            source("destination = \"/queue/q\""),
            "the setting sources.q.url is missing; add it to [sources.q]".to_owned(),
        ),
        (
            source(&format!("url = \"stomp://me:{password}@h\"")),
            "the setting sources.q.destination is missing; add it to [sources.q]".to_owned(),
        ),
        (url(&format!("amqp://me:{password}@h")), address("is none of stomp, stomp+ssl and stomps")),
        (url(&format!("stomp://{password}@h")), address("has a user without a password")),
        (
            url(&format!("stomp://me:{password}%0aclient-id%3ax@h")),
            address("has a control character where it is percent-encoded"),
        ),
        (
            source("url = \"stomp://h\"\ndestination = \"fedora\""),
            wrong(
                "destination",
                "\"fedora\" does not say whether it is a topic or a queue, and ActiveMQ would treat it as a queue; give \
                 /topic/fedora or /queue/fedora",
            ),
        ),
        (good("ca = \"ca.pem\""), wrong("ca", "the connection is not encrypted; give a URL with stomp+ssl, or leave ca out")),
        (good("prefetch = 0"), wrong("prefetch", "it is 0; give a whole number from 1 to 65535")),
        (good("durable = \"a\\nb\""), wrong("durable", "it contains a line break or another control character")),
        (good("client_id = \" \""), wrong("client_id", "it is empty; give a name")),
        (
            source("url = \"stomp://h\"\ndestination = \"/queue/q\"\ndurable = \"tidings\""),
            wrong(
                "durable",
                "only a subscription to a topic can be durable, and a queue keeps its messages anyway; leave it out",
            ),
        ),
        (
            good("acknowledge = \"indivdual\""),
            wrong(
                "acknowledge",
                "there is no way to acknowledge \"indivdual\"; did you mean \"individual\"? There are cumulative, individual",
            ),
        ),
        (good("queue = \"q\""), wrong("queue", "it is a setting of the transport \"amqp\", but this source has \"stomp\"")),
        (
            "[sources.fedora]\ndestination = \"/queue/q\"".to_owned(),
            "the setting sources.fedora.destination in my.toml is wrong: it is a setting of the transport \"stomp\", but this \
             source has \"http\""
                .to_owned(),
        ),
    ] {
        assert!(!message.contains(password));
        assert_eq!(load(&file, &[]).map(|_| ()), Err(message), "{file}");
    }
    let config = load(&good("durable = \"tidings\"\nprefetch = 7"), &[]).unwrap();
    assert!(!format!("{config:?}").contains(password));
}

#[test]
fn error_about_a_public_listen_address_without_access_control() {
    let token = format!("[access.tokens.x]\nsha256 = \"{}\"\nscopes = [\"read\"]", "0".repeat(64));
    let signature = "[sources.fedora.signature]\nsecret = \"0123456789abcdef\"";
    for address in ["0.0.0.0:8080", "[::]:8080", "192.0.2.1:1", "[::ffff:192.0.2.1]:1"] {
        let refused = format!(
            "server.listen is {address}, which others can reach, and there is no access control; make a token with \
             `tidings token`, or give --insecure if a proxy in front controls access"
        );
        let file = format!("[server]\nlisten = \"{address}\"\n");
        assert_eq!(load(&file, &[]).map(|_| ()), Err(refused));
        for allowed in ["insecure = true", &token, signature] {
            load(&format!("{file}{allowed}"), &[]).unwrap();
        }
    }
    for address in ["127.0.0.1:1", "127.8.9.10:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
        load(&format!("[server]\nlisten = \"{address}\""), &[]).unwrap();
    }
}

#[test]
fn error_in_the_environment_names_the_variable() {
    for ((name, value), message) in [
        (
            ("TIDINGS_SERVER__LISTN", "x"),
            "unknown setting server.listn from the environment variable TIDINGS_SERVER__LISTN; did you mean server.listen?",
        ),
        (
            ("TIDINGS_JOURNAL__QUEUE", "many"),
            "the setting journal.queue from the environment variable TIDINGS_JOURNAL__QUEUE is wrong: it is \"many\"; give a whole number",
        ),
        (
            ("TIDINGS_JOURNAL__QUEUE", "0"),
            "the setting journal.queue from the environment variable TIDINGS_JOURNAL__QUEUE is wrong: it is 0; give a whole number from 1 to 1000000",
        ),
        (
            ("TIDINGS_SERVER_LISTEN", "x"),
            "the environment variable TIDINGS_SERVER_LISTEN has no effect; did you mean TIDINGS_SERVER__LISTEN, with two underscores?",
        ),
        (
            ("TIDINGS_LISTEN", "x"),
            "the environment variable TIDINGS_LISTEN has no effect; did you mean TIDINGS_SERVER__LISTEN, with two underscores?",
        ),
        (
            ("TIDINGS_SERVER_LISTN", "x"),
            "the environment variable TIDINGS_SERVER_LISTN has no effect; did you mean TIDINGS_SERVER__LISTEN, with two underscores?",
        ),
        (
            ("TIDINGS_SOURCES__FEDORA__DIALECT", "x"),
            "the setting sources.fedora.dialect from the environment variable TIDINGS_SOURCES__FEDORA__DIALECT is wrong: there is no dialect \"x\"; there are fedora-apim, fedora-events, islandora, sfm, hoarder, content-change",
        ),
    ] {
        assert_eq!(load("", &[(name, value)]).map(|_| ()), Err(message.to_owned()), "{name}={value}");
    }
    let not_unicode = (OsString::from("TIDINGS_JOURNAL__DATA"), OsString::from_vec(vec![0xff]));
    let refused = Config::load_with(None, [not_unicode], &Flags::default(), &DIALECTS).unwrap_err();
    assert_eq!(refused.to_string(), "the value of the environment variable TIDINGS_JOURNAL__DATA is not UTF-8");
}

#[test]
fn error_about_a_missing_file() {
    let refused = Config::load_with(Some("none.toml".as_ref()), [], &Flags::default(), &DIALECTS).unwrap_err();
    let message = "cannot read the configuration file none.toml: No such file or directory (os error 2)";
    assert_eq!(refused.to_string(), message);
}
