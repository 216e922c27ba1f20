//! HTTP, with `wrk` and 64 connections: durable hooks beside the same handler without a journal, and an
//! archive page beside nginx, which serves the same bytes from its disk.
//!
//! The gateway is the real program in a process of its own. Client and servers share the machine, as
//! they do for every contender.

mod bare;
mod servers;
mod wrk;

use std::{fs, os::unix::fs::PermissionsExt};

use self::{
    bare::Bare,
    servers::{Gateway, Nginx},
    wrk::Wrk,
};
use super::measure::{Contender, compare};

/// Rounds of each comparison, beside the one that warms up.
const ROUNDS: usize = 5;

pub(crate) fn measure() {
    for tool in ["wrk", "nginx"] {
        if !is_there(tool) {
            eprintln!("The benches of HTTP need wrk and nginx, and {tool} is not there: apt install wrk nginx-light.");
            std::process::exit(1);
        }
    }
    let folder = tempfile::tempdir().unwrap();
    // nginx's workers are another user, where it is started by root.
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let gateway = Gateway::start(&folder.path().join("data"));
    hooks(&gateway);
    pages(&gateway, &Nginx::start(&folder.path().join("nginx"), &gateway.get("/feed/archive/1")));
}

fn is_there(tool: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).chain(["/usr/sbin".into()]).any(|folder| folder.join(tool).is_file())
}

fn hooks(gateway: &Gateway) {
    let bare = Bare::start();
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
            Contender::timed("nginx", || Wrk::getting().known(&tags[0]).rate(&nginx.url)),
            Contender::timed("Tidings", || Wrk::getting().known(&tags[1]).rate(&ours)),
        ],
    );
}
