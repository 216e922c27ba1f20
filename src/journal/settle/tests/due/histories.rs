//! Random histories of announcements.

use proptest::{collection::vec, option, prelude::*};

use super::{
    super::{at, item, uri},
    Life, present, set_state,
};
use crate::model::{DraftChange, ItemChange, State, VisibilityDates};

/// An event of a source that reports states, or lists what is there.
#[derive(Clone, Debug)]
enum Event {
    State { is_public: bool, dates: VisibilityDates },
    Present(VisibilityDates),
    Update,
    Delete,
}

fn any_dates() -> impl Strategy<Value = VisibilityDates> {
    (option::of(0..40_i64), option::of(0..40_i64))
        .prop_map(|(from, until)| VisibilityDates::new(from.map(at), until.map(at)).unwrap_or_default())
}

fn history() -> impl Strategy<Value = Vec<(Event, i64, bool)>> {
    let stating = prop_oneof![
        3 => (any::<bool>(), any_dates()).prop_map(|(is_public, dates)| Event::State { is_public, dates }),
        1 => Just(Event::Update),
        1 => Just(Event::Delete),
    ];
    let listing = prop_oneof![4 => any_dates().prop_map(Event::Present), 1 => Just(Event::Delete)];
    // Each with the time until the next one, and whether the changes that come due are appended before it.
    let steps = |event| vec((event, 1..8_i64, any::<bool>()), 1..12);
    prop_oneof![steps(stating.boxed()), steps(listing.boxed())]
}

/// What the last statement says about the visibility.
#[derive(Clone, Copy, Default)]
struct Statement {
    is_public: bool,
    dates: VisibilityDates,
}

impl Statement {
    fn is_visible(self, now: i64) -> bool {
        let has_begun = self.dates.from().map_or(self.is_public, |from| from <= at(now));
        has_begun && self.dates.until().is_none_or(|until| at(now) < until)
    }
}

proptest! {
    #[test]
    fn registry_shows_what_the_last_statement_says(history in history()) {
        let (mut life, mut statement) = (Life::new(), Statement::default());
        for (event, wait, appends) in history {
            let now = life.now;
            match event {
                Event::State { is_public, dates } => {
                    life.event(set_state(if is_public { State::ACTIVE } else { State::INACTIVE }, dates));
                    // A past begin says nothing, and a hidden item has no end.
                    let from = dates.from().filter(|from| *from > at(now));
                    let dates = VisibilityDates::new(from, dates.until()).unwrap();
                    statement = Statement { is_public, dates };
                }
                Event::Present(dates) => {
                    life.event(present(dates));
                    statement = Statement { is_public: true, dates };
                }
                Event::Update => {
                    let update = ItemChange::Update { content: None, before: None, after: None };
                    let is_there = life.fixture.registered.is_live(&uri("a"));
                    if is_there {
                        life.event(item("a", DraftChange::Reported(update)));
                    }
                }
                Event::Delete => {
                    life.event(item("a", DraftChange::Absent));
                    statement = Statement::default();
                }
            }
            life.now += wait;
            if appends {
                life.run_due();
                prop_assert_eq!(life.run_due(), 0);
                prop_assert_eq!(life.is_visible(), statement.is_visible(life.now));
            }
        }
        life.now = 100;
        life.run_due();
        prop_assert_eq!(life.is_visible(), statement.is_visible(100));
        prop_assert!(life.schedule().dates.is_empty());
        life.check_replay();
    }
}
