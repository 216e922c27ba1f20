//! Tests of the division.

use fastrand::Rng;
use tokio_util::sync::CancellationToken;

use super::{
    ChangeSize, DivisionState, Loss, MAX_ITEMS, MILLIS_PER_DAY, OrderTime, Part, ProblemCode, SPAN, Seq, Timestamp,
    day_of, lists_of,
};
use crate::{
    journal::store::FILE_NAME,
    view::test_journal::{journal_of, small_draft},
};

/// A change: its number, its time of receipt and its items.
type Change = (Seq, Timestamp, usize);

fn divided(changes: &[Change], loss: Loss, time: OrderTime) -> DivisionState {
    let mut state = DivisionState { loss, time, ..DivisionState::default() };
    changes.iter().for_each(|(seq, received, items)| state.add_outline(*seq, *received, *items, 1000));
    state
}

/// Returns a history with pauses, bursts and large changes.
fn history(rng: &mut Rng, first: u64, count: u64) -> Vec<Change> {
    let mut millis = 1_764_000_000_000;
    let change = |number| {
        millis += match rng.u32(..2000) {
            0 => i64::from(rng.u32(..3)) * MILLIS_PER_DAY,
            1..100 => 5000,
            _ => 0,
        };
        let items = if rng.u32(..1000) == 0 { rng.usize(..MAX_ITEMS * 2) } else { rng.usize(1..4) };
        (Seq(number), Timestamp::from_millis(millis).unwrap(), items)
    };
    (first..first + count).map(change).collect()
}

fn outline(parts: &[Part]) -> Vec<(Seq, Seq, OrderTime)> {
    parts.iter().map(|part| (part.first, part.last, part.begin)).collect()
}

#[test]
fn lists_have_all_changes_once_and_their_intervals_meet() {
    let mut rng = Rng::with_seed(5);
    // The times of the second one are later than the clock, as after the second loss of a day.
    let future = Timestamp::from_millis(1_764_000_000_000 + MILLIS_PER_DAY).unwrap();
    for loss in [Loss::default(), Loss::new(Seq(176_408_640_000_000), future)] {
        let changes = history(&mut rng, loss.after.0 + 1, 40_000);
        let mut state = divided(&changes, loss, OrderTime::default());
        let parts = state.complete_parts(loss.after.next());
        let lists = lists_of(&parts, loss);
        assert!(lists.len() > 8, "{}", lists.len());
        assert_eq!((lists[0].first, lists.last().unwrap().last), (loss.after.next(), changes.last().unwrap().0));
        for (list, next) in lists.iter().zip(&lists[1..]) {
            assert_eq!(list.last.next(), next.first);
            assert_eq!(list.until.unwrap().millis() + 1, next.from.millis());
            assert!(list.from <= list.until.unwrap());
        }
        assert_eq!(lists.last().unwrap().until, None);
        assert_eq!(lists[0].from, loss.begin());
        let mut at = 0;
        for (part, list) in parts.iter().zip(&lists) {
            let own = &changes[at..at + usize::try_from(list.last.0 - list.first.0 + 1).unwrap()];
            at += own.len();
            let items: usize = own.iter().map(|(_, _, items)| items).sum();
            assert!(items <= MAX_ITEMS || own.len() == 1, "{list:?}");
            assert_eq!((list.first.0 - 1) / SPAN, (list.last.0 - 1) / SPAN, "{list:?}");
            let day = |change: &Change| change.1.millis().div_euclid(MILLIS_PER_DAY);
            assert_eq!(day(&own[0]), day(own.last().unwrap()));
            assert_eq!(part.items, items);
        }
    }
}

/// A node that has read the journal for long has the same lists as one that has just started.
#[test]
fn division_depends_on_the_journal_alone() {
    let mut rng = Rng::with_seed(6);
    let changes = history(&mut rng, 1, 30_000);
    let mut before = Vec::new();
    for read in [9_999, 10_000, 10_001, 25_000, 30_000] {
        let whole = divided(&changes[..read], Loss::default(), OrderTime::default()).complete_parts(Seq(1));
        // Lists that were closed do not change.
        let closed = before.len().saturating_sub(1);
        assert_eq!(outline(&whole)[..closed], before[..closed]);
        before = outline(&whole);
    }
    let mut times = vec![OrderTime::default()];
    for (_, received, _) in &changes {
        times.push(times.last().unwrap().following(*received));
    }
    let mut old = divided(&changes, Loss::default(), OrderTime::default());
    for removed in [1, 500, 4_000, 9_999, 10_000, 10_001, 17_000, 20_000, 29_990] {
        let oldest = Seq(u64::try_from(removed).unwrap() + 1);
        let kept = old.complete_parts(oldest);
        let new = divided(&changes[removed..], Loss::default(), times[removed]).complete_parts(oldest);
        assert_eq!(outline(&kept), outline(&new), "{removed}");
        assert!(before.ends_with(&outline(&kept)));
    }
}

/// Few changes are kept, and each has many items.
#[test]
fn rest_of_an_incomplete_list_is_divided_by_its_size() {
    let received = Timestamp::from_millis(1_764_000_000_000).unwrap();
    let changes: Vec<Change> = (1..=9_000).map(|number| (Seq(number), received, 10)).collect();
    let mut state = divided(&changes, Loss::default(), OrderTime::default());
    let lists = state.lists(Seq(2));
    assert!(lists.begin_moves);
    let ranges: Vec<_> = lists.lists.iter().map(|list| (list.first.0, list.last.0)).collect();
    assert_eq!(ranges, [(2, 4001), (4002, 8001), (8002, 9000)]);
    // A list that was named before the next removal is gone, and not unknown.
    let moved = state.lists(Seq(3));
    assert_eq!(moved.lists[0].first, Seq(3));
    assert_eq!(moved.find(Seq(4002)).unwrap_err().code(), ProblemCode::Gone);
    assert_eq!(moved.find(Seq(9001)).unwrap_err().code(), ProblemCode::NotFound);
    // A node that begins to read there has the same lists.
    let mut time = OrderTime::default();
    changes[..2].iter().for_each(|(_, received, _)| time = time.following(*received));
    let new = divided(&changes[2..], Loss::default(), time).lists(Seq(3));
    assert_eq!(new.lists, moved.lists);
}

/// The order time of a damaged change, which has no other, can be on the next day in a burst before midnight.
#[test]
fn lists_after_an_incomplete_one_follow_each_other() {
    let midnight = day_of(1_764_000_000_000) * MILLIS_PER_DAY + MILLIS_PER_DAY;
    let evening = Timestamp::from_millis(midnight - 1).unwrap();
    let mut state = divided(&[(Seq(1), evening, 1), (Seq(2), evening, 1)], Loss::default(), OrderTime::default());
    let damaged = ChangeSize { seq: Seq(3), time: state.time.following(evening), items: 1, bytes: 0 };
    state.add_size(damaged, day_of(damaged.time.0));
    state.add_outline(Seq(4), evening, 1, 1000);
    state.add_outline(Seq(5), Timestamp::from_millis(midnight + 500).unwrap(), 1, 1000);
    let lists = state.lists(Seq(2)).lists;
    let ranges: Vec<_> = lists.iter().map(|list| (list.first.0, list.last.0)).collect();
    assert_eq!(ranges, [(3, 3), (4, 4), (5, 5)]);
    assert!(lists.iter().zip(&lists[1..]).all(|(list, next)| list.until.unwrap().millis() + 1 == next.from.millis()));
}

#[test]
fn empty_journal_has_one_list_from_the_loss_on() {
    let loss = Loss::new(Seq(1000), Timestamp::from_millis(1_764_000_000_000).unwrap());
    for (loss, first) in [(Loss::default(), 1), (loss, 1001)] {
        let lists = divided(&[], loss, OrderTime(7)).lists(Seq(1));
        assert_eq!(
            lists.lists.iter().map(|list| (list.first, list.from, list.until)).collect::<Vec<_>>(),
            [(Seq(first), loss.begin(), None)]
        );
        assert_eq!((lists.head.next(), lists.at), (Seq(first), loss.begin()));
    }
}

/// A journal that cannot be read leaves the state as it was, so that the next request begins at the right place.
#[tokio::test(flavor = "multi_thread")]
async fn failed_begin_leaves_the_division_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let journal = journal_of(small_draft(), 9, 1, folder.path()).await;
    let file = folder.path().join(FILE_NAME);
    let rename = move |sql: &str| rusqlite::Connection::open(&file).unwrap().execute_batch(sql).unwrap();
    let other = uuid::Uuid::from_u128(7);
    let mut state = DivisionState { journal: other, last: Seq(3), ..DivisionState::default() };
    rename("ALTER TABLE order_times RENAME TO away");
    let ended = CancellationToken::new();
    tokio::task::spawn_blocking(move || {
        state.extend(&journal, &ended).unwrap_err();
        assert_eq!((state.journal, state.last), (other, Seq(3)));
        rename("ALTER TABLE away RENAME TO order_times");
        state.extend(&journal, &ended).unwrap();
        let lists = state.lists(journal.first());
        assert_eq!(lists.lists.iter().map(|list| (list.first, list.last)).collect::<Vec<_>>(), [(Seq(1), Seq(9))]);
    })
    .await
    .unwrap();
}
