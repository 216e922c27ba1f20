//! The death of any thread or task of the gateway ends the process with status 1, after one log line that names
//! the worker.

use std::{fs, path::Path, process::Stdio, time::Instant};

use tidings::supervision::Worker;

use crate::support::{
    gateway::{PATIENCE, command, free_address},
    journal_fixture::configuration,
    postgres,
};

/// Returns a configuration that starts every worker.
fn everything() -> String {
    let nobody = free_address();
    format!(
        "[journal]\nkeep_changes = 1000\n[dbus]\nenabled = true\nbus = \"unix:path=/nobody\"\n[publish]\nfolder = \"/dev/null/copy\"\nurl = \"http://{nobody}\"\n[log]\nformat = \"json\"\n\
         [sources.queue]\ntransport = \"amqp\"\ndialect = \"content-change\"\nurl = \"amqp://{nobody}\"\nexchange = \"e\"\nqueue = \"q\"\n\
         [sources.repository]\ntransport = \"oai-pmh\"\ndialect = \"oai-pmh\"\nurl = \"http://{nobody}/oai\"\n\
         [sources.asked]\ntransport = \"http\"\ndialect = \"fedora-apim\"\nlookup = \"best-effort\"\n\
         [sources.asked.repository]\nurl = \"http://{nobody}/fedora\"\n\
         [subscriptions.index]\ndelivery = \"webhook\"\nformat = \"json\"\nstart = \"beginning\"\nurl = \"http://{nobody}/\"\nsecrets = [\"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"]\n"
    )
}

/// Runs the gateway with a worker that panics; returns the exit status and the log.
fn run(folder: &Path, worker: Worker) -> (Option<i32>, String) {
    let log = folder.join("log");
    let config = configuration(folder, &everything());
    let mut serve = command();
    serve.args(["serve", "--listen", "127.0.0.1:0", "--config", &config, "--data"]).arg(folder.join("data"));
    if [Worker::JournalFollower, Worker::Node].contains(&worker) {
        serve.env("TIDINGS_JOURNAL__STORE", postgres::connection(folder));
    }
    serve.env("FAULT_POINT", worker.name()).stdout(Stdio::null()).stderr(fs::File::create(&log).unwrap());
    let mut child = serve.spawn().unwrap();
    let began = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if began.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("the gateway lives without its {}:\n{}", worker.name(), fs::read_to_string(&log).unwrap());
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    };
    (status.code(), fs::read_to_string(log).unwrap())
}

#[test]
fn worker_death_stops_the_gateway_with_one_error_that_names_it() {
    for worker in Worker::ALL {
        let folder = tempfile::tempdir().unwrap();
        let (status, log) = run(folder.path(), worker);
        assert_eq!(status, Some(1), "{}: {log}", worker.name());
        let errors: Vec<_> = log.lines().filter(|line| line.contains("\"level\":\"ERROR\"")).collect();
        assert_eq!(errors.len(), 1, "{}: {log}", worker.name());
        assert!(errors[0].contains(&format!("{} ", worker.name())) && errors[0].contains("has panicked"), "{log}");
    }
}

/// Searches the source text, so that every task added later is supervised too.
#[test]
fn application_starts_only_supervised_tasks() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let parts = fs::read_dir(root.join("app")).unwrap().map(|entry| entry.unwrap().path());
    let mut spawns = 0;
    for path in parts.chain([root.join("app.rs")]) {
        let text = fs::read_to_string(&path).unwrap();
        for line in text.lines().filter(|line| line.contains("spawn(")) {
            spawns += 1;
            assert!(line.contains("supervisor") || line.starts_with("fn spawn("), "{}: {line}", path.display());
        }
    }
    assert!(spawns > 5, "the test finds no sources");
}
