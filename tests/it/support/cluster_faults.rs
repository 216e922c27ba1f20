//! Three nodes on a primary and a synchronous standby, and the faults that strike them.

use std::{
    fs::OpenOptions,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    sync::{Mutex, OwnedMutexGuard},
    task::{JoinSet, spawn_blocking},
};

use crate::support::{
    breakable_proxy::{BreakableProxy, Link},
    gateway::{Gateway, command, free_address},
    nodes_fixture::LEASE,
    postgres_pair::{DATABASE, PrimaryAddress, ServerPair},
    webhook_fixture::SECRET,
};

/// Names of the nodes.
pub(crate) const NODES: [&str; 3] = ["a", "b", "c"];

/// Maximum time of any wait for a recovery.
const RECOVERY_LIMIT: Duration = Duration::from_secs(90);

/// Time after the end of a lease in which a running node takes the duties.
const REMOVAL_LIMIT: Duration = Duration::from_secs(2);

/// Maximum number of faults at a time.
const CONCURRENT_FAULTS: usize = 3;

/// What happens to a node or to the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// SIGKILL.
    Kill,
    /// SIGSTOP until others have the duties of the node, then SIGCONT.
    Suspend,
    /// SIGTERM.
    Terminate,
    /// The connections of a node to the database are closed once.
    Reset,
    /// A node cannot connect to the database until others have its duties.
    Refuse,
    /// A node gets no answer from the database until others have its duties.
    Silence,
    /// The database server restarts, cleanly or after a crash.
    Restart,
    /// The primary is killed, and the standby is promoted.
    Failover,
}

impl Fault {
    pub(crate) const ALL: [Self; 8] = [
        Self::Kill,
        Self::Suspend,
        Self::Terminate,
        Self::Reset,
        Self::Refuse,
        Self::Silence,
        Self::Restart,
        Self::Failover,
    ];

    /// Returns the fault with that name.
    pub(crate) fn named(name: &str) -> Self {
        let is_named = |fault: &Self| format!("{fault:?}").to_lowercase() == name;
        Self::ALL.into_iter().find(is_named).unwrap_or_else(|| panic!("there is no fault {name}"))
    }

    fn strikes_database(self) -> bool {
        matches!(self, Self::Restart | Self::Failover)
    }
}

/// A node that faults strike, which has the same URL after each start.
struct FaultyNode {
    name: &'static str,
    folder: PathBuf,
    address: String,
    /// Proxies to both database servers, by position.
    proxies: [BreakableProxy; 2],
    primary: PrimaryAddress,
    /// Locked by the task of a fault.
    gateway: Arc<Mutex<Gateway>>,
}

/// Nodes, and the servers of their database.
pub(crate) struct FaultyCluster {
    nodes: Vec<Arc<FaultyNode>>,
    servers: Arc<Mutex<ServerPair>>,
    pub(crate) primary: PrimaryAddress,
    faults: JoinSet<()>,
    random: fastrand::Rng,
    began: Instant,
}

impl FaultyCluster {
    /// Starts servers and nodes. The folder has the configuration of all nodes in `tidings.toml`, and gets their logs.
    pub(crate) async fn start(folder: &Path, random: fastrand::Rng) -> Self {
        let pair = tokio::task::block_in_place(ServerPair::start);
        let (ports, primary) = (pair.ports(), pair.primary());
        let mut nodes = Vec::new();
        for name in NODES {
            let (proxies, address) = (ports.map(BreakableProxy::start), free_address());
            let gateway = start(name, folder.to_owned(), address.clone(), [&proxies[0], &proxies[1]].map(|at| at.port));
            let gateway = Arc::new(Mutex::new(spawn_blocking(gateway).await.unwrap()));
            let (folder, primary) = (folder.to_owned(), primary.clone());
            nodes.push(Arc::new(FaultyNode { name, folder, address, proxies, primary, gateway }));
        }
        let servers = Arc::new(Mutex::new(pair));
        Self { nodes, servers, primary, faults: JoinSet::new(), random, began: Instant::now() }
    }

    /// Returns the URLs of the nodes.
    pub(crate) fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(|node| format!("http://{}", node.address)).collect()
    }

    /// Begins a fault. It strikes a node that no other fault strikes, and may last longer than this call.
    #[expect(clippy::print_stderr, reason = "prints the times of the faults for a failed run")]
    pub(crate) async fn strike(&mut self, fault: Fault) {
        while self.faults.len() >= CONCURRENT_FAULTS {
            self.next_repair().await;
        }
        let began = self.began;
        if fault.strikes_database() {
            let servers = loop {
                match Arc::clone(&self.servers).try_lock_owned() {
                    Ok(servers) => break servers,
                    Err(_) => self.next_repair().await,
                }
            };
            let (nodes, signal) = (self.nodes.clone(), if self.random.bool() { "INT" } else { "QUIT" });
            let with = if fault == Fault::Restart { signal } else { "KILL" };
            eprintln!("{:?}: {fault:?} of the database with SIG{with}", began.elapsed());
            self.faults.spawn(async move {
                strike_database(servers, &nodes, fault, signal).await;
                eprintln!("{:?}: the database is repaired", began.elapsed());
            });
        } else {
            let free =
                |node: &Arc<FaultyNode>| Some((Arc::clone(node), Arc::clone(&node.gateway).try_lock_owned().ok()?));
            let mut free: Vec<_> = self.nodes.iter().filter_map(free).collect();
            let (node, gateway) = free.swap_remove(self.random.usize(..free.len()));
            drop(free);
            eprintln!("{:?}: {fault:?} of node {}", began.elapsed(), node.name);
            self.faults.spawn(async move {
                node.strike(gateway, fault).await;
                eprintln!("{:?}: node {} is repaired after {fault:?}", began.elapsed(), node.name);
            });
        }
    }

    async fn next_repair(&mut self) {
        self.faults.join_next().await.expect("a fault lasts").unwrap();
    }

    /// Waits until all nodes and the database are repaired.
    pub(crate) async fn until_repaired(&mut self) {
        while !self.faults.is_empty() {
            self.next_repair().await;
        }
    }

    /// Returns the running nodes, which no fault strikes.
    pub(crate) fn gateways(&self) -> Vec<OwnedMutexGuard<Gateway>> {
        self.nodes.iter().map(|node| Arc::clone(&node.gateway).try_lock_owned().unwrap()).collect()
    }
}

/// Returns a function that starts a node and waits until it listens. A start fails while the database does not answer.
fn start(name: &'static str, folder: PathBuf, address: String, ports: [u16; 2]) -> impl FnOnce() -> Gateway + Send {
    move || {
        let [first, second] = ports;
        let store = format!("postgres://tidings@127.0.0.1:{first},127.0.0.1:{second}/{DATABASE}?sslmode=disable");
        let (config, began) = (folder.join("tidings.toml"), Instant::now());
        loop {
            let mut serve = command();
            serve.env("TIDINGS_JOURNAL__STORE", &store).env("TIDINGS_NODE__NAME", name);
            serve.env("TIDINGS_NODE__LEASE_SECONDS", LEASE.as_secs().to_string()).env("TIDINGS_SECRET_KEY", SECRET);
            let log = OpenOptions::new().create(true).append(true).open(folder.join(format!("{name}.log"))).unwrap();
            serve.stderr(log);
            let arguments = ["--listen", &address, "--config", config.to_str().unwrap()];
            if let Some(gateway) = Gateway::try_start(serve, &folder.join(name), &arguments) {
                return gateway;
            }
            assert!(began.elapsed() < RECOVERY_LIMIT, "node {name} does not start");
        }
    }
}

async fn strike_database(
    mut servers: OwnedMutexGuard<ServerPair>,
    nodes: &[Arc<FaultyNode>],
    fault: Fault,
    signal: &'static str,
) {
    let repaired = spawn_blocking(move || {
        if fault == Fault::Restart {
            servers.restart(signal);
        } else {
            servers.fail_over();
            servers.replace_primary();
        }
        servers
    });
    let servers = repaired.await.unwrap();
    for node in nodes {
        for (proxy, port) in node.proxies.iter().zip(servers.ports()) {
            proxy.set_server(port);
        }
    }
}

impl FaultyNode {
    /// Breaks the node, repairs it, and waits until it is among the nodes again.
    async fn strike(&self, mut gateway: OwnedMutexGuard<Gateway>, fault: Fault) {
        match fault {
            Fault::Kill => {
                gateway.kill();
                *gateway = self.start_again().await;
            }
            Fault::Suspend => {
                gateway.signal("STOP");
                self.until_listed(false).await;
                gateway.signal("CONT");
            }
            Fault::Terminate => {
                gateway.signal("TERM");
                let ended = spawn_blocking(move || (gateway.wait(), gateway));
                let (status, ended) = ended.await.unwrap();
                gateway = ended;
                assert!(status.success(), "node {} ends with {status}", self.name);
                *gateway = self.start_again().await;
            }
            Fault::Reset => self.proxies.iter().for_each(BreakableProxy::reset),
            Fault::Refuse | Fault::Silence => {
                let link = if fault == Fault::Refuse { Link::Refusing } else { Link::Silent };
                self.set_link(link);
                self.until_listed(false).await;
                self.set_link(Link::Open);
            }
            Fault::Restart | Fault::Failover => unreachable!("{fault:?} strikes no node"),
        }
        self.until_listed(true).await;
    }

    fn set_link(&self, link: Link) {
        self.proxies.iter().for_each(|proxy| proxy.set_link(link));
    }

    async fn start_again(&self) -> Gateway {
        let ports = [&self.proxies[0], &self.proxies[1]].map(|proxy| proxy.port);
        spawn_blocking(start(self.name, self.folder.clone(), self.address.clone(), ports)).await.unwrap()
    }

    /// Waits until the node is, or is not, among the nodes in the database. If no other node is left to remove it, it is
    /// not among them a while after its lease has ended.
    async fn until_listed(&self, is_listed: bool) {
        let margin = if is_listed { 0 } else { REMOVAL_LIMIT.as_secs() };
        let sql = format!(
            "SELECT count(*) FROM nodes WHERE name = '{}' AND expires > clock_timestamp() - interval '{margin} s'",
            self.name
        );
        let expected = if is_listed { "1" } else { "0" };
        let began = Instant::now();
        loop {
            let (primary, sql) = (self.primary.clone(), sql.clone());
            let listed = spawn_blocking(move || primary.try_query(&sql)).await.unwrap();
            if listed.as_deref() == Some(expected) {
                return;
            }
            assert!(began.elapsed() < RECOVERY_LIMIT, "node {} is not listed as {is_listed}: {listed:?}", self.name);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}
