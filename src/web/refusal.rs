//! What hyper refuses by itself, before any route or layer of ours sees it: a head that is none, one that
//! is too large, an address that is too long. It answers these with an empty body, and offers no other way;
//! here that answer is replaced by a problem document on its way out.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use axum::http::StatusCode;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{Problem, ProblemCode, security_headers::SecurityHeaders};

/// A connection on which hyper's own refusals become problem documents.
pub(super) struct Refusals<Io> {
    io: Io,
    /// What is written in place of hyper's answer, and how much of it is written.
    instead: Option<(Vec<u8>, usize)>,
    headers: SecurityHeaders,
}

impl<Io> Refusals<Io> {
    /// The problem documents have these headers.
    pub(super) fn on(io: Io, headers: SecurityHeaders) -> Self {
        Self { io, instead: None, headers }
    }
}

/// The answer that takes the place of these bytes, if they are one that hyper made.
///
/// Nothing else that is written looks like that: our own errors have a body, and no body has a line that ends
/// in CR LF, since both JSON and XML escape the CR.
fn in_place_of(written: &[u8], headers: SecurityHeaders) -> Option<Vec<u8>> {
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
            "What came is no request of HTTP/1.1: its first line or a header field cannot be read. Look at what sends it.",
        ),
        "14" => Problem::new(
            ProblemCode::AddressTooLong,
            "The path with its query is far longer than is read. Ask for less at once.",
        ),
        "31" => Problem::new(
            ProblemCode::HeadTooLarge,
            "The request has more header fields than are read, or larger ones. Send fewer, or shorter ones.",
        ),
        _ => return None,
    };
    Some(answer(&problem, date, headers))
}

fn answer(problem: &Problem, date: Option<&str>, headers: SecurityHeaders) -> Vec<u8> {
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

impl<Io: AsyncRead + Unpin> AsyncRead for Refusals<Io> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<Io: AsyncWrite + Unpin> AsyncWrite for Refusals<Io> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        if this.instead.is_none() {
            this.instead = in_place_of(buf, this.headers).map(|instead| (instead, 0));
        }
        // Until all of it is written hyper comes again with the same bytes: none of them is taken before.
        while let Some((instead, begun)) = &mut this.instead {
            match ready!(Pin::new(&mut this.io).poll_write(cx, &instead[*begun..]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => *begun += written,
            }
            if *begun == instead.len() {
                this.instead = None;
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

    use super::{Refusals, SecurityHeaders, in_place_of};

    #[test]
    fn nothing_but_a_bare_refusal_is_replaced() {
        let bare = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\ndate: D\r\n\r\n";
        let instead = String::from_utf8(in_place_of(bare, SecurityHeaders::default()).unwrap()).unwrap();
        assert!(instead.starts_with("HTTP/1.1 431 Request Header Fields Too Large\r\n"), "{instead}");
        assert!(instead.contains("\r\ndate: D\r\n\r\n{"), "{instead}");
        for other in [
            "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 2\r\n\r\n",
            "HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\ncontent-type: text/plain\r\n\r\n",
            "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 4é",
            "",
        ] {
            assert_eq!(in_place_of(other.as_bytes(), SecurityHeaders::default()), None, "{other}");
        }
    }

    #[tokio::test]
    async fn it_is_written_whole_through_a_narrow_pipe() {
        let (server, mut client) = tokio::io::duplex(7);
        let bare = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        let writing = tokio::spawn(async move {
            let mut io = Refusals::on(server, SecurityHeaders::default());
            io.write_all(bare).await.unwrap();
            io.write_all(b"more").await.unwrap();
        });
        let mut all = Vec::new();
        client.read_to_end(&mut all).await.unwrap();
        writing.await.unwrap();
        let mut expected = in_place_of(bare, SecurityHeaders::default()).unwrap();
        expected.extend_from_slice(b"more");
        assert_eq!(all, expected);
    }
}
