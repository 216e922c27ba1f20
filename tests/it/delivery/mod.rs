//! Deliveries: AMQP, STOMP, webhooks and WebSub, and the administration of subscriptions.

mod amqp;
mod amqp_confirmations;
mod amqp_destinations;
mod change_deliveries;
mod dead_letters;
mod manual_delivery;
mod outbound_destinations;

mod stalled_subscribers;
mod stomp;
mod stomp_alpaca;
mod stomp_camel;
mod stomp_failures;
mod subscription_administration;
mod visibility;
mod webhook;
mod webhook_batches;
mod webhook_example;
mod webhook_restarts;
mod webhook_retries;
mod webhook_secrets;
mod webhook_shapes;
mod websub_distribution;
mod websub_documents;
mod websub_library;
mod websub_restarts;
mod websub_verification;
