//! Allowed destinations of outbound requests, with real sockets. 127.0.0.2 is on the allow list and plays the
//! public internet; 127.0.0.1 is not, and plays the private network.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::http::HeaderMap;
use bytes::Bytes;
use tidings::http_client::{
    AllowList, Client, ClientError, ClientSettings, NameResolver, OutboundPolicy, OutboundUrl, ResolveFuture,
};

use crate::support::http_receiver::{Receiver, Reply};

const PUBLIC: &str = "127.0.0.2";
const PRIVATE: &str = "127.0.0.1";

/// DNS resolver that resolves every name, with one scripted answer for each query; the last one is repeated.
struct ScriptedResolver(Mutex<Vec<Vec<IpAddr>>>);

impl NameResolver for ScriptedResolver {
    fn find(&self, _: &str) -> ResolveFuture {
        let mut answers = self.0.lock().unwrap();
        let answer = if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() };
        Box::pin(async move { if answer.is_empty() { Err(io::Error::other("no such name")) } else { Ok(answer) } })
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

async fn client(allow: &[&str], answers: Vec<Vec<IpAddr>>) -> (Client, OutboundPolicy) {
    let guard = OutboundPolicy::restricted(AllowList::parse(allow).unwrap());
    let resolver = Arc::new(ScriptedResolver(Mutex::new(answers)));
    let wait = Duration::from_secs(5);
    let settings = ClientSettings {
        resolver,
        connect_timeout: wait,
        response_timeout: wait,
        ..ClientSettings::new(guard.clone())
    };
    (Client::new(settings).await.unwrap(), guard)
}

/// Starts two servers on the same port, a public and a private one.
async fn servers(public: impl Fn(SocketAddr) -> Reply + Send + Sync + 'static) -> (Receiver, Receiver) {
    loop {
        let private = Receiver::at(SocketAddr::new(ip(PRIVATE), 0), |_, _| Reply::of(200)).await;
        let address = SocketAddr::new(ip(PUBLIC), private.address.port());
        // The port may be in use at the other address.
        if std::net::TcpListener::bind(address).is_ok() {
            let inside = private.address;
            return (Receiver::at(address, move |_, _| public(inside)).await, private);
        }
    }
}

async fn post(client: &Client, guard: &OutboundPolicy, url: &str) -> Result<u16, ClientError> {
    let to = OutboundUrl::parse(url, guard).unwrap();
    client.post(&to, HeaderMap::new(), Bytes::from_static(b"hello")).await.map(|answer| answer.status.as_u16())
}

#[tokio::test]
async fn name_with_a_private_ip_is_refused() {
    let private = Receiver::start(|_, _| Reply::of(200)).await;
    let port = private.address.port();
    for inside in [
        "127.0.0.1",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.0.1",
        "100.64.0.1",
        "169.254.169.254",
        "0.0.0.0",
        "255.255.255.255",
        "224.0.0.1",
        "240.0.0.1",
        "192.0.2.1",
        "198.18.0.1",
        "192.0.0.1",
        "::",
        "::1",
        "fd00::1",
        "fe80::1",
        "ff02::1",
        "2001:db8::1",
        "::ffff:127.0.0.1",
        "::127.0.0.1",
        "64:ff9b::7f00:1",
        "64:ff9b:1::7f00:1",
        "2002:7f00:1::",
        "2001::f5ff:fffe",
    ] {
        let (client, guard) = client(&["127.0.0.2"], vec![vec![ip(inside)]]).await;
        for url in [format!("https://inside.example:{port}/"), format!("http://inside.example:{port}/")] {
            let refused = post(&client, &guard, &url).await.unwrap_err();
            let text = refused.to_string();
            assert!(matches!(refused, ClientError::NotAllowed(_)), "{url} at {inside}: {text}");
            assert!(text.contains("delivery.allow"), "{text}");
        }
    }
    // Plain HTTP to a public address is refused too.
    let (client, guard) = client(&["127.0.0.2"], vec![vec![ip("8.8.8.8")]]).await;
    let refused = post(&client, &guard, &format!("http://public.example:{port}/")).await.unwrap_err();
    assert!(refused.to_string().contains("not encrypted"), "{refused}");
    assert_eq!(private.connections(), 0);
}

#[tokio::test]
async fn url_is_checked_again_on_every_request() {
    let private = Receiver::start(|_, _| Reply::of(200)).await;
    let (client, _) = client(&["127.0.0.2"], vec![vec![ip(PUBLIC)]]).await;
    for url in [private.url(), format!("http://[::ffff:127.0.0.1]:{}/", private.address.port())] {
        let refused = post(&client, &OutboundPolicy::unrestricted(), &url).await.unwrap_err();
        assert!(matches!(refused, ClientError::NotAllowed(_)), "{refused}");
    }
    assert_eq!(private.connections(), 0);
}

#[tokio::test]
async fn redirect_is_not_followed() {
    for status in [301, 302, 303, 307, 308] {
        let moved = move |inside: SocketAddr| {
            Reply::Answer(status, vec![("location", format!("http://{inside}/secret"))], String::new())
        };
        let (public, private) = servers(moved).await;
        let (client, guard) = client(&["127.0.0.2"], vec![vec![ip(PUBLIC)]]).await;
        assert_eq!(post(&client, &guard, &public.url()).await.unwrap(), status);
        assert_eq!((public.requests().len(), private.connections()), (1, 0));
    }
}

#[tokio::test]
async fn dns_answer_with_public_and_private_ips_uses_only_the_public_one() {
    let (public, private) = servers(|_| Reply::of(200)).await;
    let port = public.address.port();
    let url = format!("http://mixed.example:{port}/");
    let mixed = vec![ip(PRIVATE), ip(PUBLIC), ip("10.0.0.1"), ip("::1")];
    let (client, guard) = client(&["127.0.0.2"], vec![mixed]).await;
    assert_eq!(post(&client, &guard, &url).await.unwrap(), 200);
    assert_eq!((public.requests().len(), private.connections()), (1, 0));
    // The other address is not used as a fallback either.
    drop(public);
    let mut tries = 0;
    while let Ok(status) = post(&client, &guard, &url).await {
        // The client may still hold the connection that the server has just closed.
        assert_eq!((status, tries < 10), (200, true));
        tries += 1;
    }
    assert_eq!(private.connections(), 0);
}

#[tokio::test]
async fn dns_rebinding_is_refused() {
    let closes = |_| Reply::Answer(200, vec![("connection", "close".to_owned())], String::new());
    let (public, private) = servers(closes).await;
    let url = format!("http://rebinding.example:{}/", public.address.port());
    // The checked IP address is the one that is connected to: each connection makes one DNS query.
    let answers = vec![vec![ip(PUBLIC)], vec![ip(PRIVATE)], vec![ip(PUBLIC)], vec![ip(PRIVATE)]];
    let (client, guard) = client(&["127.0.0.2"], answers).await;
    assert_eq!(post(&client, &guard, &url).await.unwrap(), 200);
    assert!(matches!(post(&client, &guard, &url).await, Err(ClientError::NotAllowed(_))));
    assert_eq!(post(&client, &guard, &url).await.unwrap(), 200);
    assert!(matches!(post(&client, &guard, &url).await, Err(ClientError::NotAllowed(_))));
    assert_eq!((public.requests().len(), private.connections()), (2, 0));
}

#[tokio::test]
async fn allow_list_name_may_resolve_to_a_private_ip() {
    let private = Receiver::start(|_, _| Reply::of(204)).await;
    let (client, guard) = client(&["indexer.internal"], vec![vec![ip(PRIVATE)]]).await;
    let url = format!("http://indexer.internal:{}/", private.address.port());
    assert_eq!(post(&client, &guard, &url).await.unwrap(), 204);
    let requests = private.requests().clone();
    assert_eq!((requests[0].method.as_str(), requests[0].body.as_slice()), ("POST", b"hello".as_slice()));
    assert!(requests[0].header("user-agent").starts_with("tidings/"), "{:?}", requests[0].headers);
}

#[tokio::test]
async fn response_body_is_read_up_to_its_limit() {
    let endless = Receiver::start(|_, _| Reply::Flood(200)).await;
    let settings = ClientSettings::new(OutboundPolicy::unrestricted());
    let most = settings.max_body_bytes;
    let client = Client::new(settings).await.unwrap();
    let to = OutboundUrl::parse(&endless.url(), &OutboundPolicy::unrestricted()).unwrap();
    let answer = client.post(&to, HeaderMap::new(), Bytes::new()).await.unwrap();
    assert_eq!((answer.status.as_u16(), answer.body_start.len()), (200, most));
    // The client reads no more than the socket buffers hold.
    let began = std::time::Instant::now();
    let mut before = u64::MAX;
    while endless.flooded() != before {
        before = endless.flooded();
        assert!(before < 50_000_000 && began.elapsed() < crate::support::gateway::PATIENCE, "{before}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn ca_certificates_matter_only_for_https() {
    let receiver = Receiver::start(|_, _| Reply::of(200)).await;
    let guard = OutboundPolicy::unrestricted();
    let ca = Some("/nowhere/ca.pem".into());
    let client = Client::new(ClientSettings { ca, ..ClientSettings::new(guard.clone()) }).await.unwrap();
    assert_eq!(post(&client, &guard, &receiver.url()).await.unwrap(), 200);
    let refused = post(&client, &guard, "https://127.0.0.1:1/").await.unwrap_err().to_string();
    assert!(refused.starts_with("cannot read the CA certificate /nowhere/ca.pem"), "{refused}");
}
