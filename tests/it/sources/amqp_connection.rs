//! Connection to RabbitMQ: every operation ends within its time limit with an error that names the cause and
//! says whether an administrator must act, and a failed connection leaves nothing behind.

use std::{
    io::Read,
    net::TcpListener,
    time::{Duration, Instant},
};

use tidings::amqp::{AmqpError, BrokerUrl, Connection, Connector, QueueType};

use crate::support::rabbitmq::{Broker, Vhost};

fn connector(url: &str) -> Connector {
    Connector::new(BrokerUrl::parse(url).unwrap(), "a test", None)
}

async fn connected(vhost: &Vhost<'_>) -> Connection {
    connector(&vhost.url()).connect().await.unwrap()
}

async fn refused(url: &str) -> AmqpError {
    let connector = connector(url);
    let attempt = tokio::time::timeout(Duration::from_secs(60), connector.connect()).await;
    match attempt.expect("an attempt has a bound") {
        Ok(_) => panic!("the broker accepted the connection"),
        Err(error) => error,
    }
}

#[tokio::test]
async fn connect_times_out_on_a_silent_peer_and_closes_the_socket() {
    let silent = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = silent.local_addr().unwrap().port();
    let accepting = std::thread::spawn(move || {
        let (mut socket, _) = silent.accept().unwrap();
        let mut rest = Vec::new();
        // Read to the end, because the end comes only if the peer has closed its socket.
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        socket.read_to_end(&mut rest).map(|_| rest)
    });
    let error = refused(&format!("amqp://127.0.0.1:{port}")).await;
    assert!(matches!(error, AmqpError::Timeout { .. }) && error.is_transient(), "{error}");
    assert_eq!(accepting.join().unwrap().expect("the socket was closed"), b"AMQP\0\0\x09\x01");
}

#[tokio::test]
async fn connect_to_a_closed_port_fails_immediately() {
    let free = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let began = Instant::now();
    let error = refused(&format!("amqp://127.0.0.1:{free}")).await;
    assert!(matches!(error, AmqpError::Unreachable(_)) && error.is_transient(), "{error}");
    let error = refused("amqp://no-such-host.invalid").await;
    assert!(matches!(error, AmqpError::Unreachable(_)), "{error}");
    assert!(began.elapsed() < Duration::from_secs(8));
}

#[tokio::test]
async fn connect_reports_errors_that_need_an_administrator() {
    let vhost = Broker::shared().vhost();
    let error = refused(&vhost.url_as("guest", "hush-hush")).await;
    assert!(matches!(error, AmqpError::Credentials(_)) && !error.is_transient(), "{error}");
    assert!(!error.to_string().contains("hush"));
    let error = refused(&vhost.url().replace(&vhost.name, "nowhere")).await;
    assert!(matches!(error, AmqpError::VirtualHost(_)) && !error.is_transient(), "{error}");
    let queue = "q".into();
    // A channel ends with its first error, so each error needs its own channel.
    let (first, second, third) = (connected(&vhost).await, connected(&vhost).await, connected(&vhost).await);
    let error = first.channel().await.unwrap().queue(&queue, QueueType::Quorum, true).await.unwrap_err();
    assert!(matches!(error, AmqpError::NotFound(_)) && !error.is_transient(), "{error}");
    second.channel().await.unwrap().queue(&queue, QueueType::Quorum, false).await.unwrap();
    let error = third.channel().await.unwrap().queue(&queue, QueueType::Classic, false).await.unwrap_err();
    assert!(matches!(error, AmqpError::Mismatch(_)) && !error.is_transient(), "{error}");
}

#[tokio::test]
async fn tls_connects_only_with_a_trusted_certificate() {
    let broker = Broker::shared();
    let vhost = broker.vhost();
    let url = |host: &str| format!("amqps://{host}:{}/{}", broker.tls_port, vhost.name);
    let by = |host: &str, ca| Connector::new(BrokerUrl::parse(&url(host)).unwrap(), "a test", ca);
    for host in ["localhost", "127.0.0.1"] {
        let connection = by(host, Some(broker.certificate())).connect().await.unwrap();
        let channel = connection.channel().await.unwrap();
        channel.queue(&"q".into(), QueueType::Classic, false).await.unwrap();
        channel.close().await;
        connection.close().await;
    }
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("other.pem");
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(&other, params.self_signed(&key).unwrap().pem()).unwrap();
    let empty = folder.path().join("empty.pem");
    std::fs::write(&empty, "").unwrap();
    for (ca, rest) in [
        (Some(other), "no encrypted connection can be made"),
        (None, "no encrypted connection can be made"),
        (Some(empty), "the file contains no certificate"),
        (Some(folder.path().join("none.pem")), "No such file"),
    ] {
        let Err(error) = by("localhost", ca).connect().await else { panic!("the certificate was trusted") };
        assert!(error.to_string().contains(rest) && !error.is_transient(), "{error}");
    }
    // TLS to a plain port, and plain AMQP to the TLS port.
    let plain = url("localhost").replace(&broker.tls_port.to_string(), &broker.port.to_string());
    assert!(!refused(&plain).await.is_transient());
    assert!(refused(&url("localhost").replace("amqps", "amqp")).await.is_transient());
}

#[tokio::test]
async fn close_always_returns() {
    let vhost = Broker::shared().vhost();
    for _ in 0..60 {
        let connection = connected(&vhost).await;
        let (first, second) = (connection.channel().await.unwrap(), connection.channel().await.unwrap());
        // The library's close of a connection may hang when a channel was dropped without being closed.
        drop(first);
        let closing = async {
            second.close().await;
            connection.close().await;
        };
        tokio::time::timeout(Duration::from_secs(6), closing).await.expect("close returns");
    }
}

#[tokio::test]
async fn heartbeat_detects_a_frozen_broker() {
    let broker = Broker::exclusive();
    let vhost = broker.vhost();
    let connection = connected(&vhost).await;
    let channel = connection.channel().await.unwrap();
    channel.queue(&"q".into(), QueueType::Classic, false).await.unwrap();
    let mut consumer = channel.consume(&"q".into(), 1).await.unwrap();
    broker.freeze();
    let began = Instant::now();
    // The heartbeat detects it, because no request is pending.
    let error =
        tokio::time::timeout(Duration::from_secs(20), consumer.next()).await.expect("the frozen broker is detected");
    assert!(matches!(error, Err(AmqpError::ConnectionLost(_))), "{error:?}");
    assert!(began.elapsed() > Duration::from_secs(4), "the heartbeat was not waited for");
    let began = Instant::now();
    channel.close().await;
    connection.close().await;
    assert!(began.elapsed() < Duration::from_secs(6));
    // A new connection fails too, within the time limit.
    let error = refused(&vhost.url()).await;
    assert!(matches!(error, AmqpError::Timeout { .. }), "{error}");
    broker.thaw();
    connected(&vhost).await.close().await;
}

// `starve` blocks its thread for seconds, and a connection without heartbeats would be lost meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_alarm_blocks_publishers_for_a_bounded_time() {
    let broker = Broker::exclusive();
    let vhost = broker.vhost();
    let (publishing, waiting) = (connected(&vhost).await, connected(&vhost).await);
    let (channel, other) = (publishing.channel().await.unwrap(), waiting.channel().await.unwrap());
    channel.queue(&"q".into(), QueueType::Classic, false).await.unwrap();
    channel.confirm().await.unwrap();
    broker.starve();
    let (exchange, key) = ("".into(), "q".into());
    let began = Instant::now();
    let error = loop {
        assert!(began.elapsed() < Duration::from_secs(60), "publishing goes on");
        let bound = Duration::from_secs(3);
        let sent = channel.publish(&exchange, &key, true, b"body", lapin::BasicProperties::default(), bound);
        let sent = tokio::time::timeout(Duration::from_secs(60), sent).await;
        if let Err(error) = sent.expect("publishing has a bound") {
            break error;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    // The caller sets the time limit, because a large message takes longer than a request.
    assert!(matches!(error, AmqpError::Timeout { after, .. } if after.as_secs() == 3), "{error}");
    assert_eq!(publishing.block().as_deref(), Some("low on memory"));
    // Connections that only consume are not blocked.
    other.queue(&"q".into(), QueueType::Classic, true).await.unwrap();
    assert_eq!(waiting.block(), None);
    let began = Instant::now();
    channel.close().await;
    publishing.close().await;
    assert!(began.elapsed() < Duration::from_secs(6));
    broker.feed();
}

#[tokio::test]
async fn killed_broker_is_reported_immediately_and_reconnected() {
    let mut broker = Broker::exclusive();
    let url = broker.vhost().url();
    let connection = connector(&url).connect().await.unwrap();
    let channel = connection.channel().await.unwrap();
    channel.queue(&"q".into(), QueueType::Quorum, false).await.unwrap();
    let mut consumer = channel.consume(&"q".into(), 1).await.unwrap();
    broker.kill();
    let began = Instant::now();
    let ended = consumer.next().await.unwrap_err();
    assert!(ended.is_transient(), "{ended}");
    assert!(began.elapsed() < Duration::from_secs(2), "the library tried to reconnect");
    assert!(channel.queue(&"q".into(), QueueType::Quorum, true).await.is_err());
    assert!(!connection.is_open());
    broker.start_again();
    let began = Instant::now();
    let (_connection, channel, mut consumer) = loop {
        let connection = connector(&url).connect().await.unwrap();
        let channel = connection.channel().await.unwrap();
        // While the queue has no leader, the broker does not respond, or not on this channel.
        match channel.consume(&"q".into(), 1).await {
            Ok(consumer) => break (connection, channel, consumer),
            Err(error) => assert!(error.is_transient() && began.elapsed() < Duration::from_secs(60), "{error}"),
        }
    };
    channel.confirm().await.unwrap();
    let (properties, bound) = (lapin::BasicProperties::default(), Duration::from_secs(10));
    let sent = channel.publish(&"".into(), &"q".into(), true, b"1", properties, bound).await.unwrap();
    assert!(matches!(sent.await.unwrap(), lapin::Confirmation::Ack(None)));
    let delivery = consumer.next().await.unwrap().delivery;
    channel.acknowledge_up_to(delivery.delivery_tag).await.unwrap();
    broker.stop();
    let ended = consumer.next().await.unwrap_err();
    assert!(ended.is_transient(), "{ended}");
}

#[tokio::test]
async fn queue_deletion_cancels_its_consumer() {
    let vhost = Broker::shared().vhost();
    let client = vhost.client().await;
    client.queue("q", "quorum").await;
    let connection = connected(&vhost).await;
    let channel = connection.channel().await.unwrap();
    let mut consumer = channel.consume(&"q".into(), 1).await.unwrap();
    client.delete_queue("q").await;
    assert!(matches!(consumer.next().await, Err(AmqpError::Cancelled)));
    channel.close().await;
    connection.close().await;
    client.close().await;
}
