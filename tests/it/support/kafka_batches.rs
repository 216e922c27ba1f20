//! Record batches as they are stored in Kafka, and a producer that sends them as they are.

use std::io::Write;

use flate2::{Compression, write::GzEncoder};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// Codecs, by the number in the attributes of a batch.
pub(crate) const GZIP: i16 = 1;
pub(crate) const SNAPPY: i16 = 2;
pub(crate) const LZ4: i16 = 3;
pub(crate) const ZSTD: i16 = 4;

/// Marks in the attributes of a batch.
pub(crate) const TRANSACTIONAL: i16 = 1 << 4;
pub(crate) const CONTROL: i16 = 1 << 5;

/// A batch that is being made.
pub(crate) struct Batch {
    pub(crate) base_offset: i64,
    pub(crate) attributes: i16,
    pub(crate) producer: i64,
    count: i32,
    records: Vec<u8>,
}

impl Batch {
    /// Begins a batch without a transaction.
    pub(crate) fn at(base_offset: i64, attributes: i16) -> Self {
        Self { base_offset, attributes, producer: -1, count: 0, records: Vec::new() }
    }

    /// Adds a record; a tombstone has no value.
    pub(crate) fn record(mut self, key: Option<&[u8]>, value: Option<&[u8]>) -> Self {
        let mut record = vec![0, 0];
        record.extend(varint(self.count.into()));
        for part in [key, value] {
            record.extend(varint(part.map_or(-1, |part| part.len().try_into().unwrap())));
            record.extend(part.unwrap_or_default());
        }
        record.push(0);
        self.records.extend(varint(record.len().try_into().unwrap()));
        self.records.extend(record);
        self.count += 1;
        self
    }

    /// Adds tombstones.
    pub(crate) fn tombstones(mut self, count: i32) -> Self {
        for _ in 0..count {
            self = self.record(None, None);
        }
        self
    }

    /// Adds a record whose value has so many zeros, without making them in memory, and returns the finished batch.
    pub(crate) fn zeros(mut self, size: usize) -> Vec<u8> {
        const TRAILER: usize = 1;
        let mut head = vec![0, 0];
        head.extend(varint(self.count.into()));
        head.extend(varint(-1));
        head.extend(varint(size.try_into().unwrap()));
        self.records.extend(varint((head.len() + size + TRAILER).try_into().unwrap()));
        self.records.extend(head);
        self.count += 1;
        let compressed = compress(self.attributes & 7, &self.records, size + TRAILER);
        self.finish(compressed)
    }

    /// Returns the batch with its records compressed.
    pub(crate) fn bytes(self) -> Vec<u8> {
        let compressed = compress(self.attributes & 7, &self.records, 0);
        self.finish(compressed)
    }

    fn finish(self, compressed: Vec<u8>) -> Vec<u8> {
        let mut checked = self.attributes.to_be_bytes().to_vec();
        checked.extend((self.count - 1).to_be_bytes());
        checked.extend([1_800_000_000_000_i64.to_be_bytes(), 1_800_000_000_000_i64.to_be_bytes()].concat());
        checked.extend(self.producer.to_be_bytes());
        checked.extend([0xff; 6]);
        checked.extend(self.count.to_be_bytes());
        checked.extend(compressed);
        let mut batch = self.base_offset.to_be_bytes().to_vec();
        batch.extend(i32::try_from(checked.len() + 9).unwrap().to_be_bytes());
        batch.extend([0xff, 0xff, 0xff, 0xff, 2]);
        batch.extend(crc32c::crc32c(&checked).to_be_bytes());
        batch.extend(checked);
        batch
    }
}

/// Compresses octets and then so many zeros.
fn compress(codec: i16, octets: &[u8], zeros: usize) -> Vec<u8> {
    let write = |writer: &mut dyn Write| {
        writer.write_all(octets).unwrap();
        let block = vec![0; 1 << 20];
        let mut left = zeros;
        while left > 0 {
            let size = left.min(block.len());
            writer.write_all(&block[..size]).unwrap();
            left -= size;
        }
    };
    match codec {
        GZIP => {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
            write(&mut encoder);
            encoder.finish().unwrap()
        }
        SNAPPY => {
            let mut all = Vec::new();
            write(&mut all);
            snap::raw::Encoder::new().compress_vec(&all).unwrap()
        }
        LZ4 => {
            let mut encoder = lz4::EncoderBuilder::new().build(Vec::new()).unwrap();
            write(&mut encoder);
            let (compressed, result) = encoder.finish();
            result.map(|()| compressed).unwrap()
        }
        ZSTD => {
            let mut encoder = zstd::Encoder::new(Vec::new(), 3).unwrap();
            write(&mut encoder);
            encoder.finish().unwrap()
        }
        _ => {
            let mut all = Vec::new();
            write(&mut all);
            all
        }
    }
}

fn varint(value: i64) -> Vec<u8> {
    let mut rest = ((value << 1) ^ (value >> 63)).cast_unsigned();
    let mut octets = Vec::new();
    loop {
        let octet = u8::try_from(rest & 0x7f).unwrap();
        rest >>= 7;
        if rest == 0 {
            octets.push(octet);
            return octets;
        }
        octets.push(octet | 0x80);
    }
}

/// Sends a batch to a partition as it is.
pub(crate) async fn produce(broker: &str, topic: &str, partition: i32, batch: &[u8]) {
    // Produce, version 3, with acks=all.
    let mut request =
        [&[0, 0, 0, 3, 0, 0, 0, 1, 0, 1, b't', 0xff, 0xff, 0xff, 0xff][..], &5000_i32.to_be_bytes()].concat();
    request.extend(1_i32.to_be_bytes());
    request.extend(i16::try_from(topic.len()).unwrap().to_be_bytes());
    request.extend(topic.as_bytes());
    request.extend([1, partition, i32::try_from(batch.len()).unwrap()].map(i32::to_be_bytes).concat());
    request.extend(batch);
    let mut stream = TcpStream::connect(broker).await.unwrap();
    stream.write_u32(request.len().try_into().unwrap()).await.unwrap();
    stream.write_all(&request).await.unwrap();
    let mut response = vec![0; stream.read_u32().await.unwrap() as usize];
    stream.read_exact(&mut response).await.unwrap();
    // The error code is after the correlation, the number of topics, the topic, the number of partitions and the partition.
    let code = &response[4 + 4 + 2 + topic.len() + 4 + 4..][..2];
    assert_eq!(code, [0, 0], "the broker accepts the batch");
}
