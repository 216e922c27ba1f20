//! Permissions that a user needs at RabbitMQ, as the table of docs/rabbitmq.md lists them: with them everything works, and
//! without any one of them it does not.

use serde_json::Value;

use crate::support::{
    amqp_source::until,
    gateway::Gateway,
    journal_fixture::configuration,
    rabbitmq::{Broker, Vhost},
    subscription_fixture::post,
};

/// A way to use a broker, with the things that the user may configure, write and read.
struct Use {
    about: &'static str,
    permissions: [&'static [Place]; 3],
    /// The subscription of the user, or else its source, without names and URL.
    lines: &'static str,
    is_subscription: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Exchange,
    Queue,
}

use Place::{Exchange, Queue};

const USES: [Use; 5] = [
    Use {
        about: "source with `exchange`",
        permissions: [&[Exchange, Queue], &[Queue], &[Exchange, Queue]],
        lines: "exchange = \"EXCHANGE\"\nqueue = \"QUEUE\"\n",
        is_subscription: false,
    },
    Use {
        about: "source without `exchange`",
        permissions: [&[Queue], &[], &[Queue]],
        lines: "queue = \"QUEUE\"\n",
        is_subscription: false,
    },
    Use {
        about: "source with `declare = false`",
        permissions: [&[], &[], &[Queue]],
        lines: "exchange = \"EXCHANGE\"\nqueue = \"QUEUE\"\ndeclare = false\n",
        is_subscription: false,
    },
    Use {
        about: "subscription with `queues`",
        permissions: [&[Exchange, Queue], &[Exchange, Queue], &[Exchange]],
        lines: "exchange = \"EXCHANGE\"\nqueues = [{ name = \"QUEUE\", type = \"classic\" }]\n",
        is_subscription: true,
    },
    Use {
        about: "subscription with `declare = false`",
        permissions: [&[], &[Exchange], &[]],
        lines: "exchange = \"EXCHANGE\"\ndeclare = false\n",
        is_subscription: true,
    },
];

/// One user: with all permissions of a use, or without one of them.
struct Case {
    name: String,
    index: usize,
    missing: Option<(usize, Place)>,
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (index, used) in USES.iter().enumerate() {
        cases.push(Case { name: format!("u{index}"), index, missing: None });
        for (column, places) in used.permissions.iter().enumerate() {
            for place in *places {
                let name = format!("u{index}-{column}-{}", if *place == Queue { "q" } else { "x" });
                cases.push(Case { name, index, missing: Some((column, *place)) });
            }
        }
    }
    cases
}

impl Case {
    fn place(&self, place: Place) -> String {
        format!("{}-{}", if place == Queue { "queue" } else { "exchange" }, self.name)
    }

    /// Returns the three patterns of `rabbitmqctl set_permissions`.
    fn patterns(&self) -> Vec<String> {
        let columns = USES[self.index].permissions.iter().enumerate();
        let pattern = |(column, places): (usize, &&[Place])| {
            let given = places.iter().filter(|place| self.missing != Some((column, **place)));
            format!("^({})$", given.map(|place| self.place(*place)).collect::<Vec<_>>().join("|"))
        };
        columns.map(pattern).collect()
    }

    fn lines(&self, vhost: &Vhost<'_>) -> String {
        let used = &USES[self.index];
        let lines = used.lines.replace("EXCHANGE", &self.place(Exchange)).replace("QUEUE", &self.place(Queue));
        let url = vhost.url_as(&self.name, "hush");
        let table = if used.is_subscription {
            format!("[subscriptions.{}]\ndelivery = \"amqp\"\nstart = \"beginning\"", self.name)
        } else {
            let kind = if used.lines.contains("declare") { "" } else { "queue_type = \"classic\"\n" };
            format!("[sources.{}]\ntransport = \"amqp\"\ndialect = \"content-change\"\n{kind}", self.name)
        };
        format!("{table}\nurl = \"{url}\"\n{lines}")
    }

    /// Returns whether it works: `None` while it is not known.
    async fn works(&self, gateway: &Gateway) -> Option<Result<(), String>> {
        let (path, list) = if USES[self.index].is_subscription {
            ("/subscriptions", "subscriptions")
        } else {
            ("/sources", "sources")
        };
        let all = gateway.json(path).await;
        let shown = all[list].as_array().unwrap().iter().find(|shown| shown["name"] == self.name.as_str()).unwrap();
        let (state, error) = if USES[self.index].is_subscription {
            (shown["lag"]["changes"] == 0 && shown["state"] == "running", &shown["lastError"]["reason"])
        } else {
            (shown["connection"]["state"] == "connected", &shown["connection"]["lastError"]["reason"])
        };
        match error {
            Value::String(reason) => Some(Err(reason.clone())),
            _ => state.then_some(Ok(())),
        }
    }
}

#[test]
fn page_has_the_permissions() {
    let page = include_str!("../../../docs/rabbitmq.md");
    for used in &USES {
        let columns = used.permissions.map(|places| {
            let names = places.iter().map(|place| if *place == Queue { "queue" } else { "exchange" });
            let names = names.collect::<Vec<_>>().join(", ");
            if names.is_empty() { "–".to_owned() } else { names }
        });
        let row = format!("| {} | {} |\n", used.about, columns.join(" | "));
        assert!(page.contains(&row), "{row}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_permission_is_needed_and_all_are_enough() {
    let vhost = Broker::shared().vhost();
    let cases = cases();
    // The things that a user must not declare are there.
    let client = vhost.client().await;
    for case in cases.iter().filter(|case| USES[case.index].permissions[0].is_empty()) {
        client.exchange(&case.place(Exchange)).await;
        client.queue(&case.place(Queue), "classic").await;
        client.bind(&case.place(Queue), &case.place(Exchange), "#").await;
    }
    // One call, because each takes the program of the broker a second.
    let users: String = cases
        .iter()
        .map(|case| {
            let [configure, write, read] = &case.patterns()[..] else { panic!("three patterns") };
            let (name, vhost) = (&case.name, &vhost.name);
            format!(
                "rabbit_auth_backend_internal:add_user(<<\"{name}\">>, <<\"hush\">>, <<\"test\">>),\
                 rabbit_auth_backend_internal:set_permissions(<<\"{name}\">>, <<\"{vhost}\">>, <<\"{configure}\">>, \
                 <<\"{write}\">>, <<\"{read}\">>, <<\"test\">>),"
            )
        })
        .collect();
    Broker::shared().ctl(&["eval", &format!("{users} ok.")]);

    let folder = tempfile::tempdir().unwrap();
    let lines: String = cases.iter().map(|case| case.lines(&vhost)).collect();
    let file = configuration(folder.path(), &lines);
    let gateway = Gateway::start_with(&folder.path().join("data"), &["--config", &file]);
    post(&gateway, 1).await;
    for case in &cases {
        let about = USES[case.index].about;
        let works = until(&gateway, &case.name, async || case.works(&gateway).await).await;
        match (&case.missing, works) {
            (None, works) => assert_eq!(works, Ok(()), "{about}"),
            (Some((column, _)), works) => {
                let permission = ["configure", "write", "read"][*column];
                let reason = works.expect_err(&format!("{about} does not need to {permission} {}", case.name));
                assert!(reason.contains("refused") || reason.contains("access"), "{}: {reason}", case.name);
            }
        }
    }
}
