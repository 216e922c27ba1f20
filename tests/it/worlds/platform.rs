//! World of data platforms: records of an InvenioRDM, pages with linksets and projects of OSF, whose files change between the
//! requests to archive them, while traffic filters and busy servers are in the way.

mod service;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use md5::Digest;
use proptest::prelude::*;
use serde_json::{Value, json};
use sha2::Sha256;

use self::service::{Behaviour, Dataset, Kind, NAMES, PAGES, Platform, SECRET};
use crate::{
    support::{gateway::PATIENCE, http_receiver::Receiver},
    worlds::{ItemTruth, Truth, World, driver, rig::Rig},
};

/// Time after which a dataset is requested again whose job does not end, because an older attempt waits.
const JOB_PATIENCE: Duration = Duration::from_secs(10);

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
    Request {
        dataset: u8,
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
    requests: u32,
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
        }
    }

    fn work_url(&self, dataset: u8) -> String {
        format!("http://{}/records/90{}", self.server.address, 100 + u32::from(dataset))
    }

    async fn request(&mut self, url: &str, rig: &mut Rig) -> Result<String, String> {
        self.requests += 1;
        let number = format!("10.5072/{}", self.requests);
        let body = json!({ "ingest_type": "dataset", "base_url": url, "link_source_id": number });
        let headers = [("content-type", "application/json".to_owned())];
        let response = rig.post("requests", &headers, body.to_string().as_bytes()).await;
        if (200..300).contains(&response.status) { Ok(number) } else { Err(format!("a request gets {response:?}")) }
    }

    /// Requests a dataset, and waits until its job has ended; returns the job.
    async fn settled(&mut self, url: &str, rig: &mut Rig) -> Result<Value, String> {
        let began = Instant::now();
        let mut last = Value::Null;
        while began.elapsed() < 2 * PATIENCE {
            let number = self.request(url, rig).await?;
            let asked = Instant::now();
            while asked.elapsed() < JOB_PATIENCE {
                let jobs = rig.gateway().json("/filesets").await;
                let job = jobs["filesets"].as_array().unwrap().iter().find(|job| job["dataset"] == url).cloned();
                if let Some(job) = job {
                    let details = rig.gateway().json(&format!("/filesets/{}", job["id"].as_str().unwrap())).await;
                    let is_own = details["request"]["link_source_id"] == number.as_str();
                    if is_own && ["archived", "failed", "blocked"].contains(&details["state"].as_str().unwrap()) {
                        return Ok(details);
                    }
                    last = details;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        Err(format!("the job of {url} does not end: {last:#}"))
    }
}

impl World for DataPlatform {
    type Switches = Behaviour;
    type Step = Act;

    const NAME: &'static str = "platform";

    fn switches() -> BoxedStrategy<Behaviour> {
        let kind = prop_oneof![Just(Kind::Invenio), Just(Kind::Linkset), Just(Kind::Osf)];
        let filter = prop_oneof![Just("text/html"), Just("application/octet-stream"), Just("Text/HTML; charset=utf-8")];
        let busy: [(u16, &'static [(&str, &str)]); 4] = [
            (429, &[("retry-after", "0")]),
            (503, &[("retry-after", "0")]),
            (429, &[("x-ratelimit-reset", "0")]),
            (502, &[]),
        ];
        let busy = (0..busy.len()).prop_map(move |at| busy[at]);
        (kind, filter, busy, any::<[bool; 4]>())
            .prop_map(|(kind, filter_type, busy, [signs, challenges, items, overlaps])| Behaviour {
                kind,
                signs,
                filter_type,
                busy,
                challenges,
                items,
                overlaps,
            })
            .boxed()
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
            4 => dataset.clone().prop_map(|dataset| Act::Request { dataset }),
            1 => dataset.prop_map(|dataset| Act::RequestWork { dataset }),
        ]
        .boxed()
    }

    async fn begin(behaviour: Behaviour) -> Self {
        let datasets = (0..3).map(|number| (number, Dataset::default())).collect();
        let platform = Arc::new(Mutex::new(Platform { behaviour, datasets, filtered: 0, busy: 0 }));
        let server = Receiver::start({
            let platform = Arc::clone(&platform);
            move |_, request| platform.lock().unwrap().answer(request)
        });
        Self { platform, server: server.await, requests: 0 }
    }

    fn settings(&self) -> String {
        let address = self.server.address;
        let items = if self.with(|platform| platform.behaviour.items) { "web_file_count = 0\n" } else { "" };
        format!(
            "[filesets]\n{items}[filesets.platforms]\nzenodo = [\"http://{address}\"]\nosf = \"http://{address}/osf\"\n\
             osf_api = \"http://{address}/osfapi\"\ndatacite = \"http://{address}/datacite\"\n\
             [sources.requests]\ntransport = \"http\"\ndialect = \"fileset-request\"\n\
             [sources.archive]\ntransport = \"fileset\"\ndialect = \"fileset-result\"\nof = [\"requests\"]\n\
             first_retry_seconds = 1\n"
        )
    }

    async fn live(&mut self, act: Act, rig: &mut Rig) -> Result<(), String> {
        match act {
            Act::Put { dataset, file, version } => self.with(|platform| {
                let content = format!("{dataset};{file};{version}\n").repeat(1 + usize::from(version));
                let files = &mut platform.datasets.get_mut(&dataset).unwrap().files;
                files.insert(NAMES[usize::from(file)].to_owned(), content.into_bytes());
            }),
            Act::Remove { dataset, file } => self.with(|platform| {
                platform.datasets.get_mut(&dataset).unwrap().files.remove(NAMES[usize::from(file)]);
            }),
            Act::Restrict { dataset, is_restricted } => self.with(|platform| {
                // A page has no interface that could say so.
                if platform.behaviour.kind != Kind::Linkset {
                    platform.datasets.get_mut(&dataset).unwrap().is_restricted = is_restricted;
                }
            }),
            Act::Filter { requests } => self.with(|platform| platform.filtered = requests),
            Act::Busy { requests } => self.with(|platform| platform.busy = requests),
            Act::Request { dataset } => {
                let url = self.url(dataset);
                self.request(&url, rig).await?;
                self.with(|platform| platform.datasets.get_mut(&dataset).unwrap().is_requested = true);
            }
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
        // Restricted datasets open again, so that what was archived of them in between does not matter.
        self.with(|platform| {
            (platform.filtered, platform.busy) = (0, 0);
            platform.datasets.values_mut().for_each(|dataset| dataset.is_restricted = false);
        });
        let mut items = BTreeMap::new();
        for number in 0..3u8 {
            let dataset = self.with(|platform| platform.datasets[&number].clone());
            if dataset.is_requested {
                let job = self.settled(&self.url(number), rig).await?;
                let is_empty = dataset.files.is_empty();
                let status = job["status"].as_str().unwrap_or_default();
                if status.starts_with("success") == is_empty {
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
        let changes = Value::from(rig.gateway().changes().await).to_string();
        if changes.contains(SECRET) { Err(format!("a change publishes a signed URL: {changes}")) } else { Ok(()) }
    }

    fn truth(&self) -> Truth {
        let mut items = BTreeMap::new();
        let mut unsettled = BTreeSet::new();
        for number in 0..3u8 {
            let (dataset, paths) = self.with(|platform| {
                let dataset = platform.datasets[&number].clone();
                let paths: Vec<_> = dataset.files.keys().map(|name| platform.path(name)).collect();
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
                // What it had before it was empty stays.
                unsettled.extend(NAMES.iter().map(|name| uri(&url, name)));
                unsettled.insert(url.clone());
                continue;
            };
            items.insert(url.clone(), own("ACTIVE", true));
            for (path, content) in paths.iter().zip(files.values()) {
                let digest = Some(hex::encode(Sha256::digest(content)));
                let size = Some(content.len() as u64);
                items.insert(uri(&url, path), ItemTruth { size, digest, ..own("ACTIVE", true) });
            }
        }
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
