//! The reload of the configuration, at SIGHUP or at a request. A changed configuration ends the gateway and begins a new one
//! in the same process, so that every setting takes effect in one way: the gateway finishes what it has accepted, and the
//! socket stays open, so that new connections wait instead of being refused. An unchanged configuration only reloads the
//! certificate.

use std::{
    error::Error,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio_util::sync::CancellationToken;

use crate::config::{Config, Fingerprint};

/// Source of the configuration of a process.
pub trait ConfigSource: Send + Sync {
    /// Loads the configuration, with its fingerprint. The call blocks.
    ///
    /// # Errors
    /// Fails if the configuration is wrong.
    fn load(&self) -> Result<(Config, Fingerprint), Box<dyn Error + Send + Sync>>;

    /// Applies the settings that the gateway does not apply, such as the filter of the log. Returns the names of the changed
    /// settings that take effect only in a new process.
    fn apply(&self, config: &Config) -> Vec<&'static str>;
}

/// Effect of a reload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ReloadEffect {
    /// The configuration is the same.
    Unchanged,
    /// The gateway begins again with these changed tables.
    BeginsAgain(Vec<String>),
}

/// Reloads the configuration of the running gateway.
pub(super) struct Reloader {
    source: Box<dyn ConfigSource>,
    state: Mutex<ReloadState>,
}

struct ReloadState {
    /// Fingerprint of the newest configuration.
    fingerprint: Fingerprint,
    /// Fingerprint of the configuration before it.
    former: Fingerprint,
    /// Configuration of the next gateway.
    next: Option<Config>,
    /// Cancelled when the running gateway is to end.
    end: CancellationToken,
}

impl Reloader {
    pub(super) fn new(source: Box<dyn ConfigSource>, fingerprint: Fingerprint) -> Self {
        let (former, next, end) = (fingerprint.clone(), None, CancellationToken::new());
        let state = ReloadState { fingerprint, former, next, end };
        Self { source, state: Mutex::new(state) }
    }

    /// Returns a token that is cancelled when the next gateway is to end.
    pub(super) fn arm(&self) -> CancellationToken {
        let end = CancellationToken::new();
        let mut state = self.lock();
        // A reload between two gateways has ended none.
        if state.next.is_some() {
            end.cancel();
        }
        state.end = end.clone();
        end
    }

    /// Loads the configuration again. The call blocks.
    pub(super) fn reload(&self) -> Result<ReloadEffect, Box<dyn Error + Send + Sync>> {
        let (config, fingerprint) = self.source.load()?;
        let mut state = self.lock();
        let changed = fingerprint.changed_tables(&state.fingerprint);
        if changed.is_empty() {
            return Ok(ReloadEffect::Unchanged);
        }
        for setting in self.source.apply(&config) {
            tracing::warn!(setting, "this setting takes effect only after a restart of the process");
        }
        state.former = std::mem::replace(&mut state.fingerprint, fingerprint);
        state.next = Some(config);
        state.end.cancel();
        Ok(ReloadEffect::BeginsAgain(changed))
    }

    /// Notes that the gateway cannot begin with the newest configuration, and begins with the former one instead.
    pub(super) fn revert(&self, former: &Config) {
        let mut state = self.lock();
        state.fingerprint = state.former.clone();
        self.source.apply(former);
    }

    /// Takes the configuration of the next gateway, if there is one.
    pub(super) fn take_next(&self) -> Option<Config> {
        self.lock().next.take()
    }

    fn lock(&self) -> MutexGuard<'_, ReloadState> {
        // Every change is complete before the lock is released, even if a thread panics.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
