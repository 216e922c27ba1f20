//! Rewrites error responses that hyper sends by itself, before any route or layer sees the request: an unreadable
//! request, headers that are too large, a URL that is too long. hyper sends these with an empty body and cannot be
//! configured otherwise. This module replaces them with problem documents while they are written.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use axum::http::StatusCode;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{Problem, ProblemCode, security_headers::SecurityHeaders};

/// Connection that replaces hyper's own error responses with problem documents.
pub(super) struct RewriteHyperErrors<Io> {
    io: Io,
    /// Replacement for hyper's response, and the number of its bytes that are written.
    replacement: Option<(Vec<u8>, usize)>,
    headers: SecurityHeaders,
}

impl<Io> RewriteHyperErrors<Io> {
    /// Wraps a connection. `headers` are added to the problem documents.
    pub(super) fn new(io: Io, headers: SecurityHeaders) -> Self {
        Self { io, replacement: None, headers }
    }
}

/// Returns the replacement for `written` if hyper generated it.
///
/// No other data looks like this: other errors have a body, and no line of a body ends in CR LF, because JSON and XML
/// escape the CR.
fn replacement(written: &[u8], headers: SecurityHeaders) -> Option<Vec<u8>> {
    let text = str::from_utf8(written.strip_prefix(b"HTTP/1.1 4")?.strip_suffix(b"\r\n\r\n")?).ok()?;
    let (status, fields) = text.split_once("\r\n")?;
    let mut date = None;
    let mut empty = false;
    for field in fields.split("\r\n") {
        match field.split_once(": ")? {
            ("content-length", "0") => empty = true,
            ("connection", "close") => {}
            ("date", at) => date = Some(at),
            _ => return None,
        }
    }
    let problem = match status.get(..2).filter(|_| empty)? {
        "00" => Problem::new(
            ProblemCode::BadRequest,
            "The data is not an HTTP/1.1 request: its first line or a header cannot be parsed. Check the sender.",
        ),
        "14" => {
            Problem::new(ProblemCode::AddressTooLong, "The path with its query is far too long. Request less at once.")
        }
        "31" => Problem::new(
            ProblemCode::HeadTooLarge,
            "The request has too many headers, or too large ones. Send fewer or shorter headers.",
        ),
        _ => return None,
    };
    Some(encode(&problem, date, headers))
}

fn encode(problem: &Problem, date: Option<&str>, headers: SecurityHeaders) -> Vec<u8> {
    let (status, body) = (problem.code().status(), problem.to_json());
    let reason = StatusCode::canonical_reason(&status).unwrap_or_default();
    let date = date.map(|date| format!("date: {date}\r\n")).unwrap_or_default();
    let headers: String = headers.list().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!(
        "HTTP/1.1 {} {reason}\r\ncontent-type: {}\r\ncontent-length: {}\r\nconnection: close\r\n{headers}{date}\r\n{body}",
        status.as_u16(),
        Problem::MEDIA_TYPE,
        body.len(),
    )
    .into_bytes()
}

impl<Io: AsyncRead + Unpin> AsyncRead for RewriteHyperErrors<Io> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<Io: AsyncWrite + Unpin> AsyncWrite for RewriteHyperErrors<Io> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        if this.replacement.is_none() {
            this.replacement = replacement(buf, this.headers).map(|bytes| (bytes, 0));
        }
        // hyper repeats the same bytes until they are accepted, so none is accepted before the replacement is
        // written.
        while let Some((bytes, sent)) = &mut this.replacement {
            match ready!(Pin::new(&mut this.io).poll_write(cx, &bytes[*sent..]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => *sent += written,
            }
            if *sent == bytes.len() {
                this.replacement = None;
                return Poll::Ready(Ok(buf.len()));
            }
        }
        Pin::new(&mut this.io).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match bufs {
            [buf] => self.poll_write(cx, buf),
            bufs => Pin::new(&mut self.io).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::{RewriteHyperErrors, SecurityHeaders, replacement};

    #[test]
    fn only_errors_of_hyper_are_replaced() {
        let bare = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\ndate: D\r\n\r\n";
        let replaced = String::from_utf8(replacement(bare, SecurityHeaders::default()).unwrap()).unwrap();
        assert!(replaced.starts_with("HTTP/1.1 431 Request Header Fields Too Large\r\n"), "{replaced}");
        assert!(replaced.contains("\r\ndate: D\r\n\r\n{"), "{replaced}");
        for other in [
            "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 2\r\n\r\n",
            "HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\ncontent-type: text/plain\r\n\r\n",
            "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 4é",
            "",
        ] {
            assert_eq!(replacement(other.as_bytes(), SecurityHeaders::default()), None, "{other}");
        }
    }

    #[tokio::test]
    async fn replacement_is_written_completely_through_small_buffer() {
        let (server, mut client) = tokio::io::duplex(7);
        let bare = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        let writing = tokio::spawn(async move {
            let mut io = RewriteHyperErrors::new(server, SecurityHeaders::default());
            io.write_all(bare).await.unwrap();
            io.write_all(b"more").await.unwrap();
        });
        let mut all = Vec::new();
        client.read_to_end(&mut all).await.unwrap();
        writing.await.unwrap();
        let mut expected = replacement(bare, SecurityHeaders::default()).unwrap();
        expected.extend_from_slice(b"more");
        assert_eq!(all, expected);
    }
}
