//! What is sent next: dead letters that are wanted again, then changes, alone or several as one body.

use std::{iter, ptr, sync::Arc};

use bytes::Bytes;
use tokio::time::timeout;

use super::{Cut, Engine, Session, retry};
use crate::{
    delivery::{Outgoing, Pending},
    format::KEPT,
    journal::{Recorded, store::StoreError},
    model::Seq,
};

/// How many dead letters are read at once to be sent again.
const LETTERS: usize = 16;

/// About how many bytes go into one message of several changes.
const BATCH_BYTES: usize = 1024 * 1024;

/// The changes of the next message.
struct Gathered {
    first: Arc<Recorded>,
    more: Vec<Arc<Recorded>>,
    /// All changes up to this one are done with, once the message has arrived.
    through: Seq,
}

/// What comes next of what waits.
enum Next {
    Message(Gathered),
    /// A change that nobody wants.
    Passed(Seq),
    Nothing,
}

impl Engine {
    /// Sends what there is, as far as the window has room.
    pub(super) async fn send_on(&mut self, session: &mut Session) -> Result<(), Cut> {
        if session.look_for_letters && session.letters.is_empty() && !session.flight.has_letters() {
            session.letters = self.journal.replays(self.name.clone(), None, LETTERS).await.map_err(retry)?.into();
            session.look_for_letters = session.letters.len() == LETTERS;
        }
        let mut passed = None;
        while session.flight.has_room() {
            if let Some(letter) = session.letters.pop_front() {
                let change = Arc::new(Recorded::from_json(letter.letter.seq, letter.letter.json.clone()));
                let (bytes, pending) = self.send(&change, &[]).await?;
                session.flight.push_letter(&letter, bytes, pending);
                continue;
            }
            match self.next(session)? {
                Next::Message(Gathered { first, more, through }) => {
                    let (bytes, pending) = self.send(&first, &more).await?;
                    session.flight.push(first, more, through, bytes, pending);
                }
                Next::Passed(seq) if session.flight.pass(seq) => passed = Some(seq),
                Next::Passed(_) => {}
                Next::Nothing => break,
            }
        }
        // What was passed over before the first message of the flight is done with.
        if let Some(seq) = passed {
            self.done_with(seq, 0);
        }
        Ok(())
    }

    /// Takes the next message from what waits. It waits for no more changes than there are.
    fn next(&self, session: &mut Session) -> Result<Next, Cut> {
        let most = self.delivery.window().changes;
        let mut gathered: Option<Gathered> = None;
        let mut bytes = 0;
        while let Some(change) = session.waiting.front() {
            let seq = change.seq();
            if let Some(so_far) = &gathered {
                let is_full =
                    1 + so_far.more.len() >= most || bytes >= BATCH_BYTES || so_far.first.seq() <= self.alone_through;
                if is_full {
                    break;
                }
            }
            let selected = change.selected(&self.filter).map_err(retry)?;
            session.waiting.pop_front();
            session.read = seq;
            let Some(shown) = selected else {
                match &mut gathered {
                    Some(gathered) => gathered.through = seq,
                    None => return Ok(Next::Passed(seq)),
                }
                continue;
            };
            bytes += shown.json().len();
            match &mut gathered {
                Some(gathered) => {
                    gathered.more.push(shown);
                    gathered.through = seq;
                }
                None => gathered = Some(Gathered { first: shown, more: Vec::new(), through: seq }),
            }
            if most == 1 {
                break;
            }
        }
        Ok(gathered.map_or(Next::Nothing, Next::Message))
    }

    /// Sends one message; gives the bytes of its body, and what will tell its outcome.
    async fn send(&mut self, first: &Arc<Recorded>, more: &[Arc<Recorded>]) -> Result<(usize, Pending), Cut> {
        let is_batch = self.delivery.window().changes > 1;
        let body = self.body(first, more, is_batch).map_err(retry)?;
        let bytes = body.len();
        let (change, more) = (Arc::clone(first), more.to_vec());
        let message = Outgoing { change, more, is_batch, format: self.format, body };
        match timeout(self.tuning.patience, self.delivery.send(message)).await {
            Ok(sent) => Ok((bytes, sent.map_err(retry)?)),
            Err(_) => Err(retry(format!("the receiver took nothing for {} seconds", self.tuning.patience.as_secs()))),
        }
    }

    fn body(&self, first: &Arc<Recorded>, more: &[Arc<Recorded>], is_batch: bool) -> Result<Bytes, StoreError> {
        // What the journal keeps is our JSON: it need be neither read nor written.
        let is_kept = ptr::eq(self.format, KEPT);
        let encoded = |change: &Arc<Recorded>| match is_kept {
            true => Ok(change.json().clone()),
            false => change.encoded(self.format.name, self.format.write),
        };
        match self.format.batch.filter(|_| is_batch) {
            None => encoded(first),
            Some(batch) => {
                let bodies = iter::once(first).chain(more).map(encoded).collect::<Result<Vec<_>, _>>()?;
                Ok(batch.join(&bodies).into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Arc, KEPT, Recorded, Seq};

    #[test]
    fn what_the_journal_keeps_is_what_the_format_writes() {
        let written = |recorded: &Recorded| (KEPT.write)(recorded.change().unwrap());
        let fixture = Recorded::from_json(Seq(1), include_bytes!("../../../fixtures/change.json").as_slice().into());
        let kept = Arc::new(Recorded::from_json(Seq(1), written(&fixture).into()));
        assert_eq!(written(&kept), kept.json().to_vec());
        let public = kept.public().unwrap().unwrap();
        assert_eq!(written(public), public.json().to_vec());
    }
}
