//! The object that crawlers call: `org.freedesktop.xesam.pmh.Target`.

use std::{sync::Arc, time::Duration};

use tokio::time::timeout;
use zbus::{message::Header, object_server::ResponseDispatchNotifier, wire::OwnedObjectPath};

use super::{
    crawler::CrawlerKey,
    crawlers::{Inner, InstallError, Launch},
    install::Plan,
    metrics,
    request::Request,
};
use crate::dbus;

/// Maximum time to decide a request. The clients of most libraries wait for 25 seconds.
const DECISION_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of names in one list of a request.
const MAX_NAMES: usize = 1000;

/// The object.
pub(super) struct Target(pub(super) Arc<Inner>);

/// Errors of the interface.
#[derive(Debug, zbus::DBusError)]
#[zbus(prefix = "org.freedesktop.xesam.pmh.Error")]
enum TargetError {
    #[zbus(error)]
    Bus(zbus::Error),
    AlreadyInstalled(String),
    TooManyCrawlers(String),
    InvalidRequest(String),
    Unavailable(String),
}

impl From<InstallError> for TargetError {
    fn from(error: InstallError) -> Self {
        let text = error.to_string();
        match error {
            InstallError::AlreadyInstalled(_) => Self::AlreadyInstalled(text),
            InstallError::TooMany(_) => Self::TooManyCrawlers(text),
        }
    }
}

#[zbus::interface(name = "org.freedesktop.xesam.pmh.Target", introspection_docs = false)]
impl Target {
    /// Installs a crawler. Returns whether it gets the changes after `mtime`; otherwise it must remove all records, and
    /// gets everything.
    #[zbus(out_args("incremental"))]
    #[expect(clippy::too_many_arguments, reason = "the interface has them")]
    async fn list_records(
        &self,
        mtime: u64,
        fields: Vec<String>,
        content_cats: Vec<String>,
        source_cats: Vec<String>,
        max_batch_size: u32,
        crawler: OwnedObjectPath,
        #[zbus(header)] header: Header<'_>,
    ) -> Result<ResponseDispatchNotifier<bool>, TargetError> {
        let categories = (&content_cats[..], &source_cats[..]);
        let installed = self.install(&header, (mtime, fields, categories, max_batch_size), &crawler).await;
        metrics::count_request(match &installed {
            Ok(response) if *response.response() => "incremental",
            Ok(_) => "full",
            Err(_) => "refused",
        });
        installed
    }
}

/// Arguments of a request without its crawler.
type Arguments<'a> = (u64, Vec<String>, (&'a [String], &'a [String]), u32);

impl Target {
    async fn install(
        &self,
        header: &Header<'_>,
        (mtime, fields, categories, max_batch_size): Arguments<'_>,
        path: &str,
    ) -> Result<ResponseDispatchNotifier<bool>, TargetError> {
        let crawlers = &self.0;
        let invalid = |text: &str| TargetError::InvalidRequest(text.to_owned());
        if [fields.len(), categories.0.len(), categories.1.len()].into_iter().any(|names| names > MAX_NAMES) {
            return Err(TargetError::InvalidRequest(format!("a list has more than {MAX_NAMES} names")));
        }
        let owner = header.sender().ok_or_else(|| invalid("the message has no sender"))?.as_str().into();
        let path = dbus::Path::parse(path).map_err(|error| TargetError::InvalidRequest(error.to_string()))?;
        let batch = usize::try_from(max_batch_size).unwrap_or(usize::MAX);
        let limit = crawlers.settings.batch_records;
        let request = Request::new(mtime, fields, categories, if batch == 0 { limit } else { batch.min(limit) });
        let serial = header.primary().serial_num().get();
        let installed = crawlers.install(CrawlerKey { owner, path }, request, serial)?;
        let plan = timeout(DECISION_TIMEOUT, Plan::of(&crawlers.pages, mtime)).await;
        let unavailable = |error: &dyn std::fmt::Display| {
            TargetError::Unavailable(format!("the journal cannot be read; try again later ({error})"))
        };
        let plan = plan.map_err(|elapsed| unavailable(&elapsed))?.map_err(|error| unavailable(&error))?;
        let is_incremental = matches!(plan, Plan::Changes { .. });
        installed.crawler.set_incremental(is_incremental);
        let (id, key) = (installed.crawler.id, &installed.crawler.key);
        let (owner, path) = (&*key.owner, key.path.as_str());
        tracing::info!(crawler = id, owner, path, mtime, incremental = is_incremental, "a crawler is installed");
        let (response, answered) = ResponseDispatchNotifier::new(is_incremental);
        let launch = Launch { crawler: installed, plan, answered: Box::pin(answered.into_future()) };
        crawlers.launches.try_send(launch).map_err(|_| unavailable(&"the gateway is stopping"))?;
        Ok(response)
    }
}
