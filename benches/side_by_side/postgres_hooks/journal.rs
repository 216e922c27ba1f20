//! Appends to the journal itself over PostgreSQL, without HTTP: the time of a batch by its size. All batches of a
//! journal follow each other, so this time bounds the rate of one journal, however many nodes it has.

use std::time::Duration;

use tidings::journal::{
    Journal, JournalSettings,
    store::{PostgresUrl, postgres::PostgresStore},
};

use crate::{
    database::Database,
    journal::{append_batches, close, draft, runtime},
    measure::median,
    postgres::options,
};

const ROUNDS: usize = 5;

/// Numbers of senders, which have 64 drafts in flight each, and so many changes together in a batch.
const SENDERS: [usize; 4] = [1, 2, 4, 8];

/// Number of changes in a round.
const ROUND: u64 = 20_000;

/// Prints the rate and the time of a batch for each size.
pub(super) fn measure(database: &Database) {
    let store = PostgresStore::open(&PostgresUrl::parse(&database.create()).unwrap(), options()).unwrap();
    let (journal, threads) = Journal::start(store, JournalSettings::default()).unwrap();
    let runtime = runtime();
    let mut next = 0;
    let mut times = SENDERS.map(|_| Vec::new());
    let mut own = SENDERS.map(|_| Vec::new());
    for round in 0..=ROUNDS {
        for (which, senders) in SENDERS.into_iter().enumerate() {
            let drafts = (next..next + ROUND).map(draft).collect();
            next += ROUND;
            let before = database.processor_time();
            let (_, took) = append_batches(&runtime, &journal, drafts, senders);
            // The first round is the warm-up.
            if round > 0 {
                times[which].push(took.as_secs_f64());
                own[which].push((database.processor_time() - before).as_secs_f64());
            }
        }
    }
    println!(
        "\n| the journal over PostgreSQL, batches of | changes/s | a batch | processor of the database, a change |"
    );
    println!("| --- | ---: | ---: | ---: |");
    for ((senders, times), own) in SENDERS.into_iter().zip(&mut times).zip(&mut own) {
        let (took, batch, own) = (median(times), 64 * senders, median(own) * 1e6 / ROUND as f64);
        let each = Duration::from_secs_f64(took) * batch as u32 / ROUND as u32;
        println!("| {batch} | {:.0} | {:.1} ms | {own:.1} µs |", ROUND as f64 / took, each.as_secs_f64() * 1e3);
    }
    close(journal, threads);
}
