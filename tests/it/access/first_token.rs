//! The first token enables access control. Without any token, Tidings does not listen on addresses that other
//! machines can reach.

use std::{fs, path::Path, process::Stdio};

use crate::support::{
    command_line::{CommandResult, ended},
    gateway::{Gateway, command},
    gateway_with_auth::configuration,
};

#[tokio::test]
async fn public_listen_address_is_refused_without_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let data = data.to_str().unwrap();
    let serve = ["serve", "--listen", "0.0.0.0:0", "--data", data];
    let mut refused = command();
    refused.args(serve).stdout(Stdio::piped()).stderr(Stdio::piped());
    let (code, out, err): CommandResult = ended(refused.spawn().unwrap());
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(err.starts_with("tidings: server.listen is 0.0.0.0:0, which others can reach, and there is no"), "{err}");
    assert!(err.contains("--insecure") && err.contains("`tidings token`") && err.lines().count() == 1, "{err}");
    assert!(!Path::new(data).exists());

    let config = configuration(folder.path(), "");
    for arguments in [&["--insecure"][..], &["--config", &config]] {
        let log = folder.path().join("log");
        let listen = [&["--listen", "0.0.0.0:0"], arguments].concat();
        let gateway = Gateway::start_elsewhere(data.as_ref(), &listen, Some(&log));
        let url = gateway.url.replace("0.0.0.0", "127.0.0.1");
        let status = gateway.http.get(format!("{url}/changes")).send().await.unwrap().status();
        assert_eq!(status, if arguments[0] == "--insecure" { 200 } else { 401 });
        let log = fs::read_to_string(log).unwrap();
        assert_eq!(log.contains("access control is off"), arguments[0] == "--insecure", "{log}");
        assert_eq!(log.contains("not encrypted"), arguments[0] != "--insecure", "{log}");
    }
}

#[tokio::test]
async fn token_command_prints_a_usable_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let mut token = command();
        token.arg("token").args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        ended(token.spawn().unwrap())
    };
    let (code, out, err) =
        run(&["--scope", "read", "--scope", "publish:islandora", "--name", "mine", "--expires", "30"]);
    assert_eq!(code, 0, "{err}");
    let (token, block) = out.split_once("\n\n").unwrap();
    assert!(token.starts_with("tdg_") && token.len() == 68, "{token}");
    assert!(block.starts_with("[access.tokens.mine]\nsha256 = \"") && !block.contains(token), "{block}");
    assert!(
        block.contains("scopes = [\"read\", \"publish:islandora\"]\nexpires = \"") && !err.contains(token),
        "{out}{err}"
    );
    let (_, second, _) = run(&[]);
    let (another, second) = second.split_once("\n\n").unwrap();
    assert!(another != token && second.contains("scopes = [\"read\"]\n") && !second.contains("expires"), "{second}");

    let config = folder.path().join("tidings.toml");
    fs::write(&config, format!("{block}{second}")).unwrap();
    let gateway = Gateway::start_with(&folder.path().join("data"), &["--config", config.to_str().unwrap()]);
    let get = async |path: &str, token: &str| {
        gateway.http.get(format!("{}{path}", gateway.url)).bearer_auth(token).send().await.unwrap().status().as_u16()
    };
    assert_eq!(
        [get("/changes", token).await, get("/changes", another).await, get("/sources", token).await],
        [200, 200, 403]
    );

    for (arguments, message) in [
        (&["--scope", "write"][..], "a scope is publish:SOURCE, publish:*, read or admin"),
        (&["--scope", "publish:A"], "is not a name"),
        (&["--name", "A b"], "is not a name"),
        (&["--expires", "0"], "--expires"),
    ] {
        let (code, out, err) = run(arguments);
        assert_eq!((code, out.as_str()), (2, ""));
        assert!(err.contains(message), "{err}");
    }
}
