//! A PostgreSQL primary with a synchronous standby, which a test restarts, kills and replaces. Clients reach both servers
//! at fixed positions, whichever is the primary.

use std::sync::{Arc, Mutex};

use super::{
    broker_process::wait_until,
    postgres::{Server, ServerAddress},
};

/// Name of the database.
pub(crate) const DATABASE: &str = "journal";

/// A primary and its synchronous standby.
pub(crate) struct ServerPair {
    primary: Server,
    standby: Server,
    /// Position of the primary.
    position: usize,
    address: PrimaryAddress,
}

/// Address of the present primary, for queries by the test.
#[derive(Clone)]
pub(crate) struct PrimaryAddress(Arc<Mutex<ServerAddress>>);

impl PrimaryAddress {
    /// Runs a query that returns one value; returns `None` while the server does not answer.
    pub(crate) fn try_query(&self, sql: &str) -> Option<String> {
        let address = self.0.lock().unwrap().clone();
        let output = address.try_run(DATABASE, &format!("SET search_path = tidings; {sql}")).ok()?;
        // The client program prints the result of the first statement too.
        Some(output.trim_start_matches("SET").trim_start().to_owned())
    }

    /// Runs a query that returns one value.
    pub(crate) fn query(&self, sql: &str) -> String {
        self.try_query(sql).unwrap_or_else(|| panic!("the database does not answer {sql}"))
    }

    /// Returns the URL of the database.
    pub(crate) fn url(&self) -> String {
        self.0.lock().unwrap().connection(DATABASE)
    }
}

impl ServerPair {
    /// Starts both servers, with an empty database.
    pub(crate) fn start() -> Self {
        let primary = Server::separate();
        primary.run("postgres", &format!("CREATE DATABASE {DATABASE} TEMPLATE template0"));
        let standby = start_synchronous_standby(&primary);
        let address = PrimaryAddress(Arc::new(Mutex::new(primary.address())));
        Self { primary, standby, position: 0, address }
    }

    /// Returns the address of the primary.
    pub(crate) fn primary(&self) -> PrimaryAddress {
        self.address.clone()
    }

    /// Returns the ports of both servers, by position.
    pub(crate) fn ports(&self) -> [u16; 2] {
        let ports = [self.primary.port, self.standby.port];
        [ports[self.position], ports[1 - self.position]]
    }

    /// Restarts the primary with a signal, by the signal's name.
    pub(crate) fn restart(&mut self, signal: &str) {
        self.primary.restart(signal);
        self.until_synchronous();
    }

    /// Kills the primary and promotes the standby.
    pub(crate) fn fail_over(&mut self) {
        // After a crash of the primary, commits that waited for the standby are visible before the standby has them.
        self.until_synchronous();
        self.primary.kill();
        self.standby.promote();
        *self.address.0.lock().unwrap() = self.standby.address();
    }

    /// Replaces the primary that was killed by a new standby at its position.
    pub(crate) fn replace_primary(&mut self) {
        let standby = start_synchronous_standby(&self.standby);
        self.primary = std::mem::replace(&mut self.standby, standby);
        self.position = 1 - self.position;
    }

    /// Waits until the standby has everything that the primary has written so far.
    fn until_synchronous(&self) {
        let position = self.primary.run("postgres", "SELECT pg_current_wal_flush_lsn()");
        let has_it =
            format!("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync' AND flush_lsn >= '{position}'");
        wait_until("the standby has everything", || self.primary.run("postgres", &has_it) == "1");
    }
}

/// Starts a standby, and makes commits wait for it.
fn start_synchronous_standby(primary: &Server) -> Server {
    let standby = primary.start_standby();
    primary.set_synchronous_standbys("standby");
    wait_until("the standby is synchronous", || {
        primary.run("postgres", "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'") == "1"
    });
    standby
}
