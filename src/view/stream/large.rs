//! Events of large changes: written to the [`Spool`] once for all streams that are close together, and sent from there.
//! A slow reader then holds a piece of its event, and not the whole.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use super::event;
use crate::{
    format::FormatKind,
    journal::{JournalError, RecordedChange, store::StoreError},
    model::{Filter, Seq},
    web::{Content, Problem, Spool, Turn},
};

/// Number of events that stay for other streams.
const KEPT: usize = 4;

/// An event's change, its format, and whether it shows the change as the public sees it.
type Key = (Seq, &'static str, bool);

/// The events of large changes that were written last.
#[derive(Default)]
pub(in crate::view) struct LargeEvents(Arc<Mutex<VecDeque<(Key, Content)>>>);

impl LargeEvents {
    /// The event of a change, if the filter wants it. A filter reads the change each time.
    pub(super) async fn event(
        &self,
        spool: &Spool,
        turn: Turn,
        change: Arc<RecordedChange>,
        format: &'static FormatKind,
        filter: Option<Filter>,
    ) -> Result<Option<Content>, JournalError> {
        let key = (change.seq(), format.name, filter.as_ref().is_some_and(|filter| filter.visibility));
        let kept = Self(Arc::clone(&self.0));
        if filter.is_none()
            && let Some(event) = kept.get(key)
        {
            return Ok(Some(event));
        }
        let spool = spool.clone();
        let write = move || {
            // What is read of the change is dropped with this.
            let change = Arc::new(change.without_caches());
            let shown = match &filter {
                Some(filter) => change.filtered(filter)?,
                None => Some(change),
            };
            let Some(shown) = shown else { return Ok(None) };
            if let Some(event) = kept.get(key) {
                return Ok(Some(event));
            }
            let mut out = spool.writer();
            let failed = |error: std::io::Error| StoreError::Io(format!("an event cannot be written: {error}"));
            event::write_change(&mut out, shown.change()?, format).map_err(failed)?;
            let event = out.finish().map_err(failed)?;
            kept.put(key, event.clone());
            Ok(Some(event))
        };
        let written = Spool::blocking(turn, move || Ok::<_, Problem>(write())).await;
        written
            .unwrap_or_else(|_| Err(StoreError::Io("an event cannot be written".to_owned())))
            .map_err(JournalError::Store)
    }

    fn get(&self, key: Key) -> Option<Content> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().find(|(kept, _)| *kept == key).map(|(_, event)| event.clone())
    }

    fn put(&self, key: Key, event: Content) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while kept.len() >= KEPT {
            kept.pop_front();
        }
        kept.push_back((key, event));
    }
}
