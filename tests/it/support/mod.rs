//! Fixtures, fake servers and clients that several tests share.
//!
//! | I need | use |
//! | --- | --- |
//! | the program with its own folder and port; with tokens | [`gateway`]; [`gateway_with_auth`] |
//! | hidden and visible changes, for readers of a part | [`views_fixture`] |
//! | commands of the program, and the lines that a running one prints | [`command_line`], [`printed_lines`] |
//! | a configuration without a gateway | [`config_loader`] |
//! | several nodes on one database; faults of nodes and servers | [`nodes_fixture`]; [`cluster_faults`] |
//! | proof that no two nodes had a duty, and that a shared journal is intact | [`duty_audit`], [`shared_journal_checks`] |
//! | a journal in the process; with rows in every table | [`journal_fixture`]; [`full_journal`] |
//! | a test over every store; one that needs SQLite | [`tested_store`]; [`needs_sqlite`] |
//! | a PostgreSQL; a primary with a synchronous standby | [`postgres`]; [`postgres_pair`] |
//! | RabbitMQ, ActiveMQ, a message bus, and how they are started | [`rabbitmq`], [`activemq`], [`dbus_daemon`]; [`broker_process`] |
//! | Kafka; many brokers; TLS and SASL; record batches | [`kafka`]; [`kafka_mock`]; [`kafka_proxy`]; [`kafka_batches`] |
//! | a broker that misbehaves by script | [`fake_amqp_broker`], [`fake_stomp_broker`] |
//! | a gateway that reads a queue; a client that sends to one | [`amqp_source`], [`stomp_source`]; [`stomp_client`] |
//! | a connection that breaks; that closes after certain bytes; a server that drips | [`breakable_proxy`]; [`cutting_proxy`]; [`dripping_server`] |
//! | nginx | [`nginx`] |
//! | a receiver of requests; of webhooks; of WebSub | [`http_receiver`]; [`webhook_fixture`]; [`websub_fixture`] |
//! | subscriptions over AMQP | [`subscription_fixture`] |
//! | a repository that answers lookups; the server below both | [`fake_fedora3`], [`fake_fedora6`]; [`fake_repository`] |
//! | a repository to crawl | [`crawled_repository`] with [`crawl_fixture`] |
//! | a repository to harvest, with a switch for each misbehaviour | [`scripted_repository`] with [`harvest_fixture`] |
//! | a feed; files with defects; folders | [`scripted_feed`]; [`scripted_files`]; [`folder_fixture`] |
//! | platforms of datasets | [`scripted_platform`], [`platforms_fixture`], [`scripted_dataset`], [`ingest_fixture`], [`fake_archive_org`] |
//! | the judge of results of datasets | [`fatcat_judge`] |
//! | an S3 server; a small disk; a wrong clock | [`s3`]; [`small_disk`]; [`shifted_clock`] |
//! | a reader of streams; one that moves between nodes; of the feed | [`event_stream`]; [`moving_readers`]; [`feed_reader`] |
//! | load while the gateway is killed; clients that connect again | [`chaos`], [`message_load`]; [`reconnecting_client`] |
//! | messages | [`fixtures`], [`fedora3_messages`], [`hoarder_sfm_fixture`], [`arbitrary`] (random values), [`unsettled`] |
//! | a search, a kill loop or a flood that a variable makes longer | [`run_length`] |
//! | a gateway as a repository with OAI-PMH; clients of others that harvest it | [`oai_pmh_fixture`]; [`oai_pmh_harvester`] |
//! | a reader of the IIIF Change Discovery API; a client of LDES | [`iiif_walk`]; [`ldes_client`] |
//! | a browser, Python, xmllint | [`browser`], [`python`], [`xmllint`] |
//! | crawlers on D-Bus | [`xesam_fixture`] |
//! | memory, threads and files of a process | [`resource_watch`] |

pub(crate) mod activemq;
pub(crate) mod amqp_source;
pub(crate) mod arbitrary;
pub(crate) mod breakable_proxy;
pub(crate) mod broker_process;
pub(crate) mod browser;
pub(crate) mod chaos;
pub(crate) mod cluster_faults;
pub(crate) mod command_line;
pub(crate) mod config_loader;
pub(crate) mod crawl_fixture;
pub(crate) mod crawled_repository;
pub(crate) mod cutting_proxy;
pub(crate) mod dbus_daemon;
pub(crate) mod dripping_server;
pub(crate) mod duty_audit;
pub(crate) mod event_stream;
pub(crate) mod fake_amqp_broker;
pub(crate) mod fake_archive_org;
pub(crate) mod fake_fedora3;
pub(crate) mod fake_fedora6;
pub(crate) mod fake_repository;
pub(crate) mod fake_stomp_broker;
pub(crate) mod fatcat_judge;
pub(crate) mod fedora3_messages;
pub(crate) mod feed_reader;
pub(crate) mod fixtures;
pub(crate) mod folder_fixture;
pub(crate) mod full_journal;
pub(crate) mod gateway;
pub(crate) mod gateway_with_auth;
pub(crate) mod harvest_fixture;
pub(crate) mod hoarder_sfm_fixture;
pub(crate) mod http_receiver;
pub(crate) mod iiif_walk;
pub(crate) mod ingest_fixture;
pub(crate) mod journal_fixture;
pub(crate) mod kafka;
pub(crate) mod kafka_batches;
pub(crate) mod kafka_mock;
pub(crate) mod kafka_proxy;
pub(crate) mod ldes_client;
pub(crate) mod message_load;
pub(crate) mod moving_readers;
pub(crate) mod nginx;
pub(crate) mod nodes_fixture;
pub(crate) mod oai_pmh_fixture;
pub(crate) mod oai_pmh_harvester;
pub(crate) mod platforms_fixture;
pub(crate) mod postgres;
pub(crate) mod postgres_pair;
pub(crate) mod printed_lines;
pub(crate) mod promtool;
pub(crate) mod python;
pub(crate) mod rabbitmq;
pub(crate) mod reconnecting_client;
pub(crate) mod resource_watch;
pub(crate) mod resourcesync_reader;
pub(crate) mod run_length;
pub(crate) mod s3;
pub(crate) mod scripted_dataset;
pub(crate) mod scripted_feed;
pub(crate) mod scripted_files;
pub(crate) mod scripted_platform;
pub(crate) mod scripted_repository;
pub(crate) mod shared_journal_checks;
pub(crate) mod shifted_clock;
pub(crate) mod small_disk;
pub(crate) mod stomp_client;
pub(crate) mod stomp_source;
pub(crate) mod subscription_fixture;
pub(crate) mod tested_store;
pub(crate) mod unsettled;
pub(crate) mod varnish;
pub(crate) mod views_fixture;
pub(crate) mod webhook_fixture;
pub(crate) mod websub_fixture;
pub(crate) mod xesam_fixture;
pub(crate) mod xmllint;

/// Marks a test that reads the SQLite file of a gateway, or uses commands for it. The call is the first statement of the
/// test, because `scripts/test-postgres` searches for it below the name.
pub(crate) fn needs_sqlite() {
    assert!(!gateway::is_over_postgres(), "the test needs SQLite, and scripts/test-postgres skips it");
}
