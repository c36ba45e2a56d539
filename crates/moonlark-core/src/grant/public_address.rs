//! Which addresses are public.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Names that mean this machine or this network without asking DNS.
pub(super) fn is_local_name(domain: &str) -> bool {
    let domain = domain.trim_end_matches('.').to_ascii_lowercase();
    domain == "localhost"
        || domain.ends_with(".localhost")
        || domain.ends_with(".local")
        || domain.ends_with(".internal")
}

/// An address on the public internet: not this machine, not its network, not a
/// cloud's metadata service, not a range that embeds one of those.
pub fn is_public_address(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => is_public_v4(ip),
        IpAddr::V6(ip) => is_public_v6(ip),
    }
}

fn is_public_v4(ip: Ipv4Addr) -> bool {
    let [a, b, c, _] = ip.octets();
    let special = ip.is_unspecified()
        || ip.is_loopback()
        || ip.is_private()
        || ip.is_link_local()
        || ip.is_multicast()
        || ip.is_broadcast()
        || ip.is_documentation()
        || a == 0
        || a >= 240
        || (a == 100 && (64..128).contains(&b))
        || (a == 192 && b == 0 && c == 0)
        || (a == 192 && b == 88 && c == 99)
        || (a == 198 && (b == 18 || b == 19));
    !special
}

fn is_public_v6(ip: Ipv6Addr) -> bool {
    if let Some(carried) = embedded_ipv4(ip) {
        return is_public_v4(carried);
    }
    let [first, second, ..] = ip.segments();
    // Global unicast only, without what the IETF keeps for protocols (Teredo,
    // benchmarking), documentation and its second range.
    first & 0xe000 == 0x2000
        && !(first == 0x2001 && second < 0x200)
        && (first, second) != (0x2001, 0xdb8)
        && !(first == 0x3fff && second < 0x1000)
}

/// The IPv4 address that an IPv6 address leads to: mapped, compatible, NAT64, 6to4.
pub(super) fn embedded_ipv4(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    let (high, low) = match ip.segments() {
        [0, 0, 0, 0, 0, 0xffff | 0, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            (high, low)
        }
        [0x2002, high, low, ..] => (high, low),
        _ => return None,
    };
    Some(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)))
}
