//! Computes the tables of `docs/capacity.md` from measured figures and named assumptions: `cargo bench --bench capacity`.
//! It measures nothing itself.

#![allow(
    missing_docs,
    clippy::print_stdout,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss
)]

mod figures;
mod journal;
mod sizing;

fn main() {
    figures::print();
    journal::print();
    sizing::print();
}
