//! Sources that read from message brokers.

mod activemq_kills;
mod amqp;
mod amqp_connection;
mod amqp_failures;
mod amqp_malformed_messages;
mod amqp_permissions;
mod control;
mod mapped;
mod rabbitmq_kills;
mod stomp;
mod stomp_connection;
mod stomp_failures;
pub(crate) mod stomp_sessions;
