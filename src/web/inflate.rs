//! Bodies of requests as they come in, inflated on the way where the sender has deflated them.
//!
//! Each chunk is inflated as it arrives and what comes out is counted before it is kept, so that a
//! bomb costs no more than the limit, whatever it would have become.

use std::{
    io::{self, Write},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use axum::http::{HeaderMap, header};
use bytes::Bytes;
use flate2::write::MultiGzDecoder;
use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation, OutBuffer};

/// The largest window of zstd, as a power of two: the 8 MiB that RFC 9659 allows in HTTP. Without
/// it a frame of a few bytes could claim 128 MiB.
const ZSTD_WINDOW_LOG: u32 = 23;

/// How much is inflated at once, in bytes.
const STEP: usize = 32 * 1024;

/// Bytes that a coding may add to a small body.
const FRAMING: usize = 1024;

/// A content coding of a body (RFC 9110 section 8.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    Identity,
    Gzip,
    Zstd,
}

impl Coding {
    /// What is read, as it stands in `Accept-Encoding`.
    pub(super) const READ: &str = "gzip, zstd";

    /// The coding that the headers tell; `None` where it is another one, or several on each other.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let mut told = headers.get_all(header::CONTENT_ENCODING).iter();
        let Some(name) = told.next() else { return Some(Self::Identity) };
        if told.next().is_some() {
            return None;
        }
        match name.to_str().ok()?.trim().to_ascii_lowercase().as_str() {
            "" | "identity" => Some(Self::Identity),
            "gzip" | "x-gzip" => Some(Self::Gzip),
            "zstd" => Some(Self::Zstd),
            _ => None,
        }
    }
}

/// How many bytes of bodies all requests hold together: an extension that a layer puts on every
/// request.
#[derive(Clone, Debug)]
pub struct HeldBytes {
    held: Arc<AtomicUsize>,
    most: usize,
    /// Those of them that are in bodies of senders who are not known yet.
    unproven: Arc<AtomicUsize>,
    /// Bound on the latter, where this handle is for one of them.
    most_unproven: Option<usize>,
}

impl HeldBytes {
    /// At most so many bytes.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { held: Arc::default(), most, unproven: Arc::default(), most_unproven: None }
    }

    /// Returns a handle for the body of a sender who is not known yet. All of these may have half of the bytes, so that
    /// they leave room for others, and one body at least.
    pub(super) fn of_unproven(&self, body: usize) -> Self {
        Self { most_unproven: Some((self.most / 2).max(body)), ..self.clone() }
    }

    fn hold(&self, bytes: usize) -> bool {
        let add = |counter: &AtomicUsize, most: usize| {
            let fits = |held: usize| held.checked_add(bytes).filter(|held| *held <= most);
            counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
        };
        let Some(most_unproven) = self.most_unproven else { return add(&self.held, self.most) };
        if !add(&self.unproven, most_unproven) {
            return false;
        }
        let is_held = add(&self.held, self.most);
        if !is_held {
            self.unproven.fetch_sub(bytes, Ordering::Relaxed);
        }
        is_held
    }

    fn release(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
        if self.most_unproven.is_some() {
            self.unproven.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

/// The bound where no layer has set one: a request's own limit is all.
impl Default for HeldBytes {
    fn default() -> Self {
        Self::new(usize::MAX)
    }
}

/// Why a body is not taken.
#[derive(Debug)]
pub(super) enum Refused {
    /// It is larger than the limit of one body.
    TooLarge,
    /// All bodies together are.
    NoRoom,
    /// It is not of the coding that was told.
    Corrupt(io::Error),
}

/// What became of a body that came otherwise than by HTTP.
#[derive(Debug)]
pub enum Inflated {
    /// What it tells is no coding: nothing, or a charset.
    AsItIs,
    /// It is inflated.
    Body(Bytes),
    /// It would be larger than the limit.
    TooLarge,
    /// It is not of the coding that it tells.
    Corrupt(String),
    /// It is of a coding that is not read.
    Unknown,
}

/// Inflates a body that says of itself that it is of `coding`, to at most `limit` bytes.
#[must_use]
pub fn inflate(coding: &str, body: &[u8], limit: usize) -> Inflated {
    let coding = match coding.trim().to_ascii_lowercase().as_str() {
        "gzip" | "x-gzip" => Coding::Gzip,
        "zstd" => Coding::Zstd,
        // The rest of the registry of HTTP's content codings; what is in none is a charset.
        "br" | "compress" | "x-compress" | "deflate" | "dcb" | "dcz" | "exi" | "pack200-gzip" | "aes128gcm" => {
            return Inflated::Unknown;
        }
        _ => return Inflated::AsItIs,
    };
    let inflated = Incoming::new(coding, 0, limit, HeldBytes::default()).and_then(|mut incoming| {
        incoming.write(body)?;
        incoming.finish()
    });
    match inflated {
        Ok(body) => Inflated::Body(body),
        Err(Refused::Corrupt(reason)) => Inflated::Corrupt(reason.to_string()),
        Err(Refused::TooLarge | Refused::NoRoom) => Inflated::TooLarge,
    }
}

/// What has come of a body so far. What it holds is given back when it is dropped, or when the
/// [`Bytes`] that are made of it are.
struct Taken {
    bytes: Vec<u8>,
    limit: usize,
    held: HeldBytes,
    refused: Option<Refused>,
}

impl Taken {
    fn take(&mut self, data: &[u8]) -> Result<(), Refused> {
        if data.len() > self.limit - self.bytes.len() {
            return Err(Refused::TooLarge);
        }
        if !self.held.hold(data.len()) {
            return Err(Refused::NoRoom);
        }
        self.bytes.extend_from_slice(data);
        Ok(())
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.held.release(self.bytes.len());
    }
}

impl AsRef<[u8]> for Taken {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// For the decoder of gzip, which writes what it has inflated.
impl Write for Taken {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        match self.take(data) {
            Ok(()) => Ok(data.len()),
            Err(refused) => {
                self.refused = Some(refused);
                Err(io::ErrorKind::OutOfMemory.into())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A body being taken in. It is bounded as it comes and as it is inflated: what a decoder skips, such as empty members
/// and skippable frames, would otherwise cost its work without end.
pub(super) struct Incoming {
    decoding: Decoding,
    /// How many more bytes may come.
    left: usize,
}

enum Decoding {
    Identity(Taken),
    Gzip(Box<MultiGzDecoder<Taken>>),
    Zstd { decoder: Decoder<'static>, whole: bool, taken: Taken },
}

impl Incoming {
    /// A body of that coding, of which at most `limit` bytes are taken, coded and inflated. `told` is how long it is to
    /// be, as far as its sender told.
    pub(super) fn new(coding: Coding, told: usize, limit: usize, held: HeldBytes) -> Result<Self, Refused> {
        let room = if coding == Coding::Identity { told.min(limit) } else { 0 };
        let taken = Taken { bytes: Vec::with_capacity(room), limit, held, refused: None };
        let decoding = match coding {
            Coding::Identity => Decoding::Identity(taken),
            Coding::Gzip => Decoding::Gzip(Box::new(MultiGzDecoder::new(taken))),
            Coding::Zstd => {
                let mut decoder = Decoder::new().map_err(Refused::Corrupt)?;
                decoder.set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_LOG)).map_err(Refused::Corrupt)?;
                Decoding::Zstd { decoder, whole: false, taken }
            }
        };
        // A coding makes a body that it cannot compress a little longer: blocks have heads, members have ends.
        let left = limit.saturating_add(limit / 1024).saturating_add(FRAMING);
        Ok(Self { decoding, left })
    }

    /// Whether the body has a content coding.
    pub(super) fn is_coded(&self) -> bool {
        !matches!(self.decoding, Decoding::Identity(_))
    }

    /// Takes the next bytes as they came.
    pub(super) fn write(&mut self, data: &[u8]) -> Result<(), Refused> {
        self.left = self.left.checked_sub(data.len()).ok_or(Refused::TooLarge)?;
        match &mut self.decoding {
            Decoding::Identity(taken) => taken.take(data),
            Decoding::Gzip(decoder) => {
                let written = decoder.write_all(data);
                written.map_err(|error| refused_by(decoder.get_mut(), error))
            }
            Decoding::Zstd { decoder, whole, taken } => inflate_zstd(decoder, whole, taken, data),
        }
    }

    /// The whole body.
    pub(super) fn finish(self) -> Result<Bytes, Refused> {
        let taken = match self.decoding {
            Decoding::Gzip(mut decoder) => {
                let ended = decoder.try_finish();
                ended.map_err(|error| refused_by(decoder.get_mut(), error))?;
                decoder.finish().map_err(Refused::Corrupt)?
            }
            Decoding::Zstd { whole: false, .. } => return Err(Refused::Corrupt(io::ErrorKind::UnexpectedEof.into())),
            Decoding::Identity(taken) | Decoding::Zstd { taken, .. } => taken,
        };
        Ok(if taken.bytes.is_empty() { Bytes::new() } else { Bytes::from_owner(taken) })
    }
}

/// The decoder failed: for what it inflated to, or for what it was given.
fn refused_by(taken: &mut Taken, error: io::Error) -> Refused {
    taken.refused.take().unwrap_or(Refused::Corrupt(error))
}

fn inflate_zstd(
    decoder: &mut Decoder<'static>,
    whole: &mut bool,
    taken: &mut Taken,
    data: &[u8],
) -> Result<(), Refused> {
    let mut step = [0; STEP];
    let mut input = InBuffer::around(data);
    loop {
        let mut output = OutBuffer::around(&mut step[..]);
        let wanted = decoder.run(&mut input, &mut output).map_err(Refused::Corrupt)?;
        *whole = wanted == 0;
        let is_full = output.pos() == STEP;
        taken.take(output.as_slice())?;
        // A full step may have left something behind in the decoder.
        if input.pos() == data.len() && !(is_full && wanted > 0) {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Write, sync::atomic::Ordering};

    use axum::http::{HeaderMap, header};
    use flate2::{Compression, write::GzEncoder};

    use super::{Bytes, Coding, HeldBytes, Incoming, Refused};

    fn gzip(data: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(data).unwrap();
        encoder.finish().unwrap()
    }

    fn zstd(data: &[u8]) -> Vec<u8> {
        zstd::encode_all(data, 19).unwrap()
    }

    fn inflate(coding: Coding, data: &[u8], chunk: usize, limit: usize, held: &HeldBytes) -> Result<Bytes, Refused> {
        let mut incoming = Incoming::new(coding, 0, limit, held.clone())?;
        for chunk in data.chunks(chunk) {
            incoming.write(chunk)?;
        }
        incoming.finish()
    }

    #[test]
    fn what_was_deflated_is_inflated_however_it_is_cut() {
        let text: Vec<u8> = (0..100_000_u32).flat_map(u32::to_be_bytes).collect();
        let held = HeldBytes::new(text.len());
        for chunk in [1, 7, 4096, usize::MAX] {
            for (coding, sent) in
                [(Coding::Identity, text.clone()), (Coding::Gzip, gzip(&text)), (Coding::Zstd, zstd(&text))]
            {
                let came = inflate(coding, &sent, chunk, text.len(), &held).unwrap();
                assert_eq!(came, text, "{coding:?} {chunk}");
                assert_eq!(held.held.load(Ordering::Relaxed), text.len());
                drop(came);
                assert_eq!(held.held.load(Ordering::Relaxed), 0, "it is given back");
            }
        }
        // Members and frames after each other are one body (RFC 1952 section 2.2, RFC 8878 section 3).
        let twice = |sent: Vec<u8>| [sent.clone(), sent].concat();
        for (coding, sent) in [(Coding::Gzip, gzip(b"ab")), (Coding::Zstd, zstd(b"ab"))] {
            assert_eq!(inflate(coding, &twice(sent), 5, 4, &HeldBytes::default()).unwrap(), "abab");
        }
    }

    #[test]
    fn a_bomb_stops_at_the_limit() {
        let zeros = vec![0; 64 << 20];
        for (coding, bomb) in [(Coding::Gzip, gzip(&zeros)), (Coding::Zstd, zstd(&zeros))] {
            let held = HeldBytes::default();
            let mut incoming = Incoming::new(coding, bomb.len(), 1 << 20, held.clone()).unwrap();
            assert!(matches!(incoming.write(&bomb), Err(Refused::TooLarge)));
            assert!(held.held.load(Ordering::Relaxed) <= 1 << 20);
        }
        assert!(inflate(Coding::Identity, &zeros[..4], 1, 4, &HeldBytes::default()).is_ok());
        assert!(matches!(inflate(Coding::Identity, &zeros[..5], 1, 4, &HeldBytes::default()), Err(Refused::TooLarge)));
        let held = HeldBytes::new(6);
        let first = inflate(Coding::Gzip, &gzip(b"abcd"), 9, 4, &held).unwrap();
        assert!(matches!(inflate(Coding::Zstd, &zstd(b"abcd"), 9, 4, &held), Err(Refused::NoRoom)));
        drop(first);
        assert!(inflate(Coding::Zstd, &zstd(b"abcd"), 9, 4, &held).is_ok());
    }

    #[test]
    fn bodies_of_unknown_senders_leave_room_for_others() {
        let held = HeldBytes::new(8);
        let take = |held: &HeldBytes, body: &[u8]| inflate(Coding::Identity, body, 9, 4, held);
        let unproven = held.of_unproven(3);
        let first = take(&unproven, b"abcd").unwrap();
        assert!(matches!(take(&held.of_unproven(3), b"x"), Err(Refused::NoRoom)));
        assert!(take(&held.of_unproven(5), b"x").is_ok(), "one body always has room");
        let known = take(&held, b"abcd").unwrap();
        assert!(matches!(take(&held, b"x"), Err(Refused::NoRoom)));
        drop((first, known));
        let counts = [&held.held, &held.unproven].map(|count| count.load(Ordering::Relaxed));
        assert_eq!(counts, [0, 0]);
    }

    #[test]
    fn body_bound_counts_bytes_that_inflate_to_nothing() {
        // A skippable frame (RFC 8878 section 3.1.2) and an empty member (RFC 1952 section 2.3).
        let skippable = [&[0x50, 0x2A, 0x4D, 0x18, 100, 0, 0, 0][..], &[0; 100]].concat();
        for (coding, empty) in [(Coding::Zstd, skippable), (Coding::Gzip, gzip(b""))] {
            let message = if coding == Coding::Gzip { gzip(b"abcd") } else { zstd(b"abcd") };
            let sent = |count: usize| [empty.repeat(count), message.clone()].concat();
            assert_eq!(inflate(coding, &sent(3), 7, 1000, &HeldBytes::default()).unwrap(), "abcd");
            let refused = inflate(coding, &sent(200), 7, 1000, &HeldBytes::default());
            assert!(matches!(refused, Err(Refused::TooLarge)), "{coding:?}: {refused:?}");
        }
    }

    #[test]
    fn what_is_cut_short_or_something_else_is_refused() {
        // A frame header that claims a window of 1 GiB (RFC 8878 section 3.1.1.1.2).
        let wide = [0x28, 0xB5, 0x2F, 0xFD, 0x00, 0xA0, 0x01, 0x00, 0x00];
        for (coding, sent) in [(Coding::Gzip, gzip(b"abcd")), (Coding::Zstd, zstd(b"abcd"))] {
            let cut = &sent[..sent.len() - 1];
            let trailed = [&sent[..], b"x"].concat();
            for sent in [cut, &trailed, &sent[1..], b"{}", b"", &wide] {
                let refused = inflate(coding, sent, 3, 100, &HeldBytes::default());
                assert!(matches!(refused, Err(Refused::Corrupt(_))), "{coding:?} {sent:?}: {refused:?}");
            }
        }
    }

    #[test]
    fn codings_are_known_by_name_and_not_chained() {
        let coding = |names: &[&str]| {
            let mut headers = HeaderMap::new();
            for name in names {
                headers.append(header::CONTENT_ENCODING, name.parse().unwrap());
            }
            Coding::of(&headers)
        };
        assert_eq!(coding(&[]), Some(Coding::Identity));
        assert_eq!(coding(&["identity"]), Some(Coding::Identity));
        assert_eq!([coding(&["GZIP"]), coding(&["x-gzip"])], [Some(Coding::Gzip); 2]);
        assert_eq!(coding(&["zstd"]), Some(Coding::Zstd));
        for unknown in [&["br"][..], &["gzip, gzip"], &["gzip", "zstd"], &["deflate"]] {
            assert_eq!(coding(unknown), None, "{unknown:?}");
        }
    }
}
