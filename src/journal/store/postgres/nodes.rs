//! The tables `nodes` and `duties`, over a session of their own, so that a busy store delays no renewal.

use std::{sync::Arc, time::Duration};

use tokio_postgres::Row;
use uuid::Uuid;

use super::{
    connection::{Connector, Session},
    driver::Driver,
    limits::SessionLimits,
    missing, row, timeline,
};
use crate::{
    journal::{
        nodes::{
            DefinitionRevisions, DutyName, ExpiredNode, HeldDuty, NewNode, NodeRecord, NodeTable, Registration, Survey,
            Term, Wake,
        },
        store::{StoreError, rows},
    },
    model::{NodeName, Seq},
};

/// Channel of the notifications that nodes or duties have changed, or subscriptions.
pub(super) const CHANNEL: &str = "tidings_nodes";

/// Settings of the session. A commit need not wait for the disk or a standby: the write-ahead log is sequential, so every
/// durable write for a duty makes the takeover before it durable as well, and a lost renewal only ends a lease early.
const SETTINGS: &str = "SET synchronous_commit = off;";

/// Statement that ends the sessions of expired nodes. A session that a later run of a node has opened began after the
/// last renewal. Sessions of other roles are not theirs. The server cuts long names of applications, which may then be
/// those of another node, so sessions of such nodes end by themselves.
const END_SESSIONS: &str = "SELECT count(pg_terminate_backend(activity.pid))
    FROM unnest($1::uuid[], $2::bigint[]) AS expired(instance, renewed)
    JOIN nodes ON nodes.instance = expired.instance
        AND (extract(epoch FROM nodes.renewed) * 1000)::bigint = expired.renewed
    JOIN pg_stat_activity AS activity ON activity.application_name = 'tidings/' || nodes.name
    WHERE activity.datname = current_database() AND activity.usename = current_user
        AND activity.pid <> pg_backend_pid() AND activity.backend_start < nodes.renewed";

const REMOVE: &str = "DELETE FROM nodes USING unnest($1::uuid[], $2::bigint[]) AS expired(instance, renewed)
    WHERE nodes.instance = expired.instance
        AND (extract(epoch FROM nodes.renewed) * 1000)::bigint = expired.renewed";

/// Statement that registers a node. One reading of the clock gives the renewal and the end of the lease.
const REGISTER: &str = "INSERT INTO nodes (instance, name, address, version, head, offers, renewed, expires)
    SELECT $1::uuid, $2::text, $3::text, $4::text, $5::bigint, $6::text[], now, now + make_interval(secs => $7::float8)
    FROM (SELECT clock_timestamp() AS now OFFSET 0) AS clock
    ON CONFLICT (name) DO NOTHING";

const NAMESAKE: &str = "SELECT instance, (extract(epoch FROM renewed) * 1000)::bigint FROM nodes WHERE name = $1";

/// Statement that renews a lease. It notifies the other nodes when the node begins to leave.
const RENEW: &str = "WITH before AS (SELECT leaving FROM nodes WHERE instance = $1), renewed AS (
        UPDATE nodes SET renewed = now, expires = now + make_interval(secs => $2::float8), head = $3, leaving = $4
        FROM (SELECT clock_timestamp() AS now OFFSET 0) AS clock
        WHERE instance = $1 RETURNING 1)
    SELECT (SELECT count(*) FROM renewed),
        CASE WHEN $4 AND NOT (SELECT leaving FROM before) THEN pg_notify('tidings_nodes', '') END";

const SURVEY: &str = "SELECT instance, name, address, version, (extract(epoch FROM started) * 1000)::bigint,
        (extract(epoch FROM renewed) * 1000)::bigint, head, leaving, offers,
        extract(epoch FROM expires - renewed)::float8, extract(epoch FROM clock_timestamp() - renewed)::float8
    FROM nodes ORDER BY name";

const REVISIONS: &str = "SELECT (SELECT head FROM journal_head),
    (SELECT revision FROM definition_revisions WHERE kind = 'subscriptions'),
    (SELECT revision FROM definition_revisions WHERE kind = 'harvests')";

const DUTIES: &str = "SELECT name, term, holder, (extract(epoch FROM since) * 1000)::bigint FROM duties ORDER BY name";

/// Statement that takes duties. It waits for a release in progress, and leaves duties that a node has.
const TAKE: &str = "INSERT INTO duties (name, term, holder)
    SELECT name, gen_random_uuid(), $2 FROM unnest($1::text[]) AS wanted(name)
    WHERE EXISTS (SELECT FROM nodes WHERE instance = $2)
    ON CONFLICT (name) DO NOTHING RETURNING name, term";

const RELEASE: &str = "WITH released AS (DELETE FROM duties WHERE term = ANY($1::uuid[]) RETURNING 1)
    SELECT pg_notify('tidings_nodes', '') FROM released LIMIT 1";

/// Statements that end all duties, and make the nodes read all definitions again. The revisions jump, because the lost
/// part may have counted on as well.
pub(super) const FORGET: &str = "DELETE FROM duties;
    UPDATE definition_revisions SET revision = revision + 1 + floor(random() * 1000000000)::bigint;
    NOTIFY tidings_nodes";

const LEAVE: &str = "WITH removed AS (DELETE FROM nodes WHERE instance = $1 RETURNING 1)
    SELECT pg_notify('tidings_nodes', '') FROM removed";

/// Query for the terms that are still valid. The lock keeps the duties where they are until the transaction ends, and
/// does not delay a renewal. No term is valid after a failover until a node has adopted the new server.
pub(super) const LOCK_TERMS: &str = concat!(
    "SELECT term FROM duties WHERE term = ANY($1::uuid[]) AND EXISTS (SELECT FROM journal_head WHERE ",
    timeline::is_same_journal!(),
    ") FOR KEY SHARE OF duties"
);

/// Returns those of these terms that have ended, and keeps the others valid until the transaction of the session ends.
pub(super) async fn stale_terms(session: &Session, terms: &[Term]) -> Result<Vec<Term>, StoreError> {
    if terms.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<Uuid> = terms.iter().map(|term| term.0).collect();
    let found = session.query(LOCK_TERMS, &[&ids]).await?;
    let valid = found.iter().map(|found| row::get(found, 0)).collect::<Result<Vec<Uuid>, _>>()?;
    Ok(terms.iter().copied().filter(|term| !valid.contains(&term.0)).collect())
}

/// Keeps a term valid until the transaction of the session ends.
///
/// # Errors
/// [`StoreError::DutyLost`] if the term has ended.
pub(super) async fn lock_term(session: &Session, term: Option<Term>) -> Result<(), StoreError> {
    let Some(term) = term else { return Ok(()) };
    if stale_terms(session, &[term]).await?.is_empty() { Ok(()) } else { Err(StoreError::DutyLost) }
}

/// The tables of the nodes in a database.
pub(super) struct PostgresNodes {
    connector: Connector,
    session: Option<Session>,
    lease: Duration,
    wake: Wake,
    // Dropped last, because the session belongs to its runtime.
    driver: Driver,
}

impl PostgresNodes {
    pub(super) fn new(connector: Connector, lease: Duration, wake: Wake) -> Result<Self, StoreError> {
        let driver = Driver::new().map_err(|error| StoreError::Io(error.to_string()))?;
        Ok(Self { connector, session: None, lease, wake, driver })
    }

    /// Runs statements within a third of the lease, so that a renewal that hangs leaves time for another one.
    fn run<T>(&mut self, work: impl AsyncFnOnce(&Session) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let limit = self.lease / 3;
        let session = match self.session.take().filter(|session| !session.is_closed()) {
            Some(session) => session,
            None => {
                // Longer, because an address of the server may not answer.
                let session = self.driver.run(limit * 2, connect(&self.connector, &self.wake, self.lease))?;
                // The session before may have missed notifications.
                (self.wake)();
                session
            }
        };
        let result = missing::explain(&self.driver, &self.connector, self.driver.run(limit, work(&session)));
        // After a failure a statement may still be running.
        if result.is_ok() {
            self.session = Some(session);
        }
        result
    }
}

async fn connect(connector: &Connector, wake: &Wake, lease: Duration) -> Result<Session, StoreError> {
    let session = connector.connect().await?;
    session.forward_notifications(Arc::clone(wake));
    session.run(SETTINGS).await?;
    session.run(&SessionLimits::of(lease).node_settings()).await?;
    session.run(&format!("LISTEN {CHANNEL}")).await?;
    Ok(session)
}

impl NodeTable for PostgresNodes {
    fn register(&mut self, node: &NewNode) -> Result<Registration, StoreError> {
        let lease = self.lease.as_secs_f64();
        let offers: Vec<&str> = node.offers.iter().map(DutyName::as_str).collect();
        let (name, version) = (node.name.as_str(), env!("CARGO_PKG_VERSION"));
        let head = rows::number(node.head.0);
        self.run(async |session| {
            let registered = session
                .execute(REGISTER, &[&node.instance, &name, &node.address, &version, &head, &offers, &lease])
                .await?;
            if registered > 0 {
                session.run(&format!("NOTIFY {CHANNEL}")).await?;
                return Ok(Registration::Registered);
            }
            let Some(namesake) = session.query_opt(NAMESAKE, &[&name]).await? else {
                return Err(StoreError::Unavailable("another node with this name has just left".to_owned()));
            };
            Ok(Registration::NameTaken { by: row::get(&namesake, 0)?, renewed: row::time(&namesake, 1)? })
        })
    }

    fn renew(&mut self, instance: Uuid, head: Seq, is_leaving: bool) -> Result<bool, StoreError> {
        let (lease, head) = (self.lease.as_secs_f64(), rows::number(head.0));
        self.run(async |session| {
            let renewed = session.query_one(RENEW, &[&instance, &lease, &head, &is_leaving]).await?;
            Ok(row::get::<i64>(&renewed, 0)? > 0)
        })
    }

    fn remove(&mut self, expired: &[ExpiredNode]) -> Result<(), StoreError> {
        let instances: Vec<Uuid> = expired.iter().map(|node| node.instance).collect();
        let renewed: Vec<i64> = expired.iter().map(|node| node.renewed.millis()).collect();
        self.run(async |session| {
            // The row of a duty is locked while a transaction of the node writes for it.
            match session.query_one(END_SESSIONS, &[&instances, &renewed]).await {
                Ok(ended) => {
                    let sessions: i64 = row::get(&ended, 0)?;
                    tracing::info!(
                        nodes = expired.len(),
                        sessions,
                        "removing nodes whose lease has ended, with their sessions"
                    );
                }
                Err(error) => tracing::warn!(%error, "cannot end the sessions of nodes whose lease has ended"),
            }
            session.execute(REMOVE, &[&instances, &renewed]).await.map(drop)
        })
    }

    fn survey(&mut self) -> Result<Survey, StoreError> {
        self.run(async |session| {
            let nodes = session.query(SURVEY, &[]).await?;
            let revisions = session.query_one(REVISIONS, &[]).await?;
            Ok(Survey {
                nodes: nodes.iter().map(read_node).collect::<Result<_, _>>()?,
                head: row::seq(&revisions, 0)?,
                revisions: DefinitionRevisions {
                    subscriptions: row::unsigned(&revisions, 1)?,
                    harvests: row::unsigned(&revisions, 2)?,
                },
            })
        })
    }

    fn duties(&mut self) -> Result<Vec<HeldDuty>, StoreError> {
        self.run(async |session| session.query(DUTIES, &[]).await?.iter().map(read_duty).collect())
    }

    fn take(&mut self, instance: Uuid, names: &[DutyName]) -> Result<Vec<(DutyName, Term)>, StoreError> {
        let names: Vec<&str> = names.iter().map(DutyName::as_str).collect();
        self.run(async |session| {
            let taken = session.query(TAKE, &[&names, &instance]).await?;
            let read = |taken: &Row| Ok((DutyName::stored(row::get(taken, 0)?), Term(row::get(taken, 1)?)));
            taken.iter().map(read).collect()
        })
    }

    fn release(&mut self, terms: &[Term]) -> Result<(), StoreError> {
        let terms: Vec<Uuid> = terms.iter().map(|term| term.0).collect();
        self.run(async |session| session.query(RELEASE, &[&terms]).await.map(drop))
    }

    fn leave(&mut self, instance: Uuid) -> Result<(), StoreError> {
        self.run(async |session| session.query(LEAVE, &[&instance]).await.map(drop))
    }
}

fn read_node(node: &Row) -> Result<NodeRecord, StoreError> {
    let offers: Vec<&str> = row::get(node, 8)?;
    Ok(NodeRecord {
        instance: row::get(node, 0)?,
        name: NodeName::parse(row::get(node, 1)?).map_err(rows::damaged)?,
        address: row::get(node, 2)?,
        version: row::get(node, 3)?,
        started: row::time(node, 4)?,
        renewed: row::time(node, 5)?,
        head: row::seq(node, 6)?,
        is_leaving: row::get(node, 7)?,
        offers: offers.into_iter().map(DutyName::stored).collect(),
        lease: seconds(node, 9)?,
        age: seconds(node, 10)?,
    })
}

/// Reads a column with seconds; a negative number counts as zero.
fn seconds(row: &Row, index: usize) -> Result<Duration, StoreError> {
    Ok(Duration::try_from_secs_f64(row::get(row, index)?).unwrap_or_default())
}

fn read_duty(duty: &Row) -> Result<HeldDuty, StoreError> {
    Ok(HeldDuty {
        name: DutyName::stored(row::get(duty, 0)?),
        term: Term(row::get(duty, 1)?),
        holder: row::get(duty, 2)?,
        since: row::time(duty, 3)?,
    })
}
