//! Error messages about the repository of a source, without its password.

use tidings::{format::RepositoryApi, lookup::Mode, model::SourceName};

use crate::support::config_loader::load;

const PASSWORD: &str = "hush-hush";

fn source(lines: &str) -> String {
    format!("[sources.fedora3]\n{lines}")
}

fn repository(lines: &str) -> String {
    source(&format!("lookup = \"required\"\n[sources.fedora3.repository]\n{lines}"))
}

#[test]
fn error_about_a_repository_does_not_contain_its_password() {
    let wrong = |key: &str, reason: &str| format!("the setting sources.fedora3.{key} in my.toml is wrong: {reason}");
    let missing = |key: &str| {
        format!("the setting sources.fedora3.repository.{key} is missing; add it to [sources.fedora3.repository]")
    };
    let good = |lines: &str| repository(&format!("url = \"http://h/fedora\"\n{lines}"));
    let url = |url: &str| repository(&format!("url = {url}"));
    for (file, message) in [
        (
            source("lookup = \"best\""),
            wrong("lookup", "there is no way to look up \"best\"; there are off, best-effort, required"),
        ),
        (
            source("lookup = \"best-effort\""),
            wrong("lookup", "lookups need a repository; give its url in the table `repository` of this source"),
        ),
        (
            "[sources.content-change]\nlookup = \"required\"".to_owned(),
            "the setting sources.content-change.lookup in my.toml is wrong: sources of the dialect \"content-change\" \
             have no repository for lookups, only fedora-apim, fedora-events and islandora have one; leave it out"
                .to_owned(),
        ),
        (
            "[sources.content-change.repository]\nurl = \"http://h\"".to_owned(),
            "the setting sources.content-change.repository in my.toml is wrong: sources of the dialect \
             \"content-change\" have no repository for lookups, only fedora-apim, fedora-events and islandora have one; leave it out"
                .to_owned(),
        ),
        (
            good("visible_from = [\"http://h/a\", \"http://h/b\"]\nvisible_until = [\"http://h/b\"]"),
            wrong("repository.visible_until", "http://h/b is in visible_from, too; remove one"),
        ),
        (
            "[sources.islandora.repository]\nurl = \"http://h\"\nvisible_until = [\"http://h/b\"]".to_owned(),
            "the setting sources.islandora.repository.visible_until in my.toml is wrong: it has no effect: \
             its objects are somewhere else"
                .to_owned(),
        ),
        (source(&format!("repository = \"{PASSWORD}\"")), wrong("repository", "give a table")),
        (repository(""), missing("url")),
        (url("7"), wrong("repository.url", "give text in quotation marks")),
        (
            url(&format!("\"http://me:{PASSWORD}@h/fedora\"")),
            wrong(
                "repository.url",
                "it has a user or a password; set username and password instead, which are never shown",
            ),
        ),
        (
            url(&format!("\"http://h/fedora?key={PASSWORD}\"")),
            wrong("repository.url", "it has a query; use the URL that paths like /objects/demo:5 can be appended to"),
        ),
        (url("\"fedora:8080\""), wrong("repository.url", "it begins with neither https:// nor http://")),
        (good("username = \"me\""), missing("password")),
        (good(&format!("password = \"{PASSWORD}\"")), missing("username")),
        (good("username = \"me\"\npassword = 7"), wrong("repository.password", "give text in quotation marks")),
        (good("username = \"me\"\npassword = \"\""), wrong("repository.password", "it is empty")),
        (
            good(&format!("username = \"me:{PASSWORD}\"\npassword = \"x\"")),
            wrong("repository.username", "it contains a colon, which basic authentication does not allow"),
        ),
        (
            good(&format!("username = \"me\"\npassword = {{ file = \"{PASSWORD}\" }}")),
            wrong("repository.password", "cannot read its file: No such file or directory (os error 2)"),
        ),
        (
            good("ca = \"ca.pem\""),
            wrong("repository.ca", "the connection is not encrypted; give a URL with https, or leave ca out"),
        ),
        (
            good("timeout_seconds = 0"),
            wrong("repository.timeout_seconds", "it is 0; give a whole number from 1 to 300"),
        ),
        (good("in_flight = 0"), wrong("repository.in_flight", "it is 0; give a whole number from 1 to 1024")),
        (
            good("pasword = 1"),
            "unknown setting sources.fedora3.repository.pasword in my.toml; did you mean \
             sources.fedora3.repository.password?"
                .to_owned(),
        ),
    ] {
        assert!(!message.contains(PASSWORD));
        assert_eq!(load(&file, &[]).map(|_| ()), Err(message), "{file}");
    }
}

#[test]
fn repository_is_read_from_any_layer_and_shown_without_credentials() {
    let file = r#"
        [sources.fedora3]
        settings = { base_url = "https://repository.example.org/fedora" }
        lookup = "best-effort"
        [sources.fedora3.repository]
        url = "http://fedora:8080/fedora/"
        username = "fedoraAdmin"
        password = { env = "FEDORA_PASSWORD" }
        [sources.fedora.repository]
        url = "http://fedora6:8080/rest"
    "#;
    let environment = [("FEDORA_PASSWORD", PASSWORD), ("TIDINGS_SOURCES__FEDORA3__REPOSITORY__TIMEOUT_SECONDS", "3")];
    let config = load(file, &environment).unwrap();
    let source = |name| &config.sources[&SourceName::parse(name).unwrap()];
    let repository = source("fedora3").repository.as_ref().unwrap();
    assert_eq!(
        (source("fedora3").lookup, repository.api, repository.timeout.as_secs()),
        (Mode::BestEffort, RepositoryApi::Fedora3, 3)
    );
    assert_eq!(repository.credentials.as_ref().unwrap().password.expose(), PASSWORD.as_bytes());
    assert_eq!(
        repository.path_of("https://repository.example.org/fedora/objects/a:1").as_deref(),
        Some("/objects/a:1")
    );
    let details = format!("{config:?}");
    assert!(!details.contains(PASSWORD) && !details.contains("fedoraAdmin"), "{details}");
    // A repository may be configured without lookups, because the registry can be seeded from it.
    assert_eq!(
        (source("fedora").lookup, source("fedora").repository.as_ref().unwrap().api),
        (Mode::Off, RepositoryApi::Ldp)
    );
    assert_eq!(source("islandora").lookup, Mode::Off);
}
