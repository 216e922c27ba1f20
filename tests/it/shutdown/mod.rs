//! The end of the process, on request and after a failure.

mod signals;
mod worker_deaths;
