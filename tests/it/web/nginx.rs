//! nginx in front of a gateway, with the lines of docs/access.md.

use std::{fs, path::Path, process::Command};

use serde_json::json;

use crate::support::{
    broker_process::free_ports,
    event_stream::Stream,
    gateway::{Gateway, PATIENCE},
    nginx::Nginx,
    subscription_fixture::post,
};

fn file(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

/// Returns the location of the page.
fn location() -> String {
    let page = file("docs/access.md");
    page.split_once("```nginx\n").unwrap().1.split_once("```").unwrap().0.to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn proxy_passes_large_messages_and_streams() {
    let (data, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let gateway = Gateway::start(data.path());
    let [port] = free_ports();
    let location = location().replace("http://127.0.0.1:8395", &gateway.url);
    let _nginx = Nginx::start(folder.path(), &format!("server {{\nlisten 127.0.0.1:{port};\n{location}\n}}"), port);
    let proxy = format!("http://127.0.0.1:{port}");

    // A change arrives while the connection is open: nginx keeps nothing back.
    let mut stream = Stream::of(gateway.http.get(format!("{proxy}/stream?after=0")).send().await.unwrap());
    post(&gateway, 1).await;
    assert_eq!(tokio::time::timeout(PATIENCE, stream.event()).await.unwrap().number(), 1);

    // The default of nginx is 1 MiB, and that of the gateway 4 MiB.
    let message = |megabytes: usize| json!({ "object": "http://h.example/large", "purge": true, "description": "x".repeat(megabytes << 20) });
    let send = async |megabytes| {
        let request =
            gateway.http.post(format!("{proxy}/hooks/content-change")).header("content-type", "application/json");
        request.body(message(megabytes).to_string()).send().await.unwrap().status().as_u16()
    };
    assert_eq!(send(3).await, 201);
    assert_eq!(send(5).await, 413);
    let home = gateway.http.get(format!("{proxy}/changes")).send().await.unwrap();
    assert!(home.status().is_success(), "{home:?}");
}

/// The site in packaging/ has the same lines, and nginx accepts it.
#[test]
fn site_of_the_package_has_the_lines_of_the_page() {
    let site = file("packaging/nginx/tidings.conf");
    let directives = |text: &str| -> Vec<String> {
        let lines = text.lines().map(|line| line.split('#').next().unwrap().trim().to_owned());
        lines.filter(|line| line.ends_with(';') && !line.starts_with("proxy_pass")).collect()
    };
    let in_site = directives(&site);
    for directive in directives(&location()) {
        assert!(in_site.contains(&directive), "{directive}");
    }
    let folder = tempfile::tempdir().unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
    fs::write(folder.path().join("tidings.pem"), certificate.pem()).unwrap();
    fs::write(folder.path().join("tidings.key"), key.serialize_pem()).unwrap();
    let place = folder.path().display().to_string();
    let site = site.replace("/etc/ssl/certs", &place).replace("/etc/ssl/private", &place);
    let config = folder.path().join("nginx.conf");
    fs::write(&config, format!("pid {place}/pid;\nevents {{}}\nhttp {{\n{site}\n}}\n")).unwrap();
    let mut nginx = Command::new("/usr/sbin/nginx");
    let output = nginx.arg("-t").arg("-e").arg(folder.path().join("log")).arg("-c").arg(&config).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !text.contains("[warn]"), "{text}");
}
