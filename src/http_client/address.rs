//! Which addresses are no hosts of the public internet, after IANA's registries of special-purpose
//! addresses (RFC 6890 and its successors).
//!
//! An address of IPv6 may carry one of IPv4 and lead there. Two of these forms are in use for public hosts:
//! mapped addresses, and those that a resolver makes up for a network without IPv4 (NAT64). They count as what
//! they carry. The others are history (RFC 4291 section 2.5.5.1, RFC 7526, RFC 4380) or lead wherever a network
//! has decided (RFC 8215), and count as reserved, whatever they carry.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Blocks of IPv4: the first address, the bits of the prefix, and what they are.
const BLOCKS_V4: [([u8; 4], u32, &str); 16] = [
    ([0, 0, 0, 0], 8, "of this host (unspecified)"),
    ([10, 0, 0, 0], 8, "private"),
    ([100, 64, 0, 0], 10, "shared by the customers of a provider"),
    ([127, 0, 0, 0], 8, "a loopback address"),
    ([169, 254, 0, 0], 16, "link-local"),
    ([172, 16, 0, 0], 12, "private"),
    ([192, 0, 0, 0], 24, "reserved for protocols"),
    ([192, 0, 2, 0], 24, "for documentation"),
    ([192, 88, 99, 0], 24, "reserved (6to4 relays)"),
    ([192, 168, 0, 0], 16, "private"),
    ([198, 18, 0, 0], 15, "for benchmarks"),
    ([198, 51, 100, 0], 24, "for documentation"),
    ([203, 0, 113, 0], 24, "for documentation"),
    ([224, 0, 0, 0], 4, "multicast"),
    ([255, 255, 255, 255], 32, "the broadcast address"),
    ([240, 0, 0, 0], 4, "reserved"),
];

/// Blocks of IPv6, the narrower before the wider.
const BLOCKS_V6: [([u16; 8], u32, &str); 17] = [
    ([0, 0, 0, 0, 0, 0, 0, 0], 128, "unspecified"),
    ([0, 0, 0, 0, 0, 0, 0, 1], 128, "a loopback address"),
    ([0, 0, 0, 0, 0, 0, 0, 0], 96, "IPv4-compatible"),
    ([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48, "of a network's own NAT64"),
    ([0x100, 0, 0, 0, 0, 0, 0, 0], 64, "for discarding"),
    ([0x2001, 0, 0, 0, 0, 0, 0, 0], 32, "of a Teredo tunnel"),
    ([0x2001, 2, 0, 0, 0, 0, 0, 0], 48, "for benchmarks"),
    ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32, "for documentation"),
    ([0x2001, 0, 0, 0, 0, 0, 0, 0], 23, "reserved for protocols"),
    ([0x2002, 0, 0, 0, 0, 0, 0, 0], 16, "of a 6to4 tunnel"),
    ([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20, "for documentation"),
    ([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7, "private (unique local)"),
    ([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10, "link-local"),
    ([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10, "private (site-local)"),
    ([0xff00, 0, 0, 0, 0, 0, 0, 0], 8, "multicast"),
    // What is left below and above global unicast (2000::/3) has not been given to anybody.
    ([0, 0, 0, 0, 0, 0, 0, 0], 3, "reserved"),
    ([0x4000, 0, 0, 0, 0, 0, 0, 0], 2, "reserved"),
];

/// The well-known prefix of NAT64 (RFC 6052 section 2.1).
const NAT64: Ipv6Addr = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0);

/// The address that a packet for this one ends at: what a mapped or a NAT64 address carries, or itself.
pub(super) fn carried(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) if in_block(IpAddr::V6(v6), IpAddr::V6(NAT64), 96) => {
            let [.., a, b, c, d] = v6.octets();
            IpAddr::V4(Ipv4Addr::new(a, b, c, d))
        }
        canonical => canonical,
    }
}

/// What an address is, if it is not that of a host of the public internet.
pub(super) fn special(address: IpAddr) -> Option<&'static str> {
    let address = carried(address);
    let of_v4 = BLOCKS_V4.into_iter().map(|(first, bits, what)| (IpAddr::from(first), bits, what));
    let of_v6 = BLOCKS_V6.into_iter().map(|(first, bits, what)| (IpAddr::from(first), bits, what));
    let found = of_v4.chain(of_v6).find(|(first, bits, _)| in_block(address, *first, *bits));
    found.map(|(_, _, what)| what).or_else(|| match address {
        // 8000::/1, as far as it is none of the above.
        IpAddr::V6(v6) if v6.octets()[0] >= 0x80 => Some("reserved"),
        _ => None,
    })
}

/// Whether the first `bits` bits of an address are those of `first`.
pub(super) fn in_block(address: IpAddr, first: IpAddr, bits: u32) -> bool {
    match (address, first) {
        (IpAddr::V4(address), IpAddr::V4(first)) => {
            (address.to_bits() ^ first.to_bits()).checked_shr(32_u32.saturating_sub(bits)).unwrap_or(0) == 0
        }
        (IpAddr::V6(address), IpAddr::V6(first)) => {
            (address.to_bits() ^ first.to_bits()).checked_shr(128_u32.saturating_sub(bits)).unwrap_or(0) == 0
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{BLOCKS_V4, IpAddr, Ipv4Addr, Ipv6Addr, carried, special};

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
            assert_eq!(special(ip(public)), None, "{public}");
        }
    }

    #[test]
    fn each_form_is_told() {
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
            let told = special(ip(address)).unwrap_or("public");
            assert!(told.contains(what), "{address}: {told}");
        }
    }

    /// Whatever is refused in IPv4 is refused in the forms of IPv6 that carry it.
    #[test]
    fn what_carries_a_special_address_is_special() {
        for (first, _, what) in BLOCKS_V4 {
            let v4 = Ipv4Addr::from(first);
            let [a, b, c, d] = first.map(u16::from);
            let (high, low) = (a << 8 | b, c << 8 | d);
            for v6 in [v4.to_ipv6_mapped(), Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low)] {
                assert_eq!((special(v6.into()), carried(v6.into())), (Some(what), v4.into()), "{v6}");
            }
            for v6 in [
                Ipv6Addr::new(0, 0, 0, 0, 0, 0, high, low),
                Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, high, low),
                Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 1),
                Ipv6Addr::new(0x2001, 0, 0x4136, 0xe378, 0x8000, 0x63bf, !high, !low),
            ] {
                assert!(special(v6.into()).is_some(), "{v6}");
            }
        }
    }
}
