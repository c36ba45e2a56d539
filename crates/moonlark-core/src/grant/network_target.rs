//! Network targets as an operator writes them: a name, a pattern of names, an address, a
//! range of addresses; each on one port or on any.
//!
//! Nothing here asks DNS. A name is compared as a name; where it leads is held
//! against a [`NetworkReach`] by whoever is about to connect.

use std::net::IpAddr;
use std::str::FromStr;

use url::Host;

use super::matches_pattern;
use super::public_address::{embedded_ipv4, is_public_address};

/// `api.example.com`, `*.example.com:8443`, `127.0.0.1:80`, `[fd00::]/8:443`, or the
/// folder of a Unix socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkTarget {
    whom: TargetHost,
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum TargetHost {
    /// A name in lower case, an address in its usual spelling, or a folder.
    Host(String),
    /// A name with `*` for any characters.
    Pattern(String),
    Range(AddressRange),
}

impl FromStr for NetworkTarget {
    /// What is wrong with it.
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        if text.starts_with('/') {
            return Ok(Self {
                whom: TargetHost::Host(normalize_socket_dir(text).to_owned()),
                port: None,
            });
        }
        let (host, bits, port) = split_target(text)?;
        let port = match port.map(str::parse) {
            Some(Ok(0)) => return Err("no server has port 0"),
            Some(Ok(port)) => Some(port),
            Some(Err(_)) => return Err("the port is not a number"),
            None => None,
        };
        let whom = match (bits, host.parse()) {
            (Some(bits), Ok(ip)) => TargetHost::Range(AddressRange::new(ip, bits)?),
            (Some(_), Err(_)) => return Err("only an address can be followed by / and a number"),
            (None, Ok(ip)) => TargetHost::Host(IpAddr::to_string(&ip)),
            (None, Err(_)) if host.contains('*') => TargetHost::Pattern(host.to_ascii_lowercase()),
            (None, Err(_)) => {
                TargetHost::Host(normalize_host_name(host).ok_or("that is no name of a host")?)
            }
        };
        Ok(Self { whom, port })
    }
}

impl NetworkTarget {
    /// Whether it is exactly this host, not by a pattern.
    pub(super) fn is_exactly(&self, host: &str, port: u16) -> bool {
        self.applies_to_port(port) && matches!(&self.whom, TargetHost::Host(own) if own == host)
    }

    /// Whether it is this host, also by a pattern.
    pub(super) fn matches_host(&self, host: &str, port: u16) -> bool {
        match &self.whom {
            TargetHost::Pattern(pattern) => {
                self.applies_to_port(port) && matches_pattern(pattern, host)
            }
            _ => self.is_exactly(host, port),
        }
    }

    /// The range it is, if it holds for this port.
    pub(super) fn address_range(&self, port: u16) -> Option<AddressRange> {
        match &self.whom {
            TargetHost::Range(range) if self.applies_to_port(port) => Some(*range),
            _ => None,
        }
    }

    /// The address it is, as a range, if it holds for this port: what is forbidden
    /// by its address is forbidden by every name too.
    pub(super) fn address_as_range(&self, port: u16) -> Option<AddressRange> {
        match &self.whom {
            TargetHost::Host(host) if self.applies_to_port(port) => {
                host.parse().ok().map(AddressRange::from_address)
            }
            _ => self.address_range(port),
        }
    }

    fn applies_to_port(&self, port: u16) -> bool {
        self.port.is_none_or(|own| own == port)
    }
}

/// Host, bits of a range and port, each as written.
fn split_target(text: &str) -> Result<(&str, Option<&str>, Option<&str>), &'static str> {
    let (host, rest) = match text.strip_prefix('[') {
        Some(rest) => rest.split_once(']').ok_or("the [ is not closed")?,
        // More than one colon and no brackets: an IPv6 address without a port.
        None if text.matches(':').count() > 1 => {
            return Ok(match text.split_once('/') {
                Some((host, bits)) => (host, Some(bits), None),
                None => (text, None, None),
            });
        }
        None => text.split_at(text.find(['/', ':']).unwrap_or(text.len())),
    };
    let (bits, port) = match rest.strip_prefix('/') {
        Some(rest) => match rest.split_once(':') {
            Some((bits, port)) => (Some(bits), Some(port)),
            None => (Some(rest), None),
        },
        None if rest.is_empty() => (None, None),
        None => (None, Some(rest.strip_prefix(':').ok_or("a port follows after a colon")?)),
    };
    Ok((host, bits, port))
}

/// A name as addresses have it: lower case, without marks, no dot at its end.
fn normalize_host_name(text: &str) -> Option<String> {
    Some(normalize_host(&Host::parse(text).ok()?))
}

/// The one spelling of a host that is compared.
pub(super) fn normalize_host<S: AsRef<str>>(host: &Host<S>) -> String {
    match host {
        Host::Domain(domain) => domain.as_ref().trim_end_matches('.').to_ascii_lowercase(),
        Host::Ipv4(ip) => ip.to_string(),
        Host::Ipv6(ip) => ip.to_string(),
    }
}

/// `/run/postgresql/` is the same folder as `/run/postgresql`.
pub(super) fn normalize_socket_dir(text: &str) -> &str {
    match text.trim_end_matches('/') {
        "" => "/",
        dir => dir,
    }
}

/// Addresses that begin with the same bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AddressRange {
    first: IpAddr,
    bits: u32,
}

impl AddressRange {
    fn new(first: IpAddr, bits: &str) -> Result<Self, &'static str> {
        let most = if first.is_ipv4() { 32 } else { 128 };
        let bits = bits.parse().ok().filter(|bits| *bits <= most);
        let range = Self { first, bits: bits.ok_or("the number after / is too large")? };
        match range.bits {
            // Who writes it means the internet, and would open this machine.
            0 => Err("it holds every address, this machine's too; for all public hosts, write *"),
            _ if range.first_number() != address_number(first) => {
                Err("its address has bits that the range does not, as 10.0.0.5/8 for 10.0.0.0/8")
            }
            _ => Ok(range),
        }
    }

    fn from_address(ip: IpAddr) -> Self {
        Self { first: ip, bits: if ip.is_ipv4() { 32 } else { 128 } }
    }

    /// An IPv4 address in an IPv6 one is that IPv4 address.
    pub fn contains(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        ip.is_ipv4() == self.first.is_ipv4()
            && address_number(ip) & self.network_mask() == self.first_number()
    }

    /// Whether an IPv6 address is a way to an IPv4 address in here.
    fn contains_embedded(&self, ip: IpAddr) -> bool {
        let IpAddr::V6(ip) = ip else { return false };
        embedded_ipv4(ip).is_some_and(|ip| self.contains(ip.into()))
    }

    fn first_number(&self) -> u128 {
        address_number(self.first) & self.network_mask()
    }

    fn network_mask(&self) -> u128 {
        // An IPv4 address is the last 32 of 128 bits, and all before are equal.
        let bits = if self.first.is_ipv4() { self.bits + 96 } else { self.bits };
        u128::MAX.checked_shl(128 - bits).unwrap_or(0)
    }
}

fn address_number(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => u32::from(ip).into(),
        IpAddr::V6(ip) => ip.into(),
    }
}

/// How far a permission goes once DNS has answered.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct NetworkReach {
    /// Wherever the name leads: the operator wrote it down.
    pub(super) named: bool,
    /// Every public address.
    pub(super) public: bool,
    /// And those in here.
    pub(super) ranges: Vec<AddressRange>,
    /// But never those in here.
    pub(super) except: Vec<AddressRange>,
}

/// What a [`NetworkReach`] says of one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReachVerdict {
    Yes,
    /// A grant would open it.
    No,
    /// The operator closed it for all scripts.
    Never,
}

impl NetworkReach {
    /// To every address there is: for what the operator set up.
    pub fn anywhere() -> Self {
        Self { named: true, ..Self::default() }
    }

    pub fn check_address(&self, ip: IpAddr) -> ReachVerdict {
        if self.except.iter().any(|range| range.contains(ip) || range.contains_embedded(ip)) {
            return ReachVerdict::Never;
        }
        let open = self.named
            || (self.public && is_public_address(ip))
            || self.ranges.iter().any(|range| range.contains(ip));
        if open { ReachVerdict::Yes } else { ReachVerdict::No }
    }

    /// Whether it holds for a name that somebody else looks up, such as a proxy. What
    /// holds only for certain addresses does not.
    pub fn allows_unresolved_name(&self) -> bool {
        self.named || self.public
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a place is read as, or why it is none.
    fn check(text: &str, expected: &str) {
        let read = match text.parse::<NetworkTarget>() {
            Ok(NetworkTarget { whom, port }) => {
                let whom = match whom {
                    TargetHost::Host(host) => host,
                    TargetHost::Pattern(pattern) => format!("~{pattern}"),
                    TargetHost::Range(AddressRange { first, bits }) => format!("{first}+{bits}"),
                };
                port.map_or_else(|| whom.clone(), |port| format!("{whom} {port}"))
            }
            Err(why) => format!("! {why}"),
        };
        assert!(read.starts_with(expected), "{text}: {read}");
    }

    #[test]
    fn a_place_is_a_name_a_pattern_an_address_or_a_range() {
        check("API.example.com.", "api.example.com");
        check("bücher.example:8443", "xn--bcher-kva.example 8443");
        check("*.Example.com:443", "~*.example.com 443");
        check("127.0.0.1:80", "127.0.0.1 80");
        check("0x7f.1", "127.0.0.1");
        check("::1", "::1");
        check("[0:0:0:0:0:0:0:1]:80", "::1 80");
        check("10.0.0.0/8", "10.0.0.0+8");
        check("10.0.0.0/8:443", "10.0.0.0+8 443");
        check("[fd00::]/8", "fd00::+8");
        check("[fd00::]/8:443", "fd00::+8 443");
        check("fd00::/8", "fd00::+8");
        check("/run/PG/", "/run/PG");
        check("my_host", "my_host");
    }

    #[test]
    fn what_is_no_place_says_why() {
        check("a:b", "! the port is not a number");
        check("a:0", "! no server has port 0");
        check("a:70000", "! the port is not a number");
        check("[::1", "! the [ is not closed");
        check("[::1]80", "! a port follows after a colon");
        check("a b", "! that is no name of a host");
        check("example.com/8", "! only an address can be followed");
        check("10.0.0.0/33", "! the number after / is too large");
        check("10.0.0.0/x", "! the number after / is too large");
        check("10.0.0.5/8", "! its address has bits");
        check("0.0.0.0/0", "! it holds every address");
        check("::/0", "! it holds every address");
    }

    #[test]
    fn a_range_holds_what_begins_like_it() {
        for (range, ip, expected) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.0", false),
            ("10.0.0.0/8", "::ffff:10.1.2.3", true),
            ("10.0.0.0/8", "::a00:1", false),
            ("10.0.0.1/32", "10.0.0.1", true),
            ("10.0.0.1/32", "10.0.0.2", false),
            ("fd00::/8", "fdff::1", true),
            ("fd00::/8", "fe80::1", false),
            ("::1/128", "::1", true),
            ("128.0.0.0/1", "255.0.0.1", true),
            ("128.0.0.0/1", "127.0.0.1", false),
        ] {
            let net: NetworkTarget = range.parse().unwrap();
            let range = net.address_range(80).unwrap();
            assert_eq!(range.contains(ip.parse().unwrap()), expected, "{range:?} {ip}");
        }
    }

    #[test]
    fn what_is_closed_is_closed_on_every_way_to_it() {
        let net: NetworkTarget = "93.184.215.0/24".parse().unwrap();
        let reach = NetworkReach {
            public: true,
            except: vec![net.address_range(80).unwrap()],
            ..NetworkReach::default()
        };
        for (ip, expected) in [
            ("93.184.215.14", ReachVerdict::Never),
            ("::ffff:93.184.215.14", ReachVerdict::Never),
            ("64:ff9b::5db8:d70e", ReachVerdict::Never),
            ("2002:5db8:d70e::1", ReachVerdict::Never),
            ("93.184.216.14", ReachVerdict::Yes),
            ("127.0.0.1", ReachVerdict::No),
        ] {
            assert_eq!(reach.check_address(ip.parse().unwrap()), expected, "{ip}");
        }
    }
}
