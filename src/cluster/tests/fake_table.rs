//! Tables of nodes and duties in memory, which a node can be cut off from.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use uuid::Uuid;

use super::LEASE;
use crate::{
    journal::{
        nodes::{DutyName, ExpiredNode, HeldDuty, NewNode, NodeRecord, NodeTable, Registration, Survey, Term, Wake},
        store::StoreError,
    },
    model::{Seq, Timestamp},
};

/// Tables that several nodes share.
#[derive(Clone, Default)]
pub(super) struct Tables(Arc<Mutex<Rows>>, Arc<AtomicBool>);

#[derive(Default)]
struct Rows {
    /// Each with the time of its last renewal.
    nodes: BTreeMap<Uuid, (NodeRecord, Instant)>,
    duties: BTreeMap<DutyName, HeldDuty>,
    wakes: Vec<Wake>,
}

/// Connection of one node to the tables.
#[derive(Clone)]
pub(super) struct FakeTable {
    tables: Tables,
    is_cut: Arc<AtomicBool>,
}

impl Tables {
    pub(super) fn connect(&self) -> FakeTable {
        FakeTable { tables: self.clone(), is_cut: Arc::default() }
    }

    /// Sets the clock of the tables back, before the times of all renewals.
    pub(super) fn set_clock_back(&self) {
        self.1.store(true, Ordering::SeqCst);
    }

    /// Returns the duties that a node has.
    pub(super) fn holders(&self) -> Vec<HeldDuty> {
        self.0.lock().unwrap().duties.values().cloned().collect()
    }

    /// Returns the time of the newest renewal.
    pub(super) fn renewed(&self) -> Option<Timestamp> {
        self.0.lock().unwrap().nodes.values().map(|(node, _)| node.renewed).max()
    }
}

impl FakeTable {
    pub(super) fn cut(&self, is_cut: bool) {
        self.is_cut.store(is_cut, Ordering::SeqCst);
    }

    pub(super) fn listen(&self, wake: Wake) {
        self.tables.0.lock().unwrap().wakes.push(wake);
    }

    fn rows(&self) -> Result<MutexGuard<'_, Rows>, StoreError> {
        if self.is_cut.load(Ordering::SeqCst) {
            return Err(StoreError::Unavailable("cut off".to_owned()));
        }
        Ok(self.tables.0.lock().unwrap())
    }
}

impl Rows {
    fn notify(&self) {
        self.wakes.iter().for_each(|wake| wake());
    }

    fn remove(&mut self, is_removed: impl Fn(&NodeRecord) -> bool) {
        self.nodes.retain(|_, (node, _)| !is_removed(node));
        self.duties.retain(|_, duty| self.nodes.contains_key(&duty.holder));
    }
}

impl NodeTable for FakeTable {
    fn register(&mut self, node: &NewNode) -> Result<Registration, StoreError> {
        let mut rows = self.rows()?;
        if let Some((namesake, _)) = rows.nodes.values().find(|(other, _)| other.name == node.name) {
            return Ok(Registration::NameTaken { by: namesake.instance, renewed: namesake.renewed });
        }
        let NewNode { instance, name, address, offers, head } = node.clone();
        let (version, now) = (String::new(), Timestamp::now());
        let record = NodeRecord {
            instance,
            name,
            address,
            version,
            started: now,
            renewed: now,
            lease: LEASE,
            age: Duration::ZERO,
            head,
            is_leaving: false,
            offers,
        };
        rows.nodes.insert(instance, (record, Instant::now()));
        rows.notify();
        Ok(Registration::Registered)
    }

    fn renew(&mut self, instance: Uuid, head: Seq, is_leaving: bool) -> Result<bool, StoreError> {
        let mut rows = self.rows()?;
        let Some((node, renewed)) = rows.nodes.get_mut(&instance) else { return Ok(false) };
        *renewed = Instant::now();
        (node.renewed, node.head, node.is_leaving) = (Timestamp::now(), head, is_leaving);
        if is_leaving {
            rows.notify();
        }
        Ok(true)
    }

    fn remove(&mut self, expired: &[ExpiredNode]) -> Result<(), StoreError> {
        let is_expired = |node: &NodeRecord| {
            expired.iter().any(|expired| expired.instance == node.instance && expired.renewed == node.renewed)
        };
        self.rows()?.remove(is_expired);
        Ok(())
    }

    fn survey(&mut self) -> Result<Survey, StoreError> {
        let rows = self.rows()?;
        let clock_is_back = self.tables.1.load(Ordering::SeqCst);
        let row = |(node, renewed): &(NodeRecord, Instant)| {
            let age = if clock_is_back { Duration::ZERO } else { renewed.elapsed() };
            NodeRecord { age, ..node.clone() }
        };
        let mut nodes: Vec<_> = rows.nodes.values().map(row).collect();
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Survey { nodes, ..Survey::default() })
    }

    fn duties(&mut self) -> Result<Vec<HeldDuty>, StoreError> {
        Ok(self.rows()?.duties.values().cloned().collect())
    }

    fn take(&mut self, instance: Uuid, names: &[DutyName]) -> Result<Vec<(DutyName, Term)>, StoreError> {
        let mut rows = self.rows()?;
        let mut taken = Vec::new();
        for name in names.iter().filter(|name| !rows.duties.contains_key(*name)).cloned().collect::<Vec<_>>() {
            let duty =
                HeldDuty { name: name.clone(), term: Term(Uuid::new_v4()), holder: instance, since: Timestamp::now() };
            taken.push((name.clone(), duty.term));
            rows.duties.insert(name, duty);
        }
        Ok(taken)
    }

    fn release(&mut self, terms: &[Term]) -> Result<(), StoreError> {
        let mut rows = self.rows()?;
        rows.duties.retain(|_, duty| !terms.contains(&duty.term));
        rows.notify();
        Ok(())
    }

    fn leave(&mut self, instance: Uuid) -> Result<(), StoreError> {
        let mut rows = self.rows()?;
        rows.remove(|node| node.instance == instance);
        rows.notify();
        Ok(())
    }
}
