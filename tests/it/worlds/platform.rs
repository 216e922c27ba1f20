//! World of data platforms: records of an InvenioRDM, pages with linksets, projects of OSF and bags, whose files change between the
//! requests to archive them, while traffic filters, busy servers and broken connections are in the way. Some gateways look
//! at archived datasets again by themselves, and some platforms want a token, which their storage must not see.

mod behaviour;
mod checks;
mod service;
mod waits;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use md5::Digest;
use proptest::prelude::*;
use serde_json::{Value, json};
use sha2::Sha256;

use self::{
    behaviour::{Behaviour, Kind},
    service::{Dataset, NAMES, PAGES, Platform, SECRET, TOKEN},
};
use crate::{
    support::http_receiver::Receiver,
    worlds::{ItemTruth, Truth, World, driver, rig::Rig},
};

/// What happens at the platform.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    Put {
        dataset: u8,
        file: u8,
        version: u8,
    },
    Remove {
        dataset: u8,
        file: u8,
    },
    Restrict {
        dataset: u8,
        is_restricted: bool,
    },
    /// The filter refuses some of the next requests.
    Filter {
        requests: u8,
    },
    /// The server is busy for the next requests.
    Busy {
        requests: u8,
    },
    /// The next downloads break off, and somebody requests a dataset.
    Break {
        dataset: u8,
        downloads: u8,
    },
    /// The next lists lack their last file, and still have the right number of files.
    Shorten {
        lists: u8,
    },
    /// The next downloads are not what the list says.
    Lie {
        downloads: u8,
    },
    /// A gateway that watches an archived dataset looks at it.
    Look {
        dataset: u8,
    },
    /// Somebody requests a dataset, and perhaps waits for the first attempt, so that it meets the troubles of this moment.
    Request {
        dataset: u8,
        waits: bool,
    },
    /// Somebody requests the identifier of all versions, which redirects to the newest one.
    RequestWork {
        dataset: u8,
    },
}

/// Platform, and what was requested.
pub(crate) struct DataPlatform {
    platform: Arc<Mutex<Platform>>,
    server: Receiver,
    /// The storage, which serves files at another origin.
    _storage: Receiver,
    requests: u32,
    /// Process of the gateway at the last step.
    gateway: u32,
    /// Downloads that one gateway began again although it could continue them.
    restarts: Vec<String>,
    /// Items about which an audit cannot know the truth, because the platform has no figures, or only a response names them.
    unclear: BTreeSet<String>,
}

impl DataPlatform {
    fn with<T>(&self, act: impl FnOnce(&mut Platform) -> T) -> T {
        act(&mut self.platform.lock().unwrap())
    }

    /// Returns the URL of a dataset, as somebody requests it.
    fn url(&self, dataset: u8) -> String {
        let base = format!("http://{}", self.server.address);
        match self.with(|platform| platform.behaviour.kind) {
            Kind::Invenio => format!("{base}/records/{}", 100 + u32::from(dataset)),
            Kind::Linkset => format!("{base}/d/{}", PAGES[usize::from(dataset)]),
            Kind::Osf => format!("{base}/osf/abcd{dataset}/"),
            Kind::Bag => format!("{base}/bag/{dataset}/"),
        }
    }

    fn work_url(&self, dataset: u8) -> String {
        format!("http://{}/records/90{}", self.server.address, 100 + u32::from(dataset))
    }

    /// Pauses or resumes the jobs of the gateway.
    async fn set_paused(act: &str, rig: &Rig) {
        let gateway = rig.gateway();
        let url = format!("{}/harvests/archive/{act}", gateway.url);
        assert!(gateway.http.post(url).send().await.unwrap().status().is_success());
    }

    async fn request(&mut self, url: &str, rig: &mut Rig) -> Result<String, String> {
        self.requests += 1;
        let number = format!("10.5072/{}", self.requests);
        let body = json!({ "ingest_type": "dataset", "base_url": url, "link_source_id": number });
        let headers = [("content-type", "application/json".to_owned())];
        let response = rig.post("requests", &headers, body.to_string().as_bytes()).await;
        if (200..300).contains(&response.status) { Ok(number) } else { Err(format!("a request gets {response:?}")) }
    }

    /// Requests a dataset, and perhaps waits for the first attempt.
    async fn request_dataset(&mut self, dataset: u8, waits: bool, rig: &mut Rig) -> Result<(), String> {
        let url = self.url(dataset);
        let number = self.request(&url, rig).await?;
        if waits {
            Self::attempted(&url, &number, rig).await;
        }
        self.with(|platform| platform.datasets.get_mut(&dataset).unwrap().is_requested = true);
        Ok(())
    }
}

impl World for DataPlatform {
    type Switches = Behaviour;
    type Step = Act;

    const NAME: &'static str = "platform";

    fn switches() -> BoxedStrategy<Behaviour> {
        Behaviour::any()
    }

    fn step() -> BoxedStrategy<Act> {
        let (dataset, file) = (0..3u8, 0..5u8);
        prop_oneof![
            6 => (dataset.clone(), file.clone(), 0..4u8)
                .prop_map(|(dataset, file, version)| Act::Put { dataset, file, version }),
            2 => (dataset.clone(), file).prop_map(|(dataset, file)| Act::Remove { dataset, file }),
            1 => (dataset.clone(), any::<bool>())
                .prop_map(|(dataset, is_restricted)| Act::Restrict { dataset, is_restricted }),
            1 => (1..3u8).prop_map(|requests| Act::Filter { requests }),
            1 => (1..3u8).prop_map(|requests| Act::Busy { requests }),
            2 => (dataset.clone(), 1..3u8).prop_map(|(dataset, downloads)| Act::Break { dataset, downloads }),
            3 => (1..4u8).prop_map(|lists| Act::Shorten { lists }),
            2 => (1..3u8).prop_map(|downloads| Act::Lie { downloads }),
            1 => dataset.clone().prop_map(|dataset| Act::Look { dataset }),
            6 => (dataset.clone(), any::<bool>()).prop_map(|(dataset, waits)| Act::Request { dataset, waits }),
            1 => dataset.prop_map(|dataset| Act::RequestWork { dataset }),
        ]
        .boxed()
    }

    async fn begin(behaviour: Behaviour) -> Self {
        let datasets = (0..3).map(|number| (number, Dataset::default())).collect();
        let mut platform = Platform {
            behaviour,
            datasets,
            filtered: 0,
            busy: 0,
            broken: 0,
            partial: 0,
            lies: 0,
            has_lied: false,
            continuable: None,
            restarts: Vec::new(),
            storage: String::new(),
            leaks: Vec::new(),
        };
        for (number, file) in (0..3u8).flat_map(|number| (0..3).map(move |file| (number, file))) {
            let content = format!("{number};{file};new\n").into_bytes();
            platform.change(number, |files| _ = files.insert(NAMES[file].to_owned(), content));
        }
        let platform = Arc::new(Mutex::new(platform));
        let start = || {
            let platform = Arc::clone(&platform);
            Receiver::start(move |_, request| platform.lock().unwrap().answer(request))
        };
        let (server, storage) = (start().await, start().await);
        platform.lock().unwrap().storage = format!("http://{}", storage.address);
        Self {
            platform,
            server,
            _storage: storage,
            requests: 0,
            gateway: 0,
            restarts: Vec::new(),
            unclear: BTreeSet::new(),
        }
    }

    fn settings(&self) -> String {
        let address = self.server.address;
        let behaviour = self.with(|platform| platform.behaviour.clone());
        let Behaviour { items, watches, wants_token, bundle, .. } = behaviour;
        let bundles = if bundle.is_some() { "bundle_file_count = 1\n" } else { "" };
        let items = if items { "web_file_count = 0\n" } else { "" };
        let watch = if watches { "watch = \"1s\"\n" } else { "" };
        let tokens = if wants_token {
            format!("[filesets.tokens]\nzenodo = \"{TOKEN}\"\nosf = \"{TOKEN}\"\n")
        } else {
            String::new()
        };
        format!(
            "[filesets]\n{items}{bundles}[filesets.platforms]\nzenodo = [\"http://{address}\"]\nosf = \"http://{address}/osf\"\n\
             osf_api = \"http://{address}/osfapi\"\ndatacite = \"http://{address}/datacite\"\n\
             {tokens}[sources.requests]\ntransport = \"http\"\ndialect = \"fileset-request\"\n\
             [sources.archive]\ntransport = \"fileset\"\ndialect = \"fileset-result\"\nof = [\"requests\"]\n\
             first_retry_seconds = 1\n{watch}"
        )
    }

    async fn live(&mut self, act: Act, rig: &mut Rig) -> Result<(), String> {
        self.note_restarts(matches!(act, Act::Restrict { .. }), rig);
        match act {
            Act::Put { dataset, file, version } => self.with(|platform| {
                let content = format!("{dataset};{file};{version}\n").repeat(1 + usize::from(version));
                platform.change(dataset, |files| {
                    _ = files.insert(NAMES[usize::from(file)].to_owned(), content.into_bytes());
                });
            }),
            Act::Remove { dataset, file } => self.with(|platform| {
                platform.change(dataset, |files| _ = files.remove(NAMES[usize::from(file)]));
            }),
            Act::Restrict { dataset, is_restricted } => self.with(|platform| {
                // A page has no interface that could say so.
                if platform.behaviour.kind.has_interface() {
                    let dataset = platform.datasets.get_mut(&dataset).unwrap();
                    dataset.is_restricted = is_restricted;
                    dataset.was_restricted |= is_restricted;
                }
            }),
            Act::Break { dataset, downloads } => {
                self.with(|platform| platform.broken = downloads);
                self.request_dataset(dataset, true, rig).await?;
            }
            Act::Shorten { lists } => self.with(|platform| platform.partial = lists),
            Act::Lie { downloads } => self.with(|platform| platform.lies = downloads),
            Act::Look { dataset } => self.look(dataset, rig).await?,
            Act::Filter { requests } => self.with(|platform| platform.filtered = requests),
            Act::Busy { requests } => self.with(|platform| platform.busy = requests),
            Act::Request { dataset, waits } => self.request_dataset(dataset, waits, rig).await?,
            Act::RequestWork { dataset } if self.with(|platform| platform.behaviour.kind) == Kind::Invenio => {
                let url = self.work_url(dataset);
                self.request(&url, rig).await?;
                self.with(|platform| platform.datasets.get_mut(&dataset).unwrap().is_work_requested = true);
            }
            Act::RequestWork { .. } => {}
        }
        Ok(())
    }

    async fn fall_quiet(&mut self, rig: &mut Rig) -> Result<(), String> {
        self.note_restarts(false, rig);
        // Restricted datasets open again, so that what was archived of them in between does not matter.
        self.with(|platform| {
            (platform.filtered, platform.busy, platform.broken) = (0, 0, 0);
            (platform.partial, platform.lies) = (0, 0);
            platform.datasets.values_mut().for_each(|dataset| dataset.is_restricted = false);
        });
        let mut items = BTreeMap::new();
        let watches = self.with(|platform| platform.behaviour.watches);
        for number in 0..3u8 {
            let dataset = self.with(|platform| platform.datasets[&number].clone());
            if dataset.is_requested {
                let job = if watches {
                    self.watched(number, rig).await?
                } else {
                    self.settled(&self.url(number), rig).await?
                };
                let is_empty = dataset.files.is_empty();
                let status = job["status"].as_str().unwrap_or_default();
                // A page that has lost its files is no statement about a watched dataset.
                if status.starts_with("success") == is_empty && !(watches && is_empty) {
                    return Err(format!("dataset {number} with {} files ends with {job:#}", dataset.files.len()));
                }
                if !is_empty {
                    self.with(|platform| platform.datasets.get_mut(&number).unwrap().archived = Some(dataset.files));
                    let item = job["result"]["archiveorg_item_name"].as_str().unwrap_or_default().to_owned();
                    if let Some(other) = items.insert(item.clone(), number) {
                        return Err(format!("the datasets {other} and {number} share the item {item}"));
                    }
                }
            }
            if dataset.is_work_requested {
                let job = self.settled(&self.work_url(number), rig).await?;
                if job["status"] != "platform-scope" {
                    return Err(format!("the identifier of all versions ends with {job:#}"));
                }
            }
        }
        // Most attempts after an interrupted download are made only now.
        self.note_restarts(true, rig);
        let changes = rig.gateway().changes().await;
        self.check_words(&changes)?;
        self.check_history(&changes)?;
        let changes = Value::from(changes).to_string();
        if changes.contains(SECRET) { Err(format!("a change publishes a signed URL: {changes}")) } else { Ok(()) }
    }

    const CORRECTS_LATER: bool = true;

    fn audited(&self) -> &'static [&'static str] {
        // Only the responses name the files of these pages, and the names depend on the other files.
        if self.with(|platform| platform.behaviour.clashes && platform.behaviour.kind == Kind::Linkset) {
            &[]
        } else {
            &["archive"]
        }
    }

    fn show(&mut self) {
        for number in 0..3u8 {
            let (dataset, kind) = self.with(|platform| (platform.datasets[&number].clone(), platform.behaviour.kind));
            let (Some(archived), url) = (&dataset.archived, self.url(number)) else { continue };
            if dataset.files.is_empty() {
                self.unclear.extend(self.possible_uris(number));
                self.unclear.insert(url);
                continue;
            }
            if kind == Kind::Linkset {
                let is_unclear = |name: &str| {
                    let (before, now) = (archived.get(name), dataset.files.get(name));
                    before != now && (before.is_some() && now.is_some() || name.contains('/'))
                };
                let unclear = NAMES.into_iter().filter(|name| is_unclear(name));
                let paths = unclear.flat_map(|name| [name, name.rsplit('/').next().unwrap()]);
                self.unclear.extend(paths.map(|path| uri(&url, path)));
            }
            if !dataset.is_restricted {
                self.with(|platform| platform.datasets.get_mut(&number).unwrap().archived = Some(dataset.files));
            }
        }
    }

    async fn live_unseen(&mut self, act: Act, rig: &mut Rig) -> Result<(), String> {
        match act {
            Act::Put { .. } | Act::Remove { .. } | Act::Restrict { .. } => {
                Self::set_paused("pause", rig).await;
                self.live(act, rig).await
            }
            _ => Ok(()),
        }
    }

    async fn resume(&mut self, rig: &mut Rig) {
        Self::set_paused("resume", rig).await;
    }

    fn truth(&self) -> Truth {
        let mut items = BTreeMap::new();
        let mut unsettled = self.unclear.clone();
        for number in 0..3u8 {
            let (dataset, paths) = self.with(|platform| {
                let dataset = platform.datasets[&number].clone();
                let paths = platform.paths(dataset.archived.as_ref().unwrap_or(&dataset.files));
                (dataset, paths)
            });
            let url = self.url(number);
            let own = |state: &str, public| ItemTruth {
                object: url.clone(),
                public,
                state: Some(state.to_owned()),
                ..ItemTruth::default()
            };
            if dataset.is_work_requested {
                let work = self.work_url(number);
                items.insert(work.clone(), ItemTruth { object: work, ..own("PLATFORM_SCOPE", false) });
            }
            if !dataset.is_requested {
                continue;
            }
            let Some(files) = dataset.archived else {
                // The files that it had before it was empty stay in the registry.
                unsettled.extend(self.possible_uris(number));
                unsettled.insert(url.clone());
                continue;
            };
            let own_item = if dataset.is_restricted { own("PLATFORM_RESTRICTED", false) } else { own("ACTIVE", true) };
            items.insert(url.clone(), own_item);
            for (path, content) in paths.iter().zip(files.values()) {
                let digest = Some(hex::encode(Sha256::digest(content)));
                let size = Some(content.len() as u64);
                items.insert(uri(&url, path), ItemTruth { size, digest, ..own("ACTIVE", true) });
            }
        }
        items.retain(|uri, _| !unsettled.contains(uri));
        Truth { items, unsettled, ..Truth::default() }
    }
}

/// Returns the URI of a file of a dataset.
fn uri(dataset: &str, path: &str) -> String {
    let segments = path.split('/').map(|segment| {
        const ENCODED: &percent_encoding::AsciiSet =
            &percent_encoding::NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
        percent_encoding::utf8_percent_encode(segment, ENCODED).to_string()
    });
    format!("{dataset}#{}", segments.collect::<Vec<_>>().join("/"))
}

#[test]
fn platform_and_registry_agree() {
    driver::run::<DataPlatform>();
}
