//! Side-by-side measurement: contenders take turns in one run, so that other load on the machine affects all of them.
//! The relevant result is the ratio of their rates.

use std::time::{Duration, Instant};

/// One implementation of the measured work.
pub(crate) struct Contender<'a> {
    /// Name in the table.
    pub(crate) name: &'a str,
    /// Does the work once and returns the number of units and the elapsed time.
    pub(crate) work: Box<dyn FnMut() -> (u64, Duration) + 'a>,
}

impl<'a> Contender<'a> {
    /// Creates a contender whose work is repeated until it has taken at least 200 ms.
    pub(crate) fn repeated(name: &'a str, mut once: impl FnMut() + 'a) -> Self {
        let work = move || {
            let began = Instant::now();
            let mut units = 0;
            while began.elapsed() < Duration::from_millis(200) {
                (0..64).for_each(|_| once());
                units += 64;
            }
            (units, began.elapsed())
        };
        Self { name, work: Box::new(work) }
    }

    /// Creates a contender whose work measures its own time.
    pub(crate) fn timed(name: &'a str, work: impl FnMut() -> (u64, Duration) + 'a) -> Self {
        Self { name, work: Box::new(work) }
    }
}

/// Runs the contenders in turns for `rounds` rounds after a warm-up round, and prints a Markdown table: the median
/// rate of each and its ratio to the first.
pub(crate) fn compare(title: &str, unit: &str, rounds: usize, mut contenders: Vec<Contender<'_>>) -> Vec<f64> {
    let mut rates = vec![Vec::with_capacity(rounds); contenders.len()];
    for round in 0..=rounds {
        let mut turns: Vec<_> = contenders.iter_mut().zip(&mut rates).collect();
        // Every other round runs in reverse order, so that background work of one contender does not always slow the
        // same next one.
        if round % 2 == 1 {
            turns.reverse();
        }
        for (contender, rates) in turns {
            let (units, took) = (contender.work)();
            // The first round is the warm-up.
            if round > 0 {
                rates.push(units as f64 / took.as_secs_f64());
            }
        }
    }
    let medians: Vec<f64> = rates.iter_mut().map(|rates| median(rates)).collect();
    println!("\n| {title} | {unit}/s | of the first |\n| --- | ---: | ---: |");
    for (contender, median) in contenders.iter().zip(&medians) {
        println!("| {} | {median:.0} | {:.2} |", contender.name, median / medians[0]);
    }
    medians
}

pub(crate) fn median(rates: &mut [f64]) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}
