//! World of data platforms: records of an InvenioRDM, pages with linksets and projects of OSF, whose files change between the
//! requests to archive them, while traffic filters, busy servers and broken connections are in the way. Some gateways look
//! at archived datasets again by themselves, and some platforms want a token, which their storage must not see.

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

use self::service::{Behaviour, Dataset, Kind, NAMES, PAGES, Platform, Resume, SECRET, TOKEN};
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
    /// The next downloads break off.
    Break {
        downloads: u8,
    },
    /// A gateway that watches an archived dataset looks at it.
    Look {
        dataset: u8,
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
    /// The storage, which serves files at another origin.
    _storage: Receiver,
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

    /// Returns the job of a dataset with its newest result, if there is one.
    async fn job(url: &str, rig: &Rig) -> Option<Value> {
        let jobs = rig.gateway().json("/filesets").await;
        let id = jobs["filesets"].as_array().unwrap().iter().find(|job| job["dataset"] == url)?["id"].clone();
        Some(rig.gateway().json(&format!("/filesets/{}", id.as_str().unwrap())).await)
    }

    /// Waits until a gateway that watches a dataset has its files; returns the job. If the platform has ended the watch,
    /// somebody requests the dataset again.
    async fn watched(&mut self, number: u8, rig: &mut Rig) -> Result<Value, String> {
        let (url, began) = (self.url(number), Instant::now());
        let expected: BTreeMap<String, String> = self.with(|platform| {
            let files = platform.datasets[&number].files.iter();
            files.map(|(name, content)| (platform.path(name), hex::encode(Sha256::digest(content)))).collect()
        });
        let mut last = Value::Null;
        while began.elapsed() < 2 * PATIENCE {
            if let Some(job) = Self::job(&url, rig).await {
                let has_ended = ["failed", "blocked"].contains(&job["state"].as_str().unwrap());
                if expected.is_empty() && (has_ended || job["state"] == "archived") {
                    return Ok(job);
                }
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                let files = job["result"]["manifest"].as_array().into_iter().flatten();
                let files: BTreeMap<_, _> = files.map(|file| (text(&file["path"]), text(&file["sha256"]))).collect();
                if job["state"] == "archived" && files == expected {
                    return Ok(job);
                }
                if has_ended {
                    self.check_end_of_watch(&url, &job, rig).await?;
                    return self.settled(&url, rig).await;
                }
                last = job;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Err(format!("the watch of {url} does not find {expected:#?}: {last:#}"))
    }

    /// Checks that a dataset whose watch has ended is not shown as archived.
    async fn check_end_of_watch(&self, url: &str, job: &Value, rig: &Rig) -> Result<(), String> {
        let encoded = url::form_urlencoded::byte_serialize(url.as_bytes()).collect::<String>();
        let object = rig.gateway().json(&format!("/objects?uri={encoded}")).await;
        let own = object["items"].as_array().into_iter().flatten().find(|item| item["uri"] == url);
        match own {
            Some(own) if own["state"] == "ACTIVE" => Err(format!("an archived dataset is watched no more: {job:#}")),
            _ => Ok(()),
        }
    }

    /// Waits until a gateway that watches an archived dataset looks at it.
    async fn look(&self, number: u8, rig: &Rig) -> Result<(), String> {
        let looks = || self.with(|platform| platform.datasets[&number].looks);
        let (before, began) = (looks(), Instant::now());
        let job = if self.with(|platform| platform.behaviour.watches) {
            Self::job(&self.url(number), rig).await
        } else {
            None
        };
        if job.is_none_or(|job| job["state"] != "archived") {
            return Ok(());
        }
        while looks() == before {
            if began.elapsed() > PATIENCE {
                return Err("nobody looks at an archived dataset again".to_owned());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Checks that the gateway has not misunderstood the platform: no verdict that it has not given, no token for others.
    async fn check_words(&self, rig: &Rig) -> Result<(), String> {
        let restricted: Vec<_> = (0..3u8)
            .filter(|number| self.with(|platform| platform.datasets[number].was_restricted))
            .map(|number| self.url(number))
            .collect();
        for change in rig.gateway().changes().await {
            let is_restricted = restricted.iter().any(|url| change["object"] == url.as_str());
            for item in change["items"].as_array().into_iter().flatten() {
                let state = item["stateAfter"].as_str().unwrap_or_default();
                if state == "PLATFORM_NOT_FOUND" || (state == "PLATFORM_RESTRICTED" && !is_restricted) {
                    return Err(format!("the platform has not said {state}: {change:#}"));
                }
            }
        }
        let leaks = self.with(|platform| platform.leaks.clone());
        if leaks.is_empty() { Ok(()) } else { Err(format!("requests of others get the token: {leaks:?}")) }
    }

    /// Requests a dataset, and waits until its job has ended; returns the job.
    async fn settled(&mut self, url: &str, rig: &mut Rig) -> Result<Value, String> {
        let began = Instant::now();
        let mut last = Value::Null;
        while began.elapsed() < 2 * PATIENCE {
            let number = self.request(url, rig).await?;
            let asked = Instant::now();
            while asked.elapsed() < JOB_PATIENCE {
                if let Some(details) = Self::job(url, rig).await {
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
        let filter = prop_oneof![
            Just((403, "text/html")),
            Just((403, "application/octet-stream")),
            Just((403, "Text/HTML; charset=utf-8")),
            Just((200, "text/html")),
            Just((202, "text/html")),
        ];
        let resume =
            prop_oneof![Just(Resume::Etag), Just(Resume::WrongEtag), Just(Resume::NoValidator), Just(Resume::Whole)];
        let busy: [(u16, &'static [(&str, &str)]); 6] = [
            (429, &[("retry-after", "0")]),
            (503, &[("retry-after", "0")]),
            (429, &[("x-ratelimit-reset", "0")]),
            (502, &[]),
            (429, &[("retry-after", "1")]),
            (503, &[("retry-after", "1")]),
        ];
        let busy = (0..busy.len()).prop_map(move |at| busy[at]);
        (kind, filter, busy, resume, any::<[bool; 6]>())
            .prop_map(|(kind, filter, busy, resume, [signs, challenges, items, overlaps, watches, wants_token])| {
                Behaviour { kind, signs, filter, busy, challenges, items, overlaps, watches, wants_token, resume }
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
            1 => (1..3u8).prop_map(|downloads| Act::Break { downloads }),
            1 => dataset.clone().prop_map(|dataset| Act::Look { dataset }),
            4 => dataset.clone().prop_map(|dataset| Act::Request { dataset }),
            1 => dataset.prop_map(|dataset| Act::RequestWork { dataset }),
        ]
        .boxed()
    }

    async fn begin(behaviour: Behaviour) -> Self {
        let datasets = (0..3).map(|number| (number, Dataset::default())).collect();
        let platform = Platform {
            behaviour,
            datasets,
            filtered: 0,
            busy: 0,
            broken: 0,
            storage: String::new(),
            leaks: Vec::new(),
        };
        let platform = Arc::new(Mutex::new(platform));
        let start = || {
            let platform = Arc::clone(&platform);
            Receiver::start(move |_, request| platform.lock().unwrap().answer(request))
        };
        let (server, storage) = (start().await, start().await);
        platform.lock().unwrap().storage = format!("http://{}", storage.address);
        Self { platform, server, _storage: storage, requests: 0 }
    }

    fn settings(&self) -> String {
        let address = self.server.address;
        let Behaviour { items, watches, wants_token, .. } = self.with(|platform| platform.behaviour.clone());
        let items = if items { "web_file_count = 0\n" } else { "" };
        let watch = if watches { "watch = \"1s\"\n" } else { "" };
        let tokens = if wants_token {
            format!("[filesets.tokens]\nzenodo = \"{TOKEN}\"\nosf = \"{TOKEN}\"\n")
        } else {
            String::new()
        };
        format!(
            "[filesets]\n{items}[filesets.platforms]\nzenodo = [\"http://{address}\"]\nosf = \"http://{address}/osf\"\n\
             osf_api = \"http://{address}/osfapi\"\ndatacite = \"http://{address}/datacite\"\n\
             {tokens}[sources.requests]\ntransport = \"http\"\ndialect = \"fileset-request\"\n\
             [sources.archive]\ntransport = \"fileset\"\ndialect = \"fileset-result\"\nof = [\"requests\"]\n\
             first_retry_seconds = 1\n{watch}"
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
                    let dataset = platform.datasets.get_mut(&dataset).unwrap();
                    dataset.is_restricted = is_restricted;
                    dataset.was_restricted |= is_restricted;
                }
            }),
            Act::Break { downloads } => self.with(|platform| platform.broken = downloads),
            Act::Look { dataset } => self.look(dataset, rig).await?,
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
            (platform.filtered, platform.busy, platform.broken) = (0, 0, 0);
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
        self.check_words(rig).await?;
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
