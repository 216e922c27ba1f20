//! Driver of the worlds: random histories from a seed, kills of the gateway between and during the steps, and the judge at
//! the end.

use std::{
    fmt::Debug,
    time::{Duration, Instant},
};

use proptest::{
    prelude::*,
    test_runner::{RngAlgorithm, TestRng, TestRunner},
};

use crate::worlds::{World, judge, rig::Rig};

/// Time for each world in a normal test run.
const SHORT: Duration = Duration::from_secs(5);

/// Number of histories for each seed.
const HISTORIES: u32 = 4;

/// Greatest number of steps of a history.
const STEPS: usize = 25;

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
    let hours = std::env::var("TIDINGS_TEST_WORLDS").ok().map(|text| text.parse::<f64>().unwrap());
    let seed = std::env::var("SEED").ok().map(|text| text.parse::<u64>().unwrap());
    let time = hours.map_or(SHORT, |hours| Duration::from_secs_f64(hours * 3600.0));
    let began = Instant::now();
    let first = seed.unwrap_or_else(|| if hours.is_some() { fastrand::u64(..) } else { 0 });
    let mut seeds = 0;
    while began.elapsed() < time {
        let seed = first.wrapping_add(seeds);
        histories::<W>(seed);
        seeds += 1;
        if std::env::var("SEED").is_ok() {
            break;
        }
    }
    report::<W>(seeds);
}

#[expect(clippy::print_stderr, reason = "tells how much a long run has tried")]
fn report<W: World>(seeds: u64) {
    eprintln!("{}: {} histories", W::NAME, seeds * u64::from(HISTORIES));
}

/// Lives the histories of one seed.
fn histories<W: World>(seed: u64) {
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
    let result = TestRunner::new_with_rng(config, random).run(&(W::switches(), steps), |(switches, history)| {
        runtime.block_on(live::<W>(switches, history)).map_err(TestCaseError::fail)
    });
    if let Err(failure) = result {
        panic!("the world {} fails with SEED={seed}: {failure}", W::NAME);
    }
}

/// Lives one history.
async fn live<W: World>(switches: W::Switches, history: Vec<(W::Step, Disturbance)>) -> Result<(), String>
where
    W::Step: Debug,
{
    let mut world = W::begin(switches).await;
    let mut rig = Rig::start(&world.settings()).await;
    for (step, disturbance) in history {
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
    judge::compare(&world.truth(), &mut rig).await
}
