//! Reading of the objects of a selection from the registry.

use crate::{
    journal::{Journal, JournalError, RegistryPosition, store::StoreError},
    model::Uri,
    view::digests::selection::{Digests, Selection},
};

/// Number of objects that are read at once for one range.
pub(super) const READ_OBJECTS: usize = 160;

/// An object with its digests, if it is selected.
type Examined = (Uri, Option<Digests>);

/// Reads the next objects from a position on, and returns them with the position after them. `None` if no object is left that
/// can be selected. The digests are made on a thread that may block.
pub(super) async fn read(
    journal: &Journal,
    selection: &Selection,
    mut position: RegistryPosition,
    objects: usize,
) -> Result<Option<(Vec<Examined>, RegistryPosition)>, JournalError> {
    let page = loop {
        let Some(from) = selection.seek(position) else { return Ok(None) };
        match journal.registry(from, objects).await {
            Ok(page) => break page,
            Err(error) => position = RegistryPosition::After(selection.passed(error)?),
        }
    };
    let Some(last) = page.last().map(|(uri, _)| uri.clone()) else { return Ok(None) };
    let selection = selection.clone();
    let working = tokio::task::spawn_blocking(move || {
        let examine = |(uri, state)| match selection.digests(&uri, &state) {
            Ok(digests) => Ok((uri, digests)),
            Err(error) => Err(error.of_object(&uri)),
        };
        page.into_iter().map(examine).collect::<Result<Vec<_>, StoreError>>()
    });
    let examined = working.await.map_err(|_| JournalError::Closed)??;
    Ok(Some((examined, RegistryPosition::After(last))))
}

/// Reads the selected objects after one URI, up to and including another.
pub(in crate::view::digests) async fn read_range(
    journal: &Journal,
    selection: &Selection,
    after: Option<Uri>,
    through: &Uri,
) -> Result<Vec<(Uri, Digests)>, JournalError> {
    let mut selected = Vec::new();
    let mut position = RegistryPosition::from(after);
    while let Some((objects, next)) = read(journal, selection, position, READ_OBJECTS).await? {
        let is_end = objects.last().is_some_and(|(last, _)| last >= through);
        let within = objects.into_iter().take_while(|(uri, _)| uri <= through);
        selected.extend(within.filter_map(|(uri, digests)| Some((uri, digests?))));
        if is_end {
            break;
        }
        position = next;
    }
    Ok(selected)
}
