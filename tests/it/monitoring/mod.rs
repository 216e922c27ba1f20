//! The files for Prometheus and Grafana, and the metrics that they rely on, with the metrics of real gateways.

mod alerts;
mod alerts_of_storage;
mod dashboard;
mod every_part;
mod initial_zeros;
