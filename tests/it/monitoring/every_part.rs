//! Gateways with every part that has metrics.

use std::path::Path;

use chrono::{TimeDelta, Utc};
use tempfile::TempDir;
use tidings::web::Secret;

use crate::{
    status::access_and_certificates::put_certificate,
    support::{
        dbus_daemon::Bus,
        gateway::{Gateway, PATIENCE, command, free_address},
        journal_fixture::configuration,
        postgres::Server,
        webhook_fixture::webhook,
    },
};

const TOKEN: &str = "tdg_monitoring";

/// Gateway with every part that has metrics, none of which reaches anything.
pub(super) struct CompleteGateway {
    gateway: Gateway,
    _bus: Bus,
    _folder: TempDir,
}

impl CompleteGateway {
    /// Starts a gateway with the journal in a file.
    pub(super) fn start() -> Self {
        Self::start_with_store(None)
    }

    /// Starts a gateway with the journal in a database, as nodes have it.
    pub(super) fn start_node() -> Self {
        Self::start_with_store(Some(Server::shared().create_database()))
    }

    fn start_with_store(store: Option<String>) -> Self {
        let (bus, folder) = (Bus::start(), tempfile::tempdir().unwrap());
        let file = configuration(folder.path(), &settings(folder.path(), &bus));
        let mut serve = command();
        serve.env("TIDINGS_NODE__LEASE_SECONDS", "3").stderr(std::process::Stdio::null());
        if let Some(store) = store {
            serve.env("TIDINGS_JOURNAL__STORE", store).env("TIDINGS_NODE__NAME", "monitored");
        }
        let arguments = ["--listen", "127.0.0.1:0", "--config", &file];
        let mut gateway = Gateway::start_as(serve, &folder.path().join("data"), &arguments);
        let insecure = reqwest::Client::builder().tls_danger_accept_invalid_certs(true).no_proxy().timeout(PATIENCE);
        gateway.http = insecure.build().unwrap();
        Self { gateway, _bus: bus, _folder: folder }
    }

    /// Returns the metrics, once they contain all these texts.
    pub(super) async fn metrics_with(&self, texts: &[&str]) -> String {
        let began = std::time::Instant::now();
        loop {
            let request = self.gateway.http.get(format!("{}/metrics", self.gateway.url)).bearer_auth(TOKEN);
            let metrics = request.send().await.unwrap().error_for_status().unwrap().text().await.unwrap();
            let missing: Vec<_> = texts.iter().filter(|text| !metrics.contains(**text)).collect();
            if missing.is_empty() {
                return metrics;
            }
            assert!(began.elapsed() < PATIENCE, "{missing:?} are missing in\n{metrics}");
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    }
}

fn settings(folder: &Path, bus: &Bus) -> String {
    let nowhere = free_address();
    let digest = Secret::new(TOKEN).digest().to_hex();
    let end = (Utc::now() + TimeDelta::days(100)).to_rfc3339();
    let share = folder.join("share");
    std::fs::create_dir(&share).unwrap();
    format!(
        "{tls}[access.tokens.monitoring]\nsha256 = \"{digest}\"\nscopes = [\"admin\"]\nexpires = \"{end}\"\n\
         [sources.messages]\ntransport = \"stomp\"\ndialect = \"content-change\"\nurl = \"stomp://{nowhere}\"\n\
         destination = \"/queue/messages\"\n\
         [sources.topic]\ntransport = \"kafka\"\ndialect = \"content-change\"\nbrokers = \"{nowhere}\"\n\
         topics = [\"messages\"]\n\
         [sources.fedora]\ntransport = \"http\"\ndialect = \"fedora-events\"\nlookup = \"best-effort\"\n\
         [sources.fedora.repository]\nurl = \"http://{nowhere}/rest\"\n\
         [sources.share]\ntransport = \"folder\"\ndialect = \"folder\"\npath = {share:?}\n\
         [sources.copies]\ntransport = \"download\"\ndialect = \"download\"\nof = [\"share\"]\nurls = \".*\"\n\
         [sources.requests]\ntransport = \"http\"\ndialect = \"fileset-request\"\n\
         [sources.archive]\ntransport = \"fileset\"\ndialect = \"fileset-result\"\nof = [\"requests\"]\n\
         {subscription}[dbus]\nenabled = true\nbus = \"{bus}\"\n",
        tls = put_certificate(folder, 100),
        subscription = webhook("index", &format!("http://{nowhere}/"), ""),
        bus = bus.address(),
    )
}
