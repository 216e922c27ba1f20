//! Layers of the configuration: flags override the environment, which overrides the file, which overrides the
//! defaults. The defaults file documents every setting.

use std::{collections::BTreeSet, fs, path::Path, time::Duration};

use tidings::{
    config::{Config, DEFAULTS, Flags, LogFormat},
    delivery::{DELIVERIES, Definition},
    format::RepositoryApi,
    journal::{JournalSettings, TailBounds, store::StoreLimits},
    lookup::{Mode, RepositorySettings},
    model::SourceName,
    web::{Scope, Secret, SignatureHeader, SignatureKey},
};

use toml::de::{DeTable, DeValue};

use crate::support::config_loader::{DIALECTS, load};

#[test]
fn defaults_have_the_documented_values() {
    let config = Config::load_with(None, [], &Flags::default(), &DIALECTS).unwrap();
    assert_eq!(config.server.listen.to_string(), "127.0.0.1:8395");
    assert_eq!(config.server.public_url_at(config.server.listen).as_str(), "http://127.0.0.1:8395");
    assert_eq!(config.server.grace, Duration::from_secs(10));
    assert_eq!(config.journal.data, std::path::absolute("data").unwrap());
    assert_eq!((config.journal.dedupe_days, config.journal.dedupe_events), (30, 1_000_000));
    assert_eq!((config.journal.queue, config.journal.batch, config.journal.tail_changes), (1024, 512, 1000));
    assert_eq!((config.limits.body_bytes, config.limits.page), (4 << 20, 1000));
    assert_eq!(config.limits.request_timeout, Duration::from_secs(30));
    assert_eq!((config.limits.quarantine_entries, config.limits.quarantine_bytes), (10_000, 256 << 20));
    assert_eq!((config.log.filter.as_str(), config.log.format), ("info", LogFormat::Text));
    assert!(config.access.is_open() && !config.server.insecure && config.server.tls.is_none());
    let sources: Vec<_> = config
        .sources
        .iter()
        .map(|(name, source)| {
            assert!(source.transport.broker().is_none());
            assert!(!source.metadata_changes);
            (name.as_str(), source.dialect.name)
        })
        .collect();
    let expected = [
        ("content-change", "content-change"),
        ("fedora", "fedora-events"),
        ("fedora3", "fedora-apim"),
        ("islandora", "islandora"),
    ];
    assert_eq!(sources, expected);
}

/// A journal without configuration, as in the benches, has the defaults of the program.
#[test]
fn defaults_of_the_journal_equal_those_of_the_configuration() {
    let Config { journal, limits, .. } = Config::load_with(None, [], &Flags::default(), &DIALECTS).unwrap();
    let JournalSettings { queue, batch, tail: TailBounds { changes, bytes }, .. } = JournalSettings::default();
    assert_eq!(
        (queue, batch, changes, bytes),
        (journal.queue, journal.batch, journal.tail_changes, journal.tail_bytes)
    );
    let StoreLimits { dedupe_events, dedupe_millis, quarantine_entries, quarantine_bytes } = StoreLimits::default();
    let day = 24 * 60 * 60 * 1000;
    assert_eq!((dedupe_events, dedupe_millis), (journal.dedupe_events, i64::from(journal.dedupe_days) * day));
    assert_eq!((quarantine_entries, quarantine_bytes), (limits.quarantine_entries, limits.quarantine_bytes));
}

#[test]
fn layers_override_in_order() {
    let file = r#"
        [server]
        listen = "127.0.0.1:1"
        public_url = "https://h.example/tidings/"
        grace_seconds = 1
        [journal]
        queue = 1
        batch = 1
        [sources.islandora]
        enabled = false
        [sources.new]
        transport = "http"
        dialect = "islandora"
        settings = { base_url = "http://h", names = ["a"] }
    "#;
    let environment = [
        ("TIDINGS_SERVER__GRACE_SECONDS", "2"),
        ("TIDINGS_JOURNAL__QUEUE", "2"),
        ("TIDINGS_JOURNAL__DATA", "2026"),
        ("TIDINGS_SOURCES__FEDORA3__METADATA_CHANGES", "true"),
        ("TIDINGS_SOURCES__CONTENT-CHANGE__ENABLED", "false"),
        ("TIDINGS_SOURCES__NEW__SETTINGS__DEPTH", "3"),
        ("TIDINGS_PORT", "tcp://10.0.0.1:80"),
        ("TIDINGS_SERVER_SERVICE_HOST", "10.0.0.1"),
        ("PATH", "/bin"),
    ];
    let config = load(file, &environment).unwrap();
    assert_eq!(config.server.listen.to_string(), "127.0.0.1:1");
    assert_eq!(config.server.public_url_at(config.server.listen).as_str(), "https://h.example/tidings");
    assert_eq!(config.server.grace, Duration::from_secs(2));
    assert_eq!((config.journal.queue, config.journal.batch, config.journal.tail_changes), (2, 1, 1000));
    assert_eq!(config.journal.data, std::path::absolute("2026").unwrap());
    assert_eq!(config.sources.keys().map(SourceName::as_str).collect::<Vec<_>>(), ["fedora", "fedora3", "new"]);
    assert!(config.sources[&SourceName::parse("fedora3").unwrap()].metadata_changes);
    let settings = &config.sources[&SourceName::parse("new").unwrap()].settings;
    assert_eq!(*settings, serde_json::json!({ "base_url": "http://h", "names": ["a"], "depth": 3 }));
    assert!(!format!("{config:?}").contains("base_url"), "settings may be secret");
}

#[test]
fn flags_override_every_layer() {
    let environment =
        [("TIDINGS_SERVER__LISTEN", "[::1]:1"), ("TIDINGS_JOURNAL__DATA", "a")].map(|(n, v)| (n.into(), v.into()));
    let flags = Flags { listen: Some("[::1]:0".parse().unwrap()), data: Some("b".into()), insecure: true };
    let config = Config::load_with(None, environment, &flags, &DIALECTS).unwrap();
    assert_eq!(config.server.listen, "[::1]:0".parse().unwrap());
    assert_eq!(config.journal.data, std::path::absolute("b").unwrap());
    assert!(config.server.insecure);
    assert_eq!(config.server.public_url_at("[::1]:7".parse().unwrap()).as_str(), "http://[::1]:7");
}

/// Returns the keys of a table as the error about an unknown key lists them.
fn keys_of(table: &str) -> Vec<String> {
    let file = if table.is_empty() { "'?' = 1".to_owned() } else { format!("[{table}]\n'?' = 1") };
    let refusal = load(&file, &[]).unwrap_err();
    let (_, keys) = refusal.split_once("; ").unwrap();
    let (_, keys) = keys.split_once(" has ").or_else(|| keys.split_once(" are ")).unwrap();
    let keys = keys.split_once(". ").map_or(keys, |(keys, _)| keys);
    keys.trim_end_matches('.').split(", ").map(str::to_owned).collect()
}

/// Returns every `table.key` of a TOML text.
fn documented(text: &str) -> BTreeSet<String> {
    fn entries<'i>(value: &DeValue<'i>) -> Vec<(String, DeValue<'i>)> {
        let table = value.as_table().unwrap();
        table.iter().map(|(key, value)| (key.get_ref().to_string(), value.get_ref().clone())).collect()
    }
    let tables = DeTable::parse(text).unwrap().into_inner();
    let mut keys = BTreeSet::new();
    let mut insert = |table: &str, settings: &DeValue<'_>| {
        keys.extend(entries(settings).into_iter().map(|(key, _)| format!("{table}.{key}")));
    };
    for (name, table) in entries(&DeValue::Table(tables)) {
        if !matches!(name.as_str(), "sources" | "subscriptions") {
            insert(&name, &table);
        }
        for (key, value) in entries(&table) {
            match (name.as_str(), key.as_str()) {
                ("sources", _) => {
                    insert("sources.NAME", &value);
                    for (name, table) in entries(&value) {
                        if matches!(name.as_str(), "signature" | "repository") {
                            insert(&format!("sources.NAME.{name}"), &table);
                        }
                    }
                }
                ("subscriptions", _) => insert("subscriptions.NAME", &value),
                ("access", "tokens") => {
                    entries(&value).iter().for_each(|(_, token)| insert("access.tokens.NAME", token));
                }
                ("oai_pmh", "sets") => {
                    entries(&value).iter().for_each(|(_, set)| insert("oai_pmh.sets.NAME", set));
                }
                _ if value.is_table() => insert(&format!("{name}.{key}"), &value),
                _ => {}
            }
        }
    }
    keys
}

#[test]
fn defaults_file_documents_every_setting() {
    let is_example = |line: &str| line.strip_prefix('#').is_some_and(|rest| !rest.is_empty() && !rest.starts_with(' '));
    let with_examples: String = DEFAULTS
        .lines()
        .map(|line| if is_example(line) { &line[1..] } else { line })
        .flat_map(|line| [line, "\n"])
        .collect();
    // The example of a token has no digest, because readers would copy it.
    let with_examples = with_examples.replace("sha256 = \"…\"", &format!("sha256 = \"{}\"", "5f".repeat(32)));
    // The files are in a folder or in a bucket.
    let folders = ["/var/lib/tidings/files", "/var/lib/tidings/segments", "/srv/www/tidings"];
    let in_buckets = folders
        .iter()
        .fold(with_examples.clone(), |examples, folder| examples.replace(&format!("folder = \"{folder}\""), ""));
    let config = load(&in_buckets, &[]).unwrap();
    assert_eq!(config.server.public_url_at(config.server.listen).as_str(), "https://tidings.example.org");
    let staging = &config.sources[&SourceName::parse("staging").unwrap()];
    assert!(staging.signature.is_some() && staging.lookup == Mode::BestEffort);
    let repository = staging.repository.as_ref().unwrap();
    let usual = RepositorySettings::new(RepositoryApi::Fedora3, repository.url.clone());
    let bounds = |told: &RepositorySettings| (told.timeout, told.in_flight, told.cached_answers);
    assert_eq!(bounds(repository), bounds(&usual));
    assert_eq!(repository.public_urls.len(), 1);
    assert_eq!(config.access.tokens().collect::<Vec<_>>(), ["indexer"]);
    assert!(config.access.grants(&Scope::Read) && !config.access.grants(&Scope::Admin));
    assert_eq!(config.server.tls.unwrap().key, Path::new("/etc/tidings/key.pem"));

    let mut there_are = BTreeSet::new();
    for table in keys_of("") {
        if !matches!(table.as_str(), "sources" | "subscriptions") {
            there_are.extend(keys_of(&table).iter().map(|key| format!("{table}.{key}")));
        }
    }
    for (table, documented) in [
        ("server.tls", "server.tls"),
        ("files.s3", "files.s3"),
        ("segments.s3", "segments.s3"),
        ("publish.s3", "publish.s3"),
        ("publish.view", "publish.view"),
        ("filesets.platforms", "filesets.platforms"),
        ("filesets.wayback", "filesets.wayback"),
        ("filesets.items", "filesets.items"),
        ("access.tokens.x", "access.tokens.NAME"),
        ("access.public", "access.public"),
        ("oai_pmh.sets.x", "oai_pmh.sets.NAME"),
        // Without a transport, the settings of all transports are listed.
        ("sources.none", "sources.NAME"),
        ("sources.fedora.signature", "sources.NAME.signature"),
        ("sources.fedora.repository", "sources.NAME.repository"),
    ] {
        there_are.extend(keys_of(table).iter().map(|key| format!("{documented}.{key}")));
    }
    let of_a_subscription =
        Definition::KEYS.into_iter().chain(DELIVERIES.iter().flat_map(|kind| kind.settings).map(|key| key.name));
    there_are.extend(of_a_subscription.map(|key| format!("subscriptions.NAME.{key}")));
    let mut documented = documented(&with_examples);
    // The keys are the names of platforms.
    documented.retain(|key| !key.starts_with("filesets.tokens."));
    assert_eq!(documented, there_are);
}

#[test]
fn defaults_file_documents_the_enforced_ranges() {
    let digits = |text: &str| -> Vec<String> {
        text.split(|c: char| !c.is_ascii_digit()).filter(|d| !d.is_empty()).map(str::to_owned).collect()
    };
    for table in ["server", "journal", "limits"] {
        for key in keys_of(table) {
            let refusal = load(&format!("[{table}]\n{key} = {}", i64::MAX), &[]).unwrap_err();
            let Some((_, range)) = refusal.split_once("give a whole number from ") else { continue };
            let (before, _) = DEFAULTS.split_once(&format!("\n{key} = ")).unwrap();
            let comment: String = before.rsplit("\n\n").next().unwrap().to_owned();
            for bound in digits(range) {
                assert!(
                    digits(&comment).contains(&bound),
                    "{table}.{key} is held to {range}, and that is not documented"
                );
            }
        }
    }
}

#[test]
fn tokens_can_be_set_in_any_layer() {
    let digest = Secret::new("tdg_a").digest().to_hex();
    let file = format!("[access.tokens.a]\nsha256 = \"{digest}\"\nscopes = [\"read\"]\nexpires = 2001-01-01T00:00:00Z");
    let environment = [
        ("TIDINGS_ACCESS__TOKENS__B__SHA256", digest.as_str()),
        ("TIDINGS_ACCESS__TOKENS__B__SCOPES", "publish:fedora3, publish:islandora"),
    ];
    let access = load(&file, &environment).unwrap().access;
    assert_eq!(access.tokens().collect::<Vec<_>>(), ["a", "b"]);
    let granted = ["publish:fedora3", "publish:islandora", "publish:fedora", "read", "admin"]
        .map(|scope| access.grants(&Scope::parse(scope).unwrap()));
    assert_eq!(granted, [true, true, false, false, false], "a has expired");
}

#[test]
fn secrets_can_be_set_by_value_file_or_environment() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secret");
    fs::write(&path, "0123456789abcdef\n").unwrap();
    let file = format!("{{ file = {:?} }}", path.to_str().unwrap());
    let secret = Secret::new("0123456789abcdef");
    let secret = Some(SignatureKey { header: SignatureHeader::Hub, secret });
    for (given, environment) in [
        ("\"0123456789abcdef\"", None),
        (file.as_str(), None),
        ("{ env = \"MY_SECRET\" }", Some(("MY_SECRET", "0123456789abcdef"))),
        (
            "\"another, which does not count\"",
            Some(("TIDINGS_SOURCES__FEDORA3__SIGNATURE__SECRET", "0123456789abcdef")),
        ),
    ] {
        let config = load(&format!("[sources.fedora3.signature]\nsecret = {given}"), environment.as_slice()).unwrap();
        assert!(!format!("{config:?}").contains("0123456789abcdef"));
        assert_eq!(config.sources[&SourceName::parse("fedora3").unwrap()].signature, secret, "{given}");
        assert!(!config.access.is_open());
    }
}
