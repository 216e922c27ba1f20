//! Rule of the command line: text reaches a terminal or a log only through the functions that escape what controls it.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Files that write to standard output or standard error.
const WRITERS: [&str; 2] = ["output.rs", "log_writer.rs"];

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    files.into_iter().chain(folders.iter().flat_map(|folder| sources(folder))).collect()
}

/// Returns whether a line of code can write to a terminal by itself.
fn writes(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    // Only whether there is a terminal, and progress bars of numbers.
    let code = code.replace("stderr().is_terminal()", "").replace("ProgressDrawTarget::stderr()", "");
    ["println!", "print!", "stdout()", "stderr()", "io::stderr", "io::stdout"].iter().any(|way| code.contains(way))
}

#[test]
fn commands_write_through_one_module() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/command");
    let files = sources(&folder);
    let mut found = 0;
    for path in files {
        let text = fs::read_to_string(&path).unwrap();
        let wrong: Vec<_> = text.lines().filter(|line| writes(line)).collect();
        if WRITERS.iter().any(|name| path.ends_with(name)) {
            found += wrong.len();
        } else {
            assert_eq!(wrong, [""; 0], "{}", path.display());
        }
    }
    assert!(found > 0, "the test finds no code");
}
