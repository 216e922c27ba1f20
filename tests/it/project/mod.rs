//! The source tree and the packaging.

mod architecture;
mod packaging;
