//! Primitive types of the Kafka protocol, in its encoding without tagged fields.

use bytes::{Buf, Bytes};

/// Encoder of a request.
pub(super) struct Encoder(Vec<u8>);

impl Encoder {
    /// Begins a request with its header (version 1).
    pub(super) fn request(key: i16, version: i16, correlation: i32, client: &str) -> Self {
        let mut encoder = Self(Vec::with_capacity(128));
        encoder.i16(key).i16(version).i32(correlation).string(client);
        encoder
    }

    pub(super) fn i8(&mut self, value: i8) -> &mut Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(super) fn i16(&mut self, value: i16) -> &mut Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(super) fn i32(&mut self, value: i32) -> &mut Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(super) fn i64(&mut self, value: i64) -> &mut Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    /// Appends a text. Texts are names from the configuration, which are shorter than 32 KiB; a longer one is cut.
    pub(super) fn string(&mut self, text: &str) -> &mut Self {
        let octets = &text.as_bytes()[..text.len().min(usize::from(i16::MAX.unsigned_abs()))];
        self.i16(i16::try_from(octets.len()).unwrap_or(i16::MAX));
        self.0.extend(octets);
        self
    }

    pub(super) fn bytes(&mut self, octets: &[u8]) -> &mut Self {
        self.i32(i32::try_from(octets.len()).unwrap_or(i32::MAX));
        self.0.extend(octets);
        self
    }

    /// Returns the request with its length before it.
    pub(super) fn frame(&self) -> Vec<u8> {
        let length = i32::try_from(self.0.len()).unwrap_or(i32::MAX);
        [&length.to_be_bytes()[..], &self.0].concat()
    }
}

/// Maximum offset in a partition.
const MAX_OFFSET: i64 = i64::MAX >> 1;

/// Checks an offset of a broker, so that no sum of it and the length of a batch overflows. -1 stands for no offset.
pub(super) fn offset(value: i64) -> Result<i64, Malformed> {
    if (-1..=MAX_OFFSET).contains(&value) { Ok(value) } else { Err(Malformed) }
}

/// A response is shorter than its contents, or malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the response is malformed")]
pub(super) struct Malformed;

impl From<bytes::TryGetError> for Malformed {
    fn from(_: bytes::TryGetError) -> Self {
        Self
    }
}

/// Decoder of a response.
pub(super) struct Decoder(pub(super) Bytes);

impl Decoder {
    pub(super) fn i8(&mut self) -> Result<i8, Malformed> {
        Ok(self.0.try_get_i8()?)
    }

    pub(super) fn i16(&mut self) -> Result<i16, Malformed> {
        Ok(self.0.try_get_i16()?)
    }

    pub(super) fn i32(&mut self) -> Result<i32, Malformed> {
        Ok(self.0.try_get_i32()?)
    }

    pub(super) fn i64(&mut self) -> Result<i64, Malformed> {
        Ok(self.0.try_get_i64()?)
    }

    /// Reads an offset, or -1 for none.
    pub(super) fn offset(&mut self) -> Result<i64, Malformed> {
        offset(self.i64()?)
    }

    /// Reads a text, which is empty if it is null.
    pub(super) fn string(&mut self) -> Result<String, Malformed> {
        let length = usize::try_from(self.i16()?).unwrap_or(0);
        String::from_utf8(self.take(length)?.to_vec()).map_err(|_| Malformed)
    }

    /// Reads octets, which are empty if they are null.
    pub(super) fn bytes(&mut self) -> Result<Bytes, Malformed> {
        let length = usize::try_from(self.i32()?).unwrap_or(0);
        self.take(length)
    }

    /// Reads the elements of an array, which is empty if it is null.
    pub(super) fn array<T>(
        &mut self,
        mut element: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        // Each element has at least one octet, so the number of elements cannot exceed the size of the response.
        (0..self.i32()?).map(|_| element(self)).collect()
    }

    fn take(&mut self, length: usize) -> Result<Bytes, Malformed> {
        if length > self.0.len() { Err(Malformed) } else { Ok(self.0.split_to(length)) }
    }
}

#[cfg(test)]
mod tests {
    use super::{Bytes, Decoder, Encoder, Malformed};

    #[test]
    fn values_are_read_as_they_were_written() {
        let mut encoder = Encoder::request(1, 4, 7, "me");
        encoder.i8(-1).i64(i64::MIN).bytes(b"ab").i32(2).i16(3).i16(4);
        let mut decoder = Decoder(Bytes::from(encoder.frame()));
        assert_eq!(decoder.i32(), Ok(35));
        assert_eq!((decoder.i16(), decoder.i16(), decoder.i32()), (Ok(1), Ok(4), Ok(7)));
        assert_eq!(decoder.string().as_deref(), Ok("me"));
        assert_eq!((decoder.i8(), decoder.i64()), (Ok(-1), Ok(i64::MIN)));
        assert_eq!(decoder.bytes().as_deref(), Ok(&b"ab"[..]));
        assert_eq!(decoder.array(Decoder::i16), Ok(vec![3, 4]));
        assert_eq!(decoder.i8(), Err(Malformed));
    }

    #[test]
    fn claimed_sizes_are_not_believed() {
        let claim = Bytes::from(i32::MAX.to_be_bytes().to_vec());
        assert_eq!(Decoder(claim.clone()).array(Decoder::i16), Err(Malformed));
        assert_eq!(Decoder(claim.clone()).bytes(), Err(Malformed));
        assert_eq!(Decoder(claim).string(), Err(Malformed));
        for (value, expected) in
            [(-2, Err(Malformed)), (-1, Ok(-1)), (1 << 60, Ok(1 << 60)), (i64::MAX, Err(Malformed))]
        {
            assert_eq!(Decoder(Bytes::from(value.to_be_bytes().to_vec())).offset(), expected);
        }
    }
}
