//! Events of large changes. Each is written to the [`Spool`] once for all streams near the same position, and sent
//! from there. A slow reader then holds a piece of its event and not all of it.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use super::event;
use crate::{
    format::FormatKind,
    journal::{JournalError, RecordedChange, store::StoreError},
    model::{Filter, Rendition, Seq},
    web::{Content, Problem, RenderPermit, Spool},
};

/// Number of events that are cached for other streams.
const CACHED_EVENTS: usize = 4;

/// Number of the change, its format, and how the event shows it.
type EventKey = (Seq, &'static str, Rendition);

/// Cache of the newest events of large changes.
#[derive(Default)]
pub(in crate::view) struct LargeEvents(Arc<Mutex<VecDeque<(EventKey, Content)>>>);

impl LargeEvents {
    /// Returns the event of a change, or `None` if the filter excludes the change. Filtering parses the change each
    /// time.
    pub(super) async fn event(
        &self,
        spool: &Spool,
        permit: RenderPermit,
        change: Arc<RecordedChange>,
        format: &'static FormatKind,
        filter: Option<Filter>,
    ) -> Result<Option<Content>, JournalError> {
        let key = (change.seq(), format.name, filter.as_ref().map_or(Rendition::Recorded, Filter::rendition));
        let cache = Self(Arc::clone(&self.0));
        if filter.is_none()
            && let Some(event) = cache.get(key)
        {
            return Ok(Some(event));
        }
        let spool = spool.clone();
        let write = move || {
            // A copy of its own, so that the parsed change is dropped here.
            let change = Arc::new(change.without_caches());
            let selected = match &filter {
                Some(filter) => change.filtered(filter)?,
                None => Some(change),
            };
            let Some(selected) = selected else { return Ok(None) };
            if let Some(event) = cache.get(key) {
                return Ok(Some(event));
            }
            let mut out = spool.writer();
            let failed = |error: std::io::Error| StoreError::Io(format!("cannot write an event: {error}"));
            event::write_change(&mut out, selected.change()?, format).map_err(failed)?;
            let event = out.finish().map_err(failed)?;
            cache.put(key, event.clone());
            Ok(Some(event))
        };
        let result = Spool::blocking(permit, move || Ok::<_, Problem>(write())).await;
        result.unwrap_or_else(|_| Err(StoreError::Io("cannot write an event".to_owned()))).map_err(JournalError::Store)
    }

    fn get(&self, key: EventKey) -> Option<Content> {
        let events = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        events.iter().find(|(cached, _)| *cached == key).map(|(_, event)| event.clone())
    }

    fn put(&self, key: EventKey, event: Content) {
        let mut events = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while events.len() >= CACHED_EVENTS {
            events.pop_front();
        }
        events.push_back((key, event));
    }
}
