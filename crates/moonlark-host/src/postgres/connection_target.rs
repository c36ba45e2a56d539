//! Connection strings, parsed and checked against the grants.
//!
//! It holds a password, so nothing here repeats any part of it that could be
//! one, and nothing that holds it can be printed.

use moonlark_core::grant::AllowedServer;
use moonlark_core::secret::{SecretValue, Secrets};
use moonlark_core::{Problem, Result};
use moonlark_gateway::Call;
use sha2::{Digest, Sha256};
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, SslNegotiation, TargetSessionAttrs};

/// Where to connect to, and as whom.
pub(super) struct PostgresTarget {
    /// Tried in this order.
    pub(super) servers: Vec<AllowedServer>,
    /// Who, which database, what settings; the servers are not in it.
    pub(super) config: Config,
    pub(super) tls: PostgresTlsMode,
    /// For messages from elsewhere, which might repeat the password.
    pub(super) secrets: Secrets,
    /// The same for the same connection string within the same reach.
    pub(super) key: PostgresPoolKey,
}

pub(super) type PostgresPoolKey = [u8; 32];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PostgresTlsMode {
    Never,
    /// If the server offers it, whoever it says it is: it could as well offer
    /// none.
    IfOffered,
    /// And the server has to prove its name.
    Always,
}

/// The longest connection string that makes sense.
const MAX_CONNECTION_STRING_BYTES: usize = 4096;

impl PostgresTarget {
    pub(super) fn from_connection_string(
        call: &Call,
        what: &str,
        text: &str,
    ) -> Result<PostgresTarget> {
        let given = parse_connection_string(text)?;
        let hosts = hosts_and_ports(&given)?;
        let servers = hosts
            .into_iter()
            .map(|(host, port)| call.grants().check_server(what, &host, port))
            .collect::<Result<Vec<_>>>()?;
        let mut config = Config::new();
        // What is encrypted, and how, is decided in `socket`.
        config.ssl_mode(SslMode::Disable);
        config.application_name(given.get_application_name().unwrap_or("moonlark"));
        if let Some(user) = given.get_user() {
            config.user(user);
        }
        if let Some(password) = given.get_password() {
            config.password(password);
        }
        if let Some(name) = given.get_dbname() {
            config.dbname(name);
        }
        if let Some(options) = given.get_options() {
            config.options(options);
        }
        let tls = match given.get_ssl_mode() {
            SslMode::Disable => PostgresTlsMode::Never,
            SslMode::Require => PostgresTlsMode::Always,
            _ => PostgresTlsMode::IfOffered,
        };
        let password = given.get_password().map(String::from_utf8_lossy).map(|password| {
            SecretValue { key: "password".to_owned(), value: password.into_owned(), by_name: true }
        });
        let secrets = Secrets::new(password.into_iter().collect());
        // Whoever may go less far does not get a connection that others opened.
        let reach: Vec<_> = servers.iter().map(AllowedServer::reach).collect();
        let key = Sha256::new().chain_update(format!("{reach:?}\n")).chain_update(text).finalize();
        Ok(PostgresTarget { servers, config, tls, secrets, key: key.into() })
    }

    /// The server as a reader knows it.
    pub(super) fn display_servers(&self) -> String {
        self.servers.iter().map(display_server).collect::<Vec<_>>().join(" or ")
    }
}

pub(super) fn display_server(server: &AllowedServer) -> String {
    match server.host() {
        dir if dir.starts_with('/') => format!("{dir}/.s.PGSQL.{}", server.port()),
        v6 if v6.contains(':') => format!("[{v6}]:{}", server.port()),
        host => format!("{host}:{}", server.port()),
    }
}

fn parse_connection_string(text: &str) -> Result<Config> {
    // The parser's own errors repeat parts of the text.
    let bad = || {
        Problem::bad_request("this is not a valid connection string").with_hint(
            "write postgres://user:password@host:5432/database, with special characters in the password percent-encoded, or host=… user=… password=… dbname=…",
        )
    };
    let is_url = text.starts_with("postgres://") || text.starts_with("postgresql://");
    // A second @ is part of a password, and what follows it would pass as a
    // host.
    if text.len() > MAX_CONNECTION_STRING_BYTES
        || text.contains('\0')
        || (is_url && text.matches('@').count() > 1)
    {
        return Err(bad());
    }
    // We never encrypt without looking at the certificate when asked to encrypt.
    let text = text
        .replace("sslmode=verify-full", "sslmode=require")
        .replace("sslmode=verify-ca", "sslmode=require");
    text.parse().map_err(|_| bad())
}

fn hosts_and_ports(config: &Config) -> Result<Vec<(String, u16)>> {
    let unsupported = |option: &str| {
        Problem::bad_request(format!("{option} in a connection string is not supported"))
    };
    // It would be connected to in place of the host.
    if !config.get_hostaddrs().is_empty() {
        return Err(unsupported("hostaddr"));
    }
    if config.get_target_session_attrs() != TargetSessionAttrs::Any {
        return Err(unsupported("target_session_attrs"));
    }
    if config.get_ssl_negotiation() != SslNegotiation::Postgres {
        return Err(unsupported("sslnegotiation"));
    }
    let (hosts, ports) = (config.get_hosts(), config.get_ports());
    if hosts.is_empty() {
        return Err(Problem::bad_request("the connection string names no host"));
    }
    if ports.len() > 1 && ports.len() != hosts.len() {
        return Err(Problem::bad_request(
            "the connection string has hosts and ports that differ in number",
        ));
    }
    let port = |index: usize| match ports {
        [] => 5432,
        [one] => *one,
        several => several[index],
    };
    hosts
        .iter()
        .enumerate()
        .map(|(index, host)| Ok((check_host_name(host)?, port(index))))
        .collect()
}

fn check_host_name(host: &Host) -> Result<String> {
    let name = match host {
        Host::Tcp(name) => name.clone(),
        Host::Unix(dir) => match dir.to_str() {
            Some(dir) if !dir.contains("..") => return Ok(dir.to_owned()),
            _ => String::new(),
        },
    };
    let fine = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    if name.is_empty() || !name.chars().all(fine) {
        // Not repeated: it may be the rest of a password.
        return Err(Problem::bad_request("the host in the connection string is not one")
            .with_hint("percent-encode special characters in the user name and the password"));
    }
    Ok(name)
}
