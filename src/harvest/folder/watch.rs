//! Notices changes of files between two runs, where the file system reports them.

use std::{path::Path, sync::Arc, time::Duration};

use futures_util::FutureExt;
use notify::{
    Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher,
    event::{AccessKind, AccessMode},
};
use tokio::sync::Notify;

use super::member::is_hidden;

/// Signal that a file has changed.
#[derive(Clone, Default)]
pub(super) struct ChangeSignal(Arc<Notify>);

impl ChangeSignal {
    /// Waits for a change since the last call of this function or of [`ChangeSignal::forget`].
    pub(super) async fn changed(&self) {
        self.0.notified().await;
    }

    /// Forgets the changes until now, because a list begins.
    pub(super) fn forget(&self) {
        let _ = self.0.notified().now_or_never();
    }
}

/// Watches a folder with all folders in it, or an archive, until it is dropped. Changes that other machines make on a
/// network file system are not reported.
///
/// # Errors
/// Fails if the operating system cannot watch the place.
pub(super) fn watch(path: &Path, is_folder: bool, signal: &ChangeSignal) -> Result<RecommendedWatcher, String> {
    // A program may replace an archive by a new file, so its folder is watched.
    let root = if is_folder { path } else { path.parent().unwrap_or(path) };
    let (place, own_root, own_signal) = (path.to_owned(), root.to_owned(), signal.clone());
    let notice = move |event: notify::Result<Event>| {
        let counts = event.map_or(true, |event| {
            let concerns = |path: &std::path::PathBuf| {
                let relative = path.strip_prefix(&own_root).unwrap_or(path);
                if is_folder { !is_hidden(relative) } else { *path == place }
            };
            event.need_rescan() || (is_modification(event.kind) && event.paths.iter().any(concerns))
        });
        if counts {
            own_signal.0.notify_one();
        }
    };
    let explain = |error: notify::Error| match error.kind {
        notify::ErrorKind::MaxFilesWatch => {
            "it has more folders than the system can watch; raise fs.inotify.max_user_watches".to_owned()
        }
        _ => error.to_string(),
    };
    let config = notify::Config::default().with_follow_symlinks(false);
    let mut watcher = RecommendedWatcher::new(notice, config).map_err(explain)?;
    let mode = if is_folder { RecursiveMode::Recursive } else { RecursiveMode::NonRecursive };
    watcher.watch(root, mode).map_err(explain)?;
    Ok(watcher)
}

/// Returns whether an event is about content, not about the reading of a file, which the harvest itself does.
fn is_modification(kind: EventKind) -> bool {
    match kind {
        EventKind::Access(access) => access == AccessKind::Close(AccessMode::Write),
        EventKind::Any | EventKind::Create(_) | EventKind::Modify(_) | EventKind::Remove(_) | EventKind::Other => true,
    }
}

/// Returns the wait between the first change and the run, in which further changes arrive. A folder that changes all the
/// time is listed for at most a fifth of the time.
pub(super) fn gathering(last_list: Duration) -> Duration {
    const SHORTEST: Duration = Duration::from_secs(1);
    const LONGEST: Duration = Duration::from_secs(10 * 60);
    last_list.saturating_mul(4).clamp(SHORTEST, LONGEST)
}
