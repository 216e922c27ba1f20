//! The query, the body and the response of the digests.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::Facts;
use crate::model::{DigestSum, Filter, Seq, Uri, UriPrefix};

/// The query of `GET /registry/digests`.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DigestsQuery {
    /// URI after which the range begins. Default: the beginning.
    #[serde(default)]
    #[param(value_type = Uri, required = false)]
    pub(super) after: Option<String>,
    /// Last URI of the range. Default: no end.
    #[serde(default)]
    #[param(value_type = Uri, required = false)]
    pub(super) through: Option<String>,
    /// Maximum number of parts into which the range is divided, 2 to 256.
    #[serde(default)]
    #[param(value_type = u64, required = false, minimum = 2, maximum = 256)]
    pub(super) parts: Option<usize>,
    /// Facts that the digests contain. Default: all.
    #[serde(default)]
    #[param(inline, required = false)]
    pub(super) facts: Facts,
    /// The URI of the object begins with one of these.
    #[serde(default)]
    #[param(max_items = 50)]
    pub(super) object: Vec<UriPrefix>,
    /// The object belongs to one of these.
    #[serde(default)]
    #[param(max_items = 50)]
    pub(super) parent: Vec<Uri>,
    /// The object has one of these types.
    #[serde(default, rename = "type")]
    #[param(max_items = 50)]
    pub(super) types: Vec<Uri>,
    /// `true`: what the public sees, without states.
    #[serde(default)]
    #[param(value_type = bool, required = false)]
    pub(super) visibility: Option<bool>,
}

/// Ranges to compare.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = DigestRanges)]
pub(super) struct RangesBody {
    /// The ranges, at most 256, in the order of their URIs. They must not overlap.
    pub(super) ranges: Vec<RangeBody>,
    /// Maximum number of parts of each range, 2 to 256. Default: 16.
    #[serde(default)]
    #[schema(required = false)]
    pub(super) parts: Option<usize>,
    /// Facts that the digests contain. Default: all.
    #[serde(default)]
    #[schema(required = false)]
    pub(super) facts: Facts,
    /// Conditions `objects`, `parents`, `types` and `visibility` of the subscriber.
    #[serde(default)]
    #[schema(required = false)]
    pub(super) filter: Filter,
}

/// A range of objects.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = DigestRange)]
pub(super) struct RangeBody {
    /// URI after which it begins. Default: the beginning.
    #[serde(default)]
    #[schema(required = false)]
    pub(super) after: Option<Uri>,
    /// Last URI. Default: no end.
    #[serde(default)]
    #[schema(required = false)]
    pub(super) through: Option<Uri>,
}

/// Digests of the ranges that were asked for.
#[derive(Serialize, ToSchema)]
#[schema(as = Digests)]
pub(super) struct DigestsView {
    /// Identity of the journal.
    #[schema(value_type = String)]
    pub(super) journal: Uuid,
    /// Number of the newest change that the digests contain. Listed objects can contain later ones.
    pub(super) head: Seq,
    /// Number of additions by crawls that the digests contain.
    pub(super) seeds: u64,
    /// The ranges, in the order of the request.
    pub(super) ranges: Vec<RangeView>,
}

/// A range: its parts or, if it has at most 8 objects, the objects.
#[derive(Serialize, ToSchema)]
#[schema(as = DividedRange)]
pub(super) struct RangeView {
    /// URI after which it begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, nullable = false)]
    pub(super) after: Option<Uri>,
    /// Last URI; absent if it has no end.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, nullable = false)]
    pub(super) through: Option<Uri>,
    /// Parts, in the order of their URIs. Each begins after the end of the one before.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, nullable = false)]
    pub(super) parts: Option<Vec<PartView>>,
    /// The objects, in the order of their URIs.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, nullable = false)]
    pub(super) objects: Option<Vec<ObjectView>>,
}

/// Part of a range.
#[derive(Serialize, ToSchema)]
#[schema(as = DigestPart)]
pub(super) struct PartView {
    /// Last URI; absent if it has no end.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, nullable = false)]
    pub(super) through: Option<Uri>,
    /// Number of objects.
    pub(super) objects: u64,
    /// Number of items.
    pub(super) items: u64,
    /// Sum of the digests of the items.
    #[schema(value_type = String)]
    pub(super) digest: DigestSum,
}

/// An object.
#[derive(Serialize, ToSchema)]
#[schema(as = ObjectDigest)]
pub(super) struct ObjectView {
    /// URI.
    pub(super) uri: Uri,
    /// Number of items.
    pub(super) items: u64,
    /// Sum of the digests of the items.
    #[schema(value_type = String)]
    pub(super) digest: DigestSum,
}
