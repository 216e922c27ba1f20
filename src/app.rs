//! Wiring.

/// Why the gateway could not serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {}

/// Serves until it is told to stop.
///
/// # Errors
/// When it cannot.
#[expect(clippy::unused_async, reason = "the signature is what the command line is written against")]
pub async fn serve(config: crate::config::Config) -> Result<(), ServeError> {
    drop(config);
    Ok(())
}
