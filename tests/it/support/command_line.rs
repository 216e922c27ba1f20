//! Commands of the program with their exit code and output.

use std::process::{Command, Stdio};

/// Exit code, standard output and standard error of a command.
pub(crate) type CommandResult = (i32, String, String);

pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidings"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TIDINGS_") {
            command.env_remove(name);
        }
    }
    command
}

pub(crate) fn ended(child: std::process::Child) -> CommandResult {
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}
