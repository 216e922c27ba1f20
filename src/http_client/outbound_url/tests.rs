//! Tests of the policy with all spellings of a URL.

use super::{AllowList, InvalidOutboundUrl, NotAllowed, OutboundPolicy, OutboundUrl};

fn policy(allow: &[&str]) -> OutboundPolicy {
    OutboundPolicy::restricted(AllowList::parse(allow).unwrap())
}

fn refusal(text: &str, policy: &OutboundPolicy) -> String {
    match OutboundUrl::parse(text, policy) {
        Ok(_) => "allowed".to_owned(),
        Err(error) => error.to_string(),
    }
}

/// Every spelling of a URL whose target is internal is refused.
#[test]
fn every_spelling_of_an_internal_address_is_refused() {
    for (text, what) in [
        ("https://127.0.0.1/", "loopback"),
        ("https://127.1/", "loopback"),
        ("https://2130706433/", "loopback"),
        ("https://0x7f000001/", "loopback"),
        ("https://0x7f.0.0.1/", "loopback"),
        ("https://0177.0.0.1/", "loopback"),
        ("https://127.0.0.1./", "loopback"),
        ("https://①②⑦.0.0.1/", "loopback"),
        ("https://1%32%37.0.0.1/", "loopback"),
        ("https://user@127.0.0.1/", "loopback"),
        ("https://public.example:443@127.0.0.1/", "loopback"),
        ("https://127.0.0.1\\@public.example/", "loopback"),
        ("https:\\\\127.0.0.1/", "loopback"),
        ("https:127.0.0.1/", "loopback"),
        ("https://0/", "unspecified"),
        ("https://0.0.0.0/", "unspecified"),
        ("https://169.254.169.254/latest/meta-data", "link-local"),
        ("https://[::1]/", "loopback"),
        ("https://[::]/", "unspecified"),
        ("https://[0:0:0:0:0:ffff:127.0.0.1]/", "loopback"),
        ("https://[::ffff:7f00:1]/", "loopback"),
        ("https://[::127.0.0.1]/", "compatible"),
        ("https://[64:ff9b::7f00:1]/", "loopback"),
        ("https://[64:ff9b:1::7f00:1]/", "own NAT64"),
        ("https://[2002:7f00:1::]/", "6to4"),
        ("https://[2001::f5ff:fffe]/", "Teredo"),
        ("https://[fe80::1]/", "link-local"),
        ("https://[fd00::1]/", "unique local"),
        ("https://10.1.2.3:8443/", "private"),
        ("https://100.64.0.1/", "shared"),
        ("https://224.0.0.1/", "multicast"),
        ("https://255.255.255.255/", "broadcast"),
        ("https://localhost/", "gateway itself"),
        ("https://LOCALHOST./", "gateway itself"),
        ("https://a.localhost/", "gateway itself"),
        ("http://indexer.example.org/", "not encrypted"),
        ("http://8.8.8.8/", "not encrypted"),
        ("ftp://indexer.example.org/", "neither"),
        ("file:///etc/passwd", "neither"),
        ("unix:/run/x", "neither"),
        ("https://indexer.example.org/#a", "fragment"),
        ("https://[fe80::1%25eth0]/", "not a URL"),
        ("https://", "not a URL"),
        ("//127.0.0.1/", "not a URL"),
        ("https://256.1.1.1/", "not a URL"),
        ("https://1.2.3.4.5/", "not a URL"),
    ] {
        let error = refusal(text, &policy(&[]));
        assert!(error.contains(what), "{text}: {error}");
    }
    let long = format!("https://indexer.example.org/{}", "a".repeat(2048));
    assert!(matches!(OutboundUrl::parse(&long, &policy(&[])), Err(InvalidOutboundUrl::TooLong(2048))));
    assert!(OutboundUrl::of_server(&long, &policy(&[])).is_ok(), "a server may choose a longer one");
}

#[test]
fn public_internet_is_allowed_over_tls() {
    for text in ["https://indexer.example.org/changes", "https://8.8.8.8:8443/", "https://[2606:4700::1111]/"] {
        assert_eq!(refusal(text, &policy(&[])), "allowed", "{text}");
    }
}

#[test]
fn listed_hosts_are_allowed_without_tls() {
    let listed = policy(&["10.0.0.0/8", "indexer.internal", "localhost"]);
    for text in [
        "http://10.1.2.3/",
        "https://10.1.2.3/",
        "http://[::ffff:10.1.2.3]/",
        "http://indexer.internal:8080/",
        "http://LOCALHOST:1/",
        // This name is checked after resolution.
        "http://other.internal/",
    ] {
        assert_eq!(refusal(text, &listed), "allowed", "{text}");
    }
    assert!(refusal("http://11.0.0.1/", &listed).contains("not encrypted"));
    assert!(refusal("http://127.0.0.1/", &listed).contains("loopback"));
    assert!(refusal("http://other.example/", &policy(&["indexer.internal"])).contains("not encrypted"));
}

#[test]
fn unrestricted_policy_allows_every_target() {
    let operator = OutboundPolicy::unrestricted();
    for text in ["http://127.0.0.1:9000/", "http://localhost/", "http://[::1]/", "http://indexer/"] {
        assert_eq!(refusal(text, &operator), "allowed", "{text}");
    }
    assert!(refusal("amqp://127.0.0.1/", &operator).contains("neither"));
}

#[test]
fn internal_addresses_of_a_name_are_dropped() {
    let ip = |text: &str| text.parse().unwrap();
    let mixed = vec![ip("10.0.0.1"), ip("8.8.8.8"), ip("::1"), ip("2606:4700::1111")];
    let allowed = policy(&[]).allowed("mixed.example", mixed.clone(), true).unwrap();
    assert_eq!(allowed, [ip("8.8.8.8"), ip("2606:4700::1111")]);
    assert_eq!(policy(&["::1"]).allowed("mixed.example", mixed.clone(), false).unwrap(), [ip("::1")]);
    assert_eq!(policy(&["mixed.example"]).allowed("mixed.example", mixed.clone(), false).unwrap(), mixed);
    let inside = policy(&[]).allowed("inside.example", vec![ip("10.0.0.1"), ip("::1")], true);
    assert_eq!(inside, Err(NotAllowed::Special { address: ip("10.0.0.1"), what: "private" }));
    assert_eq!(policy(&[]).allowed("none.example", Vec::new(), true), Ok(Vec::new()));
}

#[test]
fn display_form_contains_no_secrets() {
    let text = "https://user:hush@indexer.example.org:8443/in?key=hush2";
    let outbound_url = OutboundUrl::parse(text, &policy(&[])).unwrap();
    let display = format!("{outbound_url} {outbound_url:?}");
    assert_eq!(display, ["https://indexer.example.org:8443/in?(hidden)"; 2].join(" "));
    assert_eq!(outbound_url.expose().as_str(), text);
    let secrets: Vec<_> = outbound_url.secrets().iter().map(|secret| secret.expose().to_vec()).collect();
    let sent = b"dXNlcjpodXNo".to_vec();
    assert_eq!(secrets, [sent, b"key=hush2".to_vec(), b"hush2".to_vec(), b"hush".to_vec()]);
    assert!(OutboundUrl::parse(&format!("{outbound_url}"), &policy(&[])).unwrap().is_redacted());
    let token = OutboundUrl::parse("https://hush3@indexer.example.org/", &policy(&[])).unwrap();
    let secrets: Vec<_> = token.secrets().iter().map(|secret| secret.expose().to_vec()).collect();
    assert_eq!(secrets, [b"aHVzaDM6".to_vec(), b"hush3".to_vec()]);
    let more = outbound_url.with_query([("hub.mode", "subscribe"), ("a b", "c&d")]);
    assert_eq!(more.expose().query(), Some("key=hush2&hub.mode=subscribe&a+b=c%26d"));
    for wrong in ["https://user:hush@/", "ftp://user:hush@a/", "http://user:hush@a/", "https://user:hush@10.0.0.1/"] {
        assert!(!refusal(wrong, &policy(&[])).contains("hush"), "{wrong}");
    }
}

#[test]
fn query_values_and_path_tokens_are_secrets() {
    let text = "https://h.example/hooks/T024BE7LD/changes/xoxb-17653672481-a?key=hush%2Fa+b&t=ab&hush4&n=1#";
    let outbound_url = OutboundUrl::parse(text.trim_end_matches('#'), &policy(&[])).unwrap();
    let secrets = outbound_url.secrets();
    let secrets: Vec<_> = secrets.iter().map(|secret| std::str::from_utf8(secret.expose()).unwrap()).collect();
    for secret in ["hush%2Fa+b", "hush/a+b", "hush/a b", "hush4", "T024BE7LD", "xoxb-17653672481-a"] {
        assert!(secrets.contains(&secret), "{secret}: {secrets:?}");
    }
    for plain in ["ab", "1", "hooks", "changes", ""] {
        assert!(!secrets.contains(&plain), "{plain}: {secrets:?}");
    }
    assert!(secrets.is_sorted_by(|a, b| a.len() >= b.len()));
}

#[test]
fn hosts_of_one_owner_have_one_site() {
    let site = |text: &str| OutboundUrl::parse(text, &OutboundPolicy::unrestricted()).unwrap().site();
    for (text, expected) in [
        ("https://a.b.example.org:8443/x?y", "example.org"),
        ("https://EXAMPLE.org./", "example.org"),
        ("https://a.reader.co.uk/", "reader.co.uk"),
        ("https://library.ac.at/", "library.ac.at"),
        ("https://a.university.at/", "university.at"),
        ("http://indexer/", "indexer"),
        ("http://127.0.0.1:1/", "127.0.0.1"),
        ("http://[::ffff:127.0.0.1]:2/", "127.0.0.1"),
        ("http://[2001:db8::1]/", "2001:db8::"),
        ("http://[2001:db8::ff:2]/", "2001:db8::"),
    ] {
        assert_eq!(site(text), expected, "{text}");
    }
    let same = |one: &str, other: &str| {
        let [one, other] = [one, other].map(|text| OutboundUrl::parse(text, &OutboundPolicy::unrestricted()).unwrap());
        one.is_same_without_query(&other)
    };
    assert!(same("http://h/cb?1", "http://h/cb?2") && same("http://h/cb", "http://H:80/cb?"));
    assert!(!same("http://h/cb", "http://h/cb2") && !same("http://h/cb", "http://h:8080/cb"));
}

/// A name that somebody else can change is checked after its resolution, although the operator has configured it.
#[test]
fn configured_targets_are_free_if_nobody_else_can_move_them() {
    let public = OutboundPolicy::public_files(AllowList::parse(&["listed.example.org", "10.1.0.0/16"]).unwrap());
    for (text, is_free) in [
        ("http://127.0.0.1:8080/", true),
        ("http://[fd00::1]/", true),
        ("http://10.0.0.5/", true),
        ("http://localhost:8080/", true),
        ("http://dspace:8080/oai", true),
        ("http://repo.internal/", true),
        ("http://repo.default.svc.cluster.local./", true),
        ("http://nas.home.arpa/", true),
        ("https://repo.example.org/", true),
        ("http://listed.example.org/", true),
        ("http://repo.example.org/", false),
        ("http://repo.notinternal/", false),
        ("http://xn--bcher-kva.example/", false),
    ] {
        let url = url::Url::parse(text).unwrap();
        let policy = public.for_configured(&url);
        let host = url.host_str().unwrap();
        for address in ["127.0.0.1", "10.0.0.5", "::1", "169.254.169.254"] {
            let allowed = policy.allowed(host, vec![address.parse().unwrap()], url.scheme() == "https");
            assert_eq!(allowed.is_ok(), is_free, "{text} {address}");
        }
        for address in ["8.8.8.8", "10.1.2.3"] {
            assert!(policy.allowed(host, vec![address.parse().unwrap()], false).is_ok(), "{text} {address}");
        }
    }
}
