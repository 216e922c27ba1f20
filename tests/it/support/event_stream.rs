//! Client of `/stream` that shows each block of the stream, including comments that a browser hides.

use std::time::Duration;

use crate::support::gateway::Gateway;

/// Lines between two empty lines. A comment counts as a separate block, because it needs no empty line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) id: String,
    pub(crate) event: String,
    pub(crate) data: Option<String>,
    pub(crate) retry: Option<String>,
    pub(crate) comment: bool,
}

impl Block {
    /// Returns the number in the block's `id`.
    pub(crate) fn number(&self) -> u64 {
        self.id.parse().unwrap()
    }
}

/// Open stream.
pub(crate) struct Stream {
    pub(crate) response: reqwest::Response,
    buffer: Vec<u8>,
}

impl Stream {
    /// Opens a stream; panics if the gateway refuses it.
    pub(crate) async fn open(gateway: &Gateway, query: &str, last: Option<&str>) -> Self {
        let response = Self::ask(gateway, query, last).await;
        assert_eq!(response.status(), 200, "{query} {last:?}");
        Self::of(response)
    }

    /// Reads the body of a response.
    pub(crate) fn of(response: reqwest::Response) -> Self {
        Self { response, buffer: Vec::new() }
    }

    /// Sends the request for a stream.
    pub(crate) async fn ask(gateway: &Gateway, query: &str, last: Option<&str>) -> reqwest::Response {
        let mut request = gateway.http.get(format!("{}/stream{query}", gateway.url));
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        request.send().await.unwrap()
    }

    /// Returns the next line, `None` at the end, and `Err` if the stream was interrupted.
    async fn line(&mut self) -> Result<Option<String>, reqwest::Error> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Ok(Some(String::from_utf8(line).unwrap().trim_end_matches('\n').to_owned()));
            }
            match self.response.chunk().await? {
                Some(chunk) => self.buffer.extend_from_slice(&chunk),
                None => return Ok(None),
            }
        }
    }

    /// Returns the next block or comment, `None` if the stream ended cleanly, and `Err` if it was interrupted.
    pub(crate) async fn next(&mut self) -> Result<Option<Block>, reqwest::Error> {
        let mut block = Block::default();
        loop {
            let Some(line) = self.line().await? else { return Ok(None) };
            let (field, value) = line.split_once(':').unwrap_or((&line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value).to_owned();
            match field {
                "" if line.starts_with(':') => {
                    assert_eq!(block, Block::default(), "a comment within an event");
                    return Ok(Some(Block { comment: true, ..block }));
                }
                "" => return Ok(Some(block)),
                "id" => block.id = value,
                "event" => block.event = value,
                "retry" => block.retry = Some(value),
                "data" => {
                    block.data = Some(match block.data.take() {
                        Some(before) => format!("{before}\n{value}"),
                        None => value,
                    });
                }
                other => panic!("there is no field {other}"),
            }
        }
    }

    /// Returns the next event and skips comments and cursors.
    pub(crate) async fn event(&mut self) -> Block {
        loop {
            let block = self.next().await.unwrap().expect("the stream has ended");
            if block.data.is_some() {
                return block;
            }
        }
    }

    /// Returns the numbers of the next `count` events.
    pub(crate) async fn numbers(&mut self, count: usize) -> Vec<u64> {
        let mut numbers = Vec::with_capacity(count);
        while numbers.len() < count {
            numbers.push(self.event().await.number());
        }
        numbers
    }

    /// Reads to the end; returns true if the stream ended cleanly.
    pub(crate) async fn ends_well(&mut self) -> bool {
        let reading = async {
            loop {
                match self.next().await {
                    Ok(Some(_)) => {}
                    Ok(None) => return true,
                    Err(_) => return false,
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(20), reading).await.expect("the stream does not end")
    }
}
