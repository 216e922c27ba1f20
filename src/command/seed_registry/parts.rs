//! The parts of a walk on their way to the gateway, which keeps each together with how far the walk is.

use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use tidings::{
    lookup::walk::Part,
    model::{FoundObject, SourceName},
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::super::{
    gateway::{Gateway, NoAnswer},
    http::backoff,
};

/// How large the JSON of what is sent at once may be, about, in bytes: well below what a gateway takes.
const LARGEST: usize = 512 * 1024;

/// Sends parts.
pub(super) struct Parts<'g> {
    gateway: &'g Gateway,
    path: String,
    emit: bool,
    retries: u32,
    stop: CancellationToken,
    walk: Uuid,
    part: u64,
    place: String,
}

/// Where a walk begins.
pub(super) enum Begun {
    /// At the beginning.
    Anew,
    /// Where an earlier one was cut off.
    GoesOn { objects: u64, place: String },
    /// Nowhere: the earlier one came to its end.
    AtTheEnd { objects: u64, moved: String },
}

/// What became of what was sent.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Taken {
    pub(super) filled: u64,
    pub(super) accepted: u64,
    pub(super) duplicate: u64,
    pub(super) unchanged: u64,
}

/// What the gateway says of the newest walk.
#[derive(Deserialize)]
struct Told {
    walk: Option<ToldWalk>,
}

#[derive(Deserialize)]
struct ToldWalk {
    id: Uuid,
    part: u64,
    place: String,
    objects: u64,
    moved: String,
    done: bool,
}

impl<'g> Parts<'g> {
    pub(super) fn new(
        gateway: &'g Gateway,
        source: &SourceName,
        emit: bool,
        retries: u32,
        stop: CancellationToken,
    ) -> Self {
        let path = format!("/sources/{source}/registry");
        Self { gateway, path, emit, retries, stop, walk: Uuid::new_v4(), part: 0, place: String::new() }
    }

    /// Asks the gateway where the walk begins.
    pub(super) async fn begin(&mut self, anew: bool) -> Result<Begun, NoAnswer> {
        let told = self.gateway.ask(Method::GET, &self.path, None).await?;
        let told: Told = serde_json::from_value(told).map_err(|error| NoAnswer::strange(&error))?;
        Ok(match told.walk {
            Some(ToldWalk { objects, moved, done: true, .. }) if !anew => Begun::AtTheEnd { objects, moved },
            Some(ToldWalk { id, part, place, objects, .. }) if !anew => {
                self.walk = id;
                self.part = part;
                self.place.clone_from(&place);
                Begun::GoesOn { objects, place }
            }
            _ => Begun::Anew,
        })
    }

    /// Sends a part, in as many pieces as it takes.
    pub(super) async fn post(&mut self, part: Part) -> Result<Taken, String> {
        let Part { found, place, done, .. } = part;
        let mut taken = Taken::default();
        let mut pieces = pieces(found);
        let last = pieces.pop().unwrap_or_default();
        for piece in pieces {
            // What is cut off here is walked through again.
            let place = self.place.clone();
            taken.add(&self.post_piece(&piece, &place, false).await?);
        }
        taken.add(&self.post_piece(&last, &place, done).await?);
        self.place = place;
        Ok(taken)
    }

    async fn post_piece(&mut self, objects: &[FoundObject], place: &str, done: bool) -> Result<Taken, String> {
        self.part += 1;
        let (walk, part, emit) = (self.walk, self.part, self.emit);
        let body = json!({
            "walk": walk, "part": part, "objects": objects, "place": place, "done": done, "emit": emit,
        });
        let taken = self.send(body).await?;
        serde_json::from_value(taken).map_err(|error| NoAnswer::strange(&error).why)
    }

    /// A part that was written, and whose answer was lost, is known again.
    async fn send(&self, body: Value) -> Result<Value, String> {
        let mut backoff = backoff();
        loop {
            let no_answer = match self.gateway.ask(Method::POST, &self.path, Some(body.clone())).await {
                Ok(answer) => return Ok(answer),
                Err(no_answer) => no_answer,
            };
            if !no_answer.is_transient || backoff.failures() == self.retries {
                return Err(no_answer.why);
            }
            tokio::select! {
                () = tokio::time::sleep(backoff.next_wait()) => {}
                () = self.stop.cancelled() => return Err(format!("{} (stopped before another try)", no_answer.why)),
            }
        }
    }
}

impl Taken {
    fn add(&mut self, other: &Self) {
        self.filled += other.filled;
        self.accepted += other.accepted;
        self.duplicate += other.duplicate;
        self.unchanged += other.unchanged;
    }
}

/// The objects in order, in pieces that are not too large, one object at least in each.
fn pieces(found: Vec<FoundObject>) -> Vec<Vec<FoundObject>> {
    let mut pieces: Vec<Vec<FoundObject>> = Vec::new();
    let mut size = usize::MAX;
    for object in found {
        let more = serde_json::to_vec(&object).map_or(0, |json| json.len());
        size = size.saturating_add(more);
        match pieces.last_mut() {
            Some(piece) if size <= LARGEST => piece.push(object),
            _ => {
                size = more;
                pieces.push(vec![object]);
            }
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use tidings::model::{FoundItem, FoundObject, NonEmpty, Timestamp, Uri};

    use super::{LARGEST, pieces};

    #[test]
    fn pieces_are_in_order_and_not_too_large() {
        let object = |number: usize| {
            let uri = Uri::parse(&format!("http://h/{number}/{}", "x".repeat(1500))).unwrap();
            let item = FoundItem { uri: uri.clone(), at: Timestamp::EPOCH, content: None, state: None };
            FoundObject {
                object: uri,
                at: Timestamp::EPOCH,
                parent: None,
                types: Vec::new(),
                items: NonEmpty::one(item),
            }
        };
        let all: Vec<_> = (0..1000).map(object).collect();
        let cut = pieces(all.clone());
        assert!(cut.len() > 3, "{}", cut.len());
        assert!(cut.iter().all(|piece| serde_json::to_vec(piece).unwrap().len() < LARGEST + 2000));
        assert_eq!(cut.concat(), all);
        assert!(pieces(Vec::new()).is_empty());
    }
}
