//! Sources that make no changes.

use super::ObservedGateway;
use crate::support::subscription_fixture::event;

#[tokio::test]
async fn a_source_is_silent_until_it_makes_a_change() {
    let observed = ObservedGateway::start(
        "[sources.quiet]\ntransport = \"http\"\ndialect = \"content-change\"\nsilent_after = \"10s\"\n",
    );
    observed.shows("source-silent", "source/quiet", "it has never made one").await;
    let (status, answer) = observed.gateway.post("quiet", "application/json", event(1).to_string()).await;
    assert_eq!(status, 201, "{answer}");
    observed.ends("source-silent", "source/quiet").await;
    observed.shows("source-silent", "source/quiet", "the last one was at 20").await;
}
