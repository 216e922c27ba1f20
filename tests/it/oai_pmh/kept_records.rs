//! Records that a harvest keeps are disseminated as their repository has sent them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
};

use serde_json::{Value, json};

use crate::support::{
    gateway::Gateway,
    harvest_fixture::run_to_end,
    nodes_fixture::until,
    oai_pmh_fixture::Repository,
    scripted_repository::{Misbehaviour, ScriptedRepository, identifier},
};

const DUBLIN_CORE: &str = "http://www.openarchives.org/OAI/2.0/oai_dc/";
const FIRST: &str = "verb=ListRecords&metadataPrefix=scripted";

/// A container with rights, and one with the origin of the record.
const ABOUT: &str = "<about><r:dc xmlns:r='http://www.openarchives.org/OAI/2.0/oai_dc/' xmlns:d='http://purl.org/dc/elements/1.1/'>\
     <d:rights>free &amp; open</d:rights></r:dc></about>\
     <about><provenance xmlns='http://www.openarchives.org/OAI/2.0/provenance'><originDescription \
     harvestDate='2019-12-31' altered='true'><baseURL>http://origin/oai</baseURL><identifier>oai:origin:1</identifier>\
     <datestamp>2019-12-30</datestamp><metadataNamespace>urn:origin</metadataNamespace></originDescription></provenance></about>";

/// A gateway that harvests a repository, and keeps its records in the format `scripted`.
struct Aggregator {
    origin: ScriptedRepository,
    repository: Repository,
}

impl Aggregator {
    /// Starts both, with further lines of the tables of the repository and of the source.
    async fn start(records: usize, repository: &str, source: &str) -> Self {
        Self::of(ScriptedRepository::start(records).await, repository, source).await
    }

    /// Starts the gateway, and waits for its first run.
    async fn of(origin: ScriptedRepository, repository: &str, source: &str) -> Self {
        let lines = format!(
            "page = 7\n{repository}\n[sources.origin]\ntransport = \"oai-pmh\"\ndialect = \"oai-pmh\"\nurl = \"{}\"\n\
             metadata_prefix = \"scripted\"\nmode = \"once\"\nrecords = \"store\"\n{source}\n",
            origin.url()
        );
        let aggregator = Self { origin, repository: Repository::start(&lines) };
        let is_done = async || aggregator.repository.gateway.json("/harvests/origin").await["state"] == "finished";
        until("the first run has ended", is_done).await;
        aggregator
    }

    /// Executes a run of the harvest.
    async fn harvest(&self) -> Value {
        run_to_end(&self.repository.gateway, "origin").await
    }

    /// Returns the URI of a record of the origin.
    fn uri(&self, number: usize) -> String {
        let identifier = identifier(number).replace(':', "%3A");
        format!("{}?verb=GetRecord&metadataPrefix=scripted&identifier={identifier}", self.origin.url())
    }

    /// Returns the records of a list by their identifiers.
    async fn records(&self, arguments: &str) -> BTreeMap<String, String> {
        let (mut all, mut query) = (BTreeMap::new(), format!("{FIRST}{arguments}"));
        loop {
            let page = self.repository.get(&query).await;
            let records: Vec<_> = page.body.split("<record>").skip(1).map(ToOwned::to_owned).collect();
            let identifiers = page.headers().into_iter().map(|(identifier, ..)| identifier);
            all.extend(identifiers.zip(records));
            match page.token() {
                Some(token) if !token.is_empty() => query = format!("verb=ListRecords&resumptionToken={token}"),
                _ => return all,
            }
        }
    }

    /// Waits until datestamps are later than now, and returns the date.
    async fn later(&self) -> String {
        let now = async || self.repository.get("verb=Identify").await.text("responseDate");
        let before = now().await;
        until("a second has passed", async || now().await > before).await;
        now().await
    }

    /// Returns the stored files.
    fn files(&self) -> BTreeSet<PathBuf> {
        let folders = fs::read_dir(self.repository.folder.path().join("data/files/sha256")).unwrap();
        let files = folders.flat_map(|folder| fs::read_dir(folder.unwrap().path()).unwrap());
        files.map(|file| file.unwrap().path()).collect()
    }

    /// Returns the record of an identifier in the format of the origin.
    async fn get(&self, identifier: &str) -> crate::support::oai_pmh_fixture::Response {
        let identifier = url::form_urlencoded::byte_serialize(identifier.as_bytes()).collect::<String>();
        self.repository.get(&format!("verb=GetRecord&metadataPrefix=scripted&identifier={identifier}")).await
    }
}

/// Returns the size of the records that a harvest has stored.
fn stored_bytes(harvest: &Value) -> u64 {
    let position: Value = serde_json::from_str(harvest["position"].as_str().unwrap()).unwrap();
    position["stored_bytes"].as_u64().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kept_records_are_those_of_the_origin_with_their_provenance() {
    let origin = ScriptedRepository::start(25).await;
    origin.script().records.get_mut(&identifier(3)).unwrap().about = ABOUT.to_owned();
    origin.put(&identifier(4), "<é> &\n]]>", 240);
    let aggregator = Aggregator::of(origin, "", "").await;
    let records = aggregator.records("").await;
    let expected: BTreeSet<_> = (0..25).map(|number| aggregator.uri(number)).collect();
    assert_eq!(records.keys().cloned().collect::<BTreeSet<_>>(), expected);
    for number in [0, 24] {
        let record = &records[&aggregator.uri(number)];
        for part in [
            format!(
                "<oai_dc:dc xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\" xmlns:oai_dc=\"{DUBLIN_CORE}\" xmlns:dc=\"http://purl.org/dc/elements/1.1/\">\
                 <dc:title>Title {number}</dc:title></oai_dc:dc>"
            ),
            format!("<baseURL>{}</baseURL>", aggregator.origin.url()),
            format!("<identifier>{}</identifier>", identifier(number)),
            format!("<datestamp>2020-01-01T00:{number:02}:00Z</datestamp>"),
            format!("<metadataNamespace>{DUBLIN_CORE}</metadataNamespace>"),
            "altered=\"false\"".to_owned(),
        ] {
            assert!(record.contains(&part), "{part}: {record}");
        }
    }
    let with_about = &records[&aggregator.uri(3)];
    assert!(with_about.contains("<d:rights>free &amp; open</d:rights>"), "{with_about}");
    let (own, origin) = with_about.split_once("<metadataNamespace>").unwrap();
    assert!(own.contains("altered=\"false\"") && origin.contains("altered=\"true\""), "{with_about}");
    assert!(origin.contains("<baseURL>http://origin/oai</baseURL>"), "{with_about}");
    assert!(records[&aggregator.uri(4)].contains("<dc:title>&lt;é&gt; &amp;</dc:title><dc:title>]]&gt;</dc:title>"));

    let formats = aggregator.repository.get("verb=ListMetadataFormats").await;
    assert_eq!(formats.texts("metadataPrefix"), ["oai_dc", "content-change", "scripted"]);
    assert_eq!(formats.texts("metadataNamespace")[2], DUBLIN_CORE);
    let own = aggregator.repository.list("").await;
    assert_eq!(own.len(), 25, "the gateway makes its formats of these objects too");
    assert_eq!(aggregator.get("urn:none").await.errors(), ["idDoesNotExist"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kept_records_follow_the_origin_and_no_record_is_stored_twice() {
    let aggregator = Aggregator::start(25, "", "").await;
    let before = aggregator.files();
    assert_eq!(before.len(), 25);
    // A list of all records, whose datestamps have changed.
    aggregator.origin.misbehave(&[Misbehaviour::IgnoredDates]);
    aggregator.origin.script().records.values_mut().for_each(|record| record.datestamp += 3600);
    let head = aggregator.repository.gateway.head().await;
    aggregator.harvest().await;
    assert_eq!((aggregator.files(), aggregator.repository.gateway.head().await), (before.clone(), head));

    let date = aggregator.later().await;
    aggregator.origin.put_now(&identifier(3), "Changed");
    aggregator.origin.put_now(&identifier(100), "New");
    aggregator.origin.delete_now(&identifier(4));
    let harvest = aggregator.harvest().await;
    let news = aggregator.records(&format!("&from={date}")).await;
    assert_eq!(news.keys().cloned().collect::<BTreeSet<_>>(), [3, 4, 100].map(|number| aggregator.uri(number)).into());
    assert!(news[&aggregator.uri(3)].contains("Changed") && news[&aggregator.uri(100)].contains("New"));
    let deleted = &news[&aggregator.uri(4)];
    assert!(deleted.contains("status=\"deleted\"") && !deleted.contains("<metadata>"), "{deleted}");
    let files = aggregator.files();
    assert_eq!(files.len(), before.len() + 2);
    let size: u64 = files.iter().map(|file| fs::metadata(file).unwrap().len()).sum();
    assert_eq!(stored_bytes(&harvest), size);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kept_records_can_have_the_identifiers_of_the_origin() {
    let aggregator = Aggregator::start(10, "identifiers = \"original\"", "").await;
    let records = aggregator.records("").await;
    assert_eq!(records.keys().cloned().collect::<Vec<_>>(), (0..10).map(identifier).collect::<Vec<_>>());
    let one = aggregator.get(&identifier(7)).await;
    assert!(one.headers()[0].0 == identifier(7) && one.body.contains("Title 7"), "{}", one.body);
    let uri = aggregator.uri(7);
    assert_eq!(aggregator.get(&uri).await.errors(), ["cannotDisseminateFormat"]);
    let formats = async |identifier: &str| {
        let identifier = url::form_urlencoded::byte_serialize(identifier.as_bytes()).collect::<String>();
        let query = format!("verb=ListMetadataFormats&identifier={identifier}");
        aggregator.repository.get(&query).await.texts("metadataPrefix")
    };
    assert_eq!(formats(&identifier(7)).await, ["scripted"]);
    assert_eq!(
        formats(&uri).await,
        ["oai_dc", "content-change"],
        "what the gateway makes has an identifier of its own"
    );
    aggregator.origin.delete_now(&identifier(7));
    aggregator.harvest().await;
    assert_eq!(aggregator.get(&identifier(7)).await.headers()[0], {
        let (uri, date, _) = aggregator.repository.list("").await.into_iter().find(|header| header.0 == uri).unwrap();
        assert_ne!(uri, identifier(7));
        (identifier(7), date, true)
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn record_whose_file_is_gone_costs_only_itself_and_comes_back() {
    let aggregator = Aggregator::start(16, "", "").await;
    let of_record = |number: usize| {
        let title = format!("<dc:title>Title {number}</dc:title>");
        aggregator.files().into_iter().find(|file| fs::read_to_string(file).unwrap().contains(&title)).unwrap()
    };
    // Those of the last page are the last two.
    for number in [3, 14] {
        fs::remove_file(of_record(number)).unwrap();
    }
    fs::write(of_record(15), "damaged").unwrap();
    let uris = |numbers: Vec<usize>| numbers.into_iter().map(|number| aggregator.uri(number)).collect::<BTreeSet<_>>();
    let records = aggregator.records("").await;
    assert_eq!(records.into_keys().collect::<BTreeSet<_>>(), uris((0..14).filter(|number| *number != 3).collect()));
    assert_eq!(aggregator.get(&aggregator.uri(3)).await.errors(), ["cannotDisseminateFormat"]);

    let date = aggregator.later().await;
    // The size of the damaged one is another one, too.
    aggregator.origin.misbehave(&[Misbehaviour::IgnoredDates]);
    aggregator.harvest().await;
    assert_eq!(aggregator.records("").await.len(), 16);
    let news = aggregator.records(&format!("&from={date}")).await;
    assert_eq!(news.into_keys().collect::<BTreeSet<_>>(), uris(vec![3, 14, 15]), "harvesters learn of them");
}

/// A list without the record would hide it from a harvester for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failure_of_the_file_store_is_no_shorter_list() {
    let aggregator = Aggregator::start(3, "", "").await;
    let file = aggregator.files().into_iter().next().unwrap();
    let folder = file.parent().unwrap().to_owned();
    let aside = aggregator.repository.folder.path().join("aside");
    fs::rename(&folder, &aside).unwrap();
    fs::write(&folder, "this is no folder").unwrap();
    let url = format!("{}?{FIRST}", aggregator.repository.url());
    let response = aggregator.repository.gateway.http.get(&url).send().await.unwrap();
    assert_eq!(response.status(), 503, "{}", response.text().await.unwrap());
    fs::remove_file(&folder).unwrap();
    fs::rename(&aside, &folder).unwrap();
    assert_eq!(aggregator.records("").await.len(), 3);
}

/// The content of an item can name any file of the store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn file_of_one_record_is_not_served_as_another() {
    let aggregator = Aggregator::start(3, "", "").await;
    let object = aggregator.repository.gateway.json("/snapshot").await["objects"][1].clone();
    let (victim, mut content) = (aggregator.uri(7), object["items"][0]["content"].clone());
    assert!(content["original"].is_object(), "{object}");
    content["original"]["url"] = json!(victim);
    let change = json!({ "object": victim, "items": [{ "uri": victim, "change": "ADD", "content": content }] });
    aggregator.repository.post(&change).await;
    assert_eq!(aggregator.get(&victim).await.errors(), ["cannotDisseminateFormat"]);
    assert!(!aggregator.records("").await.contains_key(&victim));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_beyond_the_quota_are_not_kept_and_a_remark_says_so() {
    let aggregator = Aggregator::start(20, "", "total_bytes = 12000").await;
    let harvest = aggregator.harvest().await;
    let records = aggregator.records("").await;
    let kept = records.values().filter(|record| record.contains("<metadata>")).count();
    assert!(kept > 0 && kept < 20, "{kept}");
    assert_eq!(aggregator.files().len(), kept);
    let deleted = records.values().filter(|record| record.contains("status=\"deleted\"")).count();
    assert_eq!(deleted, 20 - kept, "harvesters must not keep a former state of them");
    assert!(stored_bytes(&harvest) <= 12_000, "{harvest}");
    let remarks = harvest["runs"].to_string();
    assert!(remarks.contains("records are not kept any more") && remarks.contains("12000"), "{harvest}");
    assert_eq!(aggregator.repository.list("").await.len(), 20, "the registry has all records");
}

/// All records keep their URIs, and so their copies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kept_records_of_a_repository_that_moves_stay() {
    let mut aggregator = Aggregator::start(5, "", "").await;
    let before = aggregator.records("").await;
    let moved = ScriptedRepository::start(5).await;
    moved.put_now(&identifier(2), "After the move");
    let file = aggregator.repository.folder.path().join("tidings.toml");
    let (old, new) = (aggregator.origin.url(), moved.url());
    let config = fs::read_to_string(&file).unwrap();
    fs::write(&file, config.replace(&format!("url = \"{old}\""), &format!("url = \"{new}\"\nformerly = \"{old}\"")))
        .unwrap();
    let data = aggregator.repository.folder.path().join("data");
    aggregator.repository.gateway.kill();
    aggregator.repository.gateway = Gateway::start_with(&data, &["--config", file.to_str().unwrap()]);
    aggregator.harvest().await;
    let after = aggregator.records("").await;
    assert_eq!(after.keys().collect::<Vec<_>>(), before.keys().collect::<Vec<_>>());
    for (number, uri) in before.keys().enumerate() {
        let title = if number == 2 { "After the move".to_owned() } else { format!("Title {number}") };
        assert!(after[uri].contains(&title), "{}", after[uri]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sets_of_the_origin_and_filters_of_the_configuration_are_sets() {
    let filters = "[oai_pmh.sets.theses]\ntitle = \"Theses & more\"\nsources = [\"origin\"]\n\
         [oai_pmh.sets.maps]\nobjects = [\"http://h/\"]\nparents = [\"http://h/maps\", \"http://h/atlases\"]\n";
    let origin = ScriptedRepository::start(12).await;
    for number in 0..6 {
        let sets = vec!["a:b".to_owned(), format!("n{}", number % 2)];
        origin.script().records.get_mut(&identifier(number)).unwrap().sets = sets;
    }
    let aggregator = Aggregator::of(origin, filters, "[sources.origin.settings]\nsets = true").await;
    let sets = aggregator.repository.get("verb=ListSets").await;
    let specs = sets.texts("setSpec");
    let of_set = |set: &str| {
        let end = format!("set!3D{set}");
        specs.iter().find(|spec| spec.starts_with("type.") && spec.ends_with(&end)).unwrap().clone()
    };
    let listed =
        async |set: &str| aggregator.records(&format!("&set={set}")).await.into_keys().collect::<BTreeSet<_>>();
    let uris = |numbers: &[usize]| numbers.iter().map(|number| aggregator.uri(*number)).collect::<BTreeSet<_>>();
    assert_eq!(listed(&of_set("a!253Ab")).await, uris(&[0, 1, 2, 3, 4, 5]));
    assert_eq!(listed(&of_set("n1")).await, uris(&[1, 3, 5]));
    let whole =
        specs.iter().find(|spec| spec.starts_with("type.") && spec.ends_with("metadataPrefix!3Dscripted")).unwrap();
    assert_eq!(listed(whole).await, uris(&[6, 7, 8, 9, 10, 11]));
    assert_eq!(listed("filter.theses").await, (0..12).map(|number| aggregator.uri(number)).collect());
    assert!(sets.body.contains("<setName>Theses &amp; more</setName>"), "{}", sets.body);
    let map = json!({ "object": "http://h/1", "parent": "http://h/maps", "items": [{ "uri": "http://h/1", "change": "ADD" }] });
    aggregator.repository.post(&map).await;
    let maps = aggregator.repository.list("&set=filter.maps").await;
    assert_eq!(maps.into_iter().map(|header| header.0).collect::<Vec<_>>(), ["http://h/1"]);
    assert_eq!(
        aggregator.repository.get("verb=ListRecords&metadataPrefix=oai_dc&set=filter.none").await.errors(),
        ["noRecordsMatch"]
    );
    // A record that leaves a set is news.
    aggregator.origin.script().records.get_mut(&identifier(1)).unwrap().sets.clear();
    aggregator.origin.misbehave(&[Misbehaviour::IgnoredDates]);
    aggregator.harvest().await;
    assert_eq!(listed(&of_set("n1")).await, uris(&[3, 5]));
}
