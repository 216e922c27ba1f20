//! Rules of `robots.txt` (RFC 9309), which say which files of a host a program may request.

use percent_encoding::percent_decode_str;

/// Product token of the gateway in `robots.txt`.
const PRODUCT: &str = "tidings";

/// Maximum number of rules that are kept.
const MAX_RULES: usize = 10_000;

/// Size of a rule in memory beside its pattern, in bytes.
const RULE_BYTES: usize = 64;

/// Rules for the gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Robots(Vec<Rule>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    is_allowed: bool,
    /// Pattern of paths, with `*` for any characters and `$` at the end of the path.
    pattern: String,
}

impl Robots {
    /// Parses a file. The groups for the gateway count, or else those for all programs (section 2.2.1). Unknown lines are
    /// ignored.
    pub(super) fn parse(text: &str) -> Self {
        let (mut own, mut common) = (Vec::new(), Vec::new());
        let (mut is_own, mut is_common, mut has_own) = (false, false, false);
        let mut are_agents = false;
        for line in text.lines() {
            let line = line.split('#').next().unwrap_or_default();
            let Some((key, value)) = line.split_once(':') else { continue };
            let (key, value) = (key.trim().to_ascii_lowercase(), value.trim());
            if key == "user-agent" {
                if !are_agents {
                    (is_own, is_common) = (false, false);
                }
                let token: String =
                    value.chars().take_while(|c| c.is_ascii_alphabetic() || "-_".contains(*c)).collect();
                is_own |= token.eq_ignore_ascii_case(PRODUCT);
                is_common |= value == "*";
                has_own |= is_own;
                are_agents = true;
                continue;
            }
            are_agents = false;
            let is_allowed = match key.as_str() {
                "allow" => true,
                "disallow" => false,
                _ => continue,
            };
            // An empty value matches nothing.
            let rule = || Rule { is_allowed, pattern: decoded(value) };
            for (rules, applies) in [(&mut own, is_own), (&mut common, is_common)] {
                if applies && !value.is_empty() && rules.len() < MAX_RULES {
                    rules.push(rule());
                }
            }
        }
        Self(if has_own { own } else { common })
    }

    /// Returns the approximate size in memory, in bytes.
    pub(super) fn size(&self) -> usize {
        self.0.iter().map(|rule| RULE_BYTES + rule.pattern.len()).sum()
    }

    /// Returns whether a path with its query may be requested: the longest pattern counts, and among equally long ones the
    /// one that allows it (section 2.2.2).
    pub(super) fn is_allowed(&self, path: &str) -> bool {
        let path = decoded(path);
        let matching = self.0.iter().filter(|rule| is_match(&rule.pattern, &path));
        matching.max_by_key(|rule| (rule.pattern.len(), rule.is_allowed)).is_none_or(|rule| rule.is_allowed)
    }
}

fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// Returns whether a pattern matches the beginning of a path. Takes the first place for each part between two wildcards,
/// which is enough because a pattern has no other operators.
fn is_match(pattern: &str, path: &str) -> bool {
    let (pattern, is_whole) = pattern.strip_suffix('$').map_or((pattern, false), |pattern| (pattern, true));
    let mut parts = pattern.split('*');
    let Some(mut rest) = path.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let mut last = None;
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
        last = Some(part);
    }
    match last {
        _ if !is_whole || rest.is_empty() => true,
        // The last part may stand further behind.
        Some(part) => rest.ends_with(part),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::Robots;

    #[test]
    fn longest_rule_counts() {
        let robots = Robots::parse(
            "# none\nUser-agent: *\nDisallow: /\n\nUser-Agent: other\nuser-agent: Tidings/1.0 (x)\nDisallow: /private/\n\
             Allow: /private/open # yes\nDisallow: /*.tmp$\nAllow: /same\nDisallow: /same\nDisallow:\nCrawl-delay: 1\n",
        );
        for (path, expected) in [
            ("/", true),
            ("/private/a", false),
            ("/priv%61te/a", false),
            ("/private/open/a", true),
            ("/a.tmp", false),
            ("/a.tmp/b.tmp", false),
            ("/a.tmp?x", true),
            ("/same", true),
        ] {
            assert_eq!(robots.is_allowed(path), expected, "{path}");
        }
        assert!(!Robots::parse("User-agent: *\nDisallow: /").is_allowed("/a"));
        assert!(Robots::parse("User-agent: other\nDisallow: /").is_allowed("/a"));
        assert!(Robots::parse("<html>").is_allowed("/a"));
    }
}
