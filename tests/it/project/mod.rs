//! The source tree and the packaging.

mod architecture;
mod circles;
mod command_output;
mod foreign_input;
mod packages;
mod packaging;
mod test_files;
