//! A PostgreSQL server that the tests start in a temporary folder, with a Unix socket and a free port. A server of the
//! operating system is not touched.
//!
//! All tests that do not disturb the server share one ([`Server::shared`]), and each journal has a database of its own.

use std::{
    fs::{self, File},
    io::Write,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use rustls::{ClientConfig, RootCertStore, crypto::ring};
use tidings::journal::store::{
    ConnectionOptions, PostgresUrl, StoreLimits,
    postgres::{PostgresOptions, PostgresStore, verify::verify},
};

use super::broker_process::{BrokerProcess, free_ports, wait_until};

/// Folder of Debian's PostgreSQL versions.
const VERSIONS: &str = "/usr/lib/postgresql";

/// Name of the file with the URL of a journal's folder.
const CONNECTION: &str = "connection";

/// Script that removes the shared memory of a server that was killed.
const END: &str = r#"ipcrm -m "$(awk 'NR == 7 { print $2 }' "${0%/*}/data/postmaster.pid")""#;

/// Address of a server for client programs.
#[derive(Clone)]
pub(crate) struct ServerAddress {
    folder: PathBuf,
    port: u16,
}

impl ServerAddress {
    /// Runs a statement, and returns its value, or the error of the client program.
    pub(crate) fn try_run(&self, database: &str, sql: &str) -> Result<String, String> {
        let mut psql = connected(Command::new(binary("psql")), &self.folder, self.port);
        let output = psql.args(["-X", "-A", "-t", "-d", database, "-c", sql]).output().unwrap();
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        Ok(String::from_utf8(output.stdout).unwrap().trim().to_owned())
    }

    /// Returns the URL of a database.
    pub(crate) fn connection(&self, database: &str) -> String {
        let host = self.folder.display().to_string().replace('/', "%2F");
        format!("postgres://tidings@{host}:{}/{database}", self.port)
    }
}

/// A running server.
pub(crate) struct Server {
    folder: PathBuf,
    /// Port for TCP connections.
    pub(crate) port: u16,
    process: BrokerProcess,
}

impl Server {
    /// Returns the server that all non-destructive tests share.
    pub(crate) fn shared() -> &'static Self {
        static SHARED: OnceLock<Server> = OnceLock::new();
        SHARED.get_or_init(|| Self::start(initialize))
    }

    /// Starts a server that accepts TCP connections only with TLS and a password; returns also its certificate.
    pub(crate) fn encrypted() -> (Self, rustls::pki_types::CertificateDer<'static>) {
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate =
            rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
        let server = Self::start(|folder| {
            initialize(folder);
            let data = folder.join("data");
            let write = |name: &str, text: &str| fs::write(data.join(name), text).unwrap();
            write("server.crt", &certificate.pem());
            write("server.key", &key.serialize_pem());
            write("pg_hba.conf", "local all all trust\nhostssl all all all scram-sha-256\n");
            let mut settings = fs::read_to_string(data.join("postgresql.conf")).unwrap();
            settings.push_str("\nssl = on\n");
            write("postgresql.conf", &settings);
            fs::set_permissions(data.join("server.key"), fs::Permissions::from_mode(0o600)).unwrap();
            if is_root() {
                run(Command::new("chown").arg("-R").arg("postgres").arg(&data));
            }
        });
        (server, certificate.der().clone())
    }

    /// Starts a standby of this server, which streams its changes.
    pub(crate) fn start_standby(&self) -> Self {
        let primary =
            format!("host={} port={} user=tidings application_name=standby", self.folder.display(), self.port);
        let standby = Self::start(|folder| {
            let mut backup = as_server_user("pg_basebackup");
            backup.args(["-R", "-X", "stream", "-c", "fast", "--no-sync", "-d", &primary, "-D"]);
            run(backup.arg(folder.join("data")));
        });
        wait_until("the standby streams", || {
            self.run("postgres", "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'") == "1"
        });
        standby
    }

    /// Makes commits wait for the standbys with these names; none for an empty text.
    pub(crate) fn set_synchronous_standbys(&self, names: &str) {
        self.run("postgres", &format!("ALTER SYSTEM SET synchronous_standby_names = '{names}'"));
        self.run("postgres", "SELECT pg_reload_conf()");
        wait_until("the setting is loaded", || self.run("postgres", "SHOW synchronous_standby_names") == names);
    }

    /// Kills the server like a power cut.
    pub(crate) fn kill(&self) {
        self.process.signal("KILL");
        self.process.wait_for_end();
    }

    /// Ends the server without a shutdown, so that it repairs its data at the next start. Unlike after
    /// [`Server::kill`], all of its processes have ended on return.
    pub(crate) fn crash(&self) {
        self.process.signal("QUIT");
        self.process.wait_for_end();
    }

    /// Starts the server again after [`Server::crash`].
    pub(crate) fn start_again(&mut self) {
        let Self { folder, port, process } = self;
        process.start(|| is_ready(folder, *port));
    }

    /// Stops the server with a signal, by the signal's name, and starts it again: `INT` ends the sessions, and `QUIT`
    /// ends all processes as a crash does.
    pub(crate) fn restart(&mut self, signal: &str) {
        self.process.signal(signal);
        self.process.wait_for_end();
        self.start_again();
    }

    /// Suspends the process that receives the changes of the primary; returns its identifier.
    pub(crate) fn suspend_replication(&self) -> String {
        let receiver = self.run("postgres", "SELECT pid FROM pg_stat_wal_receiver");
        run(Command::new("kill").args(["-STOP", &receiver]));
        receiver
    }

    /// Makes a standby accept writes.
    pub(crate) fn promote(&self) {
        // The server may be restarting, because a process of it was killed.
        wait_until("the standby is promoted", || {
            self.try_run("postgres", "SELECT pg_is_in_recovery() AND NOT pg_promote(true, 60)")
                .is_ok_and(|is_standby| is_standby == "f")
        });
    }

    /// Returns the URL of a database on this server or, if it does not accept writes, on another.
    pub(crate) fn url_with(&self, other: &Self, database: &str) -> String {
        let host =
            |server: &Self| format!("{}:{}", server.folder.display().to_string().replace('/', "%2F"), server.port);
        format!("postgres://tidings@{},{}/{database}", host(self), host(other))
    }

    /// Runs a statement in a database of this server, and returns its value.
    pub(crate) fn run(&self, database: &str, sql: &str) -> String {
        self.try_run(database, sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// Runs a statement, and returns its value, or the error of the client program.
    fn try_run(&self, database: &str, sql: &str) -> Result<String, String> {
        self.address().try_run(database, sql)
    }

    /// Creates tables of another server's database in a database of this one, without their rows.
    pub(crate) fn create_tables_of(&self, database: &str, original: &Self, of: &str, tables: &[&str]) {
        let mut dump = connected(Command::new(binary("pg_dump")), &original.folder, original.port);
        dump.args(["--schema-only", "--no-publications"]).args(tables.iter().map(|table| format!("--table={table}")));
        let script = tempfile::NamedTempFile::new().unwrap();
        fs::write(script.path(), run(dump.arg(of))).unwrap();
        self.run(database, "CREATE SCHEMA tidings");
        let mut psql = connected(Command::new(binary("psql")), &self.folder, self.port);
        run(psql.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", database, "-f"]).arg(script.path()));
    }

    /// Returns the folder with the socket.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the address for client programs.
    pub(crate) fn address(&self) -> ServerAddress {
        ServerAddress { folder: self.folder.clone(), port: self.port }
    }

    /// Starts a server of its own for a test that disturbs it.
    pub(crate) fn separate() -> Self {
        Self::start(initialize)
    }

    /// Starts a server with the data that `fill` puts into the folder `data`, and waits until it accepts connections.
    fn start(fill: impl FnOnce(&Path)) -> Self {
        let folder = tempfile::Builder::new().prefix("tidings-postgres-").tempdir().unwrap().keep();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        if is_root() {
            run(Command::new("chown").arg("postgres").arg(&folder));
        }
        fill(&folder);
        // In the file, because an argument of the server could not be overridden.
        let settings = File::options().append(true).open(folder.join("data/postgresql.conf"));
        settings.unwrap().write_all(b"\nfsync = off\n").unwrap();
        let [port] = free_ports();
        let start = as_server_user("postgres");
        let words: Vec<_> = [start.get_program()].into_iter().chain(start.get_args()).collect();
        let words: Vec<_> = words.iter().map(|word| word.to_str().unwrap()).collect();
        // The server does not end before its last connection has sent a name or this time has passed, and a connection
        // through a silent network sends nothing.
        let settings = format!(
            "-D {0}/data -k {0} -p {port} -c listen_addresses=127.0.0.1 -c max_connections=300 \
             -c wal_retrieve_retry_interval=200ms -c authentication_timeout=3s",
            folder.display()
        );
        fs::write(folder.join("start"), format!("exec {} {settings}\n", words.join(" "))).unwrap();
        fs::write(folder.join("end"), END).unwrap();
        let mut process = BrokerProcess::of(&folder);
        process.start(|| is_ready(&folder, port));
        Self { folder, port, process }
    }

    /// Returns the URL of a database.
    pub(crate) fn connection(&self, database: &str) -> String {
        self.address().connection(database)
    }

    /// Creates an empty database, and returns its URL.
    pub(crate) fn create_database(&self) -> String {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let name = format!("t{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let mut create = connected(Command::new(binary("createdb")), &self.folder, self.port);
        run(create.args(["-T", "template0", &name]));
        self.connection(&name)
    }
}

/// Creates the files of an empty server in the folder `data`.
fn initialize(folder: &Path) {
    let arguments = ["-U", "tidings", "--auth=trust", "--no-sync", "-E", "UTF8", "--locale=C.UTF-8", "-D"];
    run(as_server_user("initdb").args(arguments).arg(folder.join("data")));
}

/// Returns the options of a store for tests.
pub(crate) fn options() -> PostgresOptions {
    PostgresOptions { limits: StoreLimits::default(), connection: node("test"), trim_keys: PostgresOptions::TRIM_KEYS }
}

/// Returns the settings of a node's connections, which are not encrypted.
pub(crate) fn node(name: &str) -> ConnectionOptions {
    ConnectionOptions { node: name.to_owned(), tls: tls(RootCertStore::empty()), lease: Duration::from_secs(10) }
}

/// Opens the store of the database that belongs to a folder.
pub(crate) fn open(folder: &Path, options: PostgresOptions) -> PostgresStore {
    PostgresStore::open(&PostgresUrl::parse(&connection(folder)).unwrap(), options).unwrap()
}

/// Returns the TLS configuration of a client that trusts these certificates.
pub(crate) fn tls(roots: RootCertStore) -> ClientConfig {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    builder.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots).with_no_client_auth()
}

/// Returns the URL of the database that belongs to a folder, and creates the database if there is none.
pub(crate) fn connection(folder: &Path) -> String {
    let file = folder.join(CONNECTION);
    if !file.exists() {
        fs::write(&file, Server::shared().create_database()).unwrap();
    }
    fs::read_to_string(file).unwrap()
}

/// Copies the database of a folder, to which nobody is connected, to a new database; returns the folder of the copy.
pub(crate) fn copy(folder: &Path) -> tempfile::TempDir {
    let to = tempfile::tempdir().unwrap();
    let (original, copied) = (connection(folder), connection(to.path()));
    let [original, copied] = [&original, &copied].map(|text| text.rsplit_once('/').unwrap().1.to_owned());
    let server = Server::shared();
    server.run("postgres", &format!("DROP DATABASE {copied}"));
    server.run("postgres", &format!("CREATE DATABASE {copied} TEMPLATE {original}"));
    to
}

/// Verifies the journal in the database of a folder; returns the errors.
pub(crate) fn findings(folder: &Path) -> Vec<String> {
    let url = PostgresUrl::parse(&connection(folder)).unwrap();
    verify(&url, &node("verify"), &mut |_, _| {}).unwrap().findings
}

/// Dumps the database of a folder with `pg_dump`, and restores the dump into the empty database of another one.
pub(crate) fn dump_and_restore(from: &Path, to: &Path) {
    let file = to.join("dump");
    run(Command::new(binary("pg_dump")).args(["--format=custom", "--file"]).arg(&file).arg(connection(from)));
    run(Command::new(binary("pg_restore")).args(["--exit-on-error", "--dbname"]).arg(connection(to)).arg(&file));
}

/// Runs a query that returns one value in the database of a folder.
pub(crate) fn query(folder: &Path, sql: &str) -> String {
    let mut psql = Command::new(binary("psql"));
    psql.env("PGOPTIONS", "-c search_path=tidings").args(["-X", "-A", "-t", "-c", sql]).arg(connection(folder));
    run(&mut psql).trim().to_owned()
}

/// Starts a second server on a copy of the files of a running one. The copy is inconsistent, as after a crash, and the
/// server repairs it with the write-ahead log.
pub(crate) fn copy_as_after_crash(from: &Path, to: &Path) {
    static COPIES: Mutex<Vec<Server>> = Mutex::new(Vec::new());
    let shared = Server::shared();
    let copy = Server::start(|folder| {
        let mut backup = connected(as_server_user("pg_basebackup"), &shared.folder, shared.port);
        run(backup.args(["-X", "stream", "-c", "fast", "--no-sync", "-D"]).arg(folder.join("data")));
    });
    let original = connection(from);
    let (_, database) = original.rsplit_once('/').unwrap();
    fs::write(to.join(CONNECTION), copy.connection(database)).unwrap();
    COPIES.lock().unwrap().push(copy);
}

fn is_ready(folder: &Path, port: u16) -> bool {
    connected(Command::new(binary("pg_isready")), folder, port).output().unwrap().status.success()
}

/// Adds the arguments with which a client program connects to the server in a folder.
fn connected(mut program: Command, folder: &Path, port: u16) -> Command {
    program.arg("-h").arg(folder).args(["-p", &port.to_string(), "-U", "tidings"]);
    program
}

/// Returns the path of a program of the newest installed version.
fn binary(program: &str) -> PathBuf {
    let versions = fs::read_dir(VERSIONS).into_iter().flatten().map(|version| version.unwrap().path());
    let newest = versions.max_by_key(|path| path.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok()));
    let folder = newest.expect("this test needs PostgreSQL: run scripts/test, which installs Debian's postgresql");
    folder.join("bin").join(program)
}

/// Returns the command of a program of the server, which refuses to run as root.
fn as_server_user(program: &str) -> Command {
    if !is_root() {
        return Command::new(binary(program));
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--init-groups"]).arg(binary(program));
    command
}

fn is_root() -> bool {
    std::os::unix::fs::MetadataExt::uid(&fs::metadata("/proc/self").unwrap()) == 0
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
