//! The process's clients, and where each may connect to.
//!
//! There is one for each reach in use, so that a connection that one script's grants
//! opened is never another's. Behind a proxy it is the proxy that looks names up, and
//! whoever runs it decides; what is granted only by address is then not granted.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use hyper_util::client::proxy::matcher::Matcher;
use moonlark_core::Result;
use moonlark_core::grant::{AllowedUrl, GrantSet, NetworkReach};
use moonlark_http::build_http_client;
use parking_lot::Mutex;
use reqwest::Client;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

use crate::dns_lookup::{NoAddressError, lookup_reachable};

static CLIENTS_BY_REACH: LazyLock<Mutex<HashMap<NetworkReach, Client>>> =
    LazyLock::new(Mutex::default);
/// Each configuration has few; this is for many changes of it.
const MAX_HTTP_CLIENTS: usize = 64;

/// The client that may go as far as `allowed` does.
pub(super) async fn client_for_reach(
    grants: &GrantSet,
    what: &str,
    allowed: &AllowedUrl,
) -> Result<Client> {
    let (url, reach) = (allowed.url(), allowed.reach());
    if let Some(Host::Domain(host)) = url.host() {
        if is_proxied(url) && !reach.allows_unresolved_name() {
            return Err(grants.network_denied_problem(what, host, url.port()));
        }
        // Names of proxies pass every resolver, so that a proxy in the private
        // network works. A script that asks for one by its name gets no further than
        // with any other.
        if PROXY_HOSTS.contains(host) {
            let port = url.port_or_known_default().unwrap_or(0);
            match lookup_reachable(host, port, reach).await {
                Err(NoAddressError::Denied) => {
                    return Err(grants.network_denied_problem(what, host, url.port()));
                }
                Err(NoAddressError::Closed) => {
                    return Err(grants.network_closed_problem(what, host));
                }
                Ok(_) | Err(NoAddressError::Unknown(_)) => {}
            }
        }
    }
    let mut clients = CLIENTS_BY_REACH.lock();
    if let Some(client) = clients.get(reach) {
        return Ok(client.clone());
    }
    if clients.len() >= MAX_HTTP_CLIENTS {
        clients.clear();
    }
    let resolver = || ReachResolver(reach.clone());
    let client = build_http_client(|builder| builder.dns_resolver(resolver()))?;
    clients.insert(reach.clone(), client.clone());
    Ok(client)
}

/// From a name to the addresses that may be reached.
#[derive(Debug)]
pub(super) struct ReachResolver(pub(super) NetworkReach);

impl Resolve for ReachResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let reach = if PROXY_HOSTS.contains(name.as_str()) {
            NetworkReach::anywhere()
        } else {
            self.0.clone()
        };
        Box::pin(async move {
            let addresses = lookup_reachable(name.as_str(), 0, &reach).await?;
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

/// Hosts of the proxies that the environment names.
static PROXY_HOSTS: LazyLock<HashSet<String>> = LazyLock::new(|| {
    ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"]
        .iter()
        .filter_map(|name| parse_proxy_host(&std::env::var(name).ok()?))
        .collect()
});

/// Which requests the client library sends to a proxy: it asks the same.
static PROXY_MATCHER: LazyLock<Matcher> = LazyLock::new(Matcher::from_system);

fn is_proxied(url: &Url) -> bool {
    url.as_str().parse().is_ok_and(|uri| PROXY_MATCHER.intercept(&uri).is_some())
}

/// Whether requests may go through a proxy.
pub(super) fn is_proxy_configured() -> bool {
    !PROXY_HOSTS.is_empty()
}

fn parse_proxy_host(setting: &str) -> Option<String> {
    let whole =
        if setting.contains("://") { setting.to_owned() } else { format!("http://{setting}") };
    Some(Url::parse(&whole).ok()?.host_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_known_however_it_is_written() {
        for setting in [
            "http://me:pw@Proxy.corp:3128",
            "proxy.corp:3128",
            "proxy.corp",
            "socks5h://proxy.corp:1",
        ] {
            assert_eq!(
                parse_proxy_host(setting).unwrap().to_ascii_lowercase(),
                "proxy.corp",
                "{setting}"
            );
        }
        assert_eq!(parse_proxy_host(""), None);
    }
}
