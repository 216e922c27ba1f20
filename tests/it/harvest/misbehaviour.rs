//! Misbehaviour of real repositories. After each harvest the registry equals the content of the repository, or the run
//! has failed with a reason, and the mark has not moved.

use std::collections::BTreeMap;

use serde_json::Value;
use tidings::journal::harvest::{HarvestRun, RunState};

use crate::support::{
    harvest_fixture::{HarvestFixture, settings},
    http_receiver::{Receiver, Reply},
    scripted_repository::{Misbehaviour, identifier},
};

/// Harvests a repository that misbehaves in the first run and in a later one, which must both complete.
async fn completes(misbehaviours: &[Misbehaviour]) -> (HarvestFixture, HarvestRun) {
    let fixture = HarvestFixture::start(47).await;
    for number in 0..47 {
        fixture.repository.put(&identifier(number), &format!("Title {number} R&D\u{A0}é"), number as i64 * 60);
    }
    fixture.repository.misbehave(misbehaviours);
    let first = fixture.complete().await;
    fixture.assert_equal().await;
    fixture.repository.put_now(&identifier(5), "Changed R&D\u{A0}é");
    fixture.repository.delete_now(&identifier(6));
    fixture.repository.misbehave(misbehaviours);
    fixture.complete().await;
    fixture.assert_equal().await;
    (fixture, first)
}

/// Harvests a repository that misbehaves after a complete run; the harvest must fail for a reason that contains this
/// text, delete nothing, and keep its mark.
async fn fails(misbehaviours: &[Misbehaviour], complaint: &str) -> HarvestFixture {
    let fixture = HarvestFixture::start(47).await;
    fixture.repository.misbehave(misbehaviours);
    let run = fixture.run().await;
    assert_eq!(run.state, RunState::Failed, "{run:?}");
    let reason = run.reason.unwrap_or_default();
    assert!(reason.contains(complaint), "{reason}");
    assert_eq!(fixture.position().await["from"], Value::Null);
    let expected = fixture.expected();
    for (object, digest) in fixture.registered().await {
        assert_eq!(expected.get(&object), Some(&digest), "{object}");
    }
    // Without the misbehaviour, the next run completes.
    fixture.repository.misbehave(&[]);
    fixture.complete().await;
    fixture.assert_equal().await;
    fixture
}

#[tokio::test]
async fn characters_and_encodings_are_repaired() {
    for misbehaviour in [Misbehaviour::IllegalCharacters, Misbehaviour::BareAmpersands, Misbehaviour::WrongEncoding] {
        let (_fixture, run) = completes(&[misbehaviour]).await;
        assert_eq!((run.counts.repaired, run.counts.quarantined), (run.counts.pages, 0), "{misbehaviour:?}");
    }
    let (_fixture, run) = completes(&[Misbehaviour::DeclaredLatin1]).await;
    assert_eq!(run.counts.repaired, 0);
}

#[tokio::test]
async fn compression_is_recognised_by_its_bytes() {
    completes(&[Misbehaviour::GzipWithoutHeader]).await;
    completes(&[Misbehaviour::GzipHeaderOnly]).await;
    let (fixture, _) = completes(&[Misbehaviour::BrokenGzip]).await;
    assert_eq!(fixture.position().await["quirks"]["no_compression"], true);
}

#[tokio::test]
async fn transient_failures_are_retried() {
    for misbehaviour in [
        Misbehaviour::Truncated(2),
        Misbehaviour::Html(2),
        Misbehaviour::Busy(503, 3),
        Misbehaviour::Busy(429, 3),
        Misbehaviour::UnknownErrors(2),
        Misbehaviour::RefusedTokens(1),
        Misbehaviour::RefusedTokens(2),
        // Windows of one page need no token.
        Misbehaviour::Truncated(100_000),
    ] {
        completes(&[misbehaviour]).await;
    }
}

#[tokio::test]
async fn lasting_failures_fail_the_run() {
    for (misbehaviour, complaint) in [
        (Misbehaviour::Html(1000), "is not OAI-PMH 2.0; it begins with \"<!DOCTYPE html>"),
        (Misbehaviour::Busy(403, 1000), "refuses access (403"),
        (Misbehaviour::Busy(404, 1000), "refuses the request (404"),
        (Misbehaviour::Busy(500, 1000), "has failed (500"),
        (Misbehaviour::UnknownErrors(1000), "the error InternalException"),
    ] {
        fails(&[misbehaviour], complaint).await;
    }
}

#[tokio::test]
async fn endless_lists_fail_the_run() {
    fails(&[Misbehaviour::RepeatedPage], "repeats an earlier page").await;
    fails(&[Misbehaviour::Circle], "repeats an earlier page").await;
    fails(&[Misbehaviour::EmptyPages(1000)], "10 successive pages without records").await;
}

#[tokio::test]
async fn empty_pages_do_not_end_a_list() {
    completes(&[Misbehaviour::EmptyPages(4)]).await;
}

#[tokio::test]
async fn token_of_the_last_page_may_lead_nowhere() {
    completes(&[Misbehaviour::TokenToEmptyPage]).await;
    completes(&[Misbehaviour::TokenToNoRecords]).await;
}

#[tokio::test]
async fn announced_sizes_may_be_too_small() {
    completes(&[Misbehaviour::Announces(0)]).await;
    completes(&[Misbehaviour::Announces(3)]).await;
}

#[tokio::test]
async fn list_that_ends_early_fails_the_run() {
    fails(&[Misbehaviour::EndsEarly], "the list has 30 records, but the repository announced 47").await;
}

#[tokio::test]
async fn size_that_is_always_wrong_is_accepted_with_a_remark() {
    let fixture = HarvestFixture::start(47).await;
    fixture.repository.misbehave(&[Misbehaviour::Announces(1000)]);
    assert_eq!(fixture.run().await.state, RunState::Failed);
    fixture.assert_equal().await;
    let run = fixture.complete().await;
    assert!(run.reason.unwrap().contains("the list has 47 records, but the repository announced 1000"));
}

#[tokio::test]
async fn records_that_occur_twice_make_one_change() {
    let (_, run) = completes(&[Misbehaviour::Overlapping]).await;
    assert_eq!(run.counts.changes, 47);
}

#[tokio::test]
async fn tokens_are_encoded_unless_the_repository_does_not_decode_them() {
    completes(&[Misbehaviour::SpacedTokens]).await;
    let (fixture, _) = completes(&[Misbehaviour::UndecodedTokens]).await;
    assert_eq!(fixture.position().await["quirks"]["verbatim_tokens"], true);
}

#[tokio::test]
async fn prefix_is_sent_with_tokens_if_the_repository_needs_it() {
    let (fixture, _) = completes(&[Misbehaviour::TokensNeedPrefix]).await;
    assert_eq!(fixture.position().await["quirks"]["prefix_with_tokens"], true);
    let requests = fixture.repository.script().requests.clone();
    let refused = |request: &&BTreeMap<String, String>| {
        request.contains_key("resumptionToken") && !request.contains_key("metadataPrefix")
    };
    assert_eq!(requests.iter().filter(refused).count(), 1);
    // A repository that follows the protocol gets the token alone.
    let (fixture, _) = completes(&[]).await;
    assert!(
        fixture
            .repository
            .script()
            .requests
            .iter()
            .all(|request| { !request.contains_key("resumptionToken") || !request.contains_key("metadataPrefix") })
    );
}

#[tokio::test]
async fn repository_without_working_tokens_is_harvested_in_windows() {
    completes(&[Misbehaviour::NoTokens]).await;
}

#[tokio::test]
async fn list_that_cannot_be_divided_further_fails_with_the_times_and_the_likely_cause() {
    let fixture = HarvestFixture::start(0).await;
    for number in 0..12 {
        fixture.repository.put(&identifier(number), "Title", 0);
    }
    fixture.repository.misbehave(&[Misbehaviour::NoTokens]);
    let run = fixture.run().await;
    assert_eq!(run.state, RunState::Failed);
    let reason = run.reason.unwrap();
    assert!(reason.as_str().contains("the list of the records was divided down to those "), "{reason:?}");
    assert!(reason.as_str().contains("if it refuses its own tokens, it may keep them for a session"), "{reason:?}");
}

#[tokio::test]
async fn redirections_without_an_end_name_the_address_and_the_cookies() {
    let server = Receiver::start(|_, _| {
        let headers = [("location", "/login?from=hush-hush"), ("set-cookie", "seen=hush-hush")];
        let headers = headers.map(|(name, value)| (name, value.to_owned()));
        Reply::Answer(302, headers.to_vec(), String::new())
    })
    .await;
    let mut fixture = HarvestFixture::start(0).await;
    fixture.settings = settings(&format!("http://{}/oai", server.address));
    let run = fixture.run().await;
    let expected = format!(
        "the repository redirects more than 5 times, at last to http://{}/login, with the cookies seen; it may want a login, \
         or a browser",
        server.address
    );
    assert_eq!(run.reason.unwrap().as_str(), expected);
}

#[tokio::test]
async fn list_that_is_refused_as_too_large_is_divided() {
    completes(&[Misbehaviour::Refused(20)]).await;
}

#[tokio::test]
async fn error_counts_before_the_status() {
    let (fixture, _) = completes(&[Misbehaviour::ErrorStatus, Misbehaviour::TokenToNoRecords]).await;
    // An empty list is no failure.
    fixture.repository.script().records.clear();
    assert_eq!(fixture.complete().await.counts.records, 0);
}

#[tokio::test]
async fn redirections_are_followed_and_remarked() {
    let (_, run) = completes(&[Misbehaviour::Redirects]).await;
    assert!(run.reason.unwrap().contains("has moved to http://127.0.0.1"));
}

#[tokio::test]
async fn dates_are_adapted_to_the_repository() {
    for (misbehaviour, form) in [(Misbehaviour::DaysOnly, "day"), (Misbehaviour::NoDates, "none")] {
        let (fixture, _) = completes(&[misbehaviour]).await;
        assert_eq!(fixture.position().await["quirks"]["dates"], form);
    }
    completes(&[Misbehaviour::IgnoredDates]).await;
}

#[tokio::test]
async fn datestamps_are_not_trusted() {
    completes(&[Misbehaviour::LateEarliest]).await;
    completes(&[Misbehaviour::OddDatestamps]).await;
}

#[tokio::test]
async fn empty_lists_have_two_forms() {
    let fixture = HarvestFixture::start(0).await;
    fixture.repository.misbehave(&[Misbehaviour::EmptyElements]);
    assert_eq!(fixture.complete().await.counts.records, 0);
    fixture.repository.misbehave(&[]);
    assert_eq!(fixture.complete().await.counts.records, 0);
    assert_ne!(fixture.position().await["from"], Value::Null);
}

#[tokio::test]
async fn deleted_records_may_have_metadata() {
    completes(&[Misbehaviour::DeletedWithMetadata]).await;
}

#[tokio::test]
async fn broken_records_go_to_the_quarantine_alone() {
    let fixture = HarvestFixture::start(47).await;
    fixture.repository.misbehave(&[Misbehaviour::BrokenRecords]);
    let run = fixture.complete().await;
    assert_eq!((run.counts.records, run.counts.changes, run.counts.quarantined), (47, 42, 5));
    let mut expected = fixture.expected();
    expected.retain(|object, _| !object.ends_with('6'));
    assert_eq!(fixture.registered().await, expected);
    assert_eq!(fixture.journal.journal.quarantined_before(None, None, 10).await.unwrap().len(), 5);
}

#[tokio::test]
async fn identifiers_are_compared_byte_by_byte() {
    let fixture = HarvestFixture::start(0).await;
    for identifier in ["oai:H:1", "oai:h:1", "oai:h: 1", "oai:h:1/a?b=c&d#e", "oai:localhost:1", "é"] {
        fixture.repository.put(identifier, identifier, 0);
    }
    assert_eq!(fixture.complete().await.counts.changes, 6);
    fixture.assert_equal().await;
}

#[tokio::test]
async fn dates_in_the_future_do_not_move_the_mark() {
    let fixture = HarvestFixture::start(3).await;
    fixture.repository.put(&identifier(9), "Future", 10_000_000_000);
    fixture.complete().await;
    fixture.repository.put_now(&identifier(1), "Changed");
    fixture.complete().await;
    fixture.assert_equal().await;
}
