//! Thousands of feeds in one process.

use std::{fmt::Write as _, fs, time::Instant};

use crate::support::{
    gateway::{Gateway, PATIENCE},
    journal_fixture::configuration,
    run_length::lengthened,
    scripted_feed::{FeedFixture, item, rss},
};

/// Number of feeds. A gateway has been run with 10 000, which differ from these in their number alone.
const FEEDS: u32 = 1000;

/// Maximum memory of a feed, in KiB: 25, and as much again for the memory that the allocator keeps after the first runs.
/// With clients of their own, feeds need 95 each.
const MOST_KIB: u64 = 75;

/// Harvests this number of feeds, and waits until the gateway needs at most `most` KiB of memory: the runs themselves need
/// more for a moment. Returns the memory in KiB.
async fn memory_with(feeds: u32, fixture: &FeedFixture, most: u64) -> u64 {
    let mut lines = String::new();
    for number in 0..feeds {
        let url = format!("{}/{number}.xml", fixture.url());
        let _ = writeln!(lines, "[sources.f{number}]\ntransport = \"feed\"\ndialect = \"feed\"\nurl = \"{url}\"");
    }
    let folder = tempfile::tempdir().unwrap();
    let config = configuration(folder.path(), &lines);
    let gateway = Gateway::start_with(folder.path(), &["--config", &config]);
    let expected = u64::from(feeds) * 2;
    let (mut head, mut grew) = (0, Instant::now());
    while head < expected {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        let newest = gateway.head().await;
        if newest > head {
            (head, grew) = (newest, Instant::now());
        }
        assert!(grew.elapsed() < PATIENCE, "{head} of {expected} entries");
    }
    assert_eq!(head, expected);
    let began = Instant::now();
    let memory = || -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", gateway.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    };
    while memory() > most {
        assert!(began.elapsed() < PATIENCE, "{} KiB with {feeds} feeds, more than {most}", memory());
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let memory = memory();
    assert!(gateway.stop().success());
    memory
}

#[tokio::test]
async fn a_feed_needs_little_memory() {
    let fixture = FeedFixture::start("").await;
    let feeds = lengthened(FEEDS);
    for number in 0..feeds {
        fixture.put_at(&format!("/{number}.xml"), &rss(&[item(2 * number, "One"), item(2 * number + 1, "Two")]));
    }
    let few = memory_with(10, &fixture, u64::MAX).await;
    memory_with(feeds, &fixture, few + u64::from(feeds) * MOST_KIB).await;
}
