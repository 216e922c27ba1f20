//! The binary `tidings`. Each command has a module in `src/command/`.

mod command;

/// mimalloc, because a change consists of many small allocations that one thread makes and another thread frees.
/// The default allocator of Linux is slow at this.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    // rustls panics when several TLS providers are compiled in and none is installed. The call fails only if a provider
    // is installed already, which is equally good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    command::run()
}
