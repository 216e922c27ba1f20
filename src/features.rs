//! Optional parts of the program: its Cargo features. `Cargo.toml` says which of them a build has by default.

/// A feature, and whether the build has it.
type Feature = (&'static str, bool);

/// The features of this build.
const FEATURES: [Feature; 4] = [
    ("dbus", cfg!(feature = "dbus")),
    ("kafka", cfg!(feature = "kafka")),
    ("parquet", cfg!(feature = "parquet")),
    ("s3", cfg!(feature = "s3")),
];

/// Returns the error about a part that this build lacks; `None` if the build has the part, or no feature has the name.
#[must_use]
pub fn missing(name: &str) -> Option<String> {
    missing_in(&FEATURES, name)
}

fn missing_in(features: &[Feature], name: &str) -> Option<String> {
    let lacks = features.iter().any(|(feature, is_built)| *feature == name && !is_built);
    lacks.then(|| {
        format!(
            "this program was built without the feature {name}; build it with cargo build --release --features {name}"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::missing_in;

    #[test]
    fn only_an_absent_feature_is_missing() {
        let features = [("kafka", false), ("s3", true)];
        let expected =
            "this program was built without the feature kafka; build it with cargo build --release --features kafka";
        assert_eq!(missing_in(&features, "kafka").as_deref(), Some(expected));
        assert_eq!((missing_in(&features, "s3"), missing_in(&features, "amqp")), (None, None));
    }
}
