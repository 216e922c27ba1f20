//! HTTP, with `wrk` and 64 connections: durable hooks, compared with the same handler without a journal, and an
//! archive page, compared with nginx, which serves the same bytes from disk.
//!
//! The gateway is the real program in its own process. Client and servers run on the same machine.

mod bare;
pub(crate) mod servers;
pub(crate) mod wrk;

use std::{fs, os::unix::fs::PermissionsExt};

use self::{
    bare::BareServer,
    servers::{Gateway, Nginx},
    wrk::Wrk,
};
use super::measure::{Contender, compare};

/// Number of rounds of each comparison, after a warm-up round.
const ROUNDS: usize = 5;

pub(crate) fn measure() {
    require(&[("wrk", "wrk"), ("nginx", "nginx-light")]);
    let folder = tempfile::tempdir().unwrap();
    // If root starts nginx, its workers run as another user.
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let gateway = Gateway::start(&folder.path().join("data"));
    hooks(&gateway);
    pages(&gateway, &Nginx::start(&folder.path().join("nginx"), &gateway.get("/feed/archive/1")));
}

/// Ends the benchmark if a program is not installed. Each has the Debian package that contains it.
pub(crate) fn require(programs: &[(&str, &str)]) {
    if let Some((program, package)) = programs.iter().find(|(program, _)| !is_installed(program)) {
        eprintln!("This benchmark needs {program}, which is not installed: apt install {package}.");
        std::process::exit(1);
    }
}

fn is_installed(tool: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).chain(["/usr/sbin".into()]).any(|folder| folder.join(tool).is_file())
}

fn hooks(gateway: &Gateway) {
    let bare = BareServer::start();
    let mut run = 0;
    let mut post = |url: &str| {
        run += 1;
        Wrk::posting(run).rate(&format!("{url}/hooks/fedora3"))
    };
    let post = std::cell::RefCell::new(&mut post);
    compare(
        "hooks, 64 connections, 1.2 kB a message",
        "requests",
        ROUNDS,
        vec![
            Contender::timed("the same handler without a journal", || (post.borrow_mut())(&bare.url)),
            Contender::timed("durable", || (post.borrow_mut())(&gateway.url)),
        ],
    );
}

fn pages(gateway: &Gateway, nginx: &Nginx) {
    let ours = format!("{}/feed/archive/1", gateway.url);
    let size = gateway.get("/feed/archive/1").len() / 1000;
    compare(
        &format!("an archive page of {size} kB, 64 connections"),
        "requests",
        ROUNDS,
        vec![
            Contender::timed("nginx", || Wrk::getting().rate(&nginx.url)),
            Contender::timed("Tidings", || Wrk::getting().rate(&ours)),
        ],
    );
    let tags = [servers::etag(&nginx.url), servers::etag(&ours)];
    compare(
        "304 to If-None-Match, 64 connections",
        "requests",
        ROUNDS,
        vec![
            Contender::timed("nginx", || Wrk::getting().if_none_match(&tags[0]).rate(&nginx.url)),
            Contender::timed("Tidings", || Wrk::getting().if_none_match(&tags[1]).rate(&ours)),
        ],
    );
}
