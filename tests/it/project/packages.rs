//! The Debian package, the archive, the sample configuration, and the workflow of a release, as far as they can be checked
//! without building a package. `packaging/check` builds one and installs it.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::Value;

use crate::support::{
    command_line::{command, ended},
    python,
};

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn read(name: &str) -> String {
    fs::read_to_string(path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// Runs `tidings check` with a configuration file.
fn check(folder: &Path, text: &str) -> String {
    let file = folder.join("tidings.toml");
    fs::write(&file, text).unwrap();
    let data = folder.join("data");
    let arguments = ["check", "--config", file.to_str().unwrap(), "--data", data.to_str().unwrap()];
    let (code, stdout, stderr) = ended(command(&arguments).spawn().unwrap());
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    stdout
}

#[test]
fn sample_configuration_is_accepted_with_and_without_its_examples() {
    let folder = tempfile::tempdir().unwrap();
    let sample = read("packaging/tidings.toml");
    let usual = check(folder.path(), &sample);
    assert!(usual.contains("listen        127.0.0.1:8395\n") && usual.contains("access        open"), "{usual}");
    assert!(sample.contains("\ndata = \"/var/lib/tidings\"\n"), "the folder of the unit");

    let secrets = [
        ("fedora-password", "hush"),
        ("sfm-broker-url", "amqp://sfm:hush@127.0.0.1/%2f"),
        ("portal-secret", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
    ];
    for (name, secret) in secrets {
        fs::write(folder.path().join(name), secret).unwrap();
    }
    crate::status::access_and_certificates::put_certificate(folder.path(), 30);
    let is_example = |line: &str| line.strip_prefix('#').is_some_and(|rest| !rest.is_empty() && !rest.starts_with(' '));
    let lines = sample.lines().map(|line| if is_example(line) { &line[1..] } else { line });
    // A journal is in the file or in the database, and no database is there.
    let lines: Vec<_> = lines.filter(|line| !line.starts_with("store = ")).collect();
    let all = lines.join("\n").replace("/etc/tidings/", &format!("{}/", folder.path().display()));
    // The example of a token has no digest, because readers would copy it.
    let all = all.replace("sha256 = \"…\"", &format!("sha256 = \"{}\"", "5f".repeat(32)));
    let all = check(folder.path(), &all);
    for line in
        ["access        by token: ops\n", "subscription  portal: webhook, json", "source        repository: oai-pmh"]
    {
        assert!(all.contains(line), "{line}: {all}");
    }
}

/// Returns the table of cargo-deb.
fn package() -> Value {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--no-deps", "--offline", "--format-version=1"]).current_dir(path("."));
    let metadata: Value = serde_json::from_slice(&run(&mut cargo).stdout).unwrap();
    metadata["packages"][0]["metadata"]["deb"].clone()
}

#[test]
fn files_of_the_debian_package_exist() {
    let package = package();
    let mut installed = BTreeSet::new();
    for asset in package["assets"].as_array().unwrap() {
        let [source, place, mode] = [0, 1, 2].map(|index| asset[index].as_str().unwrap());
        assert_eq!(mode, if place == "usr/bin/" { "755" } else { "644" }, "{source}");
        // target/ has what a build makes.
        assert!(source.starts_with("target/") || path(source).is_file(), "{source}");
        let name = Path::new(source).file_name().unwrap().to_str().unwrap();
        installed.insert(if place.ends_with('/') { format!("/{place}{name}") } else { format!("/{place}") });
    }
    for file in package["conf-files"].as_array().unwrap() {
        assert!(installed.contains(file.as_str().unwrap()), "{file}");
    }
    let unit = read("packaging/tidings.service");
    for word in unit.split_whitespace().filter(|word| word.starts_with("/etc/tidings/") && word.ends_with(".toml")) {
        assert!(installed.contains(word), "the unit reads {word}");
    }
    for script in ["postinst", "postrm"] {
        let script = format!("packaging/debian/{script}");
        assert!(read(&script).contains("#DEBHELPER#\n"), "{script}");
        run(Command::new("sh").arg("-n").arg(path(&script)));
    }
    let licence = package["license-file"][0].as_str().unwrap();
    assert!(read(licence).starts_with("Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n"));
}

/// systemd makes the user and the folders of the unit from the files of the package.
#[test]
fn user_and_folders_are_those_of_the_unit() {
    let root = tempfile::tempdir().unwrap();
    let etc = root.path().join("etc");
    fs::create_dir_all(etc.join("tidings")).unwrap();
    fs::write(etc.join("tidings/tidings.toml"), "").unwrap();
    let in_root = format!("--root={}", root.path().display());
    run(Command::new("systemd-sysusers").arg(&in_root).arg(path("packaging/sysusers.d/tidings.conf")));
    run(Command::new("systemd-tmpfiles").arg(&in_root).arg("--create").arg(path("packaging/tmpfiles.d/tidings.conf")));
    let unit = read("packaging/tidings.service");
    let user = unit.lines().find_map(|line| line.strip_prefix("User=")).unwrap();
    let passwd = fs::read_to_string(etc.join("passwd")).unwrap();
    let entry = passwd.lines().find(|line| line.starts_with(&format!("{user}:"))).unwrap();
    assert!(entry.ends_with(":/var/lib/tidings:/usr/sbin/nologin"), "{entry}");
    for (place, mode) in [("etc/tidings", 0o750), ("etc/tidings/tidings.toml", 0o640), ("var/lib/tidings", 0o700)] {
        let found = fs::metadata(root.path().join(place)).unwrap().permissions().mode() & 0o7777;
        assert_eq!(found, mode, "{place}");
    }
}

/// Writes a program that has the commands of packages, or lacks them.
fn stub(folder: &Path, has_commands: bool) -> PathBuf {
    let program = folder.join("program");
    let text = if has_commands {
        "#!/bin/sh\ncase $1 in\nhelp) exit 0 ;;\ncompletions) echo \"completions of $2\" ;;\n\
         man) echo .TH >\"$3/tidings.1\" ;;\nesac\n"
            .to_owned()
    } else {
        "#!/bin/sh\nexit 2\n".to_owned()
    };
    fs::write(&program, text).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    program
}

#[test]
fn archive_has_the_program_with_its_completions_and_manual() {
    let folder = tempfile::tempdir().unwrap();
    let archive = |has_commands| {
        let program = stub(folder.path(), has_commands);
        let mut archive = Command::new(path("packaging/archive"));
        let output = run(archive.arg(&program).arg("tidings-1").arg(folder.path()));
        let listed = run(Command::new("tar").arg("-tzf").arg(folder.path().join("tidings-1.tar.gz")));
        let files = String::from_utf8(listed.stdout).unwrap();
        (files, String::from_utf8(output.stderr).unwrap())
    };
    let (files, warnings) = archive(true);
    assert_eq!(warnings, "");
    for file in [
        "tidings",
        "LICENSE-MIT",
        "packaging/tidings.toml",
        "packaging/prometheus/alerts.yml",
        "share/bash-completion/completions/tidings",
        "share/zsh/vendor-completions/_tidings",
        "share/fish/vendor_completions.d/tidings.fish",
        "share/man/man1/tidings.1.gz",
        "share/doc/tidings/changelog.gz",
    ] {
        assert!(files.lines().any(|line| line == format!("tidings-1/{file}")), "{file} is missing in\n{files}");
    }
    let (files, warnings) = archive(false);
    assert!(!files.contains("/completions/") && !files.contains("man1"), "{files}");
    for name in ["completions", "man"] {
        assert!(warnings.contains(&format!("no command {name};")), "{warnings}");
    }
}

#[test]
fn scripts_of_packaging_have_no_errors_of_syntax() {
    for file in ["archive", "build-deb", "check", "sbom", "stage"] {
        let script = path("packaging").join(file);
        assert_eq!(fs::metadata(&script).unwrap().permissions().mode() & 0o111, 0o111, "{file}");
        run(Command::new("bash").arg("-n").arg(script));
    }
}

/// Returns a program of the environment for packaging.
fn linter(name: &str) -> Command {
    Command::new(python::environment("packaging").with_file_name(name))
}

#[test]
fn image_passes_its_linter() {
    let mut hadolint = linter("hadolint");
    let output = hadolint.arg("--no-color").arg(path("packaging/Dockerfile")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// Docker Compose accepts the overlays over the parts of the files that they extend, and the example.
#[test]
fn compose_accepts_the_files() {
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path().join("docker-compose.yml");
    let sfm = "services: { mq: { image: rabbitmq } }\n";
    let isle = "services: { activemq: { image: activemq } }\nnetworks: { default: { internal: true }, gateway: {} }\n";
    for (original, file) in [
        (Some(sfm), "packaging/compose.sfm.yml"),
        (Some(isle), "packaging/compose.isle.yml"),
        (None, "examples/cluster/compose.yaml"),
    ] {
        let mut compose = linter("docker-compose");
        if let Some(original) = original {
            fs::write(&base, original).unwrap();
            compose.arg("-f").arg(&base);
        }
        compose.arg("-f").arg(path(file)).args(["config", "--format", "json"]);
        for (name, value) in super::packaging::ENV_FILE {
            compose.env(name, value);
        }
        let output = run(&mut compose);
        let warnings = String::from_utf8(output.stderr).unwrap();
        assert_eq!(warnings, "", "{file}");
        let merged: Value = serde_json::from_slice(&output.stdout).unwrap();
        let services = merged["services"].as_object().unwrap();
        assert!(services.keys().any(|name| name.starts_with("tidings")), "{file}: {merged:#}");
    }
    // A key that Compose does not know is an error, so the check above can fail.
    fs::write(&base, "services: { mq: { image: rabbitmq, prots: [] } }\n").unwrap();
    let refused = linter("docker-compose").arg("-f").arg(&base).args(["config", "--quiet"]).output().unwrap();
    assert!(!refused.status.success());
}

#[test]
fn release_is_built_for_both_architectures_by_scripts_that_exist() {
    let workflow = super::packaging::yaml(".github/workflows/release.yml");
    let jobs = workflow["jobs"].as_object().unwrap();
    let builds = jobs["build"]["strategy"]["matrix"]["include"].as_array().unwrap();
    let architectures: BTreeSet<_> = builds.iter().map(|build| build["arch"].as_str().unwrap()).collect();
    assert_eq!(architectures, ["amd64", "arm64"].into());
    let toolchain = read("rust-toolchain.toml");
    let version = toolchain.split('"').nth(1).unwrap();
    assert_eq!(jobs["build"]["container"], format!("rust:{version}-bookworm"));
    let steps = || jobs.values().flat_map(|job| job["steps"].as_array().unwrap());
    let commands: String = steps().filter_map(|step| step["run"].as_str()).map(|run| format!("{run}\n")).collect();
    let scripts: BTreeSet<_> = commands.split_whitespace().filter(|word| word.starts_with("packaging/")).collect();
    assert_eq!(scripts, ["packaging/archive", "packaging/build-deb", "packaging/sbom"].into());
    assert!(scripts.iter().all(|script| path(script).is_file()));
    let image = steps().find(|step| step["with"]["file"] == "packaging/Dockerfile").unwrap();
    assert_eq!(image["with"]["platforms"], "linux/amd64,linux/arm64");
    assert_eq!(
        steps().filter(|step| step["env"]["RUSTUP_TOOLCHAIN"].as_str().is_some_and(|used| used != version)).count(),
        0
    );
}
