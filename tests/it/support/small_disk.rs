//! Small file system that a test can fill to the last byte.

use std::{
    fs::File,
    io::Write,
    path::{Path, PathBuf},
    process::Command,
};

/// Small file system for a test.
pub(crate) struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// Mounts a file system with that many megabytes.
    pub(crate) fn of(megabytes: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let disk = Self(folder);
        assert!(
            mount(&["-t", "tmpfs", "-o", &format!("size={megabytes}m"), "tmpfs"], disk.path()),
            "this test mounts a small tmpfs: run it as root, in a container that may mount"
        );
        disk
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Fills the file system to the last byte; removing the returned file makes room.
    pub(crate) fn fill(&self) -> PathBuf {
        let path = self.path().join("filling");
        let mut file = File::create(&path).unwrap();
        while file.write_all(&[0; 4096]).is_ok() {}
        path
    }

    pub(crate) fn set_mode(&self, mode: &str) {
        assert!(mount(&["-o", &format!("remount,{mode}")], self.path()));
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.path()).status();
    }
}

pub(crate) fn mount(arguments: &[&str], folder: &Path) -> bool {
    Command::new("mount").args(arguments).arg(folder).status().is_ok_and(|status| status.success())
}
