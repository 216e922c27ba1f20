//! Error messages about secrets, queues and destinations: none contains a secret or a password.

use tidings::web::Secret;

use crate::support::config_loader::load;

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
    let known_token = "everybody knows the token that has this SHA-256, because examples have it; make a token with \
                       `tidings token`";
    let [abc, empty] = ["abc", ""].map(|token| Secret::new(token).digest().to_hex().to_uppercase());
    let no_scope =
        |shown: &str| format!("there is no such scope{shown}; there are read, admin, publish:SOURCE, publish:*");
    let secret = "sources.fedora.signature.secret";
    for (file, message) in [
        (token("sha256 = \"53637\"\nscopes = [\"read\"]"), wrong("access.tokens.x.sha256", no_digest)),
        (token("sha256 = 53637\nscopes = [\"read\"]"), wrong("access.tokens.x.sha256", "give text in quotation marks")),
        (token(&format!("sha256 = \"{abc}\"\nscopes = [\"read\"]")), wrong("access.tokens.x.sha256", known_token)),
        (token(&format!("sha256 = \"{empty}\"\nscopes = [\"read\"]")), wrong("access.tokens.x.sha256", known_token)),
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
            "unknown setting access.tokens.x.token in my.toml; access.tokens.x has sha256, scopes, expires, view. The token itself is \
             not stored: put its SHA-256 into sha256; `tidings token` prints both."
                .to_owned(),
        ),
        (
            format!("[filesets.wayback]\naccess_key = \"{SECRET}\""),
            wrong("filesets.wayback", "give both access_key and secret_key"),
        ),
        (
            "[filesets.items]\nenabled = true".to_owned(),
            wrong("filesets.items.enabled", "give access_key and secret_key too; archive.org accepts no upload without"),
        ),
        (
            format!("[filesets.items]\naccess_key = \"a\"\nsecret_key = \"{SECRET}\\u0001\""),
            wrong("filesets.items", "a key has characters that a header cannot carry"),
        ),
        (
            format!("[filesets.wayback]\ncdx = \"https://user:{SECRET}@h.example/cdx\""),
            wrong(
                "filesets.wayback.cdx",
                "it is not the base URL of a platform; write it as in https://zenodo.org, without user and query",
            ),
        ),
        (format!("[access.tokens]\nx = \"{SECRET}\""), wrong("access.tokens.x", "give a table")),
        (format!("[access]\ntokens = \"{SECRET}\""), wrong("access.tokens", "give a table")),
        (scopes(&format!("\"{SECRET}\"")), wrong("access.tokens.x.scopes", "give a list")),
        (scopes(&format!("[\"{SECRET}\"]")), wrong("access.tokens.x.scopes", &no_scope(""))),
        (scopes("[\"read\", \"write\"]"), wrong("access.tokens.x.scopes", &no_scope(" \"write\""))),
        (
            token(&format!("sha256 = \"{SECRET}\"\nscopes = [\"read\"]")),
            wrong(
                "access.tokens.x.sha256",
                "it is a token and not its SHA-256; make a new token with `tidings token`, because this one is now in a file, \
                 and give the SHA-256 that it prints",
            ),
        ),
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
            format!("[journal]\nstore = \"mysql://u:{SECRET}@h/d\""),
            wrong(
                "journal.store",
                "it does not begin with postgres://; give a URL as in postgres://tidings@db.example.org:5432/tidings",
            ),
        ),
        (
            format!("[journal]\nstore = \"postgres://u:{SECRET}@h:99999/d\""),
            wrong(
                "journal.store",
                "it is not a valid URL of a database; give one as in postgres://tidings@db.example.org:5432/tidings, with \
                 %40 for an @ in the password, and with sslmode=require, prefer or disable if you set sslmode",
            ),
        ),
        (
            format!("[journal]\nstore = \"postgres://u:{SECRET}@h\""),
            wrong(
                "journal.store",
                "it has no name of a database; give a URL as in postgres://tidings@db.example.org:5432/tidings",
            ),
        ),
        (
            signature(&format!("{{ key = \"{SECRET}\" }}")),
            "unknown setting sources.fedora.signature.key in my.toml; sources.fedora.signature has secret, header.".to_owned(),
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
            signature("{ secret = { file = \"/none/key\" } }"),
            wrong(secret, "cannot read the file /none/key: No such file or directory (os error 2)"),
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
        (url(&format!("\"{password}\"")), address("is not a URL (percent-encode / : and @ in user and password: %2f, %3a, %40)")),
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
    let no_stomp =
        "is none of stomp, stomp+ssl and stomps (tcp://…:61616 is OpenWire; ActiveMQ speaks STOMP at port 61613)";
    for (file, message) in [
        (
            source("destination = \"/queue/q\""),
            "the setting sources.q.url is missing; add it to [sources.q]".to_owned(),
        ),
        (
            source(&format!("url = \"stomp://me:{password}@h\"")),
            "the setting sources.q.destination is missing; add it to [sources.q]".to_owned(),
        ),
        (url(&format!("amqp://me:{password}@h")), address(no_stomp)),
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
            format!("{}\n{}", good("durable = \"tidings\""), good("client_id = \"tidings\"").replace(".q]", ".r]")),
            "the setting sources.r.client_id in my.toml is wrong: the source q has the client id \"tidings\" at \
             stomp://me@h:61613 already, and the broker admits it only once; give this source another"
                .to_owned(),
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
fn error_about_a_kafka_cluster_does_not_contain_its_password() {
    let password = "hush-hush";
    let source = |lines: &str| format!("[sources.q]\ntransport = \"kafka\"\ndialect = \"islandora\"\n{lines}");
    let good = |lines: &str| source(&format!("brokers = \"h\"\ntopics = [\"t\"]\n{lines}"));
    let missing = |key: &str| format!("the setting sources.q.{key} is missing; add it to [sources.q]");
    let wrong = |key: &str, reason: &str| format!("the setting sources.q.{key} in my.toml is wrong: {reason}");
    let sasl = |lines: &str| good(&format!("sasl = \"plain\"\n{lines}"));
    for (file, message) in [
        (source("topics = [\"t\"]"), missing("brokers")),
        (source("brokers = \"h\""), missing("topics")),
        (
            source(&format!("topics = [\"t\"]\nbrokers = \"kafka://me:{password}@h\"")),
            wrong("brokers", "it contains a URL; give only HOST:PORT, and set tls, sasl, user and password"),
        ),
        (source("brokers = \"h\"\ntopics = []"), wrong("topics", "it has 0 topics; give 1 to 100")),
        (good("ca = \"x\""), wrong("ca", "the connection is not encrypted; set tls = true, or leave ca out")),
        (
            good("start = \"now\""),
            wrong("start", "it is \"now\"; give \"earliest\", \"latest\" or a time such as 2026-01-02T03:04:05Z"),
        ),
        (
            good(&format!("password = \"{password}\"")),
            wrong("password", "only a mechanism of SASL needs it; give sasl, such as \"scram-sha-512\""),
        ),
        (sasl(&format!("password = \"{password}\"")), missing("user")),
        (sasl("user = \"me\""), missing("password")),
        (
            good("sasl = \"scram\""),
            wrong("sasl", "there is no mechanism of SASL \"scram\"; there are plain, scram-sha-256, scram-sha-512"),
        ),
        (
            good("queue = \"q\""),
            wrong("queue", "it is a setting of the transport \"amqp\", but this source has \"kafka\""),
        ),
    ] {
        assert_eq!(load(&file, &[]).map(|_| ()), Err(message.clone()), "{file}");
        assert!(!message.contains(password));
    }
    let config = load(&sasl(&format!("user = \"me\"\npassword = \"{password}\"")), &[]).unwrap();
    assert!(!format!("{config:?}").contains(password), "the password is not in the debug form either");
}
