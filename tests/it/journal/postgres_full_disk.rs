//! The disk of the database is full: the gateway says so in one sentence, loses no acknowledged event, serves readers,
//! and recovers when there is room. A new journal is not created on a full disk.

use std::{fs, path::Path, process::Command};

use serde_json::Value;

use crate::support::{
    command_line,
    gateway::{Gateway, command},
    journal_fixture::{event, post, stderr},
    postgres::Server,
    small_disk::SmallDisk,
};

/// Returns a server with the empty databases `journal` and `new` on a small disk.
fn server_on(disk: &SmallDisk) -> Server {
    let (server, location) = (Server::separate(), disk.path().join("tablespace"));
    let made = Command::new("install").args(["-d", "-o", "postgres"]).arg(&location).status().unwrap();
    assert!(made.success());
    server.run("postgres", &format!("CREATE TABLESPACE small LOCATION '{}'", location.display()));
    for database in ["journal", "new"] {
        server.run("postgres", &format!("CREATE DATABASE {database} TEMPLATE template0 TABLESPACE small"));
        // The first session in a database writes a file of the server.
        server.run(database, "SELECT 1");
    }
    server
}

/// Posts an event; returns the response if the event is refused.
async fn refusal(gateway: &Gateway, number: u64) -> Option<(u16, String)> {
    let (status, answer) = gateway.post("content-change", "application/json", event(number).to_string()).await;
    (status != 201).then(|| (status, answer["detail"].as_str().unwrap_or_default().to_owned()))
}

async fn readiness(gateway: &Gateway) -> u16 {
    gateway.http.get(format!("{}/readyz", gateway.url)).send().await.unwrap().status().as_u16()
}

/// Returns the number of the event of a change.
fn number(change: &Value) -> u64 {
    change["items"][0]["uri"].as_str().unwrap().rsplit('/').next().unwrap().parse().unwrap()
}

fn start(url: &str, folder: &Path) -> Gateway {
    let mut serve = command();
    serve.env("TIDINGS_JOURNAL__STORE", url);
    Gateway::start_as(serve, folder, &["--listen", "127.0.0.1:0"])
}

#[tokio::test(flavor = "multi_thread")]
async fn full_disk_of_the_database_is_reported_and_loses_no_acknowledged_event() {
    let (disk, folder) = (SmallDisk::of(40), tempfile::tempdir().unwrap());
    let server = server_on(&disk);
    let gateway = start(&server.connection("journal"), folder.path());
    let (mut accepted, mut next) = (Vec::new(), 0);
    for round in 0..2 {
        for _ in 0..10 {
            next += 1;
            post(&gateway, next).await;
            accepted.push(next);
        }
        let filling = disk.fill();
        // Events are still accepted while the existing files have free space.
        let (status, detail) = loop {
            next += 1;
            match refusal(&gateway, next).await {
                Some(refused) => break refused,
                None => accepted.push(next),
            }
        };
        assert_eq!(status, 503, "{detail}");
        assert!(detail.contains("the disk is full; free some space on the disk of the journal"), "{detail}");
        assert_eq!(readiness(&gateway).await, 503, "round {round}");
        assert_eq!(gateway.changes().await.iter().map(number).collect::<Vec<_>>(), accepted);

        if round == 0 {
            let mut serve = command_line::command(&["serve", "--listen", "127.0.0.1:0", "--data"]);
            serve.arg(folder.path().join("new")).env("TIDINGS_JOURNAL__STORE", server.connection("new"));
            let (code, _, error) = command_line::ended(serve.spawn().unwrap());
            assert_eq!(code, 1, "{error}");
            let expected = "/new cannot be opened: the disk is full; free some space on the disk of the journal";
            assert_eq!(error.lines().filter(|line| line.contains(expected)).count(), 1, "{error}");
        }

        fs::remove_file(filling).unwrap();
        assert_eq!(readiness(&gateway).await, 200, "round {round}");
        // The refused event is sent again.
        post(&gateway, next).await;
        accepted.push(next);
        assert_eq!(gateway.changes().await.iter().map(number).collect::<Vec<_>>(), accepted);
    }
    assert!(gateway.stop().success());
    let verified = command().args(["verify", &server.connection("journal")]).output().unwrap();
    assert!(verified.status.success(), "{}", stderr(&verified));
}
