//! Measuring side by side: contenders take turns in one run, so that whatever else the machine does
//! befalls all of them, and the figure that counts is a ratio.

use std::time::{Duration, Instant};

/// One way to do the work, timed.
pub(crate) struct Contender<'a> {
    /// What it is, for the table.
    pub(crate) name: &'a str,
    /// Does the work once; gives how many units it did and how long that took.
    pub(crate) work: Box<dyn FnMut() -> (u64, Duration) + 'a>,
}

impl<'a> Contender<'a> {
    /// Work that is timed as a whole, repeated until it has taken long enough to be measured.
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

    /// Work that times itself.
    pub(crate) fn timed(name: &'a str, work: impl FnMut() -> (u64, Duration) + 'a) -> Self {
        Self { name, work: Box::new(work) }
    }
}

/// Lets the contenders take turns for so many rounds, and prints the median rate of each and its
/// ratio to the first, as a row of a Markdown table each.
pub(crate) fn compare(title: &str, unit: &str, rounds: usize, mut contenders: Vec<Contender<'_>>) -> Vec<f64> {
    let mut rates = vec![Vec::with_capacity(rounds); contenders.len()];
    for round in 0..=rounds {
        let mut turns: Vec<_> = contenders.iter_mut().zip(&mut rates).collect();
        // There and back: what one leaves to be done beside the next does not always befall the same one.
        if round % 2 == 1 {
            turns.reverse();
        }
        for (contender, rates) in turns {
            let (units, took) = (contender.work)();
            // The first round warms up.
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

fn median(rates: &mut [f64]) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}
