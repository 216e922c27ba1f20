//! Decompression of record batches as a stream, with a bound.

use std::io::{self, BufReader, Read};

use bytes::{Buf, Bytes};

/// Maximum size of the records of one batch after decompression, in bytes. Records are decoded as they are inflated, so
/// this bounds the time and not the memory.
pub const MAX_INFLATED_BYTES: u64 = 256 * 1024 * 1024;

/// Maximum size of a Snappy block after decompression, which is in memory as a whole, in bytes. Also the maximum window of
/// Zstandard.
const MAX_BLOCK_BYTES: usize = 1 << MAX_WINDOW_LOG;

/// Base-2 logarithm of the maximum window of Zstandard.
const MAX_WINDOW_LOG: u32 = 25;

/// Size of the buffer before a decompressor, in bytes.
const BUFFER_BYTES: usize = 16 * 1024;

/// Beginning of the framing of Java's Snappy library: its name, its version and the oldest compatible version.
const JAVA_SNAPPY: &[u8; 16] = b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01";

/// The records of a batch, decompressed while they are read.
pub(super) type Inflating = BufReader<Bounded>;

/// Opens the compressed records of a batch. `codec` is the number in the attributes of the batch.
///
/// # Errors
/// Fails if the codec is unknown, or the data do not begin as its data do.
pub(super) fn open(codec: i16, data: Bytes) -> io::Result<Inflating> {
    let inner: Box<dyn Read + Send> = match codec {
        0 => Box::new(data.reader()),
        1 => Box::new(flate2::bufread::MultiGzDecoder::new(data.reader())),
        2 if data.starts_with(JAVA_SNAPPY) => Box::new(SnappyBlocks { data: data.slice(16..), block: Bytes::new() }),
        2 => Box::new(inflate_snappy(&data)?.reader()),
        3 => Box::new(lz4::Decoder::new(data.reader())?),
        4 => {
            let mut decoder = zstd::Decoder::with_buffer(data.reader())?;
            decoder.window_log_max(MAX_WINDOW_LOG)?;
            Box::new(decoder)
        }
        other => return Err(malformed(&format!("its compression has the unknown number {other}"))),
    };
    Ok(BufReader::with_capacity(BUFFER_BYTES, Bounded { inner, left: MAX_INFLATED_BYTES }))
}

/// Reader that fails after [`MAX_INFLATED_BYTES`].
pub(super) struct Bounded {
    inner: Box<dyn Read + Send>,
    left: u64,
}

impl Bounded {
    /// Returns how many more bytes may be read.
    pub(super) fn left(&self) -> u64 {
        self.left
    }
}

impl Read for Bounded {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        if most == 0 {
            return Err(too_large());
        }
        let read = self.inner.read(&mut buffer[..most])?;
        self.left -= read as u64;
        Ok(read)
    }
}

/// Error of a batch that inflates to too much.
pub(super) fn too_large() -> io::Error {
    malformed(&format!("the batch inflates to more than {MAX_INFLATED_BYTES} bytes"))
}

/// Error of a batch that cannot be decoded.
pub(super) fn malformed(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

/// Inflates one block.
fn inflate_snappy(block: &[u8]) -> io::Result<Bytes> {
    let claimed = snap::raw::decompress_len(block).map_err(io::Error::other)?;
    if claimed > MAX_BLOCK_BYTES {
        return Err(malformed(&format!("a block inflates to more than {MAX_BLOCK_BYTES} bytes")));
    }
    snap::raw::Decoder::new().decompress_vec(block).map(Bytes::from).map_err(io::Error::other)
}

/// The blocks of Java's framing, each with its length before it.
struct SnappyBlocks {
    data: Bytes,
    /// Rest of the block that is being read.
    block: Bytes,
}

impl Read for SnappyBlocks {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.block.is_empty() && !self.data.is_empty() {
            let length = self.data.try_get_u32().ok().and_then(|length| usize::try_from(length).ok());
            match length.filter(|length| *length <= self.data.len()) {
                Some(length) => self.block = inflate_snappy(&self.data.split_to(length))?,
                None => return Err(malformed("a block of Snappy is incomplete")),
            }
        }
        let read = buffer.len().min(self.block.len());
        self.block.copy_to_slice(&mut buffer[..read]);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use bytes::Bytes;

    use super::{JAVA_SNAPPY, MAX_INFLATED_BYTES, open};

    fn inflated(codec: i16, data: Vec<u8>) -> Result<Vec<u8>, String> {
        let mut text = Vec::new();
        open(codec, data.into())
            .and_then(|mut reader| reader.read_to_end(&mut text))
            .map_err(|error| error.to_string())?;
        Ok(text)
    }

    #[test]
    fn blocks_of_javas_snappy_are_joined() {
        let mut data = JAVA_SNAPPY.to_vec();
        for part in ["one ", "", "two"] {
            let block = snap::raw::Encoder::new().compress_vec(part.as_bytes()).unwrap();
            data.extend(u32::try_from(block.len()).unwrap().to_be_bytes());
            data.extend(block);
        }
        assert_eq!(inflated(2, data.clone()).unwrap(), b"one two");
        data.pop();
        assert_eq!(inflated(2, data).unwrap_err(), "a block of Snappy is incomplete");
    }

    #[test]
    fn claims_of_snappy_are_not_believed() {
        // A length of 4 GiB, and no data.
        let claim = vec![0xff, 0xff, 0xff, 0xff, 0x0f];
        assert!(inflated(2, claim).unwrap_err().starts_with("a block inflates to more than"));
    }

    #[test]
    fn inflating_stops_at_the_limit() {
        let zeros = vec![0; 1 << 20];
        let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
        for _ in 0..MAX_INFLATED_BYTES >> 20 {
            encoder.write_all(&zeros).unwrap();
        }
        encoder.write_all(b"1").unwrap();
        let data = Bytes::from(encoder.finish().unwrap());
        let mut reader = open(4, data).unwrap();
        let (mut total, mut buffer) = (0, vec![0; 1 << 20]);
        let error = loop {
            match reader.read(&mut buffer) {
                Ok(read) => total += read as u64,
                Err(error) => break error.to_string(),
            }
        };
        assert_eq!((total, error.as_str()), (MAX_INFLATED_BYTES, "the batch inflates to more than 268435456 bytes"));
    }

    #[test]
    fn unknown_codec_is_named() {
        assert_eq!(inflated(5, vec![]).unwrap_err(), "its compression has the unknown number 5");
    }
}
