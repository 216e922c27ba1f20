//! Configuration: layers, defaults, limits and error messages.

mod earlier_version;
pub(crate) mod errors;
mod layers;
mod limits_page;
mod repository_errors;
mod subscription_errors;
