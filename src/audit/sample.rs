//! Samples: random objects of the registry, and how an audit of a harvest looks at them.

use std::collections::HashSet;

use tokio::time::sleep;

use super::{
    compare,
    harvested::{FIRST_RETRY, HarvestWalk, LONGEST_RETRY, MAX_ATTEMPTS, is_state},
    progress::{Progress, WalkError},
};
use crate::{
    harvest::HarvestError,
    journal::registry::ObjectState,
    model::{ContentItemModification, Draft, Uri},
    retry::Backoff,
};

/// Number of objects of the registry that are read at a time.
const REGISTRY_PAGE: usize = 500;

/// Begins a sample anew, because an interrupted one would be no random one. Returns random objects that the source has
/// reported first.
pub(super) async fn choose(progress: &mut Progress, number: u32) -> Result<Vec<Uri>, WalkError> {
    let number = usize::try_from(number).unwrap_or(usize::MAX);
    progress.forget();
    let (mut sample, mut after) = (Vec::new(), None);
    loop {
        let page = progress.journal.registry(after, REGISTRY_PAGE).await?;
        let Some((last, _)) = page.last() else { return Ok(sample) };
        after = Some(last.clone());
        for (uri, state) in page {
            if !progress.is_own(&state) {
                continue;
            }
            progress.audit.report.registered += 1;
            if sample.len() < number {
                sample.push(uri);
            } else {
                let place = fastrand::u64(..progress.audit.report.registered);
                if let Some(kept) = usize::try_from(place).ok().and_then(|place| sample.get_mut(place)) {
                    *kept = uri;
                }
            }
        }
    }
}

/// Answer of the repository about an object.
enum Answer {
    /// The drafts that bring the registry up to date.
    Drafts(Vec<Draft>),
    /// The repository has no usable answer.
    None,
}

impl HarvestWalk {
    /// Requests random objects of the registry, and compares them. An object that differs is requested a second time, and the
    /// same differences count.
    pub(super) async fn look_at_sample(&mut self, number: u32) -> Result<(), WalkError> {
        let position = self.audit_position().await?;
        for object in choose(&mut self.progress, number).await? {
            let Answer::Drafts(drafts) = self.request(&position, &object).await? else {
                self.progress.audit.report.unanswered += 1;
                continue;
            };
            self.progress.audit.report.objects += 1;
            let registered = self.progress.registered(&object).await?;
            let first: HashSet<_> = self.items(drafts, &registered).iter().map(compare::fingerprint).collect();
            if !first.is_empty() {
                sleep(self.pause).await;
                match self.request(&position, &object).await? {
                    Answer::Drafts(drafts) => self.count(&object, drafts, &first).await?,
                    Answer::None => {
                        self.progress.audit.report.objects -= 1;
                        self.progress.audit.report.unanswered += 1;
                    }
                }
            }
            self.progress.save_sometimes().await?;
        }
        Ok(())
    }

    /// Returns the items of the changes that drafts would make.
    fn items(&self, drafts: Vec<Draft>, registered: &ObjectState) -> Vec<ContentItemModification> {
        let changes = drafts.into_iter().filter_map(|draft| self.progress.preview(draft, registered));
        changes.flat_map(|change| change.items.into_vec()).collect()
    }

    /// Counts the differences that an object had at the first request too.
    async fn count(&mut self, object: &Uri, drafts: Vec<Draft>, first: &HashSet<u64>) -> Result<(), WalkError> {
        let registered = self.progress.registered(object).await?;
        let is_same = |item: &ContentItemModification| first.contains(&compare::fingerprint(item));
        let changes = drafts.into_iter().filter_map(|draft| self.progress.preview(draft, &registered));
        let differences = changes.flat_map(|change| compare::differences(&change, &registered, is_same)).collect();
        self.progress.audit.report.add(differences);
        Ok(())
    }

    /// Requests an object.
    async fn request(&self, position: &str, object: &Uri) -> Result<Answer, WalkError> {
        let mut backoff = Backoff::new(FIRST_RETRY, LONGEST_RETRY);
        let records = loop {
            match self.harvester.object(position, object).await {
                Ok(records) => break records,
                Err(HarvestError::Retry { after, .. }) if backoff.failures() < MAX_ATTEMPTS => {
                    sleep(backoff.next_wait().max(after.unwrap_or_default())).await;
                }
                Err(error) => {
                    let source = self.progress.source.name();
                    tracing::debug!(%source, %object, %error, "an audit has no answer about an object");
                    return Ok(Answer::None);
                }
            }
        };
        let mut found = Vec::new();
        for message in records.filter_map(|record| record.message) {
            // A record that cannot be read says nothing.
            let Some(drafts) = self.progress.source.drafts(message) else { return Ok(Answer::None) };
            found.extend(drafts.into_iter().filter(|draft| draft.object == *object && is_state(draft)));
        }
        if found.is_empty() {
            let registered = self.progress.registered(object).await?;
            found.extend(compare::draft_of_absent(self.progress.audit.report.id, object, &registered));
        }
        Ok(Answer::Drafts(found))
    }
}
