//! DNS lookup: from a name to the addresses that a script may be connected to.
//!
//! DNS is asked once for a connection, and the connection goes to an address that
//! was checked: a name that leads elsewhere a moment later gains nothing by it.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use moonlark_core::grant::{NetworkReach, ReachVerdict};

/// Why a name gives nowhere to connect to. It travels as the source of a client's
/// own error.
#[derive(Debug)]
pub(crate) enum NoAddressError {
    /// It leads to nothing that is granted.
    Denied,
    /// It leads to what the operator closed for all scripts.
    Closed,
    Unknown(io::Error),
}

/// The addresses of `host` within `reach`. Those beyond it are dropped from a mixed
/// answer.
pub(crate) async fn lookup_reachable(
    host: &str,
    port: u16,
    reach: &NetworkReach,
) -> Result<Vec<SocketAddr>, NoAddressError> {
    let all = tokio::net::lookup_host((host, port)).await.map_err(NoAddressError::Unknown)?;
    keep_reachable(all.collect(), reach)
}

fn keep_reachable(
    all: Vec<SocketAddr>,
    reach: &NetworkReach,
) -> Result<Vec<SocketAddr>, NoAddressError> {
    let is = |within: ReachVerdict| {
        move |address: &&SocketAddr| reach.check_address(address.ip()) == within
    };
    let kept: Vec<SocketAddr> = all.iter().filter(is(ReachVerdict::Yes)).copied().collect();
    if !kept.is_empty() {
        return Ok(kept);
    }
    Err(if all.iter().any(|it| is(ReachVerdict::Never)(&it)) {
        NoAddressError::Closed
    } else if all.is_empty() {
        NoAddressError::Unknown(io::ErrorKind::NotFound.into())
    } else {
        NoAddressError::Denied
    })
}

impl fmt::Display for NoAddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoAddressError::Denied => f.write_str("the name leads to no address that is granted"),
            NoAddressError::Closed => f.write_str("the name leads to an address that is closed"),
            NoAddressError::Unknown(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for NoAddressError {}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use moonlark_core::grant::{GrantSet, NetworkPolicy};

    use super::*;

    /// How far a script with these grants gets at `url`.
    fn reach(grants: &[&str], deny: &[&str], url: &str) -> NetworkReach {
        let grants = grants.iter().map(|grant| grant.parse().unwrap()).collect();
        let deny = deny.iter().map(|net| net.parse().unwrap()).collect();
        let grants = GrantSet::for_authored_script("t", PathBuf::from("."), grants);
        let grants = grants.with_network_policy(&NetworkPolicy { public: true, deny });
        grants.check_url("http.get", &url.parse().unwrap()).unwrap().reach().clone()
    }

    #[tokio::test]
    async fn a_name_of_this_machine_is_found_only_by_grant() {
        let public = reach(&[], &[], "http://example.com/");
        assert!(matches!(
            lookup_reachable("localhost", 80, &public).await,
            Err(NoAddressError::Denied)
        ));
        let named = reach(&["net:localhost"], &[], "http://localhost/");
        let named = lookup_reachable("localhost", 80, &named).await.unwrap();
        assert!(named.iter().all(|address| address.ip().is_loopback() && address.port() == 80));
    }

    #[test]
    fn addresses_beyond_the_grants_are_dropped_from_a_mixed_answer() {
        let all: Vec<SocketAddr> =
            ["10.0.0.1:0", "93.184.215.14:0", "[::1]:0", "169.254.169.254:0"]
                .iter()
                .map(|text| text.parse().unwrap())
                .collect();
        let check = |grants: &[&str], deny: &[&str], expected: &[usize]| {
            let expected: Vec<SocketAddr> = expected.iter().map(|index| all[*index]).collect();
            let reach = reach(grants, deny, "http://a.example/");
            assert_eq!(
                keep_reachable(all.clone(), &reach).unwrap_or_default(),
                expected,
                "{grants:?}"
            );
        };
        check(&[], &[], &[1]);
        check(&["net:*.example"], &[], &[1]);
        check(&["net:10.0.0.0/8"], &[], &[0, 1]);
        check(&["net:a.example"], &[], &[0, 1, 2, 3]);
        check(&["net:a.example"], &["10.0.0.0/8", "::1", "169.254.0.0/16"], &[1]);
        check(&["net:10.0.0.0/8"], &["93.184.215.14", "10.0.0.0/30"], &[]);
        let public = reach(&[], &[], "http://a.example/");
        assert!(matches!(keep_reachable(Vec::new(), &public), Err(NoAddressError::Unknown(_))));
        assert!(matches!(keep_reachable(all[..1].to_vec(), &public), Err(NoAddressError::Denied)));
        let closed = reach(&["net:a.example"], &["10.0.0.0/8"], "http://a.example/");
        assert!(matches!(keep_reachable(all[..1].to_vec(), &closed), Err(NoAddressError::Closed)));
    }
}
