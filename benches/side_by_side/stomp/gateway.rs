//! The real gateway program with default settings and a source that consumes the queue.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// Interval between two polls of the head.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

struct Gateway {
    child: Child,
    address: String,
}

impl Gateway {
    fn start(folder: &Path, config: &Path) -> Self {
        let mut serve = Command::new(env!("CARGO_BIN_EXE_tidings"));
        serve.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(folder.join("data"));
        let mut child = serve.arg("--config").arg(config).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().rsplit('/').next().unwrap_or_default().to_owned();
        assert!(!address.is_empty(), "the gateway does not start: see {}", config.display());
        Self { child, address }
    }

    fn get(&self, path: &str) -> String {
        let mut socket = TcpStream::connect(&self.address).unwrap();
        write!(socket, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut response = String::new();
        socket.read_to_string(&mut response).unwrap();
        response
    }

    fn head(&self) -> u64 {
        let response = self.get("/readyz");
        let (_, head) = response.split_once("\"head\":").unwrap();
        head.split([',', '}']).next().unwrap().parse().unwrap()
    }

    fn stop(mut self) {
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let _ = self.child.wait();
    }
}

/// Starts a gateway that drains the queue into the journal in `folder`. `lines` are additional settings of the
/// source. Returns, from the first observed change until the feed contains the last one: the number of units and the
/// elapsed time. `units` converts the number of the newest change to units.
pub(crate) fn drain(
    url: &str,
    queue: &str,
    lines: &str,
    folder: &Path,
    count: u64,
    units: &dyn Fn(u64) -> u64,
) -> (u64, Duration) {
    let config = folder.join("tidings.toml");
    let source = "[sources.fedora3]\ntransport = \"stomp\"\ndialect = \"fedora-apim\"\n";
    let table = format!("{source}url = \"{url}\"\ndestination = \"{queue}\"\n{lines}");
    fs::write(&config, table).unwrap();
    let mark = folder.join("head");
    let before: u64 = fs::read_to_string(&mark).map_or(0, |text| text.parse().unwrap());
    let gateway = Gateway::start(folder, &config);
    let until = |head: u64| loop {
        let now = gateway.head();
        if now >= head {
            return now;
        }
        std::thread::sleep(POLL_INTERVAL);
    };
    let first = units(until(before + 1));
    let began = Instant::now();
    let last = until(before + count);
    assert!(gateway.get("/feed").contains("<entry>"), "the feed shows them");
    let took = began.elapsed();
    fs::write(&mark, last.to_string()).unwrap();
    gateway.stop();
    (units(last) - first, took)
}
