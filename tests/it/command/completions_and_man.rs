//! `tidings completions` and `tidings man`: shells and troff accept what they print.

use std::{
    fs,
    process::{Command, Output},
};

use crate::support::command_line::{command, ended};

fn output(program: &str, arguments: &[&str]) -> String {
    let Output { status, stdout, stderr } = Command::new(program).args(arguments).output().unwrap();
    let stderr = String::from_utf8_lossy(&stderr);
    assert!(status.success() && stderr.is_empty(), "{program} {arguments:?}: {stderr}");
    String::from_utf8(stdout).unwrap()
}

#[test]
fn bash_completes_commands_and_options() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("tidings.bash");
    let (code, stdout, stderr) = ended(command(&["completions", "bash"]).spawn().unwrap());
    assert_eq!((code, stderr.as_str()), (0, ""));
    fs::write(&script, stdout).unwrap();
    let script = script.to_str().unwrap();
    output("bash", &["-n", script]);
    for (words, expected) in [
        ("tidings ser", "serve"),
        ("tidings subscriptions li", "list"),
        ("tidings tail --onc", "--once"),
        ("tidings config ", "default"),
        ("tidings completions z", "zsh"),
    ] {
        let complete = "source \"$1\"; COMP_WORDS=($2 ${3:+\"\"}); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); \
                        _tidings tidings \"${COMP_WORDS[COMP_CWORD]}\" \"${COMP_WORDS[COMP_CWORD - 1]}\"; \
                        printf '%s\\n' \"${COMPREPLY[@]}\"";
        let is_new_word = if words.ends_with(' ') { "yes" } else { "" };
        let found = output("bash", &["--norc", "-c", complete, "bash", script, words, is_new_word]);
        assert!(found.lines().any(|word| word == expected), "{words}: {found}");
    }
    for shell in ["zsh", "fish", "elvish", "powershell"] {
        let (code, stdout, _) = ended(command(&["completions", shell]).spawn().unwrap());
        assert!(code == 0 && stdout.contains("seed-registry"), "{shell}");
    }
}

#[test]
fn each_command_has_a_page_that_troff_accepts() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("man1");
    let (code, stdout, stderr) = ended(command(&["man", "--out", out.to_str().unwrap()]).spawn().unwrap());
    assert_eq!((code, stdout.as_str(), stderr.as_str()), (0, "", ""));
    let (_, help, _) = ended(command(&["--help"]).spawn().unwrap());
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let mut names: Vec<_> = commands
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .map(|name| format!("tidings-{name}.1"))
        .collect();
    assert!(names.len() > 20, "{help}");
    names.extend(["tidings.1", "tidings-subscriptions-list.1", "tidings-config-show.1"].map(str::to_owned));
    for name in names {
        let path = out.join(&name);
        let page = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(page.is_ascii() && page.contains(".SH NAME"), "{name}");
        output("groff", &["-man", "-Tutf8", "-ww", "-z", path.to_str().unwrap()]);
    }
    let (code, page, _) = ended(command(&["man"]).spawn().unwrap());
    assert_eq!((code, page), (0, fs::read_to_string(out.join("tidings.1")).unwrap()));
    let file = out.join("tidings.1/below");
    let (code, _, stderr) = ended(command(&["man", "--out", file.to_str().unwrap()]).spawn().unwrap());
    assert!(code == 1 && stderr.contains("cannot write the manual pages to /"), "{stderr}");
}
