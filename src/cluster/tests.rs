//! Tests of nodes that share tables in memory: each duty has one holder, whatever nodes come, go, or are cut off.

mod fake_table;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::fake_table::{FakeTable, Tables};
use super::{
    Cluster, Completion, JoinError, MembershipThread, NodeSettings, Tenure,
    requests::{Assignment, DutyRequest, Shared},
    run_tenure, wait_for_tenure,
};
use crate::{
    journal::nodes::{DutyName, Term},
    model::{NodeName, Seq},
    supervision::Supervisor,
};

const LEASE: Duration = Duration::from_secs(2);

/// Maximum time until a condition holds.
const PATIENCE: Duration = Duration::from_secs(20);

/// Work that runs at present: the duty and its node.
type Running = Arc<Mutex<BTreeMap<DutyName, String>>>;

struct Node {
    name: String,
    cluster: Cluster,
    thread: Option<MembershipThread>,
    table: FakeTable,
    duties: JoinSet<()>,
}

fn settings(name: &str) -> NodeSettings {
    NodeSettings { name: NodeName::parse(name).unwrap(), address: None, lease: LEASE }
}

fn duty(number: usize) -> DutyName {
    DutyName::stored(&format!("subscription/s{number}"))
}

/// Joins on a thread of its own, because joining blocks.
async fn join(tables: &Tables, name: &str) -> Result<Node, JoinError> {
    let (settings, table, name) = (settings(name), tables.connect(), name.to_owned());
    let opened = table.clone();
    let joined = tokio::task::spawn_blocking(move || {
        let open = move |_, wake| {
            opened.listen(wake);
            Ok(Some(Box::new(opened) as Box<_>))
        };
        Cluster::join(settings, Vec::new(), || Seq::ZERO, open, &Supervisor::default())
    });
    let (cluster, thread) = joined.await.unwrap()?;
    Ok(Node { name, cluster, thread, table, duties: JoinSet::new() })
}

impl Node {
    /// Wants these duties. Their work checks that it runs once.
    fn want(&mut self, duties: impl Iterator<Item = DutyName>, running: &Running) {
        for duty in duties {
            let (cluster, name, running) = (self.cluster.clone(), self.name.clone(), Arc::clone(running));
            self.duties.spawn(async move {
                let work = |tenure: Tenure| {
                    let guard = RunningGuard::new(&running, &duty, &name);
                    async move {
                        tenure.stop().cancelled().await;
                        drop(guard);
                    }
                };
                cluster.run_duty(duty.clone(), &CancellationToken::new(), work).await;
            });
        }
    }

    fn end(mut self) {
        self.thread.take().unwrap().join();
    }
}

/// Lists work as running until it is dropped.
struct RunningGuard(Running, DutyName);

impl RunningGuard {
    fn new(running: &Running, duty: &DutyName, node: &str) -> Self {
        let other = running.lock().unwrap().insert(duty.clone(), node.to_owned());
        assert_eq!(other, None, "{duty} runs twice");
        Self(Arc::clone(running), duty.clone())
    }
}

impl Drop for RunningGuard {
    fn drop(&mut self) {
        self.0.lock().unwrap().remove(&self.1);
    }
}

/// Waits until all duties run and no node but these has any; returns the time that this took.
async fn until_spread(running: &Running, duties: usize, nodes: &[&str]) -> Duration {
    let began = Instant::now();
    loop {
        let now = running.lock().unwrap().clone();
        if now.len() == duties && nodes.iter().all(|node| now.values().any(|name| name == node)) {
            let strangers = now.values().filter(|name| !nodes.contains(&name.as_str())).count();
            if strangers == 0 {
                return began.elapsed();
            }
        }
        assert!(began.elapsed() < PATIENCE, "{now:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_duty_runs_on_one_node_whatever_nodes_come_and_go() {
    let (tables, running) = (Tables::default(), Running::default());
    let mut a = join(&tables, "a").await.unwrap();
    a.want((0..30).map(duty), &running);
    until_spread(&running, 30, &["a"]).await;
    let (mut b, mut c) = (join(&tables, "b").await.unwrap(), join(&tables, "c").await.unwrap());
    b.want((0..30).map(duty), &running);
    c.want((0..30).map(duty), &running);
    until_spread(&running, 30, &["a", "b", "c"]).await;
    let before = running.lock().unwrap().clone();

    // A node that leaves hands over at once, and nothing else moves.
    b.cluster.hand_over();
    assert!(until_spread(&running, 30, &["a", "c"]).await < Duration::from_secs(1));
    let after = running.lock().unwrap().clone();
    assert!(before.iter().all(|(duty, node)| node == "b" || after[duty] == *node));
    b.end();

    // A node that is cut off stops by itself before another node has its duties.
    c.table.cut(true);
    let took = until_spread(&running, 30, &["a"]).await;
    assert!(took < LEASE + Duration::from_secs(1), "{took:?}");
    c.table.cut(false);
    until_spread(&running, 30, &["a", "c"]).await;
    assert_eq!(tables.holders().len(), 30);
    a.end();
    c.end();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn duties_of_a_lost_node_move_although_the_clock_of_the_tables_was_set_back() {
    let (tables, running) = (Tables::default(), Running::default());
    let (mut a, mut b) = (join(&tables, "a").await.unwrap(), join(&tables, "b").await.unwrap());
    a.want((0..9).map(duty), &running);
    b.want((0..9).map(duty), &running);
    until_spread(&running, 9, &["a", "b"]).await;
    tables.set_clock_back();
    b.table.cut(true);
    let took = until_spread(&running, 9, &["a"]).await;
    assert!(took < LEASE + Duration::from_secs(1), "{took:?}");
    // A run under the same name waits for a lease, and not until the clock shows its end.
    let began = Instant::now();
    a.table.cut(true);
    let again = join(&tables, "a").await.unwrap();
    assert!(began.elapsed() < LEASE + Duration::from_secs(1));
    again.end();
    a.end();
    b.end();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_that_ends_by_itself_gives_its_duty_back() {
    let tables = Tables::default();
    let node = join(&tables, "a").await.unwrap();
    let stop = CancellationToken::new();
    let mut tenures = Vec::new();
    node.cluster
        .run_duty(duty(1), &stop, |tenure| {
            tenures.push(tenure);
            async {}
        })
        .await;
    assert_eq!(tenures.len(), 1);
    let began = Instant::now();
    while !tables.holders().is_empty() {
        assert!(began.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(tenures[0].term().is_some());
    node.end();
}

/// Work that notes when it is being stopped, and stops when it may.
struct SlowWork {
    is_stopping: Arc<AtomicBool>,
    may_stop: Arc<AtomicBool>,
}

impl Drop for SlowWork {
    fn drop(&mut self) {
        self.is_stopping.store(true, Ordering::SeqCst);
        let began = Instant::now();
        while !self.may_stop.load(Ordering::SeqCst) && began.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A renewal comes too late for the trust, but before the end of the lease, while the work is being stopped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_whose_lease_is_renewed_late_runs_again() {
    let tables = Tables::default();
    let node = join(&tables, "a").await.unwrap();
    let (is_stopping, may_stop, tenures) =
        (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
    let (cluster, noted, awaited, counted) =
        (node.cluster.clone(), Arc::clone(&is_stopping), Arc::clone(&may_stop), Arc::clone(&tenures));
    let running = tokio::spawn(async move {
        let work = |tenure: Tenure| {
            counted.fetch_add(1, Ordering::SeqCst);
            let slow = SlowWork { is_stopping: Arc::clone(&noted), may_stop: Arc::clone(&awaited) };
            async move {
                let _slow = slow;
                tenure.stop().cancelled().await;
            }
        };
        cluster.run_duty(duty(1), &CancellationToken::new(), work).await;
    });
    // On a thread of its own, because work that is slow to stop may hold up the timers of the runtime.
    let table = node.table.clone();
    let control = move || {
        let until = |what: &str, holds: &dyn Fn() -> bool| {
            let began = Instant::now();
            while !holds() {
                assert!(began.elapsed() < PATIENCE, "{what}");
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        until("the work runs", &|| tenures.load(Ordering::SeqCst) == 1);
        table.cut(true);
        until("the work is being stopped", &|| is_stopping.load(Ordering::SeqCst));
        let before = tables.renewed();
        table.cut(false);
        until("the lease is renewed", &|| tables.renewed() > before);
        may_stop.store(true, Ordering::SeqCst);
        until("the work runs again", &|| tenures.load(Ordering::SeqCst) == 2);
    };
    tokio::task::spawn_blocking(control).await.unwrap();
    assert!(!running.is_finished());
    running.abort();
    node.end();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_belongs_to_one_live_node() {
    let tables = Tables::default();
    let first = join(&tables, "a").await.unwrap();
    let error = join(&tables, "a").await.map(|_| ()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "another node with the name a is running on this journal; give each node its own node.name"
    );
    // A crashed run has the name until its lease ends.
    first.table.cut(true);
    let began = Instant::now();
    let second = join(&tables, "a").await.unwrap();
    assert!(began.elapsed() < LEASE + Duration::from_secs(1));
    second.end();
    first.end();
}

#[tokio::test]
async fn the_only_node_has_every_duty_for_ever() {
    let cluster = Cluster::single(settings("alone"));
    let (stop, mut tenure) = (CancellationToken::new(), None);
    let work = |given: Tenure| {
        let overview = cluster.overview();
        assert_eq!(overview.nodes[0].duties[0].0, DutyName::retention());
        tenure = Some(given);
        async {}
    };
    cluster.run_duty(DutyName::retention(), &stop, work).await;
    let tenure = tenure.unwrap();
    assert!(tenure.is_trusted() && tenure.term().is_none());
    assert!(cluster.overview().nodes[0].duties.is_empty() && cluster.subscription_revisions().is_none());
}

#[tokio::test]
async fn duty_that_is_recalled_before_its_component_notices_it_is_given_back() {
    let shared = Arc::new(Shared::new());
    shared.trusted_until.send_replace(Instant::now() + LEASE);
    let mut request = DutyRequest::new(&shared, duty(1));
    let term = Term(uuid::Uuid::new_v4());
    for assignment in [Assignment::Held(term), Assignment::Recalled(term)] {
        shared.requests().duties[&duty(1)].assignment.send_replace(assignment);
    }
    let stop = CancellationToken::new();
    let granted = tokio::time::timeout(PATIENCE, wait_for_tenure(&mut request, &shared, &stop)).await;
    let tenure = granted.expect("the component notices the duty").unwrap();
    let work = tenure.clone();
    let work = Box::pin(async move { work.stop().cancelled().await });
    assert!(run_tenure(&request, &shared, &tenure, work).await == Completion::OnRequest);
    assert_eq!(shared.requests().ended, [term]);
}
