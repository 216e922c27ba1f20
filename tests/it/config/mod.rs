//! Configuration: layers, defaults, limits and error messages.

mod access_errors;
mod earlier_version;
mod errors;
mod harvest_errors;
mod harvest_schema;
mod layers;
mod limits_page;
mod repository_errors;
mod secret_errors;
mod several_errors;
mod subscription_errors;
