//! Driver of the worlds: random histories from a seed, kills of the gateway between and during the steps, and the judge at
//! the end.

use std::{
    cell::Cell,
    fmt::Debug,
    str::FromStr,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use proptest::{
    prelude::*,
    test_runner::{RngAlgorithm, TestRng, TestRunner},
};

use crate::worlds::{World, audits, judge, rig::Rig};

/// Time for each world in a normal test run.
const SHORT: Duration = Duration::from_secs(5);

/// Number of histories for each seed.
const HISTORIES: u32 = 4;

/// Greatest number of steps of a history.
const STEPS: usize = 25;

/// Greatest number of steps of which the gateway hears nothing, before an audit.
const UNSEEN: usize = 6;

/// What happens to the gateway while the source lives a step.
#[derive(Clone, Copy, Debug)]
enum Disturbance {
    Nothing,
    /// The gateway is killed before the step.
    KillBefore,
    /// The gateway is killed this many microseconds after the next request has been sent.
    KillDuring(u16),
}

fn disturbance() -> impl Strategy<Value = Disturbance> {
    prop_oneof![
        20 => Just(Disturbance::Nothing),
        1 => Just(Disturbance::KillBefore),
        1 => (0..4000u16).prop_map(Disturbance::KillDuring),
    ]
}

/// Lives histories of a world until its time is over; panics with the seed and the shortest history that fails.
pub(crate) fn run<W: World>() {
    let hours: Option<f64> = number("TIDINGS_TEST_WORLDS");
    let seed: Option<u64> = number("SEED");
    let threads = number("TIDINGS_TEST_WORLDS_AT_ONCE").unwrap_or(1);
    let time = hours.map_or(SHORT, |hours| Duration::from_secs_f64(hours * 3600.0));
    let began = Instant::now();
    let first = seed.unwrap_or_else(|| if hours.is_some() { fastrand::u64(..) } else { 0 });
    let (next, lived, failure) = (AtomicU64::new(first), AtomicU64::new(0), OnceLock::new());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while failure.get().is_none() && began.elapsed() < time {
                    let seed_here = next.fetch_add(1, Ordering::Relaxed);
                    if seed.is_some_and(|seed| seed != seed_here) {
                        break;
                    }
                    match histories::<W>(seed_here) {
                        Ok(()) => report::<W>(&lived, began.elapsed()),
                        Err(wrong) => _ = failure.set(wrong),
                    }
                }
            });
        }
    });
    tell::<W>(lived.load(Ordering::Relaxed), began.elapsed());
    if let Some(failure) = failure.get() {
        panic!("the world {} fails with {failure}", W::NAME);
    }
}

fn number<T: FromStr<Err: Debug>>(variable: &str) -> Option<T> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap())
}

/// Counts the histories of a seed, and tells each full hundred.
fn report<W: World>(lived: &AtomicU64, time: Duration) {
    let before = lived.fetch_add(HISTORIES.into(), Ordering::Relaxed);
    let after = before + u64::from(HISTORIES);
    if before / 100 != after / 100 {
        tell::<W>(after, time);
    }
}

#[expect(clippy::print_stderr, reason = "tells how much a long run has tried")]
fn tell<W: World>(histories: u64, time: Duration) {
    eprintln!("{}: {histories} histories in {:.0?}", W::NAME, time);
}

/// Tells a failure before shorter histories are tried, which can take long.
#[expect(clippy::print_stderr, reason = "tells why a run takes longer than it should")]
fn tell_failure<W: World>(seed: u64, wrong: &str, lived: &impl Debug) {
    eprintln!("{}: SEED={seed} fails, and a shorter history is looked for: {wrong}\n{lived:?}", W::NAME);
}

/// Lives the histories of one seed; the error has the seed and the shortest history that fails.
fn histories<W: World>(seed: u64) -> Result<(), String> {
    let config = ProptestConfig {
        cases: HISTORIES,
        failure_persistence: None,
        max_shrink_iters: 200,
        ..ProptestConfig::default()
    };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let random = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let steps = prop::collection::vec((W::step(), disturbance()), 1..STEPS);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let has_failed = Cell::new(false);
    let result = TestRunner::new_with_rng(config, random).run(&(W::switches(), steps), |(switches, history)| {
        let outcome = runtime.block_on(live::<W>(switches.clone(), history.clone()));
        if let Err(wrong) = &outcome
            && !has_failed.replace(true)
        {
            tell_failure::<W>(seed, wrong, &(switches, history));
        }
        outcome.map_err(TestCaseError::fail)
    });
    result.map_err(|failure| format!("SEED={seed}: {failure}"))
}

/// Lives one history.
async fn live<W: World>(switches: W::Switches, history: Vec<(W::Step, Disturbance)>) -> Result<(), String>
where
    W::Step: Debug,
{
    let mut world = W::begin(switches).await;
    let mut rig = Rig::start(&world.settings()).await;
    let half = history.len() / 2;
    let unseen = history.iter().map(|(step, _)| step.clone()).take(UNSEEN).collect();
    for (number, (step, disturbance)) in history.into_iter().enumerate() {
        if number == half {
            // So that the judge sees the harvest of changes.
            rig.harvested_records().await;
        }
        match disturbance {
            Disturbance::Nothing => {}
            Disturbance::KillBefore => rig.kill(),
            Disturbance::KillDuring(microseconds) => {
                rig.kill_during_next_request(Duration::from_micros(microseconds.into()));
            }
        }
        world.live(step.clone(), &mut rig).await.map_err(|wrong| format!("{step:?}: {wrong}"))?;
    }
    world.fall_quiet(&mut rig).await?;
    judge::compare(&world.truth(), &mut rig).await?;
    audits::judge(&mut world, unseen, &mut rig).await
}
