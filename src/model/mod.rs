//! The data model that all dialects parse into and all formats serialize.
//!
//! The model follows the content-change-message 0.1 page: a [`ContentObjectModification`] contains
//! [`ContentItemModification`]s. Dialects make [`Draft`]s, the journal settles a draft into a [`Change`], and formats
//! serialize changes. All values are valid by construction, and no code here does I/O.

mod aspect;
mod change;
mod content;
mod crawled;
mod deserialize_str;
mod draft;
mod facts_digest;
mod filter;
mod item;
mod json;
pub mod json_size;
mod lenient;
mod lookup;
mod media_range;
mod names;
mod object;
mod object_change;
mod reader_view;
mod reading;
mod report;
mod schema;
mod state;
mod text;
mod time;
mod uri;
mod url_pattern;
mod visibility;
mod visibility_dates;

pub use aspect::{Aspect, AspectSet};
pub use change::{Change, ItemNotes, Seq, Settlement};
pub use content::{
    ContentLocation, Digest, DigestAlgorithm, InvalidDigest, InvalidMediaType, MediaType, OriginalContent,
};
pub use crawled::{CrawledItem, CrawledObject};
pub(crate) use deserialize_str::deserialize_str;
pub use draft::{Draft, DraftChange, DraftItem, DraftItems, DraftTime};
pub use facts_digest::{DigestSum, InvalidDigestSum, ItemFacts};
pub use filter::{Filter, InvalidUriPrefix, ItemChangeKind, Rendition, UriPrefix};
pub use item::{ChangeType, ContentItemModification, ItemChange, ItemChangeError};
pub use lookup::{DraftLookup, LookupMark, MissingFacts};
pub use media_range::{InvalidMediaRange, MediaRange};
pub use names::{
    ChangeId, EventId, InvalidId, InvalidName, InvalidNodeName, ItemId, NodeName, SourceName, SubscriptionName,
};
pub use object::{ContentObjectModification, NoItems, NonEmpty, Origin, User};
pub use object_change::ObjectChange;
pub use reader_view::ReaderView;
pub use reading::{DroppedPart, FormerSpelling, Reading};
pub use report::{JsonDocument, Report};
pub use state::{InvalidState, State};
pub use text::Text;
pub use time::{InvalidTimestamp, Timestamp};
pub use uri::{InvalidUri, Uri};
pub use url_pattern::{InvalidUrlPattern, UrlPattern};
pub use visibility::{ItemVisibility, UnlistedItem, VisibilityChange, VisibilityNotes, is_public};
pub use visibility_dates::{InvalidVisibilityDates, StatedDates, VisibilityDates};
