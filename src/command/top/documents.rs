//! The documents of a gateway that `tidings top` shows.

use reqwest::Method;
use serde_json::Value;

use crate::command::gateway::{Gateway, GatewayError};

/// Documents of a gateway about itself.
#[derive(Clone, Debug, Default)]
pub(super) struct Documents {
    pub(super) status: Value,
    pub(super) sources: Value,
    pub(super) harvests: Value,
    pub(super) subscriptions: Value,
    pub(super) flow: Value,
}

impl Documents {
    /// Reads all documents.
    ///
    /// # Errors
    /// Fails if one of them cannot be read.
    pub(super) async fn read(gateway: &Gateway) -> Result<Self, GatewayError> {
        let get = |path| gateway.request(Method::GET, path, None);
        let (status, sources, harvests, subscriptions, flow) = tokio::try_join!(
            get("/status"),
            get("/sources"),
            get("/harvests"),
            get("/subscriptions"),
            get("/flow?span=hour")
        )?;
        Ok(Self { status, sources, harvests, subscriptions, flow })
    }
}

/// Returns the elements of an array.
pub(super) fn elements(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Returns the element with a name.
pub(super) fn named<'v>(list: &'v Value, name: &Value) -> &'v Value {
    elements(list).iter().find(|element| element["name"] == *name).unwrap_or(&Value::Null)
}
