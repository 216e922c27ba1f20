//! The command line of Tidings; `src/command/` has a module for each command.

mod command;

/// Changes are made of many small pieces that one thread makes and another frees, which the usual
/// allocator of Linux is slow at.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    // More than one crate could bring a TLS provider, and rustls refuses to choose. It cannot have
    // been installed before, and if it had, one is as good as the other.
    let _ = rustls::crypto::ring::default_provider().install_default();
    command::run()
}
