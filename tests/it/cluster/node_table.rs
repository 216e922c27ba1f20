//! Nodes and duties in the tables of a database.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use tidings::{
    journal::{
        nodes::{DefinitionRevisions, DutyName, ExpiredNode, NewNode, NodeTable, Registration, Survey},
        store::{PrefetchKeys, Store, StoreError, postgres::PostgresStore},
    },
    model::{NodeName, Seq},
};
use uuid::Uuid;

use crate::support::postgres::{self, options, query};

const LEASE: Duration = Duration::from_secs(3);

/// Tables of one node, and the number of their notifications.
pub(super) struct Tables {
    pub(super) store: PostgresStore,
    pub(super) table: Box<dyn NodeTable>,
    notifications: Arc<AtomicUsize>,
}

impl Tables {
    pub(super) fn open(folder: &Path) -> Self {
        let store = postgres::open(folder, options());
        let notifications = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&notifications);
        let wake = Arc::new(move || {
            counted.fetch_add(1, Ordering::SeqCst);
        });
        let table = store.node_table(LEASE, wake).unwrap().unwrap();
        Self { store, table, notifications }
    }

    /// Registers a node and returns its run.
    pub(super) fn register(&mut self, name: &str) -> Uuid {
        let node = node(name);
        assert_eq!(self.table.register(&node).unwrap(), Registration::Registered);
        node.instance
    }

    fn until_notified(&self, since: usize) {
        until("a notification", || self.notifications.load(Ordering::SeqCst) > since);
    }
}

fn node(name: &str) -> NewNode {
    NewNode {
        instance: Uuid::new_v4(),
        name: NodeName::parse(name).unwrap(),
        address: Some("http://a.example".to_owned()),
        offers: vec![DutyName::retention()],
        head: Seq(3),
    }
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(20), "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn duties(names: &[&str]) -> Vec<DutyName> {
    names.iter().map(|name| DutyName::stored(name)).collect()
}

/// Removes a node as one whose lease has ended.
fn try_remove(table: &mut dyn NodeTable, name: &str) -> Result<(), StoreError> {
    let nodes = table.survey()?.nodes;
    let node = nodes.iter().find(|node| node.name.as_str() == name).unwrap();
    table.remove(&[ExpiredNode { instance: node.instance, renewed: node.renewed }])
}

/// Removes a node as one whose lease has ended.
pub(super) fn remove(table: &mut dyn NodeTable, name: &str) {
    try_remove(table, name).unwrap();
}

#[test]
fn nodes_register_renew_and_leave() {
    let folder = tempfile::tempdir().unwrap();
    let (mut one, mut two) = (Tables::open(folder.path()), Tables::open(folder.path()));
    let a = one.register("a");
    let Survey { nodes, head, revisions } = two.table.survey().unwrap();
    assert_eq!((nodes.len(), head, revisions), (1, Seq(0), DefinitionRevisions::default()));
    assert_eq!((nodes[0].instance, nodes[0].name.as_str(), nodes[0].head), (a, "a", Seq(3)));
    assert_eq!(
        (nodes[0].address.as_deref(), &nodes[0].offers),
        (Some("http://a.example"), &vec![DutyName::retention()])
    );

    // A node has its name; one that was removed does not.
    let namesake = two.table.register(&node("a")).unwrap();
    assert_eq!(namesake, Registration::NameTaken { by: a, renewed: nodes[0].renewed });
    assert!(nodes[0].lease == LEASE && nodes[0].age < LEASE);
    let since = two.notifications.load(Ordering::SeqCst);
    assert!(one.table.renew(a, Seq(7), true).unwrap());
    two.until_notified(since);
    let renewed = &two.table.survey().unwrap().nodes[0];
    assert!(renewed.head == Seq(7) && renewed.is_leaving && renewed.renewed > nodes[0].renewed);
    two.table.remove(&[ExpiredNode { instance: a, renewed: nodes[0].renewed }]).unwrap();
    assert_eq!(two.table.survey().unwrap().nodes.len(), 1, "a node that has renewed its lease stays");
    remove(&mut *two.table, "a");
    assert!(!one.table.renew(a, Seq(8), false).unwrap());
    assert!(two.table.survey().unwrap().nodes.is_empty());
    let b = two.register("a");

    let since = one.notifications.load(Ordering::SeqCst);
    two.table.leave(b).unwrap();
    one.until_notified(since);
    assert_eq!(query(folder.path(), "SELECT count(*) FROM nodes"), "0");
}

#[test]
fn a_duty_has_one_holder_until_it_is_released_or_the_lease_ends() {
    let folder = tempfile::tempdir().unwrap();
    let (mut one, mut two) = (Tables::open(folder.path()), Tables::open(folder.path()));
    let (a, b) = (one.register("a"), two.register("b"));
    let taken = one.table.take(a, &duties(&["x", "y"])).unwrap();
    assert_eq!(taken.len(), 2);
    assert_eq!(two.table.take(b, &duties(&["x", "y", "z"])).unwrap().len(), 1);
    let held = one.table.duties().unwrap();
    let holders: Vec<_> = held.iter().map(|duty| (duty.name.as_str(), duty.holder)).collect();
    assert_eq!(holders, [("x", a), ("y", a), ("z", b)]);

    let since = two.notifications.load(Ordering::SeqCst);
    one.table.release(&[held[0].term]).unwrap();
    two.until_notified(since);
    let again = two.table.take(b, &duties(&["x", "y"])).unwrap();
    assert_eq!(again.len(), 1);
    assert_ne!(again[0].1, held[0].term, "each tenure has a new term");

    remove(&mut *two.table, "a");
    assert!(one.table.take(a, &duties(&["w"])).unwrap().is_empty(), "a node that was removed takes nothing");
    assert_eq!(two.table.take(b, &duties(&["y"])).unwrap().len(), 1);
    assert!(two.table.duties().unwrap().iter().all(|duty| duty.holder == b));
}

#[test]
fn a_takeover_waits_for_a_transaction_that_writes_for_the_duty() {
    let folder = tempfile::tempdir().unwrap();
    let (mut one, mut two) = (Tables::open(folder.path()), Tables::open(folder.path()));
    let (a, b) = (one.register("a"), two.register("b"));
    let term = one.table.take(a, &duties(&["x"])).unwrap()[0].1;
    let mut transaction = one.store.begin().unwrap();
    let prefetched = transaction.prefetch(&PrefetchKeys { terms: vec![term], ..PrefetchKeys::default() }).unwrap();
    assert!(prefetched.stale_terms.is_empty());
    // A renewal does not wait for the transaction.
    assert!(one.table.renew(a, Seq(0), false).unwrap());
    assert!(try_remove(&mut *two.table, "a").unwrap_err().is_transient());
    assert!(two.table.take(b, &duties(&["x"])).unwrap().is_empty());
    drop(transaction);
    remove(&mut *two.table, "a");
    assert_eq!(two.table.take(b, &duties(&["x"])).unwrap().len(), 1);
}
