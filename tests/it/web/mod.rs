//! The HTTP server: limits, errors, TLS and the description of its routes.

mod hostile_requests;
mod limits;
mod many_connections;
mod nginx;
mod openapi;
mod problems;
mod security_headers;
mod tls;
