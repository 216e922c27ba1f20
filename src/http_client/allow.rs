//! What the operator lets requests go to beside the public internet: networks and names of hosts.

use std::net::IpAddr;

use url::Host;

use super::address::{carried, in_block};

/// A list of networks and names of hosts (`delivery.allow`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowList {
    networks: Vec<Network>,
    names: Vec<String>,
}

/// A block of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Network {
    first: IpAddr,
    bits: u32,
}

/// Why an entry of the list is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{entry:?} {reason}; give a network (\"10.0.0.0/8\", \"fd00::/8\"), an address, or the name of a host")]
pub struct InvalidAllow {
    entry: String,
    reason: &'static str,
}

impl AllowList {
    /// Reads the entries of a list: `10.0.0.0/8`, `fd12::/16`, `192.168.1.7`, `indexer.internal`. A name stands for
    /// itself alone, and not for names below it.
    ///
    /// # Errors
    /// When an entry is none of these.
    pub fn parse<S: AsRef<str>>(entries: &[S]) -> Result<Self, InvalidAllow> {
        let mut list = Self::default();
        for entry in entries {
            let entry = entry.as_ref();
            let invalid = |reason| InvalidAllow { entry: entry.to_owned(), reason };
            if let Some((first, bits)) = entry.split_once('/') {
                let first: IpAddr = first.parse().map_err(|_| invalid("has no address before the slash"))?;
                list.networks.push(Network::new(first, bits).map_err(invalid)?);
            } else if let Ok(address) = entry.parse::<IpAddr>() {
                let first = address.to_canonical();
                list.networks.push(Network { first, bits: width(first) });
            } else {
                let name = name(entry)
                    .filter(|name| !name.contains('*'))
                    .ok_or_else(|| invalid("is not the name of a host"))?;
                list.names.push(name);
            }
        }
        Ok(list)
    }

    /// Whether it has networks, so that a name may lead into one.
    pub(super) fn has_networks(&self) -> bool {
        !self.networks.is_empty()
    }

    /// Whether a host of this name may have any address.
    pub(super) fn has_name(&self, host: &str) -> bool {
        name(host).is_some_and(|host| self.names.contains(&host))
    }

    /// Whether an address, or what it carries, is in one of the networks.
    pub(super) fn has_address(&self, address: IpAddr) -> bool {
        let forms = [address, carried(address)];
        self.networks.iter().any(|network| forms.iter().any(|form| in_block(*form, network.first, network.bits)))
    }
}

impl Network {
    fn new(first: IpAddr, bits: &str) -> Result<Self, &'static str> {
        let bits = bits.parse().ok().filter(|bits| *bits <= width(first)).ok_or("has no length of a prefix")?;
        let beyond = match first {
            IpAddr::V4(first) => first.to_bits().checked_shl(bits).unwrap_or(0) != 0,
            IpAddr::V6(first) => first.to_bits().checked_shl(bits).unwrap_or(0) != 0,
        };
        if beyond { Err("is not the first address of its network") } else { Ok(Self { first, bits }) }
    }
}

fn width(address: IpAddr) -> u32 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// A name as it is compared: in small letters, international ones in their ASCII form, without the dot of the root.
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
    fn networks_have_their_addresses() {
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
    fn names_stand_for_themselves() {
        let list = list(&["indexer.internal", "Bücher.example."]);
        for named in ["indexer.internal", "INDEXER.internal.", "bücher.example", "xn--bcher-kva.example"] {
            assert!(list.has_name(named), "{named}");
        }
        for other in ["internal", "a.indexer.internal", "indexer.internal.example.org", "10.0.0.1", ""] {
            assert!(!list.has_name(other), "{other}");
        }
        assert!(!list.has_networks());
    }

    #[test]
    fn what_is_neither_is_refused() {
        for (entry, why) in [
            ("10.0.0.0/33", "length of a prefix"),
            ("10.0.0.1/8", "first address"),
            ("fd00::1/64", "first address"),
            ("indexer/8", "before the slash"),
            ("10.0.0.0/", "length of a prefix"),
            ("", "name of a host"),
            ("a b", "name of a host"),
            ("https://indexer", "before the slash"),
            ("*.internal", "name of a host"),
        ] {
            let error = AllowList::parse(&[entry]).unwrap_err().to_string();
            assert!(error.contains(why), "{entry}: {error}");
        }
    }
}
