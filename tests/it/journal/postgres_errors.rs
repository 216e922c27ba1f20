//! Databases that cannot be used: `tidings check` and `tidings serve` say why in one sentence, and what to do.

use crate::support::{
    command_line::{command, ended},
    gateway::Gateway,
    journal_fixture::{configuration, post},
    postgres::{Server, query},
};

/// Runs `check` and `serve` with the journal at this URL; returns their error.
fn error(url: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let mut command = command(arguments);
        command.env("TIDINGS_JOURNAL__STORE", url).arg("--data").arg(folder.path());
        let (code, _, error) = ended(command.spawn().unwrap());
        assert_eq!(code, 1, "{error}");
        let line = error.lines().rfind(|line| line.contains("journal's database")).unwrap_or_else(|| panic!("{error}"));
        line.split_once("tidings: ").map_or(line, |(_, message)| message).to_owned()
    };
    let (checked, served) = (run(&["check"]), run(&["serve", "--listen", "127.0.0.1:0"]));
    assert_eq!(checked, served);
    assert!(!served.contains("secret"), "{served}");
    served
}

#[test]
fn unusable_database_has_an_error_that_says_what_to_do() {
    let server = Server::separate();
    server.run("postgres", "CREATE ROLE node LOGIN PASSWORD 'secret'");
    server.run("postgres", "CREATE DATABASE journal TEMPLATE template0");
    server.run("postgres", "CREATE DATABASE newer TEMPLATE template0");
    server.run("newer", "CREATE SCHEMA tidings");
    server.run("newer", "CREATE TABLE tidings.migrations AS SELECT 999 AS version");
    server.run("newer", "CREATE TABLE tidings.journal_head ()");
    let standby = server.start_standby();
    let url = |port: u16, user: &str, database: &str| format!("postgres://{user}:secret@127.0.0.1:{port}/{database}");
    for (url, start, advice) in [
        (
            url(1, "tidings", "journal"),
            "cannot connect to the journal's database postgres://127.0.0.1:1/journal",
            "check that the server runs",
        ),
        (
            url(server.port, "tidings", "missing"),
            "the journal's database postgres://127.0.0.1",
            "create it with: createdb --owner=tidings",
        ),
        (
            url(server.port, "nobody", "journal"),
            "the journal's database postgres://127.0.0.1",
            "refuses the user nobody",
        ),
        (
            url(server.port, "node", "journal"),
            "the user node lacks rights in the journal's database",
            "it may not create the schema \"tidings\"; an administrator of the database gives them with: CREATE SCHEMA",
        ),
        (
            url(server.port, "tidings", "newer"),
            "the journal's database was written by a newer version of Tidings (format 999",
            "use that version",
        ),
        (
            url(standby.port, "tidings", "journal"),
            "the journal's database postgres://127.0.0.1",
            "its server is a standby; give the address of the primary",
        ),
    ] {
        let error = error(&url);
        assert!(error.contains(start) && error.contains(advice), "{error}");
    }
}

#[test]
fn check_describes_the_database_without_its_password_and_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let url = crate::support::postgres::connection(folder.path()).replacen("tidings@", "tidings:secret@", 1);
    let file = folder.path().join("url");
    std::fs::write(&file, format!("{url}\n")).unwrap();
    let config = folder.path().join("config.toml");
    std::fs::write(&config, format!("[journal]\nstore = {{ file = {file:?} }}\n")).unwrap();
    let mut check = command(&["check", "--config"]);
    let (code, out, error) = ended(check.arg(&config).arg("--data").arg(folder.path()).spawn().unwrap());
    assert_eq!(code, 0, "{error}");
    let line = out.lines().find(|line| line.starts_with("journal ")).unwrap();
    assert!(line.contains("postgres:///") && line.ends_with("(a new journal)"), "{line}");
    assert!(!out.contains("secret") && !error.contains("secret"), "{out}{error}");
    assert_eq!(query_without_schema(folder.path()), "f");
}

fn query_without_schema(folder: &std::path::Path) -> String {
    query(folder, "SELECT to_regnamespace('tidings') IS NOT NULL")
}

/// The statements of each message, which an administrator executes, lead to the next one and at last to a gateway.
#[tokio::test]
async fn statements_of_the_errors_give_a_role_all_rights() {
    let server = Server::separate();
    let admin = |database: &str, sql: &str| server.run(database, sql);
    for sql in [
        "CREATE ROLE node LOGIN PASSWORD 'secret'",
        "CREATE ROLE writer LOGIN PASSWORD 'secret'",
        "CREATE DATABASE \"my journal\" TEMPLATE template0",
        "REVOKE CONNECT ON DATABASE \"my journal\" FROM PUBLIC",
    ] {
        admin("postgres", sql);
    }
    let url = |user: &str| format!("postgres://{user}:secret@127.0.0.1:{}/my%20journal", server.port);
    let mend = |url: &str, reason: &str| {
        let error = error(url);
        let (start, statements) = error.split_once("; an administrator of the database gives them with: ").unwrap();
        assert!(start.ends_with(reason), "{error}");
        admin("my journal", statements);
    };
    let check = |url: &str| {
        let folder = tempfile::tempdir().unwrap();
        let mut check = command(&["check", "--data", folder.path().to_str().unwrap()]);
        ended(check.env("TIDINGS_JOURNAL__STORE", url).spawn().unwrap())
    };
    mend(&url("node"), ": it may not connect");
    mend(&url("node"), ": it may not create the schema \"tidings\"");
    let (code, out, error) = check(&url("node"));
    assert!(code == 0 && out.contains("(a new journal)"), "{out}{error}");
    admin("my journal", "ALTER SCHEMA tidings OWNER TO tidings");
    admin("my journal", "GRANT USAGE ON SCHEMA tidings TO node");
    mend(&url("node"), ": it may not create tables in the schema \"tidings\"");
    let folder = tempfile::tempdir().unwrap();
    let config = configuration(folder.path(), &format!("[journal]\nstore = \"{}\"\n", url("node")));
    let gateway = Gateway::start_with(folder.path(), &["--config", &config]);
    assert_eq!(post(&gateway, 1).await, 1);
    assert!(gateway.stop().success());
    admin("my journal", "GRANT CONNECT ON DATABASE \"my journal\" TO writer");
    mend(&url("writer"), ": it may not read and write all tables of the schema \"tidings\"");
    admin("my journal", "REVOKE INSERT ON tidings.changes FROM writer");
    mend(&url("writer"), ": it may not read and write all tables of the schema \"tidings\"");
    let config = configuration(folder.path(), &format!("[journal]\nstore = \"{}\"\n", url("writer")));
    let gateway = Gateway::start_with(folder.path(), &["--config", &config]);
    assert_eq!(post(&gateway, 2).await, 2);
}
