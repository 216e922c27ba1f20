//! Tests of engines that wait for changes: which of them a change wakes, and that none of them misses one.

use std::sync::Arc;

use futures_util::FutureExt;
use serde_json::json;

use super::{EngineFixture, Exit, Receiver};
use crate::{
    delivery::{change_notices::Notice, engine::select},
    format::format,
    model::{Filter, Seq},
};

const SOURCES: [&str; 3] = ["s", "t", "u"];

fn filter(of_sources: &[&str]) -> Filter {
    serde_json::from_value(json!({ "sources": of_sources })).unwrap()
}

/// Otherwise, each engine would look at each change alone.
#[tokio::test]
async fn only_engines_that_deliver_a_change_are_woken_by_it() {
    let fixture = EngineFixture::new().await;
    let (own, other) = (Arc::new(filter(&["s"])), Arc::new(filter(&["other"])));
    let json = format("json").unwrap();
    let wait = |filter: &Arc<Filter>| fixture.notices.wait(fixture.journal.head(), Arc::clone(filter), json);
    let others: Vec<_> = (0..5000).map(|_| wait(&other)).collect();
    let concerned = wait(&own);
    fixture.append("t", 1..=2).await;
    fixture.append("s", 3..=3).await;
    assert_eq!(concerned.notice().await.unwrap(), Notice { through: Seq(2), has_changes: true });
    // The others learn of it one after the other, which takes five seconds.
    let told: Vec<_> = others.into_iter().filter_map(|wait| wait.notice().now_or_never()).map(Result::unwrap).collect();
    assert!(told.len() < 5000 && told.iter().all(|notice| !notice.has_changes), "{}", told.len());
}

/// A change can be appended between the last look of an engine at the journal and its wait.
#[tokio::test(flavor = "multi_thread")]
async fn engines_that_wait_deliver_each_change_that_their_filters_select() {
    let mut random = fastrand::Rng::with_seed(7);
    for history in 0..20 {
        let mut fixture = EngineFixture::new().await;
        let engines: Vec<_> = (0..6)
            .map(|_| {
                let sources: Vec<_> = SOURCES.into_iter().filter(|_| random.bool()).collect();
                fixture.filter = filter(&sources);
                let receiver = Receiver::default();
                (fixture.filter.clone(), fixture.run(&receiver, 0), receiver)
            })
            .collect();
        let mut last = 0;
        for _ in 0..60 {
            let changes = random.u64(1..4);
            fixture.append(SOURCES[random.usize(..SOURCES.len())], last + 1..=last + changes).await;
            last += changes;
            if random.u8(..4) == 0 {
                tokio::task::yield_now().await;
            }
        }
        let changes = fixture.journal.after(Seq::ZERO, 1000).await.unwrap();
        assert_eq!(changes.len() as u64, last);
        for (filter, running, receiver) in engines {
            running.until_at(last).await;
            let is_selected = |change: &_| select(change, &filter, format("json").unwrap()).unwrap().is_some();
            let selected: Vec<_> =
                changes.iter().filter(|change| is_selected(change)).map(|change| change.seq().0).collect();
            assert_eq!(receiver.accepted(), selected, "history {history}: {filter:?}");
            assert!(matches!(running.stop().await, Exit::Stopped));
        }
    }
}
