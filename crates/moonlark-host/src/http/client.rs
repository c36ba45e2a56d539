//! The process's two clients, and where each may connect to.
//!
//! Both share everything but their way from names to addresses: one goes where
//! the operator's grant names the host, whatever its address; the other only to
//! public addresses. Behind a proxy it is the proxy that looks names up, and
//! whoever runs it decides.

use std::collections::HashSet;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::LazyLock;

use moonlark_core::grant::{AllowedUrl, Grants, Reach, is_public};
use moonlark_core::{Problem, Result};
use reqwest::Client;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

static PUBLIC: LazyLock<Result<Client>> = LazyLock::new(|| build(Reach::Public));
static NAMED: LazyLock<Result<Client>> = LazyLock::new(|| build(Reach::Named));

/// The client that may go as far as `allowed` does.
pub(super) async fn reaching(
    grants: &Grants,
    what: &str,
    allowed: &AllowedUrl,
) -> Result<&'static Client> {
    if allowed.reach() == Reach::Named {
        return NAMED.as_ref().map_err(Clone::clone);
    }
    // Names of proxies pass the resolver of the public client, so that a proxy
    // in the private network works. A script that asks for one by its name gets
    // no further than with any other.
    if let Some(Host::Domain(host)) = allowed.url().host()
        && PROXIES.contains(host)
        && matches!(lookup(host, Reach::Public).await, Err(NoAddress::NotPublic))
    {
        return Err(grants.net_denied(what, host, allowed.url().port()));
    }
    PUBLIC.as_ref().map_err(Clone::clone)
}

fn build(reach: Reach) -> Result<Client> {
    // Fails only when another part of the process was first, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = || {
        Client::builder()
            .user_agent(concat!("moonlark/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .dns_resolver(Resolver(reach))
    };
    // Without any root certificate on the system there is no trusted https, but
    // http must go on working.
    builder().build().or_else(|_| builder().tls_certs_only([]).build()).map_err(|error| {
        Problem::unavailable(format!("web requests cannot be made: {}", error.without_url()))
    })
}

/// From a name to the addresses that may be reached.
#[derive(Debug)]
pub(super) struct Resolver(pub(super) Reach);

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let reach = if PROXIES.contains(name.as_str()) { Reach::Named } else { self.0 };
        Box::pin(async move {
            let addresses = lookup(name.as_str(), reach).await?;
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

pub(super) async fn lookup(host: &str, reach: Reach) -> Result<Vec<SocketAddr>, NoAddress> {
    let all = tokio::net::lookup_host((host, 0)).await.map_err(NoAddress::Unknown)?;
    keep(all.collect(), reach)
}

fn keep(all: Vec<SocketAddr>, reach: Reach) -> Result<Vec<SocketAddr>, NoAddress> {
    let found = !all.is_empty();
    let kept: Vec<SocketAddr> = all
        .into_iter()
        .filter(|address| reach == Reach::Named || is_public(address.ip()))
        .collect();
    match kept.is_empty() {
        false => Ok(kept),
        true if found => Err(NoAddress::NotPublic),
        true => Err(NoAddress::Unknown(io::ErrorKind::NotFound.into())),
    }
}

/// Why a name gives nowhere to connect to. It travels as the source of the
/// client's own error.
#[derive(Debug)]
pub(super) enum NoAddress {
    NotPublic,
    Unknown(io::Error),
}

impl fmt::Display for NoAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoAddress::NotPublic => f.write_str("the name leads to no public address"),
            NoAddress::Unknown(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for NoAddress {}

/// Hosts of the proxies that the environment names.
static PROXIES: LazyLock<HashSet<String>> = LazyLock::new(|| {
    ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"]
        .iter()
        .filter_map(|name| proxy_host(&std::env::var(name).ok()?))
        .collect()
});

/// Whether requests may go through a proxy.
pub(super) fn proxied() -> bool {
    !PROXIES.is_empty()
}

fn proxy_host(setting: &str) -> Option<String> {
    let whole =
        if setting.contains("://") { setting.to_owned() } else { format!("http://{setting}") };
    Some(Url::parse(&whole).ok()?.host_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_name_of_this_machine_is_found_only_by_grant() {
        assert!(matches!(lookup("localhost", Reach::Public).await, Err(NoAddress::NotPublic)));
        let named = lookup("localhost", Reach::Named).await.unwrap();
        assert!(named.iter().all(|address| address.ip().is_loopback()));
    }

    #[test]
    fn private_addresses_are_dropped_from_a_mixed_answer() {
        let all: Vec<SocketAddr> =
            ["10.0.0.1:0", "93.184.215.14:0", "[::1]:0", "169.254.169.254:0"]
                .iter()
                .map(|text| text.parse().unwrap())
                .collect();
        assert_eq!(keep(all.clone(), Reach::Public).unwrap(), ["93.184.215.14:0".parse().unwrap()]);
        assert_eq!(keep(all.clone(), Reach::Named).unwrap(), all);
        assert!(matches!(keep(Vec::new(), Reach::Public), Err(NoAddress::Unknown(_))));
    }

    #[test]
    fn a_proxy_is_known_however_it_is_written() {
        for setting in [
            "http://me:pw@Proxy.corp:3128",
            "proxy.corp:3128",
            "proxy.corp",
            "socks5h://proxy.corp:1",
        ] {
            assert_eq!(
                proxy_host(setting).unwrap().to_ascii_lowercase(),
                "proxy.corp",
                "{setting}"
            );
        }
        assert_eq!(proxy_host(""), None);
    }
}
