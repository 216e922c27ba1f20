//! Credentials and permissions of a harvest belong to the origin that is configured, and not to its host.

use std::time::Instant;

use tidings::http_client::{OutboundPolicy, OutboundUrl};
use wiremock::{Mock, MockServer, ResponseTemplate, matchers::any};

use crate::support::{
    gateway::{Gateway, PATIENCE},
    journal_fixture::configuration,
    scripted_feed::FeedFixture,
};

/// Starts a server with the same response to each request.
async fn server(response: ResponseTemplate) -> MockServer {
    let server = MockServer::start().await;
    Mock::given(any()).respond_with(response).mount(&server).await;
    server
}

/// Starts a scripted feed at another name of its server.
async fn feed_at(name: &str, feed: &str) -> FeedFixture {
    let mut fixture = FeedFixture::start(feed).await;
    let url = format!("{}/feed.xml", fixture.url().replace("127.0.0.1", name));
    fixture.settings.url = OutboundUrl::parse(&url, &OutboundPolicy::unrestricted()).unwrap();
    fixture
}

fn feed_with_hub(hub: &str) -> String {
    format!(
        "<rss version='2.0' xmlns:a='http://www.w3.org/2005/Atom'><channel><title>News</title>\
         <a:link rel='hub' href='{hub}'/><a:link rel='self' href='https://feeds.example.org/news'/>\
         <item><guid>1</guid><title>One</title></item></channel></rss>"
    )
}

#[tokio::test]
async fn token_stays_at_the_configured_port() {
    let other = server(ResponseTemplate::new(404)).await;
    let location = format!("{}/plain", other.uri());
    let redirecting = server(ResponseTemplate::new(302).insert_header("location", location.as_str())).await;
    let folder = tempfile::tempdir().unwrap();
    let lines = format!(
        "[delivery]\nallow = [\"127.0.0.1\"]\n[sources.edge]\ntransport = \"gateway\"\ndialect = \"gateway\"\n\
         url = \"{}\"\ntoken = \"tdg_hush-hush-hush-hush\"\n",
        redirecting.uri()
    );
    let config = configuration(folder.path(), &lines);
    let gateway = Gateway::start_with(&folder.path().join("data"), &["--config", &config]);
    let began = Instant::now();
    let arrived = loop {
        match other.received_requests().await.unwrap_or_default().pop() {
            Some(request) => break request,
            None => assert!(began.elapsed() < PATIENCE, "{}", gateway.json("/harvests/edge").await),
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    };
    assert_eq!(arrived.headers.get("authorization"), None);
    let sent = redirecting.received_requests().await.unwrap_or_default();
    assert!(sent.iter().all(|request| request.headers["authorization"] == "Bearer tdg_hush-hush-hush-hush"));
}

#[tokio::test]
async fn name_of_somebody_else_leads_to_no_internal_address() {
    let fixture = feed_at("repo.partner.example", &feed_with_hub("/hub")).await;
    let (reason, _) = fixture.fail().await;
    assert!(reason.contains("it leads to 127.0.0.1, which is a loopback address"), "{reason}");
    assert!(reason.contains("list it in delivery.allow"), "{reason}");
    assert_eq!(fixture.take_paths(), Vec::<String>::new());
}

#[tokio::test]
async fn internal_name_is_harvested_and_its_other_ports_are_not() {
    let fixture = feed_at("repo.internal", &feed_with_hub("/hub")).await;
    fixture.put_status("/hub", 202, "");
    assert_eq!(fixture.complete().await.counts.changes, 1);
    assert_eq!(fixture.take_paths(), ["/feed.xml", "/hub"]);
    let other = server(ResponseTemplate::new(202)).await;
    let hub = format!("{}/hub", other.uri().replace("127.0.0.1", "repo.internal"));
    fixture.put(&feed_with_hub(&hub), None);
    fixture.complete().await;
    assert!(fixture.remarks().contains("refuses a subscription"), "{}", fixture.remarks());
    fixture.script().statuses.push_back((302, vec![("location", hub)]));
    assert!(fixture.fail().await.0.contains("redirects to a URL that is not allowed"));
    assert_eq!(other.received_requests().await.unwrap_or_default().len(), 0);
}
