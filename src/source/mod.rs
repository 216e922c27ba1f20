//! Inbound transports, through which messages reach the gateway. A transport receives, acknowledges and
//! reports, and does not look into messages. It passes bytes and headers to [`crate::intake`], and
//! acknowledges messages that the intake has put on disk.
//!
//! A transport that reads from a broker implements [`consumer::Broker`]. Its settings implement
//! [`consumer::BrokerSettings`], and `config::transport` lists them.

pub mod amqp;
pub mod challenge;
pub mod consumer;
pub mod http;
#[cfg(feature = "kafka")]
pub mod kafka;
pub mod rate;
pub mod stomp;
