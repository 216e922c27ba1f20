//! The choice how the files of a dataset are archived.

use super::Dataset;
use crate::format::fileset::message::IngestStrategy;

/// Figures above which files go to an item of archive.org instead of a web archive.
///
/// The defaults are those of the proposal that introduced the strategies: 20 files, 1 GB in total, 128 MB for a file.
/// Sandcrawler's code has other figures: 64 MiB for a file, and no limit on their number or total size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// Maximum number of files in a web archive.
    pub web_files: usize,
    /// Maximum size of all files in a web archive, in bytes.
    pub web_total_bytes: u64,
    /// Maximum size of a file in a web archive, in bytes.
    pub web_file_bytes: u64,
    /// Number of files above which a bundle is archived, if the platform offers one; `None` for never.
    pub bundle_above_files: Option<usize>,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self { web_files: 20, web_total_bytes: 1 << 30, web_file_bytes: 128 << 20, bundle_above_files: None }
    }
}

impl Thresholds {
    /// Chooses how the files of a dataset are archived. Unknown sizes count as zero.
    #[must_use]
    pub fn choose(&self, dataset: &Dataset) -> IngestStrategy {
        let count = dataset.files.len();
        let largest = dataset.files.iter().filter_map(|file| file.manifest.size).max().unwrap_or(0);
        let is_web =
            count <= self.web_files && dataset.total_size() <= self.web_total_bytes && largest <= self.web_file_bytes;
        let is_bundled = dataset.bundle_url.is_some() && self.bundle_above_files.is_some_and(|files| count > files);
        match (is_web, count == 1, is_bundled) {
            (true, true, _) => IngestStrategy::WebFile,
            (false, true, _) => IngestStrategy::ArchiveorgFile,
            (true, false, true) => IngestStrategy::WebFilesetBundled,
            (false, false, true) => IngestStrategy::ArchiveorgFilesetBundled,
            (true, false, false) => IngestStrategy::WebFileset,
            (false, false, false) => IngestStrategy::ArchiveorgFileset,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Dataset, DatasetMetadata, PlatformFile},
        IngestStrategy::{
            self, ArchiveorgFile, ArchiveorgFileset, ArchiveorgFilesetBundled, WebFile, WebFileset, WebFilesetBundled,
        },
        Thresholds,
    };
    use crate::format::fileset::message::ManifestFile;

    /// Number of files, total size and largest size of the 40 results in the tests of fatcat, with their strategies.
    const RESULTS: [(usize, u64, u64, IngestStrategy); 40] = [
        (3, 250_713_670, 218_752_636, ArchiveorgFileset),
        (75, 49_095_370_137, 1_387_302_890, ArchiveorgFileset),
        (30, 4_083_166_937, 499_571_259, ArchiveorgFileset),
        (2, 173_375_357, 173_281_024, ArchiveorgFileset),
        (8, 463_336_054, 226_069_900, ArchiveorgFileset),
        (3, 303_795_909, 263_084_882, ArchiveorgFileset),
        (12, 232_727_835, 92_269_411, ArchiveorgFileset),
        (10, 91_298_937, 89_857_910, ArchiveorgFileset),
        (30, 3_782_751_697, 463_907_883, ArchiveorgFileset),
        (3, 371_795_370, 330_770_328, ArchiveorgFileset),
        (59, 7_402_647_976, 131_116_209, ArchiveorgFileset),
        (2, 139_736_226, 139_735_372, ArchiveorgFileset),
        (7, 1_870_752_117, 567_459_234, ArchiveorgFileset),
        (3, 308_516_594, 282_718_169, ArchiveorgFileset),
        (13, 619_828_568, 198_985_892, ArchiveorgFileset),
        (3, 327_025_850, 289_114_919, ArchiveorgFileset),
        (5, 921_601_547, 230_400_044, ArchiveorgFileset),
        (3, 381_471_632, 358_517_156, ArchiveorgFileset),
        (3, 460_193_760, 417_904_860, ArchiveorgFileset),
        (30, 3_876_111_424, 473_899_517, ArchiveorgFileset),
        (1, 410_631_015, 410_631_015, ArchiveorgFile),
        (1, 1_827_479_779, 1_827_479_779, ArchiveorgFile),
        (1, 149_128, 149_128, WebFile),
        (1, 277_695_787, 277_695_787, ArchiveorgFile),
        (1, 193_762_539, 193_762_539, ArchiveorgFile),
        (1, 323_355, 323_355, WebFile),
        (1, 3_558_964_608, 3_558_964_608, ArchiveorgFile),
        (1, 165_410_129, 165_410_129, ArchiveorgFile),
        (1, 5_080_602_128, 5_080_602_128, ArchiveorgFile),
        (1, 9_241_364_045, 9_241_364_045, ArchiveorgFile),
        (1, 3_141_366, 3_141_366, WebFile),
        (1, 168_632_217, 168_632_217, ArchiveorgFile),
        (1, 410_344, 410_344, WebFile),
        (1, 5_957_749_616, 5_957_749_616, ArchiveorgFile),
        (1, 202_004_950, 202_004_950, ArchiveorgFile),
        (1, 1_320_490_575, 1_320_490_575, ArchiveorgFile),
        (1, 5_896_179_103, 5_896_179_103, ArchiveorgFile),
        (1, 200_446_950, 200_446_950, ArchiveorgFile),
        (1, 5_148_586_592, 5_148_586_592, ArchiveorgFile),
        (1, 5_574_989_369, 5_574_989_369, ArchiveorgFile),
    ];

    /// Creates a dataset of which the first file is the largest one.
    fn dataset(count: usize, total: u64, largest: u64) -> Dataset {
        let file = |size| PlatformFile::new(ManifestFile { size: Some(size), ..ManifestFile::default() });
        let mut files = vec![file(largest)];
        files.extend((1..count).map(|n| file(if n == 1 { total - largest } else { 0 })));
        Dataset {
            platform_name: "zenodo",
            platform_domain: String::new(),
            platform_id: String::new(),
            archiveorg_item_name: String::new(),
            former_item_name: None,
            told_bytes: None,
            base_url: None,
            bundle_url: Some("https://h.example/all.zip".to_owned()),
            files,
            metadata: DatasetMetadata::default(),
        }
    }

    #[test]
    fn strategies_of_sandcrawler_follow_from_its_figures() {
        let of_sandcrawler = Thresholds {
            web_files: usize::MAX,
            web_total_bytes: u64::MAX,
            web_file_bytes: (64 << 20) - 1,
            bundle_above_files: None,
        };
        for (count, total, largest, strategy) in RESULTS {
            // The other files of a real dataset are smaller than the largest one.
            let rest = (total - largest).min(largest);
            assert_eq!(
                of_sandcrawler.choose(&dataset(count, largest + rest, largest)),
                strategy,
                "{count} {total} {largest}"
            );
        }
    }

    #[test]
    fn each_figure_decides() {
        let mib = 1 << 20;
        let bundled = Thresholds { bundle_above_files: Some(10), ..Thresholds::default() };
        for (count, total, largest, strategy, with_bundle) in [
            (1, 128 * mib, 128 * mib, WebFile, WebFile),
            (1, 128 * mib + 1, 128 * mib + 1, ArchiveorgFile, ArchiveorgFile),
            (20, 256 * mib, 128 * mib, WebFileset, WebFilesetBundled),
            (21, 2 * mib, mib, ArchiveorgFileset, ArchiveorgFilesetBundled),
            (10, 256 * mib, 128 * mib, WebFileset, WebFileset),
            (2, 130 * mib, 129 * mib, ArchiveorgFileset, ArchiveorgFileset),
        ] {
            let dataset = dataset(count, total, largest);
            assert_eq!((Thresholds::default().choose(&dataset), bundled.choose(&dataset)), (strategy, with_bundle));
        }
        let mut many = dataset(9, 256 * mib, 128 * mib);
        many.files.iter_mut().for_each(|file| file.manifest.size = Some(127 * mib));
        assert_eq!(Thresholds::default().choose(&many), ArchiveorgFileset, "the total size decides");
    }
}
