//! Calls without a reply, by their serial numbers.
//!
//! A receiver may answer years later. So a waiting call keeps a number and a channel in memory, and not its message.

use std::{
    collections::HashMap,
    num::NonZeroU32,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::oneshot;
use zbus::Message;

use super::CallError;

/// Calls without a reply. `None` after the end of the connection.
#[derive(Debug)]
pub(super) struct Replies(Mutex<Option<HashMap<NonZeroU32, oneshot::Sender<Message>>>>);

impl Default for Replies {
    fn default() -> Self {
        Self(Mutex::new(Some(HashMap::new())))
    }
}

impl Replies {
    fn lock(&self) -> MutexGuard<'_, Option<HashMap<NonZeroU32, oneshot::Sender<Message>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a call before it is sent, because the reply may arrive at once.
    pub(super) fn add(self: &Arc<Self>, serial: NonZeroU32) -> Reply {
        let (sender, receiver) = oneshot::channel();
        if let Some(calls) = &mut *self.lock() {
            calls.insert(serial, sender);
        }
        Reply { serial, receiver, calls: Arc::clone(self) }
    }

    /// Completes the call that a message replies to, if it still waits.
    pub(super) fn complete(&self, reply: Message) {
        let serial = reply.header().reply_serial();
        let caller = serial.and_then(|serial| self.lock().as_mut()?.remove(&serial));
        if let Some(caller) = caller {
            // The caller may have stopped to wait.
            let _ = caller.send(reply);
        }
    }

    /// Ends all calls, because the connection has ended.
    pub(super) fn close(&self) {
        *self.lock() = None;
    }
}

/// The reply to a call that was sent. Dropping it ignores the reply.
#[derive(Debug)]
pub struct Reply {
    serial: NonZeroU32,
    receiver: oneshot::Receiver<Message>,
    calls: Arc<Replies>,
}

impl Reply {
    /// Waits for the reply, without a time limit.
    ///
    /// # Errors
    /// Fails if the reply is an error, or the connection has ended.
    pub async fn receive(mut self) -> Result<Message, CallError> {
        let reply = (&mut self.receiver).await.map_err(|_| CallError::Disconnected)?;
        match reply.message_type() {
            zbus::message::Type::Error => Err(CallError::of_reply(&reply)),
            _ => Ok(reply),
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if let Some(calls) = &mut *self.calls.lock() {
            calls.remove(&self.serial);
        }
    }
}
