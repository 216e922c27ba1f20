//! Error messages of the configuration: each names the setting, its place and the fix in one or two sentences.

use crate::support::config_loader::{DIALECTS, load};
use std::{ffi::OsString, os::unix::ffi::OsStringExt};

use tidings::config::{Config, Flags};

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
            "unknown setting listen in my.toml; the tables are server, journal, node, limits, log, delivery, page, feed, oai_pmh, iiif_discovery, ldes, resourcesync, hub, dbus, files, segments, filesets, publish, access, \
             sources, subscriptions.",
        ),
        ("server = 1", "the setting server in my.toml is wrong: it is 1; give a table"),
        (
            "[server]\nhosts = [\"http://tidings\"]",
            "the setting server.hosts in my.toml is wrong: \"http://tidings\" is not a host name; give host names without \
             scheme and port, as in tidings.internal; IP addresses need no entry",
        ),
        (
            "[server]\nlisten = 8080",
            "the setting server.listen in my.toml is wrong: it is 8080; give an IP address and a port, as in \"127.0.0.1:8395\"",
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
            "the setting server.grace_seconds in my.toml is wrong: it is -1; give a whole number from 1 to 600",
        ),
        (
            "[server]\ngrace_seconds = 1.5",
            "the setting server.grace_seconds in my.toml is wrong: it is 1.5; give a whole number from 1 to 600",
        ),
        (
            "[journal]\nca = \"ca.pem\"",
            "the setting journal.ca in my.toml is wrong: it needs a database; give journal.store, or leave ca out",
        ),
        (
            "[journal]\nca = \"ca.pem\"\nstore = \"postgres://u@h/d?sslmode=disable\"",
            "the setting journal.ca in my.toml is wrong: the connection is not encrypted; give journal.store a host and \
             sslmode=require, or leave ca out",
        ),
        (
            "[filesets.tokens]\ndataverse = \"x\"",
            "the setting filesets.tokens.dataverse in my.toml is wrong: \"dataverse\" is neither a platform with an address \
             of its own (zenodo, figshare, archiveorg, dryad, osf) nor the host of an installation, as in \
             \"dataverse.example.org\"",
        ),
        (
            "[journal]\nqueue = true",
            "the setting journal.queue in my.toml is wrong: it is true; give a whole number from 1 to 1000000",
        ),
        (
            "[journal]\nqueue = \"7\"",
            "the setting journal.queue in my.toml is wrong: it is \"7\"; give a whole number from 1 to 1000000",
        ),
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
            "the setting sources.fedora.dialect in my.toml is wrong: there is no dialect \"fedora-apm\"; did you mean \"fedora-apim\"? There are fedora-apim, fedora-events, islandora, sfm, hoarder, oai-pmh, feed, folder, fileset-request, fileset-result, download, gateway, mapped, content-change",
        ),
        (
            "[sources.fedora]\ntransport = \"amq\"",
            "the setting sources.fedora.transport in my.toml is wrong: there is no transport \"amq\"; did you mean \"amqp\"? There are http, amqp, stomp, kafka, oai-pmh, feed, folder, download, gateway, fileset",
        ),
        (
            "[sources.fedora]\nenabled = \"yes\"",
            "the setting sources.fedora.enabled in my.toml is wrong: it is \"yes\"; give true or false",
        ),
        (
            "[server]\nhosts = []\n[log]\n[server]",
            "the configuration file my.toml is not TOML: line 4, column 2: \"server\" is given twice; join the two tables or settings",
        ),
        (
            "[server]\nlisten = \"127.0.0.1:99999\"",
            "the setting server.listen in my.toml is wrong: it is \"127.0.0.1:99999\"; the port is a number from 1 to 65535, or 0 for a free port",
        ),
        (
            "[sources.fedora]\nnonsense = 1",
            "unknown setting sources.fedora.nonsense in my.toml; sources.fedora has enabled, transport, dialect, metadata_changes, silent_after, audit_every, settings, lookup, repository, harvest, allow, rate, burst, signature.",
        ),
        (
            "[publish]\nfolder = \"/copy\"",
            "the setting publish.url in my.toml is wrong: it is missing; give the URL under which the copy is served, because its documents link to each other",
        ),
        (
            "[publish]\nurl = \"http://static.example.org\"",
            "the setting publish.url in my.toml is wrong: there is no folder and no bucket to publish to; give publish.folder or publish.s3",
        ),
        (
            "[sources.fedora.settings]\nbase = \"x\"",
            "sources.fedora.settings in my.toml is wrong for the dialect fedora-events: there is no setting \"base\"; there are base_url, files_url, files_path, templates, preset, depth, names",
        ),
        (
            "[sources.fedora]\nsettings = { names = [1] }",
            "sources.fedora.settings in my.toml is wrong for the dialect fedora-events: names[0]: give text",
        ),
    ] {
        assert_eq!(load(file, &[]).map(|_| ()), Err(message.to_owned()), "{file}");
    }
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
            "the setting journal.queue from the environment variable TIDINGS_JOURNAL__QUEUE is wrong: give a whole number from 1 to 1000000",
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
            "the setting sources.fedora.dialect from the environment variable TIDINGS_SOURCES__FEDORA__DIALECT is wrong: there is no dialect \"x\"; there are fedora-apim, fedora-events, islandora, sfm, hoarder, oai-pmh, feed, folder, fileset-request, fileset-result, download, gateway, mapped, content-change",
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
