//! Types of values that several tables of the configuration have.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use serde::{
    Deserialize,
    de::{IntoDeserializer, value},
};
use url::Url;
use utoipa::openapi::Schema;

use crate::{
    harvest::Hours,
    http_client::AllowList,
    model::SourceName,
    settings::{List, Setting, SettingErrors, Text, TextType, ValueType},
    web::HostName,
};

/// A socket address to listen on.
pub struct ListenAddress;

impl TextType for ListenAddress {
    type Value = SocketAddr;
    const EXPECTED: &'static str = "an IP address and a port, as in \"127.0.0.1:8395\"";

    fn parse(text: &str) -> Result<SocketAddr, String> {
        listen_address(text).map_err(|reason| format!("it is {text:?}; {reason}"))
    }
}

/// Parses a socket address to listen on. The error says what to give instead.
///
/// # Errors
/// Fails if the text is no IP address with a port.
pub fn listen_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        let is_address = |address: &str| format!("{address}:0").parse::<SocketAddr>().is_ok();
        let is_large = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        match text.rsplit_once(':') {
            Some((address, port)) if is_address(address) && is_large(port) => {
                "the port is a number from 1 to 65535, or 0 for a free port".to_owned()
            }
            _ => "give an IP address and a port, as in 127.0.0.1:8395 or [::1]:8395".to_owned(),
        }
    })
}

/// A name of this gateway.
pub struct Host;

impl TextType for Host {
    type Value = HostName;

    fn parse(text: &str) -> Result<HostName, String> {
        let expected = "give host names without scheme and port, as in tidings.internal; IP addresses need no entry";
        HostName::parse(text).ok_or_else(|| format!("{text:?} is not a host name; {expected}"))
    }
}

/// The path of a folder. It is made absolute, so that messages identify the folder whatever the working directory is.
pub struct Folder;

impl TextType for Folder {
    type Value = PathBuf;

    fn parse(text: &str) -> Result<PathBuf, String> {
        if text.is_empty() {
            return Err("it is empty; give the path of a folder".to_owned());
        }
        std::path::absolute(text).map_err(|error| error.to_string())
    }
}

/// The path of a file. It is made absolute, as that of a [`Folder`].
pub struct FilePath;

impl TextType for FilePath {
    type Value = PathBuf;

    fn parse(text: &str) -> Result<PathBuf, String> {
        if text.is_empty() {
            return Err("it is empty; give the path of a file".to_owned());
        }
        std::path::absolute(text).map_err(|error| error.to_string())
    }
}

/// Base URL, which ends with a slash, so that paths are joined below it. The error does not repeat the text, because it may
/// contain a password by mistake.
pub(super) struct PlatformBase;

impl TextType for PlatformBase {
    type Value = Url;

    fn parse(text: &str) -> Result<Url, String> {
        let url = Url::parse(&format!("{}/", text.trim_end_matches('/'))).ok().filter(is_plain);
        let reason = "it is not the base URL of a platform; write it as in https://zenodo.org, without user and query";
        url.ok_or_else(|| reason.to_owned())
    }
}

/// Returns whether a URL is that of a server over HTTP, without user, query and fragment.
pub(super) fn is_plain(url: &Url) -> bool {
    matches!(url.scheme(), "http" | "https")
        && url.has_host()
        && url.username().is_empty()
        && url.password().is_none()
        && url.query().is_none()
        && url.fragment().is_none()
}

/// Targets outside the public internet.
pub struct Allowed;

impl ValueType for Allowed {
    type Value = AllowList;

    fn read(setting: &Setting) -> Result<AllowList, SettingErrors> {
        let targets = setting.read::<List<Text>>()?;
        AllowList::parse(&targets).map_err(|error| setting.invalid(error.to_string()).into())
    }

    fn schema() -> Schema {
        List::<Text>::schema()
    }
}

/// Shortest and longest time of a setting with a unit.
const TIMES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(366 * 24 * 60 * 60)];

/// A time with its unit, as in `"90s"`, `"15m"`, `"1h"` or `"30d"`.
pub(super) struct Time;

impl TextType for Time {
    type Value = Duration;
    const EXPECTED: &'static str = "a time with a unit, as in \"1h\"";

    fn parse(text: &str) -> Result<Duration, String> {
        let expected = "give a time of 1s to 366d with its unit, such as \"90s\", \"15m\", \"1h\" or \"30d\"";
        parse_time(text).ok_or_else(|| format!("it is {text:?}; {expected}"))
    }
}

fn parse_time(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let unit = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 60 * 60,
        "d" => 24 * 60 * 60,
        _ => return None,
    };
    let number: u64 = number.bytes().all(|byte| byte.is_ascii_digit()).then(|| number.parse().ok())??;
    let time = Duration::from_secs(number.checked_mul(unit)?);
    let [shortest, longest] = TIMES;
    (shortest..=longest).contains(&time).then_some(time)
}

/// Names of other sources, at least one.
pub(super) struct Sources;

impl ValueType for Sources {
    type Value = Vec<SourceName>;

    fn read(setting: &Setting) -> Result<Vec<SourceName>, SettingErrors> {
        let names = setting.read::<List<Text<SourceName>>>()?;
        if names.is_empty() { Err(setting.missing().into()) } else { Ok(names) }
    }

    fn schema() -> Schema {
        List::<Text>::schema()
    }
}

/// Hours in which runs begin.
pub(super) struct RunHours;

impl ValueType for RunHours {
    type Value = Hours;

    fn read(setting: &Setting) -> Result<Hours, SettingErrors> {
        let spans = setting.read::<List<Text>>()?;
        let spans = IntoDeserializer::<value::Error>::into_deserializer(spans);
        Hours::deserialize(spans).map_err(|error| setting.invalid(error.to_string()).into())
    }

    fn schema() -> Schema {
        List::<Text>::schema()
    }
}

#[cfg(test)]
mod tests {
    use super::{Duration, listen_address, parse_time};

    #[test]
    fn wrong_addresses_say_what_to_give() {
        for (text, reason) in [
            ("127.0.0.1:99999", "the port is a number from 1 to 65535"),
            ("[::1]:65536", "the port is a number from 1 to 65535"),
            ("8395", "give an IP address and a port"),
            ("127.0.0.1:", "give an IP address and a port"),
            ("localhost:8395", "give an IP address and a port"),
        ] {
            assert!(listen_address(text).unwrap_err().starts_with(reason), "{text}");
        }
        assert!(listen_address("[::1]:0").is_ok());
    }

    #[test]
    fn times_have_units_and_bounds() {
        for (text, seconds) in [("1s", Some(1)), ("15m", Some(900)), ("1h", Some(3600)), ("366d", Some(31_622_400))] {
            assert_eq!(parse_time(text), seconds.map(Duration::from_secs), "{text}");
        }
        for text in ["", "1", "s", "0s", "367d", "-1s", "1.5h", "1 h", "+1h", "1w", "1é", "99999999999999999999d"] {
            assert_eq!(parse_time(text), None, "{text}");
        }
    }
}
