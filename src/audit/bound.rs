//! Confidence bound of a sample.

/// Probability that the true share is below the bound.
const CONFIDENCE: f64 = 0.95;

/// Number of halvings of the interval: more than a float has digits.
const HALVINGS: u32 = 60;

/// Returns the share of differing objects, in percent, that the registry exceeds with a probability of at most 5 %, if
/// `differing` of `sampled` random objects differ: the upper bound of Clopper and Pearson. `None` without a sample.
pub(super) fn upper_bound_percent(sampled: u64, differing: u64) -> Option<f64> {
    if sampled == 0 {
        return None;
    }
    if differing >= sampled {
        return Some(100.0);
    }
    let (mut low, mut high) = (0.0_f64, 1.0_f64);
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        if probability_of_at_most(differing, sampled, middle) > 1.0 - CONFIDENCE { low = middle } else { high = middle }
    }
    Some(high * 100.0)
}

/// Returns the probability of at most `successes` in `trials` if each has the probability `share`, strictly between 0 and 1.
fn probability_of_at_most(successes: u64, trials: u64, share: f64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "numbers of objects are far below 2^52")]
    let float = |number: u64| number as f64;
    // Logarithms, because (1 - share)^trials would be 0 for large samples.
    let mut log_term = float(trials) * (-share).ln_1p();
    let mut sum = log_term.exp();
    for number in 1..=successes {
        log_term += (float(trials - number + 1) / float(number)).ln() + share.ln() - (-share).ln_1p();
        sum += log_term.exp();
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::upper_bound_percent;

    /// The expected values are from tables of the Clopper–Pearson interval; without differences it is the rule of three.
    #[test]
    fn bound_is_that_of_clopper_and_pearson() {
        for (sampled, differing, expected) in [
            (1000, 0, 0.299),
            (1000, 1, 0.474),
            (100, 0, 2.951),
            (100, 5, 10.225),
            (10, 5, 77.756),
            (1_000_000, 0, 0.0003),
        ] {
            let bound = upper_bound_percent(sampled, differing).unwrap();
            assert!((bound - expected).abs() < 0.001, "{differing} of {sampled}: {bound}, not {expected}");
        }
        assert_eq!(upper_bound_percent(0, 0), None);
        assert_eq!(upper_bound_percent(3, 3), Some(100.0));
    }
}
