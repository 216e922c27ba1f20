//! Spans of time for which the flow is recorded, each divided into slots of equal length.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::model::Timestamp;

named_values! {
    /// Span of time for which the flow is recorded.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
    #[serde(rename_all = "lowercase")]
    #[schema(as = FlowSpan)]
    pub enum Span {
        /// The last hour, in slots of a minute.
        #[default]
        Hour = "hour",
        /// The last day, in slots of ten minutes.
        Day = "day",
        /// The last week, in slots of an hour.
        Week = "week",
    }
}

impl Span {
    /// Returns the length of a slot in seconds.
    pub(super) const fn slot_seconds(self) -> u32 {
        match self {
            Self::Hour => 60,
            Self::Day => 600,
            Self::Week => 3600,
        }
    }

    /// Returns the number of slots.
    pub(super) const fn slots(self) -> usize {
        match self {
            Self::Hour => 60,
            Self::Day => 144,
            Self::Week => 168,
        }
    }

    /// Returns the number of the slot of a time. The slot 0 begins in 1970.
    pub(super) fn slot_of(self, time: Timestamp) -> i64 {
        time.millis().div_euclid(self.slot_millis())
    }

    /// Returns the end of a slot.
    pub(super) fn end_of(self, slot: i64) -> Timestamp {
        let end = slot.saturating_add(1).saturating_mul(self.slot_millis());
        Timestamp::from_millis(end).unwrap_or(Timestamp::EPOCH)
    }

    fn slot_millis(self) -> i64 {
        i64::from(self.slot_seconds()) * 1000
    }
}
