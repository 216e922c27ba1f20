//! Addresses that are no public internet hosts, according to IANA's registries of special-purpose addresses
//! (RFC 6890 and its successors).
//!
//! Some IPv6 addresses embed an IPv4 address and lead to it. Two of these forms are used for public hosts:
//! mapped addresses, and the addresses that NAT64 resolvers create. They are treated as the embedded address.
//! The other forms are obsolete (RFC 4291 section 2.5.5.1, RFC 7526, RFC 4380) or depend on the local network
//! (RFC 8215), and are treated as reserved.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// Address blocks and their descriptions. Narrower blocks precede wider ones.
const BLOCKS: [(IpNet, &str); 34] = [
    (v4([0, 0, 0, 0], 8), "of this host (unspecified)"),
    (v4([10, 0, 0, 0], 8), "private"),
    (v4([100, 64, 0, 0], 10), "shared by the customers of a provider"),
    (v4([127, 0, 0, 0], 8), "a loopback address"),
    (v4([169, 254, 0, 0], 16), "link-local"),
    (v4([172, 16, 0, 0], 12), "private"),
    (v4([192, 0, 0, 0], 24), "reserved for protocols"),
    (v4([192, 0, 2, 0], 24), "for documentation"),
    (v4([192, 88, 99, 0], 24), "reserved (6to4 relays)"),
    (v4([192, 168, 0, 0], 16), "private"),
    (v4([198, 18, 0, 0], 15), "for benchmarks"),
    (v4([198, 51, 100, 0], 24), "for documentation"),
    (v4([203, 0, 113, 0], 24), "for documentation"),
    (v4([224, 0, 0, 0], 4), "multicast"),
    (v4([255, 255, 255, 255], 32), "the broadcast address"),
    (v4([240, 0, 0, 0], 4), "reserved"),
    (v6([0, 0, 0, 0, 0, 0, 0, 0], 128), "unspecified"),
    (v6([0, 0, 0, 0, 0, 0, 0, 1], 128), "a loopback address"),
    (v6([0, 0, 0, 0, 0, 0, 0, 0], 96), "IPv4-compatible"),
    (v6([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48), "of a network's own NAT64"),
    (v6([0x100, 0, 0, 0, 0, 0, 0, 0], 64), "for discarding"),
    (v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 32), "of a Teredo tunnel"),
    (v6([0x2001, 2, 0, 0, 0, 0, 0, 0], 48), "for benchmarks"),
    (v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32), "for documentation"),
    (v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 23), "reserved for protocols"),
    (v6([0x2002, 0, 0, 0, 0, 0, 0, 0], 16), "of a 6to4 tunnel"),
    (v6([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20), "for documentation"),
    (v6([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7), "private (unique local)"),
    (v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10), "link-local"),
    (v6([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10), "private (site-local)"),
    (v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8), "multicast"),
    // The blocks outside global unicast (2000::/3) are unassigned.
    (v6([0, 0, 0, 0, 0, 0, 0, 0], 3), "reserved"),
    (v6([0x4000, 0, 0, 0, 0, 0, 0, 0], 2), "reserved"),
    (v6([0x8000, 0, 0, 0, 0, 0, 0, 0], 1), "reserved"),
];

/// Well-known prefix of NAT64 (RFC 6052 section 2.1).
const NAT64: IpNet = v6([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96);

const fn v4([a, b, c, d]: [u8; 4], prefix: u8) -> IpNet {
    IpNet::new_assert(IpAddr::V4(Ipv4Addr::new(a, b, c, d)), prefix)
}

const fn v6([a, b, c, d, e, f, g, h]: [u16; 8], prefix: u8) -> IpNet {
    IpNet::new_assert(IpAddr::V6(Ipv6Addr::new(a, b, c, d, e, f, g, h)), prefix)
}

/// Returns the address where packets for this address arrive: the IPv4 address that a mapped or NAT64 address
/// embeds, or the address itself.
pub(super) fn effective_address(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) if NAT64.contains(&IpAddr::V6(v6)) => {
            let [.., a, b, c, d] = v6.octets();
            IpAddr::V4(Ipv4Addr::new(a, b, c, d))
        }
        canonical => canonical,
    }
}

/// Returns the purpose of an address that is no public internet host.
pub(super) fn special_purpose(address: IpAddr) -> Option<&'static str> {
    let address = effective_address(address);
    BLOCKS.iter().find(|(block, _)| block.contains(&address)).map(|(_, what)| *what)
}

#[cfg(test)]
mod tests {
    use super::{BLOCKS, IpAddr, IpNet, Ipv6Addr, effective_address, special_purpose};

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn public_hosts_are_not_special() {
        for public in [
            "1.1.1.1",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "169.253.255.255",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.0",
            "192.167.255.255",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2606:4700::1111",
            "2a00:1450::1",
            "2001:4860::8888",
            "2001:200::1",
            "3ffe::1",
            "::ffff:8.8.8.8",
            "64:ff9b::8.8.8.8",
        ] {
            assert_eq!(special_purpose(ip(public)), None, "{public}");
        }
    }

    #[test]
    fn purpose_of_each_range_is_reported() {
        for (address, what) in [
            ("0.0.0.0", "unspecified"),
            ("0.1.2.3", "unspecified"),
            ("10.255.0.1", "private"),
            ("100.64.0.1", "shared"),
            ("100.127.255.255", "shared"),
            ("127.0.0.1", "loopback"),
            ("127.255.255.254", "loopback"),
            ("169.254.169.254", "link-local"),
            ("172.16.0.1", "private"),
            ("172.31.255.255", "private"),
            ("192.0.0.8", "protocols"),
            ("192.0.2.1", "documentation"),
            ("192.88.99.1", "6to4"),
            ("192.168.1.1", "private"),
            ("198.18.0.1", "benchmarks"),
            ("198.19.255.255", "benchmarks"),
            ("198.51.100.1", "documentation"),
            ("203.0.113.9", "documentation"),
            ("224.0.0.1", "multicast"),
            ("239.255.255.255", "multicast"),
            ("240.0.0.1", "reserved"),
            ("255.255.255.254", "reserved"),
            ("255.255.255.255", "broadcast"),
            ("::", "unspecified"),
            ("::1", "loopback"),
            ("::127.0.0.1", "compatible"),
            ("::8.8.8.8", "compatible"),
            ("64:ff9b:1::a00:1", "own NAT64"),
            ("100::1", "discarding"),
            ("2001::1", "Teredo"),
            ("2001:0:4136:e378:8000:63bf:3fff:fdd2", "Teredo"),
            ("2001:2::1", "benchmarks"),
            ("2001:10::1", "protocols"),
            ("2001:db8::1", "documentation"),
            ("2002:7f00:1::", "6to4"),
            ("2002:808:808::", "6to4"),
            ("3fff::1", "documentation"),
            ("3fff:fff::1", "documentation"),
            ("5f00::1", "reserved"),
            ("fc00::1", "unique local"),
            ("fd12:3456::1", "unique local"),
            ("fe80::1", "link-local"),
            ("febf::1", "link-local"),
            ("fec0::1", "site-local"),
            ("ff02::1", "multicast"),
            ("8000::1", "reserved"),
            ("::ffff:0:7f00:1", "reserved"),
            ("200::1", "reserved"),
            ("e000::1", "reserved"),
        ] {
            let purpose = special_purpose(ip(address)).unwrap_or("public");
            assert!(purpose.contains(what), "{address}: {purpose}");
        }
    }

    /// An IPv4 address that is refused is also refused in every IPv6 form that embeds it.
    #[test]
    fn embedded_special_address_is_special() {
        for (block, what) in BLOCKS {
            let IpNet::V4(block) = block else { continue };
            let v4 = block.addr();
            let [a, b, c, d] = v4.octets().map(u16::from);
            let (high, low) = (a << 8 | b, c << 8 | d);
            for v6 in [v4.to_ipv6_mapped(), Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low)] {
                assert_eq!((special_purpose(v6.into()), effective_address(v6.into())), (Some(what), v4.into()), "{v6}");
            }
            for v6 in [
                Ipv6Addr::new(0, 0, 0, 0, 0, 0, high, low),
                Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, high, low),
                Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 1),
                Ipv6Addr::new(0x2001, 0, 0x4136, 0xe378, 0x8000, 0x63bf, !high, !low),
            ] {
                assert!(special_purpose(v6.into()).is_some(), "{v6}");
            }
        }
    }
}
