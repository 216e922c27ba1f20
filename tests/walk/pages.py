"""Pages with commands: those that are walked, and those that are not, with the reason."""

from dataclasses import dataclass


@dataclass
class Walk:
    """Conditions of a page: the page and section whose end it assumes, and services (`services.py`)."""

    after: str | None = None
    services: tuple[str, ...] = ()


RUN_IT = Walk(after="README.md#run-it")
TRY_IT = Walk(after="README.md#try-it")

WALKED = {
    "README.md": Walk(),
    "docs/audit.md": Walk(),
    "docs/connect/alfresco.md": Walk(),
    "docs/connect/alma.md": Walk(),
    "docs/connect/archivematica.md": Walk(),
    "docs/connect/dspace.md": Walk(),
    "docs/connect/cache.md": Walk(),
    "docs/connect/chat.md": Walk(),
    "docs/connect/elasticsearch.md": Walk(),
    "docs/connect/hyrax.md": Walk(),
    "docs/connect/invenio.md": Walk(),
    "docs/connect/s3.md": Walk(),
    "docs/connect/solr.md": Walk(),
    "docs/compare.md": TRY_IT,
    "docs/due.md": Walk(),
    "docs/durable-streams.md": TRY_IT,
    "docs/fedora.md": Walk(services=("activemq",)),
    "docs/export.md": TRY_IT,
    "docs/feed.md": TRY_IT,
    "docs/formats.md": Walk(),
    "docs/gateways.md": Walk(),
    "docs/harvester-messages.md": Walk(),
    "docs/iiif-discovery.md": TRY_IT,
    "docs/json.md": RUN_IT,
    "docs/ldes.md": TRY_IT,
    "docs/logging.md": Walk(),
    "docs/lookups.md": RUN_IT,
    "docs/mapped.md": Walk(),
    "docs/problems.md": RUN_IT,
    "docs/publish-a-feed.md": Walk(),
    "docs/publish.md": Walk(),
    "docs/push.md": Walk(after="docs/sfm.md#start-the-gateway", services=("rabbitmq",)),
    "docs/read-changes.md": TRY_IT,
    "docs/resourcesync.md": TRY_IT,
    "docs/send-changes.md": RUN_IT,
    "docs/sfm.md": Walk(services=("rabbitmq",)),
    "docs/shapes.md": Walk(),
    "docs/snapshot.md": TRY_IT,
    "docs/status.md": Walk(),
    "docs/stomp.md": Walk(services=("activemq",)),
    "docs/stream.md": TRY_IT,
    "docs/troubleshooting.md": RUN_IT,
    "docs/websub.md": RUN_IT,
    "docs/xesam.md": Walk(services=("bus",)),
}

# Pages that are not walked, each with the reason and the tests of what they say.
NOT_WALKED = {
    "docs/access.md": "needs certificates and a name of the reader's; tests/it/access, tests/it/web/tls.rs",
    "docs/cluster.md": "needs containers, or several servers; tests/it/cluster/example.rs, tests/it/project/packaging.rs",
    "docs/filesets.md": "needs the internet; tests/it/harvest/fileset_*.rs, and README.md",
    "docs/harvesting.md": "needs a repository of the reader's; tests/it/harvest, and README.md",
    "docs/off-site.md": "needs another machine; tests/it/journal/offsite_copy.rs, tests/it/journal/logical_replication.rs",
    "docs/operations.md": "needs an administrator, systemd or containers; tests/it/project/packaging.rs, tests/it/journal",
    "docs/postgresql.md": "needs PostgreSQL; tests/it/journal/store_migration.rs, postgres*.rs",
    "docs/rabbitmq.md": "needs an administrator of RabbitMQ; tests/it/sources/amqp.rs, tests/it/delivery/amqp.rs",
    "docs/seeding.md": "needs a Fedora; tests/it/crawl",
    "docs/segments.md": "needs ten thousand changes; tests/it/segments",
    "docs/subscriptions.md": "needs a receiver of the reader's; tests/it/delivery/subscription_administration.rs",
    "docs/webhooks.md": "needs a receiver that fails; tests/it/delivery/webhook_retries.rs",
}
