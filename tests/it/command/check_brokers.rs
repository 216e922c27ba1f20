//! `tidings check --connect` asks a real broker about users, permissions, queues and exchanges, and changes nothing there.

use crate::support::{
    command_line::{CommandResult, command, ended},
    journal_fixture::configuration,
    rabbitmq::Broker,
};

#[tokio::test]
async fn check_reports_what_the_broker_refuses() {
    let broker = Broker::shared();
    let vhost = broker.vhost();
    let user = format!("user-{}", vhost.name);
    broker.ctl(&["add_user", &user, "hush-hush"]);
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let check = |url: &str, declare: bool| -> CommandResult {
        let lines = format!(
            "[sources.queue]\ntransport = \"amqp\"\ndialect = \"content-change\"\nurl = \"{url}\"\nqueue = \"checked\"\n\
             exchange = \"checked.in\"\ndeclare = {declare}\n\
             [subscriptions.index]\ndelivery = \"amqp\"\nurl = \"{url}\"\nexchange = \"checked.out\"\ndeclare = {declare}\n"
        );
        let config = configuration(folder.path(), &lines);
        let arguments = ["check", "--config", &config, "--data", data.to_str().unwrap(), "--listen", "127.0.0.1:0"];
        ended(command(&[&arguments[..], &["--connect"]].concat()).spawn().unwrap())
    };
    let has = |result: &CommandResult, things: &[&str], reason: &str| {
        let (code, _, stderr) = result;
        assert_eq!(*code, 1, "{stderr}");
        for thing in things {
            let line = stderr.lines().find(|line| line.starts_with(&format!("tidings: {thing}: ")));
            assert!(line.is_some_and(|line| line.contains(reason)), "{thing}, {reason}: {stderr}");
        }
        assert!(!stderr.contains("hush"), "{stderr}");
    };
    let both = ["source queue", "subscription index"];
    has(&check(&vhost.url_as(&user, "wrong"), true), &both, "the broker refused the user or the password");
    // A user without any right in the virtual host.
    has(&check(&vhost.url_as(&user, "hush-hush"), true), &both, "the broker refused the virtual host");
    // What the gateway does not declare must exist.
    has(&check(&vhost.url(), false), &both, "the exchange or the queue does not exist");
    // What it declares need not exist, and the check does not make it.
    let (code, _, stderr) = check(&vhost.url(), true);
    assert_eq!((code, stderr.as_str()), (0, ""));
    has(&check(&vhost.url(), false), &both, "the exchange or the queue does not exist");
    let client = vhost.client().await;
    client.exchange("checked.in").await;
    client.exchange("checked.out").await;
    client.queue("checked", "quorum").await;
    client.publish("", "checked", "{}").await;
    let (code, _, stderr) = check(&vhost.url(), false);
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert_eq!(client.waiting("checked").await, 1, "the message is still there");
}
