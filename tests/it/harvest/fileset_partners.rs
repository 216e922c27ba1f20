//! Platforms that are slow, that ask for absurd waits, or that name other servers: each costs its own datasets alone.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tidings::{
    filesets::{IngestSettings, PlatformToken, RetryRule, platform::TokenPlace},
    format::fileset::FilesetRequest,
    web::Secret,
};

use crate::support::{
    gateway::Gateway,
    ingest_fixture::{IngestFixture, table},
    journal_fixture::configuration,
    platforms_fixture::{dataverse, page},
    scripted_dataset::DatasetServer,
    scripted_platform::{Answer, PlatformServer},
};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const DATAVERSE: &str = "/dataset.xhtml?persistentId=doi:10.5072/data/TKCFEF";

fn give_token(settings: &mut IngestSettings, place: &str) {
    let token = PlatformToken::new(&Secret::new("s3cret")).unwrap();
    settings.platforms.tokens = vec![(TokenPlace::parse(place).unwrap(), token)];
}

/// Archives a dataset of a Dataverse whose interface redirects the second of two files to another server. Returns the
/// requests of both servers that had the token.
async fn requests_with_token(place_of: impl FnOnce(&str) -> String) -> (Vec<String>, Vec<String>) {
    let fixture =
        IngestFixture::start(|settings, url| give_token(settings, &place_of(url.trim_start_matches("http://")))).await;
    let other = PlatformServer::start().await;
    other.put("/moved", table("b"));
    let file = |id: u64| json!({ "label": format!("{id}.csv"), "dataFile": { "id": id, "filesize": 1 } });
    fixture.server.put("/dataset.xhtml", page());
    fixture.server.put("/api/datasets/:persistentId/", Answer::json(&dataverse(&json!([file(7), file(8)]))));
    fixture.server.put("/api/access/datafile/7", table("a"));
    fixture.server.put("/api/access/datafile/8", Answer::redirect(format!("{}/moved", other.url)));
    let ingested = fixture.ingest_at(DATAVERSE).await;
    assert!(ingested.result.status.to_string().starts_with("success"), "{:?}", ingested.result);
    let with_token = |server: &PlatformServer| {
        let mut places: Vec<_> = server
            .requests()
            .into_iter()
            .filter(|request| request.token.is_some() || request.key.is_some())
            .map(|request| request.place)
            .collect();
        places.sort();
        places
    };
    assert_eq!(other.requests().len(), 1);
    (with_token(&fixture.server), with_token(&other))
}

#[tokio::test]
async fn fileset_token_goes_to_its_origin_for_the_interface_and_for_files() {
    let (own, foreign) = requests_with_token(|host| format!("http://{host}")).await;
    assert_eq!(
        own,
        [
            "/api/access/datafile/7",
            "/api/access/datafile/8",
            "/api/datasets/:persistentId/?persistentId=doi%3A10.5072%2FDATA%2FTKCFEF"
        ]
        .map(|place| place.replace("%2FDATA%2F", "%2Fdata%2F"))
    );
    assert!(foreign.is_empty(), "{foreign:?}");
}

#[tokio::test]
async fn fileset_token_of_a_host_is_not_sent_unencrypted_nor_to_another_port() {
    // A host alone stands for https, and the server answers at http.
    let (own, foreign) = requests_with_token(str::to_owned).await;
    assert!(own.is_empty() && foreign.is_empty(), "{own:?} {foreign:?}");
    let (own, _) = requests_with_token(|host| format!("http://{}", host.split(':').next().unwrap())).await;
    assert!(own.is_empty(), "{own:?}");
}

#[tokio::test]
async fn fileset_platform_that_asks_for_an_absurd_wait_is_asked_again_later() {
    let fixture = IngestFixture::start(|_, _| ()).await;
    let refusal = Answer::new(429, "slow down").with("retry-after", u64::MAX.to_string());
    fixture.server.put("/api/records/17", refusal);
    let began = Instant::now();
    let ingested = fixture.ingest_at("/records/17").await;
    assert_eq!(ingested.retry, Some(RetryRule::Backoff(Some(DAY))), "{:?}", ingested.result.error_message);
    // The next job of the host gives its place back at once, and knows when the host accepts requests.
    let ingested = fixture.ingest_at("/records/17").await;
    let Some(RetryRule::Backoff(Some(wait))) = ingested.retry else { panic!("{:?}", ingested.retry) };
    assert!(wait <= Duration::from_secs(60 * 60) && wait > Duration::from_secs(30 * 60), "{wait:?}");
    assert_eq!(fixture.server.requests().iter().filter(|request| request.place == "/api/records/17").count(), 1);
    assert!(began.elapsed() < Duration::from_secs(60));
}

/// Starts a server that accepts connections and never answers.
fn silent_server() -> (std::net::TcpListener, String) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    (listener, url)
}

#[tokio::test]
async fn fileset_landing_page_and_interface_have_a_time() {
    let (_listener, silent) = silent_server();
    let fixture = IngestFixture::start(|settings, _| {
        settings.client.exchange = Duration::from_millis(300);
        settings.platforms.invenio.push(format!("{silent}/").parse().unwrap());
    })
    .await;
    let url = tidings::format::fileset::dataset_url(&format!("{silent}/records/1")).unwrap();
    let (request, context) = (FilesetRequest::new(url, "test"), Default::default());
    let ingested = fixture.ingester.ingest(&request, &context, &std::sync::Arc::default()).await;
    let message = ingested.result.error_message.unwrap();
    assert!(message.contains("has not answered within"), "{message}");
    assert_eq!(ingested.retry, Some(RetryRule::Backoff(None)));
}

async fn post_request(gateway: &Gateway, dataset: &str, number: u32) {
    let request = json!({ "ingest_type": "dataset", "base_url": dataset, "link_source": "doi",
        "ext_ids": { "doi": format!("10.5072/zenodo.{number}") } });
    let (status, answer) = gateway.post("requests", "application/json", request.to_string()).await;
    assert_eq!(status, 201, "{answer}");
}

/// Waits until the states of the jobs, by their datasets, meet a condition.
async fn wait_for_states(gateway: &Gateway, condition: impl Fn(&[(String, String)]) -> bool) {
    let began = Instant::now();
    loop {
        let jobs = gateway.json("/filesets").await;
        let text = |job: &Value, name: &str| job[name].as_str().unwrap().to_owned();
        let states: Vec<_> =
            jobs["filesets"].as_array().unwrap().iter().map(|job| (text(job, "dataset"), text(job, "state"))).collect();
        if condition(&states) {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{jobs}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn fileset_host_that_does_not_answer_has_one_place_of_jobs() {
    let (folder, server) = (tempfile::tempdir().unwrap(), DatasetServer::start().await);
    let (_listener, silent) = silent_server();
    // Another host than the one of the dataset.
    let silent = silent.replace("127.0.0.1", "localhost");
    server.put("a.csv", "a");
    let lines = format!(
        "[delivery]\nallow = [\"127.0.0.1\", \"localhost\"]\n[filesets.platforms]\nzenodo = [\"{}\", \"{silent}\"]\n\
         [sources.requests]\ntransport = \"http\"\ndialect = \"fileset-request\"\n\
         [sources.archive]\ntransport = \"fileset\"\ndialect = \"fileset-result\"\nof = [\"requests\"]\njobs = 2\n",
        server.url
    );
    let gateway = Gateway::start_with(folder.path(), &["--config", &configuration(folder.path(), &lines)]);
    for number in 0..4 {
        post_request(&gateway, &format!("{silent}/records/{number}"), number).await;
    }
    wait_for_states(&gateway, |states| states.iter().any(|(_, state)| state == "running")).await;
    post_request(&gateway, &server.dataset(), 17).await;
    wait_for_states(&gateway, |states| {
        let of_the_silent = states.iter().filter(|(dataset, _)| dataset.starts_with(&silent));
        assert!(of_the_silent.filter(|(_, state)| state == "running").count() <= 1, "{states:?}");
        states.contains(&(server.dataset(), "archived".to_owned()))
    })
    .await;
}
