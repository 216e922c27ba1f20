//! Lines of JSON, compressed on request.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
};

use flate2::write::GzEncoder;

use super::{
    NumberedChange, Skipped,
    partition::{Compression, PartitionWriter},
};

/// Size of the buffer before the file, in bytes.
const BUFFER_BYTES: usize = 256 << 10;

/// Writer of lines.
pub(super) enum LineWriter {
    Plain(BufWriter<File>),
    Zst(BufWriter<zstd::Encoder<'static, File>>),
    Gz(BufWriter<GzEncoder<File>>),
}

impl LineWriter {
    /// Starts a file.
    ///
    /// # Errors
    /// Fails if the compressor cannot be made.
    pub(super) fn new(file: File, compression: Option<Compression>) -> io::Result<Self> {
        Ok(match compression {
            None => Self::Plain(BufWriter::with_capacity(BUFFER_BYTES, file)),
            Some(Compression::Zst) => {
                let mut encoder = zstd::Encoder::new(file, zstd::DEFAULT_COMPRESSION_LEVEL)?;
                encoder.include_checksum(true)?;
                Self::Zst(BufWriter::with_capacity(BUFFER_BYTES, encoder))
            }
            Some(Compression::Gz) => {
                let encoder = GzEncoder::new(file, flate2::Compression::default());
                Self::Gz(BufWriter::with_capacity(BUFFER_BYTES, encoder))
            }
        })
    }

    fn out(&mut self) -> &mut dyn Write {
        match self {
            Self::Plain(out) => out,
            Self::Zst(out) => out,
            Self::Gz(out) => out,
        }
    }
}

impl PartitionWriter for LineWriter {
    fn add(&mut self, changes: &[NumberedChange], _: &mut Skipped) -> io::Result<u64> {
        let out = self.out();
        for change in changes {
            out.write_all(change.json.get().as_bytes())?;
            out.write_all(b"\n")?;
        }
        Ok(changes.len() as u64)
    }

    fn finish(mut self: Box<Self>) -> io::Result<()> {
        self.out().flush()?;
        match *self {
            Self::Plain(_) => {}
            Self::Zst(out) => _ = out.into_inner().map_err(io::IntoInnerError::into_error)?.finish()?,
            Self::Gz(out) => _ = out.into_inner().map_err(io::IntoInnerError::into_error)?.finish()?,
        }
        Ok(())
    }
}
