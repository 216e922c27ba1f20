//! The binary `tidings`. Each command has a module in `src/command/`.

mod command;

/// mimalloc, because a change consists of many small allocations that one thread makes and another thread frees.
/// The default allocator of Linux is slow at this.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    without_huge_pages();
    // rustls panics when several TLS providers are compiled in and none is installed. The call fails only if a provider
    // is installed already, which is equally good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    command::run()
}

/// Switches transparent huge pages off for this process, because a huge page makes all of hyper's buffers resident:
/// two of 8 KiB for each connection, of which a waiting stream uses a few hundred bytes.
#[cfg(target_os = "linux")]
fn without_huge_pages() {
    // Where the kernel refuses, the process takes more memory and is otherwise the same.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}

#[cfg(not(target_os = "linux"))]
fn without_huge_pages() {}
