"""Pages with commands: those that are walked, and those that are not, with the reason."""

RUN_IT = "README.md#run-it"
TRY_IT = "README.md#try-it"

# Pages that are walked, each with the section that it assumes.
WALKED = {
    "README.md": None,
    "docs/feed.md": TRY_IT,
    "docs/formats.md": None,
    "docs/json.md": RUN_IT,
    "docs/lookups.md": RUN_IT,
    "docs/problems.md": RUN_IT,
    "docs/push.md": None,
    "docs/read-changes.md": TRY_IT,
    "docs/send-changes.md": RUN_IT,
    "docs/snapshot.md": TRY_IT,
    "docs/stream.md": TRY_IT,
    "docs/troubleshooting.md": RUN_IT,
    "docs/websub.md": RUN_IT,
}

# Pages that are not walked, each with the reason and the tests of what they say.
NOT_WALKED = {
    "docs/access.md": "needs certificates and a name of the reader's; tests/it/access, tests/it/web/tls.rs",
    "docs/cluster.md": "needs containers, or several servers; tests/it/cluster/example.rs, tests/it/project/packaging.rs",
    "docs/fedora.md": "needs ActiveMQ; tests/it/sources/stomp.rs, tests/it/lookups",
    "docs/filesets.md": "needs the internet; tests/it/harvest/fileset_*.rs, and README.md",
    "docs/harvester-messages.md": "needs sources of the reader's; tests/it/dialects/sfm.rs, hoarder.rs",
    "docs/harvesting.md": "needs a repository of the reader's; tests/it/harvest, and README.md",
    "docs/logging.md": "needs a log of the reader's; tests/it/telemetry/log.rs",
    "docs/operations.md": "needs an administrator, systemd or containers; tests/it/project/packaging.rs, tests/it/journal",
    "docs/postgresql.md": "needs PostgreSQL; tests/it/journal/store_migration.rs, postgres*.rs",
    "docs/rabbitmq.md": "needs RabbitMQ; tests/it/sources/amqp.rs, tests/it/delivery/amqp.rs",
    "docs/seeding.md": "needs a Fedora; tests/it/crawl",
    "docs/sfm.md": "needs RabbitMQ; tests/it/dialects/sfm_to_indexer.rs",
    "docs/status.md": "needs a broker that is down; tests/it/status",
    "docs/subscriptions.md": "needs a receiver of the reader's; tests/it/delivery/subscription_administration.rs",
    "docs/webhooks.md": "needs a receiver that fails; tests/it/delivery/webhook_retries.rs",
    "docs/xesam.md": "needs a bus of a session; tests/it/xesam",
}
