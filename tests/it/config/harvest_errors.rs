//! Errors in the settings of a harvest, which never contain a password.

use crate::support::config_loader::load;

#[test]
fn error_about_a_harvest_names_the_setting_and_not_the_password() {
    let source =
        |dialect: &str, lines: &str| format!("[sources.q]\ntransport = \"oai-pmh\"\ndialect = \"{dialect}\"\n{lines}");
    let good = |lines: &str| source("oai-pmh", &format!("url = \"https://me:hush-hush@h/oai\"\n{lines}"));
    let wrong = |key: &str, reason: &str| format!("the setting sources.q.{key} in my.toml is wrong: {reason}");
    let time = "give a time of 1s to 366d with its unit, such as \"90s\", \"15m\", \"1h\" or \"30d\"";
    for (file, message) in [
        (source("oai-pmh", ""), "the setting sources.q.url is missing; add it to [sources.q]".to_owned()),
        (
            source("oai-pmh", "url = \"ftp://me:hush-hush@h\""),
            wrong("url", "it begins with neither https:// nor http://"),
        ),
        (
            source("islandora", "url = \"https://me:hush-hush@h/oai\""),
            wrong("dialect", "the transport oai-pmh harvests records of the dialect \"oai-pmh\"; give that"),
        ),
        (good("every = \"1 hour\""), wrong("every", &format!("it is \"1 hour\"; {time}"))),
        (good("overlap = \"0s\""), wrong("overlap", &format!("it is \"0s\"; {time}"))),
        (
            good("metadata_prefix = \"oai dc\""),
            wrong(
                "metadata_prefix",
                "it is not a metadata prefix; give one of ListMetadataFormats, such as \"oai_dc\"",
            ),
        ),
        (
            good("sets = [\"a b\"]"),
            wrong("sets", "\"a b\" is not a set; give the setSpec of ListSets, such as \"math:algebra\""),
        ),
        (
            good("contact = \"The Library\""),
            wrong("contact", "it is not an e-mail address; give one like \"library@example.org\""),
        ),
        (good("list = \"sets\""), wrong("list", "there is no list \"sets\"; there are records, identifiers")),
        (
            good("max_deleted_percent = 101"),
            wrong("max_deleted_percent", "it is 101; give a whole number from 0 to 100"),
        ),
        (good("full_every = \"never\""), wrong("full_every", &format!("it is \"never\"; {time}"))),
        (
            good("hours = [\"22-06\"]"),
            wrong(
                "hours",
                "\"22-06\" is no span of hours; write it as in \"22:00-06:00\", \"mon-fri 20:00-24:00\" or \"sat,sun 00:00-24:00\"",
            ),
        ),
        (good("mode = \"twice\""), wrong("mode", "there is no mode \"twice\"; there are periodic, once")),
        (good("page_bytes = 5"), wrong("page_bytes", "it is 5; give a whole number from 1048576 to 1073741824")),
        (
            source("oai-pmh", "url = \"http://h/oai\"\nca = \"ca.pem\""),
            wrong("ca", "the connection is not encrypted; give a URL with https, or leave ca out"),
        ),
        (
            good("queue = \"q\""),
            wrong("queue", "it is a setting of the transport \"amqp\", but this source has \"oai-pmh\""),
        ),
        (
            source("oai-pmh", "url = \"http://h/oai?verb=Identify\""),
            wrong("url", "it has the parameter verb; give the base URL, without the parameters of a request"),
        ),
    ] {
        let error = load(&file, &[]).unwrap_err();
        assert_eq!(error, message, "{file}");
        assert!(!error.contains("hush-hush"));
    }
}

#[test]
fn error_about_a_feed_names_the_setting_and_not_the_password() {
    let good = |lines: &str| {
        let url = "url = \"https://me:hush-hush@h/feed?token=hush-hush\"";
        format!("[sources.q]\ntransport = \"feed\"\ndialect = \"feed\"\n{url}\n{lines}")
    };
    let wrong = |key: &str, reason: &str| format!("the setting sources.q.{key} in my.toml is wrong: {reason}");
    load(&good(""), &[]).unwrap();
    for (file, message) in [
        (good("").replace("https", "gopher"), wrong("url", "it begins with neither https:// nor http://")),
        (
            good("").replace("dialect = \"feed\"", "dialect = \"oai-pmh\""),
            wrong("dialect", "the transport feed harvests records of the dialect \"feed\"; give that"),
        ),
        (good("page_bytes = 5"), wrong("page_bytes", "it is 5; give a whole number from 1048576 to 1073741824")),
        (
            good("sets = [\"a\"]"),
            wrong("sets", "it is a setting of the transport \"oai-pmh\", but this source has \"feed\""),
        ),
    ] {
        let error = load(&file, &[]).map(|_| ()).unwrap_err();
        assert_eq!(error, message, "{file}");
        assert!(!error.contains("hush-hush"));
    }
}

#[test]
fn error_about_a_folder_names_the_setting() {
    let good = |lines: &str| {
        format!("[sources.q]\ntransport = \"folder\"\ndialect = \"folder\"\npath = \"/srv/share\"\n{lines}")
    };
    let wrong = |key: &str, reason: &str| format!("the setting sources.q.{key} in my.toml is wrong: {reason}");
    load(&good("public_url = \"https://h/a\"\nurls = '.*[.]pdf'\nwatch = false"), &[]).unwrap();
    for (file, message) in [
        (
            good("").replace("path = \"/srv/share\"", ""),
            "the setting sources.q.path is missing; add it to [sources.q]".to_owned(),
        ),
        (good("").replace("/srv/share", ""), wrong("path", "it is empty; give the path of a folder")),
        (
            good("public_url = \"share\""),
            wrong(
                "public_url",
                "it is not a URL; give that of the folder, such as \"https://files.example.org/share/\"",
            ),
        ),
        (
            good("public_url = \"https://h/?a=b\""),
            wrong(
                "public_url",
                "it is not a URL; give that of the folder, such as \"https://files.example.org/share/\"",
            ),
        ),
        (
            good("url = \"http://h/\""),
            wrong(
                "url",
                "it is a setting of the transports \"amqp\", \"stomp\", \"oai-pmh\", \"feed\" and \"gateway\", but this source has \
                 \"folder\"",
            ),
        ),
        (
            good("max_deleted_percent = 101"),
            wrong("max_deleted_percent", "it is 101; give a whole number from 0 to 100"),
        ),
    ] {
        assert_eq!(load(&file, &[]).map(|_| ()).unwrap_err(), message, "{file}");
    }
}

#[test]
fn error_about_a_setting_of_others_names_all_of_them() {
    let file = "[sources.q]\ntransport = \"download\"\ndialect = \"download\"\nof = [\"fedora3\"]\nevery = \"1h\"\n";
    let expected = "the setting sources.q.every in my.toml is wrong: it is a setting of the transports \"oai-pmh\", \"feed\", \
                    \"folder\" and \"gateway\", but this source has \"download\"";
    assert_eq!(load(file, &[]).map(|_| ()).unwrap_err(), expected);
}

#[test]
fn error_about_announced_harvests_names_the_setting() {
    let source = |name: &str, dialect: &str, lines: &str| {
        format!(
            "[sources.{name}]\ntransport = \"http\"\ndialect = \"{dialect}\"\n{lines}\nsettings = {{ base_url = \"http://h/api\" }}\n"
        )
    };
    let good = |lines: &str| source("q", "hoarder", lines);
    let wrong = |key: &str, reason: &str| format!("the setting sources.q.{key} in my.toml is wrong: {reason}");
    load(&good("harvest = true\nallow = ['https://.*']"), &[]).unwrap();
    let long = "n".repeat(27);
    for (file, message) in [
        (good("harvest = true"), "the setting sources.q.allow is missing; add it to [sources.q]".to_owned()),
        (
            good("allow = ['https://.*']"),
            wrong("allow", "the events of the source make no harvests; set harvest = true"),
        ),
        (
            source("q", "sfm", "harvest = true\nallow = ['https://.*']"),
            wrong("harvest", "only events of the dialect \"hoarder\" make harvests"),
        ),
        (
            source(&long, "hoarder", "harvest = true\nallow = ['https://.*']"),
            wrong("harvest", "the name of the source has more than 26 bytes; shorten it").replace(".q.", &format!(".{long}.")),
        ),
        (
            good("harvest = true\nallow = ['https://.*']") + &source("q_harvests", "hoarder", ""),
            "the setting sources.q_harvests in my.toml is wrong: the source q_harvests has the name of the harvest that makes others; rename it".to_owned(),
        ),
    ] {
        assert_eq!(load(&file, &[]).map(|_| ()).unwrap_err(), message, "{file}");
    }
}

#[test]
fn error_about_a_bucket_names_the_setting_and_no_key() {
    let good = "[files.s3]\nendpoint = \"https://s3.example.org\"\nbucket = \"b\"\naccess_key = \"hush-id\"\nsecret_key = \"hush-key\"\n";
    let wrong = |key: &str, reason: &str| format!("the setting files.{key} in my.toml is wrong: {reason}");
    load(good, &[]).unwrap();
    for (file, message) in [
        (
            format!("[files]\nfolder = \"/srv/files\"\n{good}"),
            wrong("folder", "the files are in a bucket (files.s3); leave the folder out"),
        ),
        (
            good.replace("https://s3.example.org", "s3.example.org"),
            wrong(
                "s3.endpoint",
                "it is not the URL of a server; write it as in \"https://s3.example.org\", without keys and query",
            ),
        ),
        (
            good.replace("https://", "https://hush-id:hush-key@"),
            wrong(
                "s3.endpoint",
                "it is not the URL of a server; write it as in \"https://s3.example.org\", without keys and query",
            ),
        ),
        (
            good.replace("bucket = \"b\"", "bucket = \"a/b\""),
            wrong("s3.bucket", "\"a/b\" is not a name; use letters, digits, -, _ and ., at most 63 in all"),
        ),
        (
            good.replace("secret_key = \"hush-key\"\n", ""),
            "the setting files.s3.secret_key is missing; add it to [files.s3]".to_owned(),
        ),
        (good.replace("\"hush-key\"", "[\"hush-key\"]"), wrong("s3.secret_key", "give text in quotation marks")),
        (
            good.replace("\"hush-key\"", "{ env = \"UNSET\" }"),
            wrong("s3.secret_key", "the environment variable UNSET is not set"),
        ),
    ] {
        let error = load(&file, &[]).map(|_| ()).unwrap_err();
        assert_eq!(error, message, "{file}");
        assert!(!error.contains("hush"), "{error}");
    }
}
