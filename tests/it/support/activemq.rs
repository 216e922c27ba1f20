//! An ActiveMQ that the tests start on free ports, in its own folder, as the user who runs the tests. It speaks
//! STOMP, and the shared one OpenWire, too. An ActiveMQ of the operating system is not touched.
//!
//! [`Broker::shared`] is for all tests that do not stop the broker; each uses its own destinations.
//! [`Broker::start`] is for a test that stops or kills its broker.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use super::broker_process::{BrokerProcess, PATIENCE, free_ports};

/// Folder of Debian's ActiveMQ package.
const HOME: &str = "/usr/share/activemq";

/// User besides the anonymous one, and its password. Only this user may read the queues `private.>`.
pub(crate) const USER: &str = "tidings";
pub(crate) const PASSWORD: &str = "hush-hush";

/// Queue whose messages are copied to a second queue.
pub(crate) const COMPOSED: &str = "public.composed";
pub(crate) const COPIED: &str = "public.copied";

/// Maximum size of a body at one of the ports.
pub(crate) const SMALL_BODY: usize = 3000;

/// Password of the keystore for the encrypted port.
const KEYSTORE: &str = "changeit";

/// A running broker.
pub(crate) struct Broker {
    folder: PathBuf,
    /// Port for plain connections.
    pub(crate) port: u16,
    /// Port for encrypted connections; only the shared broker has one.
    pub(crate) tls_port: u16,
    /// Port for STOMP with bodies of up to [`SMALL_BODY`] bytes; only the shared broker has one.
    pub(crate) small_port: u16,
    /// Port for OpenWire; only the shared broker has one.
    openwire_port: u16,
    /// Process of the broker.
    pub(crate) process: BrokerProcess,
    names: AtomicUsize,
}

impl Broker {
    /// Returns the broker that all non-destructive tests share.
    pub(crate) fn shared() -> &'static Self {
        static SHARED: OnceLock<Broker> = OnceLock::new();
        SHARED.get_or_init(|| Self::start_as(true))
    }

    /// Starts a broker and waits until it accepts connections.
    pub(crate) fn start() -> Self {
        Self::start_as(false)
    }

    fn start_as(is_shared: bool) -> Self {
        assert!(
            Path::new(HOME).join("bin/activemq.jar").exists(),
            "this test needs ActiveMQ: run scripts/test, which installs Debian's activemq"
        );
        let folder = tempfile::Builder::new().prefix("tidings-activemq-").tempdir().unwrap().keep();
        let [port, tls_port, small_port, openwire_port] = free_ports();
        set_up(&folder, port, is_shared.then_some([tls_port, small_port, openwire_port]));
        let process = BrokerProcess::of(&folder);
        let mut broker =
            Self { process, folder, port, tls_port, small_port, openwire_port, names: AtomicUsize::new(0) };
        broker.start_again();
        broker
    }

    /// Starts the broker again with its existing data and waits until it accepts connections.
    pub(crate) fn start_again(&mut self) {
        let port = self.port;
        self.process.start(|| answers(port));
    }

    /// Kills the broker like a power cut.
    pub(crate) fn kill(&self) {
        self.process.signal("KILL");
        self.process.wait_for_end();
    }

    /// Returns the URL without credentials.
    pub(crate) fn url(&self) -> String {
        format!("stomp://127.0.0.1:{}", self.port)
    }

    /// Reads messages of a queue that a selector selects with ActiveMQ's own Java client, over OpenWire. Each is a list of
    /// names and values: the kind of message with its text, and the properties.
    pub(crate) fn consume_with_openwire(
        &self,
        queue: &str,
        messages: usize,
        selector: &str,
    ) -> Vec<Vec<(String, String)>> {
        // Java compiles the file before it runs it.
        let mut consumer = Command::new("java");
        consumer.args(["-cp", &format!("{HOME}/lib/*")]);
        consumer.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/support/OpenWireConsumer.java"));
        let url = format!("tcp://127.0.0.1:{}", self.openwire_port);
        let done = consumer.args([&url, queue, &messages.to_string(), selector]).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let pair = |line: &str| line.split_once('\t').map(|(name, value)| (name.to_owned(), value.to_owned())).unwrap();
        let output = String::from_utf8(done.stdout).unwrap();
        output.trim_end().split("\n\n").map(|message| message.lines().map(pair).collect()).collect()
    }

    /// Returns the path of the self-signed certificate for encrypted connections.
    pub(crate) fn certificate(&self) -> PathBuf {
        self.folder.join("certificate.pem")
    }

    /// Returns a destination name that no other test uses.
    pub(crate) fn name(&self) -> String {
        format!("public.{}", self.names.fetch_add(1, Ordering::Relaxed))
    }
}

/// Returns true if the port answers as STOMP.
fn answers(port: u16) -> bool {
    let answer = || {
        let mut socket = TcpStream::connect(("127.0.0.1", port))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.write_all(b"CONNECT\naccept-version:1.2\nhost:h\n\n\0")?;
        let mut first = [0; 9];
        socket.read_exact(&mut first).map(|()| first)
    };
    answer().is_ok_and(|first: [u8; 9]| first == *b"CONNECTED")
}

fn set_up(folder: &Path, port: u16, more_ports: Option<[u16; 3]>) {
    let at = folder.display();
    let (mut tls, mut connector) = (String::new(), String::new());
    if let Some([tls_port, small_port, openwire_port]) = more_ports {
        make_certificate(folder);
        tls = format!(
            "<sslContext><sslContext keyStore=\"file:{at}/keystore\" keyStorePassword=\"{KEYSTORE}\"/></sslContext>"
        );
        connector = format!(
            "<transportConnector name=\"encrypted\" uri=\"stomp+ssl://127.0.0.1:{tls_port}\"/>\
             <transportConnector name=\"small\" uri=\"stomp://127.0.0.1:{small_port}?wireFormat.maxDataLength={SMALL_BODY}\"/>\
             <transportConnector name=\"openwire\" uri=\"tcp://127.0.0.1:{openwire_port}\"/>"
        );
    }
    let all = "read=\"anonymous,users\" write=\"anonymous,users\" admin=\"anonymous,users\"";
    // The elements must be in the order of the schema. The permissions of all entries that match a destination
    // are combined.
    let config = format!(
        r#"<beans xmlns="http://www.springframework.org/schema/beans" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
 xsi:schemaLocation="http://www.springframework.org/schema/beans http://www.springframework.org/schema/beans/spring-beans.xsd http://activemq.apache.org/schema/core http://activemq.apache.org/schema/core/activemq-core.xsd">
<broker xmlns="http://activemq.apache.org/schema/core" brokerName="tests" dataDirectory="{at}/data" useJmx="false">
<destinationInterceptors><virtualDestinationInterceptor><virtualDestinations>
<virtualTopic name="VirtualTopic.>" prefix="Consumer.*."/>
<compositeQueue name="{COMPOSED}" forwardOnly="false"><forwardTo><queue physicalName="{COPIED}"/></forwardTo></compositeQueue></virtualDestinations></virtualDestinationInterceptor></destinationInterceptors>
<persistenceAdapter><kahaDB directory="{at}/data/kahadb"/></persistenceAdapter>
<plugins>
<simpleAuthenticationPlugin anonymousAccessAllowed="true" anonymousUser="anonymous" anonymousGroup="anonymous">
<users><authenticationUser username="{USER}" password="{PASSWORD}" groups="users"/></users></simpleAuthenticationPlugin>
<authorizationPlugin><map><authorizationMap><authorizationEntries>
<authorizationEntry queue="public.>" {all}/><authorizationEntry topic="public.>" {all}/>
<authorizationEntry queue="Consumer.>" {all}/><authorizationEntry topic="VirtualTopic.>" {all}/>
<authorizationEntry topic="ActiveMQ.Advisory.>" {all}/>
<authorizationEntry queue="private.>" read="users" write="anonymous,users" admin="anonymous,users"/>
</authorizationEntries></authorizationMap></map></authorizationPlugin>
</plugins>
{tls}<transportConnectors><transportConnector name="stomp" uri="stomp://127.0.0.1:{port}"/>{connector}</transportConnectors>
</broker></beans>
"#
    );
    fs::write(folder.join("activemq.xml"), config).unwrap();
    let start = format!(
        "exec java -Xmx512m -XX:+UseSerialGC -Djava.io.tmpdir={at} -Dactivemq.home={HOME} -Dactivemq.base={at} \
         -Dactivemq.conf={at} -Dactivemq.data={at}/data -jar {HOME}/bin/activemq.jar start xbean:file:{at}/activemq.xml\n"
    );
    fs::write(folder.join("start"), start).unwrap();
}

/// Creates a key and a certificate with Java's keytool.
fn make_certificate(folder: &Path) {
    let keytool = |arguments: &[&str]| {
        let mut command = Command::new("keytool");
        command.args(arguments).args(["-alias", "tests", "-storepass", KEYSTORE, "-keystore"]);
        let made = command.arg(folder.join("keystore")).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stdout));
    };
    let names = "san=dns:localhost,ip:127.0.0.1";
    keytool(&["-genkeypair", "-keyalg", "EC", "-dname", "CN=localhost", "-ext", names, "-storetype", "PKCS12"]);
    let certificate = folder.join("certificate.pem");
    keytool(&["-exportcert", "-rfc", "-file", certificate.to_str().unwrap()]);
}
