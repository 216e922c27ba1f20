//! Transports in: how messages reach the gateway. A transport knows how to receive, to acknowledge
//! and to report, and nothing of what a message says: it hands bytes and headers to
//! [`crate::intake`] and acknowledges what the intake has put on disk.
//!
//! A transport that reads from a broker is a [`brokered::Broker`], and its settings are [`brokered::BrokerSettings`],
//! which `config::transport` lists.

pub mod amqp;
pub mod brokered;
pub mod http;
pub mod rate;
pub mod stomp;
