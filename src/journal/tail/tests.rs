//! Pages, bounds and encodings of the newest changes in memory.

use super::{Arc, Bytes, Filter, RecordedChange, Seq, StoredChange, Tail, TailBounds};

fn tail(changes: usize, numbers: std::ops::RangeInclusive<u64>) -> Tail {
    let tail = Tail::new(TailBounds { changes, bytes: usize::MAX });
    tail.extend(numbers.map(|n| recorded(n, 0)));
    tail
}

fn recorded(number: u64, size: usize) -> Arc<RecordedChange> {
    Arc::new(RecordedChange::from_json(Seq(number), Bytes::from(vec![b' '; size])))
}

fn numbers(changes: Option<Vec<Arc<RecordedChange>>>) -> Option<Vec<u64>> {
    changes.map(|changes| changes.iter().map(|change| change.seq().0).collect())
}

#[test]
fn pages_are_returned_only_if_they_are_complete() {
    let tail = tail(5, 1..=9);
    assert_eq!(numbers(tail.after(Seq(4), 3, usize::MAX)), Some(vec![5, 6, 7]));
    assert_eq!(numbers(tail.after(Seq(9), 3, usize::MAX)), Some(vec![]));
    assert_eq!(numbers(tail.after(Seq(10), 3, usize::MAX)), None);
    assert_eq!(numbers(tail.after(Seq(u64::MAX), 3, usize::MAX)), None);
    assert_eq!(numbers(tail.after(Seq(3), 3, usize::MAX)), None);
    assert_eq!(numbers(tail.before(Seq(9), 2, usize::MAX)), Some(vec![8, 7]));
    assert_eq!(numbers(tail.before(Seq(u64::MAX), 9, usize::MAX)), None);
    assert_eq!(numbers(tail.before(Seq(3), 1, usize::MAX)), None);
}

#[test]
fn size_is_bounded_but_the_newest_change_stays() {
    let tail = Tail::new(TailBounds { changes: 5, bytes: 100 });
    let content = |tail: &Tail| {
        numbers(
            tail.before(Seq(u64::MAX), 9, usize::MAX)
                .or_else(|| (1..9).find_map(|n| tail.before(Seq(u64::MAX), 9 - n, usize::MAX))),
        )
    };
    for (number, size, expected) in [(1, 60, vec![1]), (2, 40, vec![2, 1]), (3, 1, vec![3, 2]), (4, 59, vec![4, 3, 2])]
    {
        tail.extend([recorded(number, size)]);
        assert_eq!(content(&tail), Some(expected));
    }
    let evicted = tail.extend([recorded(5, 1000)]);
    assert_eq!(numbers(Some(evicted)), Some(vec![2, 3, 4]));
    assert_eq!(content(&tail), Some(vec![5]));
    tail.extend([recorded(6, 100)]);
    assert_eq!(content(&tail), Some(vec![6]));
    tail.drop_before(Seq(7));
    tail.extend([recorded(7, 99), recorded(8, 1)]);
    assert_eq!(content(&tail), Some(vec![8, 7]), "the dropped change no longer counts");
    assert_eq!(numbers(tail.after(Seq(6), 9, 99)), Some(vec![7]));
    assert_eq!(numbers(tail.after(Seq(6), 9, 100)), Some(vec![7, 8]));
}

#[test]
fn a_tail_with_the_whole_journal_has_complete_pages() {
    let tail = tail(5, 1..=3);
    assert_eq!(numbers(tail.before(Seq(u64::MAX), 9, usize::MAX)), Some(vec![3, 2, 1]));
    assert_eq!(numbers(tail.after(Seq(0), 9, usize::MAX)), Some(vec![1, 2, 3]));
}

#[test]
fn a_gap_in_the_numbering_drops_all_earlier_changes() {
    let tail = tail(5, 1..=3);
    tail.extend([7, 8].map(|n| recorded(n, 0)));
    assert_eq!(numbers(tail.after(Seq(6), 9, usize::MAX)), Some(vec![7, 8]));
    assert_eq!(numbers(tail.after(Seq(3), 9, usize::MAX)), None);
    assert_eq!(numbers(tail.before(Seq(9), 3, usize::MAX)), None);
}

#[test]
fn identifier_is_the_same_before_and_after_parsing() {
    let json = Bytes::from_static(include_bytes!("../../../fixtures/change.json"));
    let recorded = Arc::new(RecordedChange::from_json(Seq(1), json));
    let before = recorded.id().unwrap();
    let all = recorded.filtered(&Filter::default()).unwrap().unwrap();
    assert!(Arc::ptr_eq(&all, &recorded) && recorded.change.get().is_none(), "the change was not parsed");
    assert_eq!(before, recorded.change().unwrap().modification.id);
    assert_eq!(before, recorded.id().unwrap());
    assert!(RecordedChange::from_json(Seq(1), Bytes::from_static(b"{")).id().is_err());
}

#[test]
fn removed_changes_are_dropped() {
    let tail = tail(5, 1..=5);
    tail.drop_before(Seq(4));
    assert_eq!(numbers(tail.after(Seq(3), 9, usize::MAX)), Some(vec![4, 5]));
    assert_eq!(numbers(tail.after(Seq(2), 9, usize::MAX)), None);
    assert_eq!(numbers(tail.before(Seq(9), 2, usize::MAX)), Some(vec![5, 4]));
    assert_eq!(numbers(tail.before(Seq(9), 3, usize::MAX)), None);
}

#[test]
fn an_encoding_is_created_once() {
    let json = include_str!("../../../fixtures/change.json");
    let recorded =
        RecordedChange::from(StoredChange { seq: Seq(1), json: Bytes::from_static(json.as_bytes()), visibility: None });
    let first = recorded.encoded("x", |_| b"one".to_vec()).unwrap();
    assert_eq!(recorded.encoded("x", |_| b"two".to_vec()).unwrap(), first);
    assert_eq!(recorded.framed("f", "x", |_| b"three".to_vec()).unwrap(), "three");
    assert_eq!(recorded.framed("f", "x", |_| b"four".to_vec()).unwrap(), "three");
    assert_eq!(recorded.framed("f", "y", |_| b"five".to_vec()).unwrap(), "five");
}
