//! The client's side of `/stream` as the tests need it: block by block, with what a browser does not show.

use std::time::Duration;

use crate::support::gateway::Gateway;

/// What stands between two empty lines. Comments count as blocks of their own, since they need no empty line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) id: String,
    pub(crate) event: String,
    pub(crate) data: Option<String>,
    pub(crate) retry: Option<String>,
    pub(crate) comment: bool,
}

impl Block {
    /// The number in its `id`.
    pub(crate) fn number(&self) -> u64 {
        self.id.parse().unwrap()
    }
}

/// An open stream.
pub(crate) struct Stream {
    pub(crate) response: reqwest::Response,
    buffer: Vec<u8>,
}

impl Stream {
    /// Opens one that must be let in.
    pub(crate) async fn open(gateway: &Gateway, query: &str, last: Option<&str>) -> Self {
        let response = Self::ask(gateway, query, last).await;
        assert_eq!(response.status(), 200, "{query} {last:?}");
        Self::of(response)
    }

    /// What a response brings.
    pub(crate) fn of(response: reqwest::Response) -> Self {
        Self { response, buffer: Vec::new() }
    }

    /// Asks for one.
    pub(crate) async fn ask(gateway: &Gateway, query: &str, last: Option<&str>) -> reqwest::Response {
        let mut request = gateway.http.get(format!("{}/stream{query}", gateway.url));
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        request.send().await.unwrap()
    }

    /// The next line; `None` at the end, `Err` where it broke off.
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

    /// The next block, or comment; `None` when the stream has ended as it should, `Err` where it broke off.
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

    /// The next event, past comments and places.
    pub(crate) async fn event(&mut self) -> Block {
        loop {
            let block = self.next().await.unwrap().expect("the stream has ended");
            if block.data.is_some() {
                return block;
            }
        }
    }

    /// The numbers of so many events.
    pub(crate) async fn numbers(&mut self, count: usize) -> Vec<u64> {
        let mut numbers = Vec::with_capacity(count);
        while numbers.len() < count {
            numbers.push(self.event().await.number());
        }
        numbers
    }

    /// Reads to the end; gives whether that was in good order.
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
