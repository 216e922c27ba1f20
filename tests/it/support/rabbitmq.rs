//! A RabbitMQ that the tests start on free ports, with its own folder, cookie and epmd, as the user who runs
//! the tests. A RabbitMQ of the operating system is not touched.
//!
//! [`Broker::shared`] is for all tests that do not disturb the broker; each uses its own virtual host.
//! [`Broker::exclusive`] is for a test that stops, kills or starves its broker. Such a test gets a broker that an earlier
//! test has returned in good order, because a start takes nine seconds of a processor.

#[path = "rabbitmq/client.rs"]
mod client;
#[allow(dead_code, reason = "the benches have no use for it")]
#[path = "rabbitmq/raw.rs"]
mod raw;

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    ops::{Deref, DerefMut},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Mutex, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use serde_json::json;

use super::broker_process::{BrokerProcess, PATIENCE, free_ports};

pub(crate) use self::client::Client;
#[allow(unused_imports, reason = "the benches have no use for it")]
pub(crate) use self::raw::{RawMessage, RawPublisher, nested};

/// Folder of Debian's scripts that do not change the user.
const BIN: &str = "/usr/lib/rabbitmq/bin";

/// Number of virtual hosts that the shared broker starts with.
const SHARED_VHOSTS: usize = 48;

/// Number of virtual hosts that another broker starts with. Each of them makes every start longer.
const VHOSTS: usize = 8;

/// Script that becomes the broker.
const START: &str = r#". "${0%/*}/environment"; exec "$BIN/rabbitmq-server""#;

/// Script that ends the broker's epmd, which is not a child process of it.
const END: &str = r#"
    . "${0%/*}/environment"
    for i in 1 2 3 4 5 6 7 8 9 10; do
        epmd -kill && break
        sleep 0.1
    done
"#;

/// A running broker.
pub(crate) struct Broker {
    folder: PathBuf,
    /// Port for plain connections.
    pub(crate) port: u16,
    /// Port for encrypted connections.
    pub(crate) tls_port: u16,
    /// Process of the broker.
    pub(crate) process: BrokerProcess,
    /// Number of virtual hosts that exist.
    existing_vhosts: usize,
    /// Number of virtual hosts that tests have got.
    vhosts: AtomicUsize,
    /// True while the memory alarm is raised or the process is suspended.
    is_disturbed: AtomicBool,
}

impl Broker {
    /// Returns the broker that all non-destructive tests share.
    pub(crate) fn shared() -> &'static Self {
        static SHARED: OnceLock<Broker> = OnceLock::new();
        SHARED.get_or_init(|| Self::start_with(SHARED_VHOSTS))
    }

    /// Returns a broker that no other test uses at the same time.
    #[allow(dead_code, reason = "the benches have no use for it")]
    pub(crate) fn exclusive() -> ExclusiveBroker {
        let idle = IDLE.lock().unwrap().pop();
        ExclusiveBroker(Some(idle.unwrap_or_else(Self::start)))
    }

    /// Starts a broker and waits until it accepts connections.
    pub(crate) fn start() -> Self {
        Self::start_with(VHOSTS)
    }

    fn start_with(existing_vhosts: usize) -> Self {
        assert!(
            Path::new(BIN).join("rabbitmq-server").exists(),
            "this test needs RabbitMQ: run scripts/test, which installs Debian's rabbitmq-server"
        );
        let folder = tempfile::Builder::new().prefix("tidings-rabbitmq-").tempdir().unwrap().keep();
        let ports = free_ports();
        set_up(&folder, ports, existing_vhosts);
        let [port, tls_port, ..] = ports;
        let mut broker = Self {
            process: BrokerProcess::of(&folder),
            folder,
            port,
            tls_port,
            existing_vhosts,
            vhosts: AtomicUsize::new(0),
            is_disturbed: AtomicBool::new(false),
        };
        broker.start_again();
        broker
    }

    /// Starts the broker again with its existing data and waits until it accepts connections.
    pub(crate) fn start_again(&mut self) {
        let port = self.port;
        self.process.start(|| answers(port));
    }

    /// Waits until the broker has stored the names of its quorum queues, which it writes to tables every half
    /// second. A younger queue never comes back after a kill, which is not the subject of these tests.
    pub(crate) fn settle(&self) {
        self.ctl(&["eval", "[dets:sync(Table) || Table <- dets:all()]."]);
    }

    /// Kills the broker like a power cut, once the names of its queues are on its disk.
    pub(crate) fn kill(&self) {
        self.settle();
        self.kill_immediately();
    }

    /// Kills the broker like a power cut, even if it has not stored the names of its queues.
    pub(crate) fn kill_immediately(&self) {
        self.process.signal("KILL");
        self.process.wait_for_end();
    }

    /// Stops the broker cleanly.
    pub(crate) fn stop(&self) {
        self.process.signal("TERM");
        self.process.wait_for_end();
    }

    /// Suspends the process; its connections stay open.
    pub(crate) fn freeze(&self) {
        self.is_disturbed.store(true, Ordering::Relaxed);
        self.process.signal("STOP");
    }

    /// Resumes the suspended process.
    pub(crate) fn thaw(&self) {
        self.process.signal("CONT");
        self.is_disturbed.store(false, Ordering::Relaxed);
    }

    /// Raises the memory alarm, under which the broker accepts no messages from publishers.
    pub(crate) fn starve(&self) {
        self.is_disturbed.store(true, Ordering::Relaxed);
        self.ctl(&["set_vm_memory_high_watermark", "absolute", "1000"]);
    }

    /// Clears the memory alarm.
    pub(crate) fn feed(&self) {
        self.ctl(&["set_vm_memory_high_watermark", "absolute", "2GB"]);
        self.is_disturbed.store(false, Ordering::Relaxed);
    }

    /// Runs `rabbitmqctl` and returns its output.
    pub(crate) fn ctl(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("sh");
        command.args(["-c", r#". "$0/environment"; exec "$BIN/rabbitmqctl" --silent "$@""#]);
        let done = command.arg(&self.folder).args(arguments).stdin(Stdio::null()).output().unwrap();
        let output = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "rabbitmqctl {arguments:?}: {output}");
        String::from_utf8_lossy(&done.stdout).into_owned()
    }

    /// Returns the path of the self-signed certificate for encrypted connections.
    pub(crate) fn certificate(&self) -> PathBuf {
        self.folder.join("certificate.pem")
    }

    /// Returns a virtual host that no other test uses.
    pub(crate) fn vhost(&self) -> Vhost<'_> {
        let number = self.vhosts.fetch_add(1, Ordering::Relaxed);
        let name = format!("v{number}");
        if number >= self.existing_vhosts {
            self.ctl(&["add_vhost", &name]);
            self.ctl(&["set_permissions", "--vhost", &name, "guest", ".*", ".*", ".*"]);
        }
        Vhost { broker: self, name }
    }
}

/// Brokers that tests have returned.
static IDLE: Mutex<Vec<Broker>> = Mutex::new(Vec::new());

/// A broker that one test uses. When the test has passed, the next one gets the broker, unless it is stopped, suspended or
/// under an alarm.
#[allow(dead_code, reason = "the benches have no use for it")]
pub(crate) struct ExclusiveBroker(Option<Broker>);

impl Deref for ExclusiveBroker {
    type Target = Broker;

    fn deref(&self) -> &Broker {
        self.0.as_ref().unwrap()
    }
}

impl DerefMut for ExclusiveBroker {
    fn deref_mut(&mut self) -> &mut Broker {
        self.0.as_mut().unwrap()
    }
}

impl Drop for ExclusiveBroker {
    fn drop(&mut self) {
        let broker = self.0.take().unwrap();
        if !std::thread::panicking() && !broker.is_disturbed.load(Ordering::Relaxed) && answers(broker.port) {
            IDLE.lock().unwrap().push(broker);
        }
    }
}

/// Returns true if the port answers as AMQP, which is the last service that the broker starts.
fn answers(port: u16) -> bool {
    let answer = || {
        let mut socket = TcpStream::connect(("127.0.0.1", port))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.write_all(b"AMQP\0\0\x09\x01")?;
        let mut first = [0; 1];
        socket.read_exact(&mut first).map(|()| first)
    };
    let method_frame = [1];
    answer().is_ok_and(|first: [u8; 1]| first == method_frame)
}

fn set_up(folder: &Path, [port, tls_port, epmd, distribution]: [u16; 4], vhosts: usize) {
    for name in ["home", "mnesia", "log"] {
        fs::create_dir(folder.join(name)).unwrap();
    }
    let write = |name: &str, text: String| fs::write(folder.join(name), text).unwrap();
    let at = folder.display();
    write("home/.erlang.cookie", format!("tidings{port}"));
    let mut mode = fs::metadata(folder.join("home/.erlang.cookie")).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut mode, 0o400);
    fs::set_permissions(folder.join("home/.erlang.cookie"), mode).unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    write("certificate.pem", certificate.self_signed(&key).unwrap().pem());
    write("key.pem", key.serialize_pem());
    write("enabled_plugins", "[rabbitmq_shovel].\n".to_owned());
    write("advanced.config", "[].\n".to_owned());
    write("env.conf", String::new());
    write("start", START.to_owned());
    write("end", END.to_owned());
    write(
        "rabbitmq.conf",
        format!(
            "listeners.tcp.1 = 127.0.0.1:{port}\nlisteners.ssl.1 = 127.0.0.1:{tls_port}\n\
             ssl_options.certfile = {at}/certificate.pem\nssl_options.keyfile = {at}/key.pem\nlog.console = false\nvm_memory_high_watermark.absolute = 2GB\n\
             disk_free_limit.absolute = 100MB\nload_definitions = {at}/definitions.json\n"
        ),
    );
    let vhosts: Vec<_> = (0..vhosts).map(|number| format!("v{number}")).chain(["/".to_owned()]).collect();
    let permission = |vhost| json!({ "user": "guest", "vhost": vhost, "configure": ".*", "write": ".*", "read": ".*" });
    let definitions = json!({
        "users": [{
            "name": "guest",
            // Four bytes of salt, and the SHA-256 of the salt and the password "guest".
            "password_hash": "kI3GCrswBLNZQzHJJ95QLoyfAVooYhnvf7jbqiW9BjOYUloe",
            "hashing_algorithm": "rabbit_password_hashing_sha256",
            "tags": "administrator",
        }],
        "vhosts": vhosts.iter().map(|name| json!({ "name": name })).collect::<Vec<_>>(),
        "permissions": vhosts.iter().map(permission).collect::<Vec<_>>(),
    });
    write("definitions.json", definitions.to_string());
    write(
        "environment",
        format!(
            "export BIN={BIN} HOME={at}/home LANG=C.UTF-8 RUNNING_UNDER_SYSTEMD=true\n\
             export RABBITMQ_NODENAME=tidings{port}@localhost RABBITMQ_NODE_PORT={port}\n\
             export RABBITMQ_NODE_IP_ADDRESS=127.0.0.1 RABBITMQ_DIST_PORT={distribution}\n\
             export ERL_EPMD_PORT={epmd} ERL_EPMD_ADDRESS=127.0.0.1 ERL_EPMD_RELAXED_COMMAND_CHECK=1\n\
             export ERL_CRASH_DUMP={at}/erl_crash.dump\n\
             export RABBITMQ_MNESIA_BASE={at}/mnesia RABBITMQ_LOG_BASE={at}/log\n\
             export RABBITMQ_ENABLED_PLUGINS_FILE={at}/enabled_plugins RABBITMQ_CONFIG_FILE={at}/rabbitmq.conf\n\
             export RABBITMQ_ADVANCED_CONFIG_FILE={at}/advanced.config RABBITMQ_CONF_ENV_FILE={at}/env.conf\n\
             export RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS='-kernel inet_dist_use_interface {{127,0,0,1}}'\n"
        ),
    );
}

/// Virtual host of a broker.
#[derive(Clone)]
pub(crate) struct Vhost<'b> {
    broker: &'b Broker,
    /// Name of the virtual host.
    pub(crate) name: String,
}

impl Vhost<'_> {
    /// Returns the URL with the administrator's credentials.
    pub(crate) fn url(&self) -> String {
        self.url_as("guest", "guest")
    }

    /// Returns the URL with the credentials of a user.
    pub(crate) fn url_as(&self, user: &str, password: &str) -> String {
        format!("amqp://{user}:{password}@127.0.0.1:{}/{}", self.broker.port, self.name)
    }

    /// Opens a connection for a test.
    pub(crate) async fn client(&self) -> Client {
        Client::connect(&self.url()).await
    }
}
