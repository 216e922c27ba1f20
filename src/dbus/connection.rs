//! A connection to a bus.

use std::{sync::Arc, time::Duration};

use futures_util::StreamExt;
use tokio::time::timeout;
use zbus::{
    Message, MessageStream,
    connection::Builder,
    fdo::{RequestNameFlags, RequestNameReply},
    message::Type,
    object_server::Interface,
};

use super::{
    address::{Bus, Name, Path},
    replies::{Replies, Reply},
};

/// Name and path of the bus itself.
const BUS: (&str, &str) = ("org.freedesktop.DBus", "/org/freedesktop/DBus");

/// Maximum time to connect, and for the bus itself to answer a call.
const BUS_TIMEOUT: Duration = Duration::from_secs(10);

/// Errors by which a bus or a peer says that an object is not there.
const GONE: [&str; 8] = [
    "org.freedesktop.DBus.Error.ServiceUnknown",
    "org.freedesktop.DBus.Error.NameHasNoOwner",
    "org.freedesktop.DBus.Error.UnknownObject",
    "org.freedesktop.DBus.Error.UnknownInterface",
    "org.freedesktop.DBus.Error.UnknownMethod",
    "org.freedesktop.DBus.Error.NoReply",
    "org.freedesktop.DBus.Error.Disconnected",
    "org.freedesktop.DBus.Error.AccessDenied",
];

/// Error by which a bus says that too many calls wait for replies.
const LIMITS_EXCEEDED: &str = "org.freedesktop.DBus.Error.LimitsExceeded";

/// Error of a connection.
#[derive(Clone, Debug, thiserror::Error)]
pub enum BusError {
    /// The connection cannot be made, or has failed.
    #[error("cannot use the bus: {0}")]
    Failed(#[from] zbus::Error),
    /// The bus does not answer.
    #[error("the bus does not answer within {} seconds", BUS_TIMEOUT.as_secs())]
    Timeout,
    /// The bus has ended the connection.
    #[error("the bus has ended the connection")]
    Closed,
    /// Another program has the name.
    #[error("another program has the name {0} on the bus")]
    NameTaken(String),
}

/// Error of a call to a peer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The connection has ended.
    #[error("the connection to the bus has ended")]
    Disconnected,
    /// The peer or its object is not there.
    #[error("{name}: {text}")]
    Gone {
        /// Name of the error.
        name: String,
        /// Description of the error.
        text: String,
    },
    /// The bus carries no more calls at present. A later attempt may succeed.
    #[error("the bus allows no more calls without replies: {0}")]
    Busy(String),
    /// The peer replied with an error.
    #[error("{name}: {text}")]
    Refused {
        /// Name of the error.
        name: String,
        /// Description of the error.
        text: String,
    },
    /// The message is not valid.
    #[error("the message is not valid: {0}")]
    Invalid(String),
}

impl CallError {
    /// Returns the error of a reply.
    pub(super) fn of_reply(reply: &Message) -> Self {
        let name = reply.header().error_name().map(ToString::to_string).unwrap_or_default();
        let text = reply.body().deserialize::<&str>().unwrap_or_default().chars().take(500).collect();
        match name.as_str() {
            LIMITS_EXCEEDED => Self::Busy(text),
            gone if GONE.contains(&gone) => Self::Gone { name, text },
            _ => Self::Refused { name, text },
        }
    }
}

/// Handle to a connection. Clones share it. It works while its [`Incoming`] is polled.
#[derive(Clone)]
pub struct Connection {
    bus: zbus::Connection,
    replies: Arc<Replies>,
}

/// Messages that arrive over a connection.
pub struct Incoming {
    messages: MessageStream,
    replies: Arc<Replies>,
}

/// Returns a call of a method.
///
/// # Errors
/// Fails if a name is invalid, or the arguments exceed the limits of a message.
pub fn message<B: serde::Serialize + zbus::wire::DynamicType>(
    (destination, path): (&str, &Path),
    (interface, member): (&str, &str),
    arguments: &B,
) -> Result<Message, CallError> {
    let built = Message::method_call(path.as_str(), member).destination(destination).interface(interface);
    built.build(arguments).map_err(|error| CallError::Invalid(error.to_string()))
}

impl Connection {
    /// Connects to a bus, and exports an object there. An object that is exported later could miss calls.
    ///
    /// # Errors
    /// Fails if the bus cannot be reached or refuses the connection.
    pub async fn open(bus: &Bus, path: &Path, object: impl Interface) -> Result<(Self, Incoming), BusError> {
        let builder = match bus {
            Bus::Session => Builder::session(),
            Bus::System => Builder::system(),
            Bus::Address(address) => Builder::address(&**address),
        };
        let connecting = builder.serve_at(path.as_str(), object).build();
        let bus = timeout(BUS_TIMEOUT, connecting).await.map_err(|_| BusError::Timeout)??;
        let (messages, replies) = (MessageStream::from(&bus), Arc::<Replies>::default());
        Ok((Self { bus, replies: Arc::clone(&replies) }, Incoming { messages, replies }))
    }

    /// Takes a name. Calls may arrive at once.
    ///
    /// # Errors
    /// Fails if another program has the name, or the bus does not allow it.
    pub async fn take_name(&self, name: &Name) -> Result<(), BusError> {
        let request = self.bus.request_name_with_flags(name.as_str(), RequestNameFlags::DO_NOT_QUEUE);
        match timeout(BUS_TIMEOUT, request).await.map_err(|_| BusError::Timeout)? {
            Ok(RequestNameReply::PrimaryOwner | RequestNameReply::AlreadyOwner) => Ok(()),
            Ok(_) | Err(zbus::Error::NameTaken) => Err(BusError::NameTaken(name.as_str().to_owned())),
            Err(error) => Err(error.into()),
        }
    }

    /// Gives a name back.
    pub async fn release_name(&self, name: &Name) {
        // If it fails, the bus releases the name at the end of the connection.
        let _ = timeout(BUS_TIMEOUT, self.bus.release_name(name.as_str())).await;
    }

    /// Requests the signals that a match rule selects.
    ///
    /// # Errors
    /// Fails if the bus refuses the rule.
    pub async fn subscribe(&self, rule: &str) -> Result<(), BusError> {
        self.ask_bus("AddMatch", rule).await?;
        Ok(())
    }

    /// Returns whether a name has an owner.
    ///
    /// # Errors
    /// Fails if the bus does not answer.
    pub async fn has_owner(&self, name: &str) -> Result<bool, BusError> {
        Ok(self.ask_bus("NameHasOwner", name).await?.body().deserialize()?)
    }

    /// Returns the unique name of the connection.
    #[must_use]
    pub fn unique_name(&self) -> &str {
        self.bus.unique_name().map_or("", |name| name.as_str())
    }

    /// Sends a call, and returns its reply before it arrives.
    ///
    /// # Errors
    /// Fails if the connection has ended.
    pub async fn call(&self, call: &Message) -> Result<Reply, CallError> {
        let reply = self.replies.add(call.primary_header().serial_num());
        self.bus.send(call).await.map_err(|_| CallError::Disconnected)?;
        Ok(reply)
    }

    /// Emits a signal without a receiver of its own.
    ///
    /// # Errors
    /// Fails if the connection has ended.
    pub async fn emit(&self, path: &Path, interface: &str, member: &str, text: &str) -> Result<(), CallError> {
        let sent = self.bus.emit_signal(None::<&str>, path.as_str(), interface, member, &text).await;
        sent.map_err(|_| CallError::Disconnected)
    }

    async fn ask_bus(&self, member: &str, argument: &str) -> Result<Message, BusError> {
        let (destination, path) = BUS;
        let asked = self.bus.call_method(Some(destination), path, Some(destination), member, &argument);
        Ok(timeout(BUS_TIMEOUT, asked).await.map_err(|_| BusError::Timeout)??)
    }
}

impl Incoming {
    /// Returns the next signal, and completes calls meanwhile; `None` at the end of the connection. It must always be
    /// polled, because otherwise the whole connection stops. Dropping the future loses nothing.
    pub async fn next_signal(&mut self) -> Option<Message> {
        while let Some(Ok(message)) = self.messages.next().await {
            match message.message_type() {
                Type::MethodReturn | Type::Error => self.replies.complete(message),
                Type::Signal => return Some(message),
                // The object server answers calls.
                Type::MethodCall => {}
            }
        }
        self.replies.close();
        None
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        self.replies.close();
    }
}
