//! Configuration: layers, defaults, limits and error messages.

mod earlier_version;
mod errors;
mod harvest_errors;
mod layers;
mod limits_page;
mod repository_errors;
mod secret_errors;
mod subscription_errors;
