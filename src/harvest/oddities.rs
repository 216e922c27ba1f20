//! Oddities of the records of a run, which its remarks count.

/// Number of characters of an identifier that a remark shows.
const SHOWN_CHARS: usize = 200;

/// Oddities of records. They are counted in memory, so those from before a restart of the gateway are not among them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Oddities {
    /// Records that do not count, because a newer one has their identifier.
    pub(super) doubles: Tally,
    /// Records that are listed in a set, and say that they are in other sets.
    pub(super) foreign: Tally,
    /// Records that change in each run without a new datestamp.
    pub(super) noisy: Tally,
}

/// Number of records of one kind, with the identifier of the first one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    number: u64,
    first: String,
}

impl Tally {
    /// Counts so many records with this identifier.
    pub(super) fn count(&mut self, number: u64, identifier: &str) {
        if self.number == 0 && number > 0 {
            self.first = identifier.chars().take(SHOWN_CHARS).collect();
        }
        self.number += number;
    }

    fn add(&mut self, other: &Self) {
        self.count(other.number, &other.first);
    }
}

impl Oddities {
    /// Adds those of another part of the run.
    pub(super) fn add(&mut self, other: &Self) {
        self.doubles.add(&other.doubles);
        self.foreign.add(&other.foreign);
        self.noisy.add(&other.noisy);
    }

    /// Returns a remark for each kind that the run has found.
    pub(super) fn remarks(&self) -> Vec<String> {
        let remark = |tally: &Tally, text: &dyn Fn(u64, &str) -> String| {
            (tally.number > 0).then(|| text(tally.number, &tally.first))
        };
        let remarks = [
            remark(&self.doubles, &|number, first| {
                format!(
                    "{number} records have the same identifier as another one, such as {first}; of such records the newest \
                     counts"
                )
            }),
            remark(&self.foreign, &|number, first| {
                format!(
                    "{number} records say that they are in none of the sets, such as {first}; they count, because the \
                     repository lists them there"
                )
            }),
            remark(&self.noisy, &|number, first| {
                format!(
                    "{number} records change in each run without a new datestamp, such as {first}; a change of such a record \
                     counts once a day, or when it has stayed the same"
                )
            }),
        ];
        remarks.into_iter().flatten().collect()
    }
}
