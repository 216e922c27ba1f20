//! Parquet: a row for each change, with its items as a list.
//!
//! The columns have the names of `docs/json.md`, with members of objects in columns of their own, such as `userName`. A
//! row group is written when its encoded size is 16 MiB, so the memory does not depend on the number of rows.

use std::{fs::File, io, sync::Arc};

use arrow_array::{
    Array, ArrayRef, ListArray, RecordBatch, StructArray,
    builder::{BooleanBuilder, Int64Builder, ListBuilder, StringBuilder, TimestampMillisecondBuilder, UInt64Builder},
};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{ArrowError, Field, Fields, Schema};
use parquet::{
    arrow::ArrowWriter,
    basic::{Compression, ZstdLevel},
    errors::ParquetError,
    file::{
        metadata::KeyValue,
        properties::{EnabledStatistics, WriterProperties},
    },
    schema::types::ColumnPath,
};
use tidings::model::{
    Aspect, AspectSet, Change, ChangeType, ContentItemModification, Digest, EventId, ItemChangeKind, ItemNotes, State,
    Text, Timestamp, Uri,
};
use uuid::Uuid;

use super::{NumberedChange, Skipped, partition::PartitionWriter};

/// Encoded size at which a row group is written, in bytes.
const ROW_GROUP_BYTES: usize = 16 << 20;

/// Size of the JSON from which changes become a batch of rows, in bytes. A batch is in memory as text and as columns.
const BATCH_BYTES: usize = 4 << 20;

/// Columns whose values hardly ever repeat, so that a dictionary of them is useless.
const UNIQUE: [&str; 3] = ["id", "sourceEventId", "json"];

/// Writer of a Parquet file.
pub(super) struct ParquetWriter {
    writer: ArrowWriter<File>,
}

impl ParquetWriter {
    /// Starts a file. Its metadata names the journal.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub(super) fn new(file: File, journal: Uuid) -> io::Result<Self> {
        let mut properties = WriterProperties::builder()
            .set_created_by(concat!("tidings ", env!("CARGO_PKG_VERSION")).to_owned())
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_max_row_group_bytes(Some(ROW_GROUP_BYTES))
            .set_key_value_metadata(Some(vec![KeyValue::new("tidings.journal".to_owned(), journal.to_string())]));
        for column in UNIQUE {
            properties = properties.set_column_dictionary_enabled(ColumnPath::from(column), false);
        }
        properties = properties.set_column_statistics_enabled(ColumnPath::from("json"), EnabledStatistics::None);
        let schema = Rows::default().finish().map_err(arrow)?.schema();
        let writer = ArrowWriter::try_new(file, schema, Some(properties.build())).map_err(failed)?;
        Ok(Self { writer })
    }

    fn write(&mut self, rows: &mut Rows) -> io::Result<()> {
        self.writer.write(&rows.finish().map_err(arrow)?).map_err(failed)
    }
}

impl PartitionWriter for ParquetWriter {
    fn add(&mut self, changes: &[NumberedChange], skipped: &mut Skipped) -> io::Result<u64> {
        let (mut rows, mut bytes, mut written) = (Rows::default(), 0, 0);
        for NumberedChange { seq, json } in changes {
            let json = json.get();
            match serde_json::from_str(json) {
                Ok(change) => rows.add(&change, json),
                Err(error) => {
                    skipped.add(&format!("change {seq}"), &format!("this program cannot read it: {error}"));
                    continue;
                }
            }
            written += 1;
            bytes += json.len();
            if bytes >= BATCH_BYTES {
                self.write(&mut rows)?;
                bytes = 0;
            }
        }
        self.write(&mut rows)?;
        Ok(written)
    }

    fn finish(self: Box<Self>) -> io::Result<()> {
        self.writer.close().map(drop).map_err(failed)
    }
}

/// Finds the error of the file below that of the library.
fn failed(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(error) => match error.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(error) => io::Error::other(error),
        },
        error => io::Error::other(error),
    }
}

fn arrow(error: ArrowError) -> io::Error {
    io::Error::other(error)
}

/// Column of times, in UTC.
struct Times(TimestampMillisecondBuilder);

impl Default for Times {
    fn default() -> Self {
        Self(TimestampMillisecondBuilder::new().with_timezone("UTC"))
    }
}

impl Times {
    fn append(&mut self, time: Option<Timestamp>) {
        self.0.append_option(time.map(Timestamp::millis));
    }
}

/// Column with a list of texts for each row.
#[derive(Default)]
struct Lists(ListBuilder<StringBuilder>);

impl Lists {
    fn append<'t>(&mut self, texts: impl IntoIterator<Item = &'t str>) {
        texts.into_iter().for_each(|text| self.0.values().append_value(text));
        self.0.append(true);
    }

    fn append_aspects(&mut self, aspects: AspectSet) {
        self.append(aspects.iter().map(Aspect::name));
    }
}

/// Columns of changes.
#[derive(Default)]
struct Rows {
    seq: Int64Builder,
    id: StringBuilder,
    received: Times,
    time: Times,
    as_of: Times,
    source: StringBuilder,
    source_event_id: StringBuilder,
    source_version: StringBuilder,
    user_name: StringBuilder,
    user_uri: StringBuilder,
    object: StringBuilder,
    parent: StringBuilder,
    types: Lists,
    kind: StringBuilder,
    description: StringBuilder,
    purge: BooleanBuilder,
    due: BooleanBuilder,
    late: Lists,
    lookup: StringBuilder,
    items: ItemRows,
    item_counts: Vec<usize>,
    json: StringBuilder,
}

impl Rows {
    fn add(&mut self, change: &Change, json: &str) {
        let Change { seq, received, modification, settlement } = change;
        self.seq.append_value(i64::try_from(seq.0).unwrap_or(i64::MAX));
        self.id.append_value(modification.id.to_string());
        self.received.append(Some(*received));
        self.time.append(Some(modification.time));
        self.as_of.append(settlement.as_of);
        let origin = &modification.origin;
        self.source.append_value(origin.source.as_str());
        self.source_event_id.append_option(origin.event_id.as_ref().map(EventId::as_str));
        self.source_version.append_option(origin.software_version.as_ref().map(Text::as_str));
        self.user_name.append_value(modification.user.name());
        self.user_uri.append_option(modification.user.uri().map(Uri::as_str));
        self.object.append_value(modification.object.as_str());
        self.parent.append_option(modification.parent.as_ref().map(Uri::as_str));
        self.types.append(modification.types.iter().map(Uri::as_str));
        self.kind.append_value(ItemChangeKind::word(change));
        self.description.append_value(modification.description.as_str());
        self.purge.append_value(settlement.purge);
        self.due.append_value(settlement.due);
        self.late.append_aspects(settlement.late);
        self.lookup.append_option(settlement.lookup.map(|mark| mark.to_string()));
        for (index, item) in modification.items.iter().enumerate() {
            self.items.add(item, &settlement.item(index));
        }
        self.item_counts.push(modification.items.len());
        self.json.append_value(json);
    }

    /// Returns the rows, and starts with none again.
    fn finish(&mut self) -> Result<RecordBatch, ArrowError> {
        let items = self.items.finish()?;
        let field = Arc::new(Field::new_list_field(items.data_type().clone(), false));
        let lengths = OffsetBuffer::from_lengths(self.item_counts.drain(..));
        let items = ListArray::try_new(field, lengths, Arc::new(items), None)?;
        table([
            ("seq", false, Arc::new(self.seq.finish()) as ArrayRef),
            ("id", false, Arc::new(self.id.finish())),
            ("received", false, Arc::new(self.received.0.finish())),
            ("time", false, Arc::new(self.time.0.finish())),
            ("asOf", true, Arc::new(self.as_of.0.finish())),
            ("source", false, Arc::new(self.source.finish())),
            ("sourceEventId", true, Arc::new(self.source_event_id.finish())),
            ("sourceVersion", true, Arc::new(self.source_version.finish())),
            ("userName", false, Arc::new(self.user_name.finish())),
            ("userUri", true, Arc::new(self.user_uri.finish())),
            ("object", false, Arc::new(self.object.finish())),
            ("parent", true, Arc::new(self.parent.finish())),
            ("types", false, Arc::new(self.types.0.finish())),
            ("kind", false, Arc::new(self.kind.finish())),
            ("description", false, Arc::new(self.description.finish())),
            ("purge", false, Arc::new(self.purge.finish())),
            ("due", false, Arc::new(self.due.finish())),
            ("late", false, Arc::new(self.late.0.finish())),
            ("lookup", true, Arc::new(self.lookup.finish())),
            ("items", false, Arc::new(items)),
            ("json", false, Arc::new(self.json.finish())),
        ])
    }
}

/// Columns of items.
#[derive(Default)]
struct ItemRows {
    id: StringBuilder,
    uri: StringBuilder,
    change: StringBuilder,
    content_url: StringBuilder,
    media_type: StringBuilder,
    size: UInt64Builder,
    digest_algorithm: StringBuilder,
    digest: StringBuilder,
    original_url: StringBuilder,
    generated_by: StringBuilder,
    state_before: StringBuilder,
    state_after: StringBuilder,
    late: Lists,
    visible_from: Times,
    visible_until: Times,
}

impl ItemRows {
    fn add(&mut self, item: &ContentItemModification, notes: &ItemNotes) {
        self.id.append_value(item.id.to_string());
        self.uri.append_value(item.uri.as_str());
        self.change.append_option(item.change.change_type().map(ChangeType::as_str));
        let content = item.change.content();
        self.content_url.append_option(content.map(|content| content.url.as_str()));
        self.media_type.append_option(content.and_then(|content| Some(content.media_type.as_ref()?.as_str())));
        self.size.append_option(content.and_then(|content| content.size));
        let digest = content.and_then(|content| content.digest.as_ref());
        self.digest_algorithm.append_option(digest.map(|digest| digest.algorithm().name()));
        self.digest.append_option(digest.map(Digest::hex));
        self.original_url.append_option(content.and_then(|content| Some(content.original.as_ref()?.url.as_str())));
        self.generated_by.append_option(content.and_then(|content| Some(content.generated_by.as_ref()?.as_str())));
        self.state_before.append_option(item.change.before().map(State::as_str));
        self.state_after.append_option(item.change.after().map(State::as_str));
        self.late.append_aspects(notes.late);
        self.visible_from.append(notes.dates.from());
        self.visible_until.append(notes.dates.until());
    }

    fn finish(&mut self) -> Result<StructArray, ArrowError> {
        let columns = table([
            ("id", false, Arc::new(self.id.finish()) as ArrayRef),
            ("uri", false, Arc::new(self.uri.finish())),
            ("change", true, Arc::new(self.change.finish())),
            ("contentUrl", true, Arc::new(self.content_url.finish())),
            ("mediaType", true, Arc::new(self.media_type.finish())),
            ("size", true, Arc::new(self.size.finish())),
            ("digestAlgorithm", true, Arc::new(self.digest_algorithm.finish())),
            ("digest", true, Arc::new(self.digest.finish())),
            ("originalUrl", true, Arc::new(self.original_url.finish())),
            ("generatedBy", true, Arc::new(self.generated_by.finish())),
            ("stateBefore", true, Arc::new(self.state_before.finish())),
            ("stateAfter", true, Arc::new(self.state_after.finish())),
            ("late", false, Arc::new(self.late.0.finish())),
            ("visibleFrom", true, Arc::new(self.visible_from.0.finish())),
            ("visibleUntil", true, Arc::new(self.visible_until.0.finish())),
        ])?;
        Ok(columns.into())
    }
}

/// Returns a table of named columns, each of which may have missing values or not.
fn table<const N: usize>(columns: [(&str, bool, ArrayRef); N]) -> Result<RecordBatch, ArrowError> {
    let field = |(name, is_optional, column): &(&str, bool, ArrayRef)| {
        Field::new(*name, column.data_type().clone(), *is_optional)
    };
    let schema = Schema::new(columns.iter().map(field).collect::<Fields>());
    RecordBatch::try_new(Arc::new(schema), columns.map(|(_, _, column)| column).into())
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;
    use uuid::Uuid;

    use super::{NumberedChange, ParquetWriter, PartitionWriter, Skipped};

    #[test]
    fn unreadable_change_is_skipped_and_counted() {
        let mut writer = Box::new(ParquetWriter::new(tempfile::tempfile().unwrap(), Uuid::nil()).unwrap());
        let json = RawValue::from_string("{\"seq\":7,\"items\":3}".to_owned()).unwrap();
        let mut skipped = Skipped::default();
        assert_eq!(writer.add(&[NumberedChange { seq: 7, json }], &mut skipped).unwrap(), 0);
        assert_eq!(skipped.count(), 1);
        writer.finish().unwrap();
    }
}
