//! Networks and host names that requests may reach in addition to the public internet.

use std::net::IpAddr;

use ipnet::IpNet;
use url::Host;

use super::ip_ranges::effective_address;

/// A list of networks and host names (`delivery.allow`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowList {
    networks: Vec<IpNet>,
    names: Vec<String>,
}

/// Reason why an entry of the list is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{entry:?} {reason}; give a network (\"10.0.0.0/8\", \"fd00::/8\"), an address, or a host name")]
pub struct InvalidAllow {
    entry: String,
    reason: &'static str,
}

impl AllowList {
    /// Parses the entries of a list: `10.0.0.0/8`, `fd12::/16`, `192.168.1.7`, `indexer.internal`. A name does
    /// not include its subdomains.
    ///
    /// # Errors
    /// Fails if an entry has none of these forms.
    pub fn parse<S: AsRef<str>>(entries: &[S]) -> Result<Self, InvalidAllow> {
        let mut list = Self::default();
        for entry in entries {
            let entry = entry.as_ref();
            let invalid = |reason| InvalidAllow { entry: entry.to_owned(), reason };
            if let Some((first, prefix)) = entry.split_once('/') {
                list.networks.push(network(first, prefix).map_err(invalid)?);
            } else if let Ok(address) = entry.parse::<IpAddr>() {
                list.networks.push(address.to_canonical().into());
            } else {
                let name =
                    name(entry).filter(|name| !name.contains('*')).ok_or_else(|| invalid("is not a host name"))?;
                list.names.push(name);
            }
        }
        Ok(list)
    }

    /// True if the list contains networks, so that any name may resolve to a listed address.
    pub(super) fn has_networks(&self) -> bool {
        !self.networks.is_empty()
    }

    /// True if the list contains this host name, which may then resolve to any address.
    pub(super) fn has_name(&self, host: &str) -> bool {
        name(host).is_some_and(|host| self.names.contains(&host))
    }

    /// True if one of the networks contains an address, or the IPv4 address that it embeds.
    pub(super) fn has_address(&self, address: IpAddr) -> bool {
        let forms = [address, effective_address(address)];
        self.networks.iter().any(|network| forms.iter().any(|form| network.contains(form)))
    }
}

/// Parses the two parts of a network. The error completes the sentence of [`InvalidAllow`].
fn network(first: &str, prefix: &str) -> Result<IpNet, &'static str> {
    let first: IpAddr = first.parse().map_err(|_| "has no address before the slash")?;
    let network = prefix.parse().ok().and_then(|prefix| IpNet::new(first, prefix).ok());
    let network = network.ok_or("has no valid prefix length")?;
    if network.network() == first { Ok(network) } else { Err("is not the first address of its network") }
}

/// Normalizes a host name for comparison: lowercase, Punycode for international names, without the trailing
/// dot.
fn name(host: &str) -> Option<String> {
    match Host::parse(host).ok()? {
        Host::Domain(name) => Some(name.trim_end_matches('.').to_owned()).filter(|name| !name.is_empty()),
        Host::Ipv4(_) | Host::Ipv6(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::AllowList;

    fn list(entries: &[&str]) -> AllowList {
        AllowList::parse(entries).unwrap()
    }

    #[test]
    fn networks_contain_their_addresses() {
        let list = list(&["10.0.0.0/8", "192.168.1.7", "fd00::/8", "::1"]);
        for inside in ["10.255.1.2", "192.168.1.7", "fd12::3", "::1", "::ffff:10.1.1.1", "64:ff9b::10.1.1.1"] {
            assert!(list.has_address(inside.parse().unwrap()), "{inside}");
        }
        for outside in ["11.0.0.1", "192.168.1.8", "fc00::1", "::2", "127.0.0.1", "::ffff:11.0.0.1"] {
            assert!(!list.has_address(outside.parse().unwrap()), "{outside}");
        }
        assert!(AllowList::parse(&["0.0.0.0/0"]).unwrap().has_address("1.2.3.4".parse().unwrap()));
    }

    #[test]
    fn names_do_not_include_subdomains() {
        let list = list(&["indexer.internal", "Bücher.example."]);
        for by_name in ["indexer.internal", "INDEXER.internal.", "bücher.example", "xn--bcher-kva.example"] {
            assert!(list.has_name(by_name), "{by_name}");
        }
        for other in ["internal", "a.indexer.internal", "indexer.internal.example.org", "10.0.0.1", ""] {
            assert!(!list.has_name(other), "{other}");
        }
        assert!(!list.has_networks());
    }

    #[test]
    fn invalid_entries_are_refused() {
        for (entry, why) in [
            ("10.0.0.0/33", "valid prefix length"),
            ("10.0.0.1/8", "first address"),
            ("fd00::1/64", "first address"),
            ("indexer/8", "before the slash"),
            ("10.0.0.0/", "valid prefix length"),
            ("", "is not a host name"),
            ("a b", "is not a host name"),
            ("https://indexer", "before the slash"),
            ("*.internal", "is not a host name"),
        ] {
            let error = AllowList::parse(&[entry]).unwrap_err().to_string();
            assert!(error.contains(why), "{entry}: {error}");
        }
    }
}
