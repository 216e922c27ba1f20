//! One session with the database: connecting, time limits, prepared statements, warnings.

use std::{
    cell::Cell,
    collections::HashMap,
    future::{Future, poll_fn},
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::Poll,
    time::Duration,
};

use futures_util::{
    StreamExt, TryStreamExt,
    future::{LocalBoxFuture, join_all, maybe_done, try_join},
    stream,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::Notify,
    time::timeout,
};
use tokio_postgres::{
    AsyncMessage, Client, Config, Connection, NoTls, Row, Statement, ToStatement,
    config::{Host, TargetSessionAttrs},
    error::SqlState,
};
use tokio_postgres_rustls::MakeRustlsConnect;
use uuid::Uuid;

use super::{
    ConnectionOptions, PostgresUrl,
    error::describe,
    limits::SessionLimits,
    value::{StorableValue, Value},
};
use crate::journal::{nodes::Wake, store::StoreError};

/// Settings of every session, beside its [limits](SessionLimits::settings).
const SESSION_SETTINGS: &str = "
    SET search_path = tidings;
    SET default_transaction_isolation = 'read committed';
    SET jit = off;
    SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off';
";

/// Settings that give the statements of the writer stable plans: index lookups for each element of an array. The
/// tables grow quickly at first, and a plan made for an empty table would read all of a full one.
pub(super) const STABLE_PLANS: &str = "
    SET plan_cache_mode = force_generic_plan;
    SET enable_seqscan = off;
    SET enable_hashjoin = off;
    SET enable_mergejoin = off;
";

/// Connects to the database.
#[derive(Clone)]
pub(super) struct Connector {
    config: Config,
    tls: MakeRustlsConnect,
    limits: SessionLimits,
    /// Time to connect to all addresses that the connection string sets; zero if it sets none.
    own_limit: Duration,
    /// Identifier of this open store, which its own notifications contain.
    store: Uuid,
}

/// A session. Dropping it closes the connection, and the server rolls back an open transaction.
pub(super) struct Session {
    client: Client,
    /// Maximum time until the server answers an empty statement.
    silence: Duration,
    /// Whether an empty statement was not answered in time.
    was_silent: AtomicBool,
    statements: Mutex<HashMap<&'static str, Statement>>,
    signals: Arc<Signals>,
}

/// Messages of the server that do not answer a statement.
#[derive(Default)]
struct Signals {
    /// Number of commits for which the server stopped waiting for a synchronous standby.
    unreplicated: AtomicU64,
    /// Notifies of a notification from another store, and of the end of the connection.
    notified: Notify,
    has_ended: AtomicBool,
}

impl Connector {
    /// Creates a connector. Sessions are only opened with a server that accepts writes.
    pub(super) fn new(url: &PostgresUrl, options: &ConnectionOptions, store: Uuid) -> Self {
        let ConnectionOptions { node, tls, lease } = options;
        let limits = SessionLimits::of(*lease);
        let mut config = url.config().clone();
        config.application_name(format!("tidings/{node}"));
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        let addresses = config.get_hosts().len();
        let own_limit = match config.get_connect_timeout() {
            Some(limit) => *limit * u32::try_from(addresses).unwrap_or(u32::MAX),
            None => {
                config.connect_timeout(limits.connect(addresses));
                Duration::ZERO
            }
        };
        config.tcp_user_timeout(limits.silence());
        config.keepalives_idle(limits.silence());
        config.keepalives_interval(Duration::from_secs(1));
        config.keepalives_retries(3);
        Self { config, tls: MakeRustlsConnect::new(tls.clone()), limits, own_limit, store }
    }

    /// Opens a session, within the time that the limits allow.
    pub(super) async fn connect(&self) -> Result<Session, StoreError> {
        let failed = |reason: String| StoreError::Unavailable(format!("cannot connect to the database: {reason}"));
        let limit = self.limits.open() + self.own_limit;
        match timeout(limit, self.try_connect()).await {
            Ok(session) => session.map_err(|error| failed(describe(&error))),
            Err(_) => Err(failed(format!("no answer within {:.1} seconds", limit.as_secs_f64()))),
        }
    }

    /// Opens a session, and returns the error of the database if it cannot.
    pub(super) async fn try_connect(&self) -> Result<Session, tokio_postgres::Error> {
        let session = self.connect_bare().await?;
        session.client.batch_execute(&(self.limits.settings() + SESSION_SETTINGS)).await?;
        Ok(session)
    }

    /// Opens a session with the server's settings.
    async fn connect_bare(&self) -> Result<Session, tokio_postgres::Error> {
        let signals = Arc::<Signals>::default();
        // The TLS library needs a host name, which a Unix socket lacks.
        let is_local = self.config.get_hosts().iter().all(|host| matches!(host, Host::Unix(_)));
        let client = if is_local {
            let (client, connection) = self.config.connect(NoTls).await?;
            drive(connection, Arc::clone(&signals), self.store);
            client
        } else {
            let (client, connection) = self.config.connect(self.tls.clone()).await?;
            drive(connection, Arc::clone(&signals), self.store);
            client
        };
        Ok(Session {
            client,
            silence: self.limits.silence(),
            was_silent: AtomicBool::default(),
            statements: Mutex::default(),
            signals,
        })
    }
}

/// Drives a connection on the runtime until it is closed. The connection forwards a warning before the result of
/// the statement that caused it.
fn drive<S, T>(mut connection: Connection<S, T>, signals: Arc<Signals>, store: Uuid)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    tokio::spawn(async move {
        let own = store.to_string();
        let mut messages = stream::poll_fn(move |context| connection.poll_message(context));
        while let Some(Ok(message)) = messages.next().await {
            match message {
                AsyncMessage::Notice(notice)
                    if [SqlState::WARNING, SqlState::ADMIN_SHUTDOWN].contains(notice.code()) =>
                {
                    signals.unreplicated.fetch_add(1, Ordering::Release);
                    tracing::warn!(warning = notice.message(), "the journal's database reports a warning");
                }
                AsyncMessage::Notification(notification) if !notification.payload().ends_with(&own) => {
                    signals.notified.notify_one();
                }
                _ => {}
            }
        }
        signals.has_ended.store(true, Ordering::Release);
        signals.notified.notify_one();
    });
}

/// Statements that are sent together; see [`pipeline`].
pub(super) type Step<'s, T> = LocalBoxFuture<'s, Result<T, StoreError>>;

thread_local! {
    /// Whether the first statements of the steps of a pipeline are being sent.
    static BEGINS_PIPELINE: Cell<bool> = const { Cell::new(false) };
}

/// Sends statements in a pipeline: all of them are sent in the order of the list before the first result is awaited, so they
/// need one round trip, however many they are. Only the first statement of a step is sent in this order, and only if it
/// is [prepared](Session::prepare). Returns the results in the order of the list.
///
/// # Errors
/// Returns the first error in the order of the list, which is the cause of the errors after it.
pub(super) async fn pipeline<T>(steps: Vec<Step<'_, T>>) -> Result<Vec<T>, StoreError> {
    // `join_all` promises no order of the first polls.
    let mut steps: Vec<_> = steps.into_iter().map(maybe_done).collect();
    let mut is_first_poll = true;
    poll_fn(|context| {
        let mut are_done = true;
        BEGINS_PIPELINE.set(std::mem::take(&mut is_first_poll));
        for step in &mut steps {
            are_done &= Pin::new(step).poll(context).is_ready();
        }
        BEGINS_PIPELINE.set(false);
        if are_done { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    steps.iter_mut().filter_map(|step| Pin::new(step).take_output()).collect()
}

impl Session {
    /// Returns whether the connection is known to be closed.
    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Returns whether the server has stalled: an empty statement was not answered in time.
    pub(super) fn was_silent(&self) -> bool {
        self.was_silent.load(Ordering::Relaxed)
    }

    /// Returns how often the server has stopped waiting for a synchronous standby.
    pub(super) fn unreplicated_commits(&self) -> u64 {
        self.signals.unreplicated.load(Ordering::Acquire)
    }

    /// Waits for a notification from another store, or the end of the connection.
    pub(super) async fn notified(&self) {
        self.signals.notified.notified().await;
    }

    /// Calls `wake` for each notification, until the connection ends.
    pub(super) fn forward_notifications(&self, wake: Wake) {
        let signals = Arc::clone(&self.signals);
        tokio::spawn(async move {
            while !signals.has_ended.load(Ordering::Acquire) {
                signals.notified.notified().await;
                wake();
            }
        });
    }

    /// Executes work, and ends it if the server is silent: an empty statement, sent before the work, must be answered
    /// within a third of the lease. So a server that has stalled is noticed soon, and a long query is not taken for one.
    pub(super) async fn attended<T>(&self, work: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        let answered = async {
            match timeout(self.silence, self.client.batch_execute("")).await {
                Ok(answered) => Ok(answered?),
                Err(_) => {
                    self.was_silent.store(true, Ordering::Relaxed);
                    let seconds = self.silence.as_secs_f64();
                    Err(StoreError::Unavailable(format!("the database did not answer within {seconds:.1} seconds")))
                }
            }
        };
        // Polled, and therefore sent, in this order.
        try_join(answered, work).await.map(|((), result)| result)
    }

    /// Runs statements without values and without results.
    pub(super) async fn run(&self, sql: &str) -> Result<(), StoreError> {
        Ok(self.client.batch_execute(sql).await?)
    }

    /// Prepares statements in one round trip. Statements that are then polled together are sent in the order of the
    /// first poll; a statement that is not prepared yet would be overtaken by the next one.
    pub(super) async fn prepare(&self, statements: &[&'static str]) -> Result<(), StoreError> {
        let prepared = join_all(statements.iter().map(|sql| self.statement(sql))).await;
        prepared.into_iter().try_for_each(|prepared| prepared.map(drop))
    }

    /// Runs a query and returns its rows.
    pub(super) async fn query(&self, sql: &'static str, values: &[Value<'_>]) -> Result<Vec<Row>, StoreError> {
        let statement = self.statement(sql).await?;
        self.rows(&statement, values).await
    }

    /// Runs a query and returns its only row, if it has one.
    pub(super) async fn query_opt(&self, sql: &'static str, values: &[Value<'_>]) -> Result<Option<Row>, StoreError> {
        let mut rows = self.query(sql, values).await?;
        match rows.len() {
            0 | 1 => Ok(rows.pop()),
            count => Err(StoreError::Damaged(format!("there are {count} rows instead of one"))),
        }
    }

    /// Runs a query and returns its row, which always exists in an intact journal.
    pub(super) async fn query_one(&self, sql: &'static str, values: &[Value<'_>]) -> Result<Row, StoreError> {
        let row = self.query_opt(sql, values).await?;
        row.ok_or_else(|| StoreError::Damaged("a row that every journal has is missing".to_owned()))
    }

    /// Runs a statement and returns the number of affected rows.
    pub(super) async fn execute(&self, sql: &'static str, values: &[Value<'_>]) -> Result<u64, StoreError> {
        let statement = self.statement(sql).await?;
        self.affected(&statement, values).await
    }

    /// Runs a query whose text is built at run time, and returns its rows.
    pub(super) async fn query_text(&self, sql: &str, values: &[Value<'_>]) -> Result<Vec<Row>, StoreError> {
        self.rows(sql, values).await
    }

    /// Runs a statement whose text is built at run time, and returns the number of affected rows.
    pub(super) async fn execute_text(&self, sql: &str, values: &[Value<'_>]) -> Result<u64, StoreError> {
        self.affected(sql, values).await
    }

    async fn rows(
        &self,
        statement: &(impl ToStatement + ?Sized),
        values: &[Value<'_>],
    ) -> Result<Vec<Row>, StoreError> {
        let rows = self.client.query_raw(statement, values.iter().map(|value| StorableValue(*value))).await?;
        Ok(rows.try_collect().await?)
    }

    async fn affected(&self, statement: &(impl ToStatement + ?Sized), values: &[Value<'_>]) -> Result<u64, StoreError> {
        Ok(self.client.execute_raw(statement, values.iter().map(|value| StorableValue(*value))).await?)
    }

    async fn statement(&self, sql: &'static str) -> Result<Statement, StoreError> {
        if let Some(statement) = self.statements().get(sql) {
            return Ok(statement.clone());
        }
        debug_assert!(!BEGINS_PIPELINE.get(), "a statement of a pipeline is not prepared, so it is overtaken: {sql}");
        let statement = self.client.prepare(sql).await?;
        self.statements().insert(sql, statement.clone());
        Ok(statement)
    }

    fn statements(&self) -> std::sync::MutexGuard<'_, HashMap<&'static str, Statement>> {
        self.statements.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
