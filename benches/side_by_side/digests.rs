//! Durable hooks, with `wrk` and 64 connections, while a mirror asks for the digests of the registry. An append itself does
//! nothing for digests: a request reads the changes since the last one.

use std::{
    cell::RefCell,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use serde_json::json;

use super::{
    http::{require, servers::Gateway, wrk::Wrk},
    measure::{Contender, compare},
};

const ROUNDS: usize = 5;

pub(crate) fn measure() {
    require(&[("wrk", "wrk")]);
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(&folder.path().join("data"));
    let run = RefCell::new(0);
    let post = || {
        *run.borrow_mut() += 1;
        Wrk::posting(*run.borrow()).rate(&format!("{}/hooks/fedora3", gateway.url))
    };
    compare(
        "hooks, 64 connections, 1.2 kB a message",
        "requests",
        ROUNDS,
        vec![
            Contender::timed("nobody compares", post),
            Contender::timed("a mirror compares every three seconds", || {
                beside(&gateway, Duration::from_secs(3), post)
            }),
            Contender::timed("a mirror compares each second", || beside(&gateway, Duration::from_secs(1), post)),
        ],
    );
}

/// Does the work while the digests of all objects are requested, each time after a pause.
fn beside<T>(gateway: &Gateway, pause: Duration, work: impl FnOnce() -> T) -> T {
    let ended = AtomicBool::new(false);
    let url = format!("{}/registry/digests", gateway.url);
    thread::scope(|scope| {
        scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let _ = rustls::crypto::ring::default_provider().install_default();
            let client = reqwest::Client::builder().no_proxy().build().unwrap();
            while !ended.load(Ordering::Relaxed) {
                let body = json!({ "ranges": [{}], "parts": 256, "facts": "all", "filter": {} }).to_string();
                let request = client.post(&url).header("content-type", "application/json").body(body);
                let status = runtime.block_on(request.send()).unwrap().status();
                // The first requests read the registry.
                assert!([200, 503].contains(&status.as_u16()), "{status}");
                thread::park_timeout(pause);
            }
        });
        let result = work();
        ended.store(true, Ordering::Relaxed);
        result
    })
}
