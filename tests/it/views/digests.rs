//! Digests of the registry, and the comparison of a mirror with them: by the program and by the example in Python.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use fastrand::Rng;
use serde_json::{Value, json};

use crate::support::{
    command_line::{CommandResult, command, ended},
    gateway::Gateway,
    http_receiver::{ReceivedRequest, Receiver, Reply},
    subscription_fixture::{gateway, post_event},
    webhook_fixture::webhook,
};

/// Items of a mirror by URI, each as a line of the file that it writes.
type Mirror = BTreeMap<String, Value>;

fn object(number: usize) -> String {
    // The order of the octets differs from that of the numbers and of the letters of a language.
    let kind = ["a", "Z", "é", "b/c"][number % 4];
    format!("http://h.example/{kind}/{number}").replace('é', "%C3%A9")
}

/// Makes a random event about one of `objects` objects.
fn random_event(rng: &mut Rng, objects: usize, time: u64) -> Value {
    let object = object(rng.usize(..objects));
    let item = format!("{object}/{}", rng.usize(..3));
    let url = format!("{item}?v={time}");
    let content = json!({ "url": url, "mediaType": "image/png", "size": rng.u32(..1000) });
    let state = if rng.bool() { "ACTIVE" } else { "INACTIVE" };
    let change = match rng.usize(..10) {
        0 => json!({ "uri": item, "change": "DELETE" }),
        1 => json!({ "uri": item, "stateAfter": state }),
        2 => json!({ "uri": item, "change": "UPDATE", "content": { "url": url } }),
        _ => json!({ "uri": item, "change": "ADD", "content": content }),
    };
    let millis = time % 1000;
    let time = format!("2024-01-01T00:{:02}:{:02}.{millis:03}Z", time / 60_000 % 60, time / 1000 % 60);
    match rng.usize(..20) {
        0 => json!({ "object": object, "time": time, "purge": true }),
        _ => json!({ "object": object, "time": time, "items": [change] }),
    }
}

/// Returns what a mirror that missed nothing has, from the snapshot.
async fn mirror(gateway: &Gateway, is_public: bool) -> Mirror {
    let mut mirror = Mirror::new();
    let mut path = "/snapshot?limit=100".to_owned();
    loop {
        let page = gateway.json(&path).await;
        for object in page["objects"].as_array().unwrap() {
            for item in object["items"].as_array().unwrap() {
                let state = item["state"].as_str();
                if is_public && state.is_some_and(|state| !["ACTIVE", "UNAVAILABLE"].contains(&state)) {
                    continue;
                }
                let mut line = json!({ "object": object["uri"], "uri": item["uri"] });
                for member in ["state", "content"] {
                    // The public does not know states.
                    if !item[member].is_null() && (member == "content" || !is_public) {
                        line[member] = item[member].clone();
                    }
                }
                mirror.insert(item["uri"].as_str().unwrap().to_owned(), line);
            }
        }
        let Some(next) = page["next"].as_str() else { return mirror };
        path = format!("/snapshot?limit=100&after={}", next.replace('%', "%25"));
    }
}

fn write(folder: &Path, mirror: &Mirror, rng: &mut Rng) -> PathBuf {
    let mut lines: Vec<_> = mirror.values().map(Value::to_string).collect();
    rng.shuffle(&mut lines);
    let file = folder.join("copy.jsonl");
    fs::write(&file, lines.join("\n")).unwrap();
    file
}

fn compare(gateway: &Gateway, file: &Path, options: &[&str]) -> CommandResult {
    let file = file.to_str().unwrap();
    let arguments = [&["compare", file, "--gateway", &gateway.url], options].concat();
    ended(command(&arguments).spawn().unwrap())
}

/// Compares with the example in Python.
fn compare_in_python(gateway: &Gateway, file: &Path, options: &[&str]) -> CommandResult {
    let mut python = Command::new("python3");
    python.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/compare.py"));
    python.arg(&gateway.url).arg(file).args(options).stdout(Stdio::piped()).stderr(Stdio::piped());
    ended(python.spawn().unwrap())
}

/// Makes the mirror differ, and returns how each object does.
fn damage(mirror: &mut Mirror, rng: &mut Rng, differences: usize) -> BTreeMap<String, &'static str> {
    let mut expected = BTreeMap::new();
    for number in 0..differences {
        let items: Vec<_> = mirror.keys().cloned().collect();
        let Some(item) = rng.choice(&items).cloned() else { break };
        let of = mirror[&item]["object"].as_str().unwrap().to_owned();
        if expected.contains_key(&of) {
            continue;
        }
        match rng.usize(..4) {
            0 => {
                mirror.retain(|_, line| line["object"] != of.as_str());
                expected.insert(of, "missing");
            }
            1 => {
                mirror.get_mut(&item).unwrap()["content"] = json!({ "url": "http://h.example/other" });
                expected.insert(of, "different");
            }
            2 => {
                let more = format!("{of}/more");
                mirror.insert(more.clone(), json!({ "object": of, "uri": more }));
                expected.insert(of, "different");
            }
            _ => {
                let extra = format!("http://h.example/extra/{number}");
                mirror.insert(extra.clone(), json!({ "object": extra, "uri": extra }));
                expected.insert(extra, "extra");
            }
        }
    }
    expected
}

/// Returns how the objects of one mirror differ from those of another.
fn difference(mirror: &Mirror, other: &Mirror) -> BTreeMap<String, &'static str> {
    let by_object = |mirror: &Mirror| {
        let mut objects: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for line in mirror.values() {
            objects.entry(line["object"].as_str().unwrap().to_owned()).or_default().push(line.clone());
        }
        objects
    };
    let (own, other) = (by_object(mirror), by_object(other));
    let objects = own.keys().chain(other.keys()).cloned();
    let kind = |object: &String| match (own.get(object), other.get(object)) {
        (None, _) => Some("missing"),
        (_, None) => Some("extra"),
        (own, other) => (own != other).then_some("different"),
    };
    objects.filter_map(|object| kind(&object).map(|kind| (object.clone(), kind))).collect()
}

fn listed(expected: &BTreeMap<String, &str>) -> String {
    expected.iter().map(|(object, kind)| format!("{kind:9}  {object}\n")).collect()
}

/// After each part of a random history, a mirror that missed nothing has no difference, and one that was changed has exactly
/// those changes, whoever compares.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn comparison_finds_exactly_what_differs() {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| fastrand::u64(..));
    println!("SEED={seed}");
    let mut rng = Rng::with_seed(seed);
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "");
    let mut time = 0;
    let mut former: BTreeMap<bool, Mirror> = BTreeMap::new();
    for round in 0..6 {
        // The first round has many objects, so that ranges are divided; later ones change, withdraw and delete some.
        for _ in 0..[400, 30, 1, 200, 5, 60][round] {
            time += 1 + rng.u64(..50);
            post_event(&gateway, &random_event(&mut rng, 300, time)).await;
        }
        for (is_public, options) in [(false, &[][..]), (true, &["--visibility"])] {
            let mut mirror = mirror(&gateway, is_public).await;
            // A mirror that stood still since the last round lacks exactly what has happened.
            if let Some(former) = former.insert(is_public, mirror.clone()) {
                let expected = difference(&former, &mirror);
                let file = write(folder.path(), &former, &mut rng);
                let (code, out, error) = compare(&gateway, &file, options);
                assert_eq!((code, out), (i32::from(!expected.is_empty()), listed(&expected)), "{error}");
            }
            let file = write(folder.path(), &mirror, &mut rng);
            let (code, out, error) = compare(&gateway, &file, options);
            assert_eq!((code, out.as_str()), (0, ""), "{error}");
            assert!(error.contains(" in 1 request: 0 missing, 0 extra, 0 different"), "{error}");
            let differences = [0, 1, 5, 100][rng.usize(..4)];
            let expected = damage(&mut mirror, &mut rng, differences);
            let file = write(folder.path(), &mirror, &mut rng);
            let (code, out, error) = compare(&gateway, &file, options);
            assert_eq!((code, out), (i32::from(!expected.is_empty()), listed(&expected)), "{error}");
            let (code, out, error) = compare_in_python(&gateway, &file, options);
            assert_eq!((code, out), (i32::from(!expected.is_empty()), listed(&expected)), "{error}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn comparison_by_existence_ignores_contents() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "");
    let mut rng = Rng::with_seed(7);
    for time in 0..100 {
        post_event(&gateway, &random_event(&mut rng, 30, time)).await;
    }
    let mut mirror = mirror(&gateway, false).await;
    for line in mirror.values_mut() {
        *line = json!({ "object": line["object"], "uri": line["uri"] });
    }
    let file = write(folder.path(), &mirror, &mut rng);
    assert_eq!(compare(&gateway, &file, &["--facts", "existence"]).0, 0);
    assert_eq!(compare_in_python(&gateway, &file, &["--existence"]).0, 0);
    assert_eq!(compare(&gateway, &file, &[]).0, 1);
    let (code, out, _) = compare(&gateway, &file, &["--facts", "existence", "--object", "http://h.example/Z/"]);
    let (_, listed, _) =
        compare(&gateway, &file, &["--facts", "existence", "--object", "http://h.example/Z/", "--json"]);
    assert!(code == 1 && !out.contains("/Z/") && out.lines().all(|line| line.starts_with("extra ")), "{out}");
    let first: Value = serde_json::from_str(listed.lines().next().unwrap()).unwrap();
    assert_eq!(first["difference"], "extra");
}

/// The changes of the objects that differ are sent again, and no others; the mirror has everything then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn difference_is_sent_again_and_nothing_else() {
    let receiver = Receiver::start(|_, _| Reply::of(200)).await;
    let folder = tempfile::tempdir().unwrap();
    let lines = webhook("mirror", &receiver.url(), "[subscriptions.mirror.filter]\nvisibility = true");
    let gateway = gateway(folder.path(), &lines);
    let mut rng = Rng::with_seed(3);
    for time in 0..60 {
        post_event(&gateway, &random_event(&mut rng, 10, time)).await;
    }
    let all = gateway.json("/changes?limit=1000").await["changes"].as_array().unwrap().len() as u64;
    gateway.until_at("mirror", all).await;
    let before = receiver.requests().len();
    let mut mirror = mirror(&gateway, true).await;
    let lost = mirror.values().next().unwrap()["object"].as_str().unwrap().to_owned();
    mirror.retain(|_, line| line["object"] != lost.as_str());
    let file = write(folder.path(), &mirror, &mut rng);
    let (code, out, error) = compare(&gateway, &file, &["--send", "mirror"]);
    assert_eq!((code, out), (1, format!("missing    {lost}\n")), "{error}");
    assert!(error.contains("of 1 object sent to the subscription mirror again"), "{error}");
    let expected = gateway.json("/changes?limit=1000&visibility=true").await;
    let of_object = |change: &&Value| change["object"] == lost.as_str();
    let expected: Vec<_> = expected["changes"].as_array().unwrap().iter().filter(of_object).cloned().collect();
    let requests = receiver.until(before + expected.len()).await;
    let again: Vec<_> = requests[before..].iter().map(ReceivedRequest::json).collect();
    assert_eq!(again, expected);
    assert!(requests[before..].iter().all(|request| request.header("tidings-repeat") == "true"));
}

/// A reader with a view sees digests of its part, which name no other object, also after an object was withdrawn.
#[tokio::test]
async fn digests_stay_within_the_view_of_a_token() {
    use crate::support::views_fixture::{OPEN, SECRET, ViewedGateway, live_through, token};
    let gateway =
        ViewedGateway::start(&token("guest", "read", "view = { public = true, objects = [\"http://h/open/\"] }"));
    live_through(&gateway, 600).await;
    for round in 0..4 {
        let digests = gateway.get("/registry/digests?parts=256", Some("guest")).await;
        assert_eq!(digests.status, 200, "{round}: {}", digests.everything);
        assert!(!digests.everything.contains(SECRET), "{}", digests.body);
        let snapshot = gateway.get("/snapshot?limit=1000", Some("guest")).await.json();
        let objects = snapshot["objects"].as_array().unwrap().clone();
        let visible: Vec<_> = objects.iter().map(|one| one["uri"].clone()).collect();
        let range = digests.json()["ranges"][0].clone();
        let ends = range["parts"].as_array().or(range["objects"].as_array()).unwrap();
        for end in ends.iter().filter_map(|end| end.get("through").or(end.get("uri"))) {
            assert!(visible.contains(end) && end.as_str().unwrap().starts_with(OPEN), "{round}: {end} is named");
        }
        // Withdraws some objects, among them ends of ranges.
        for object in objects.iter().skip(round).step_by(2) {
            let hide = |item: &Value| json!({ "uri": item["uri"], "stateAfter": "INACTIVE" });
            let items: Vec<_> = object["items"].as_array().unwrap().iter().map(hide).collect();
            gateway.post(&json!({ "object": object["uri"], "items": items })).await;
        }
    }
    assert_eq!(gateway.get("/registry/digests", None).await.status, 401);
}

#[tokio::test]
async fn wrong_questions_are_refused_with_the_parameter() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = gateway(folder.path(), "");
    for (path, expected) in [
        ("parts=1", "parts is 1; give 2 to 256."),
        ("parts=257", "parts is 257"),
        ("after=of", "after: "),
        ("facts=none", "facts"),
        ("source=fedora3", "source"),
        ("depth=2", "depth"),
    ] {
        let (status, answer) = gateway.ask("GET", &format!("/registry/digests?{path}"), None).await;
        assert_eq!(status, 400, "{path}: {answer}");
        assert!(answer["detail"].as_str().unwrap().contains(expected), "{path}: {answer}");
    }
    for (body, expected) in [
        (json!({ "ranges": [{}], "filter": { "sources": ["fedora3"] } }), "\"source\" selects changes"),
        (json!({ "ranges": [{}], "filter": { "states": ["ACTIVE"] } }), "\"state\" selects changes"),
        (json!({ "ranges": vec![json!({}); 257] }), "There are 257 ranges"),
        (json!({ "range": [] }), "unknown field `range`"),
        (json!({ "ranges": [{}, {}] }), "overlap"),
        (json!({ "ranges": [{ "through": "http://h/2" }, { "after": "http://h/1" }] }), "overlap"),
        (json!({ "ranges": [{ "after": "http://h/2", "through": "http://h/1" }] }), "overlap"),
    ] {
        let (status, answer) = gateway.ask("POST", "/registry/digests", Some(body)).await;
        assert_eq!(status, 400, "{answer}");
        assert!(answer["detail"].as_str().unwrap().contains(expected), "{answer}");
    }
    let empty = gateway.json("/registry/digests").await;
    assert_eq!(empty["ranges"], json!([{ "objects": [] }]));
}
