//! The upstream servers of a project: started, changed and stopped as the
//! configuration says, and only those it changes.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use moonlark_child::spawn_to_finish;
use moonlark_core::catalog::ConnectingSource;
use moonlark_core::limits::CallLimits;
use moonlark_core::secret::{SecretText, SecretValue, Secrets};
use moonlark_core::source_resources::{SourceHealth, SourceResources, SourceState};
use moonlark_core::tool::CallScope;
use moonlark_core::{Problem, Result, SourceLocation, Tool};
use moonlark_gateway::Gateway;
use moonlark_mcp_client::{
    ClosePace, McpConnectionLimits, McpTransportConfig, PinDifference, Upstream, UpstreamSettings,
    UpstreamTarget,
};
use moonlark_oauth::{BearerTokenSource, UpstreamAccount, UpstreamAuthConfig};
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use url::Url;

use moonlark_config::config_file::LoadedConfig;
use moonlark_config::{
    ConfigSecret, McpHttpTransport, McpServerConfig, RedactedString, tool_configs,
};

/// How long all servers together may take to end when nobody waits for them.
const QUICK_STOP_TIMEOUT: Duration = Duration::from_millis(700);

#[derive(Default)]
pub(crate) struct UpstreamServers {
    running: Mutex<BTreeMap<String, RunningUpstream>>,
    changed: Arc<Notify>,
    connected: AtomicBool,
    starting: Mutex<UpstreamStartPermits>,
}

/// How many servers may start at once, and who may now.
struct UpstreamStartPermits {
    most: usize,
    permits: Arc<Semaphore>,
}

impl Default for UpstreamStartPermits {
    fn default() -> Self {
        Self { most: 0, permits: Arc::new(Semaphore::new(0)) }
    }
}

impl UpstreamStartPermits {
    /// Those that hold for servers which are started from now on.
    fn permits_for(&mut self, most: usize) -> Arc<Semaphore> {
        if self.most != most {
            (self.most, self.permits) = (most, Arc::new(Semaphore::new(most)));
        }
        self.permits.clone()
    }
}

struct RunningUpstream {
    config: McpServerConfig,
    limits: CallLimits,
    /// Or what is wrong with its configuration.
    upstream: Result<Upstream, Vec<Problem>>,
}

/// What the servers of a project, or its APIs, have for the catalog.
#[derive(Default)]
pub(crate) struct SourceOfferings {
    pub(crate) tools: Vec<Arc<Tool>>,
    pub(crate) offers: Vec<Arc<SourceResources>>,
    pub(crate) connecting: Vec<ConnectingSource>,
    pub(crate) health: Vec<SourceHealth>,
    pub(crate) problems: Vec<Problem>,
}

impl UpstreamServers {
    /// Whether they were asked for. Most commands do not need them.
    pub(crate) fn is_connected(&self) -> bool {
        self.connected.load(Ordering::Relaxed)
    }

    /// Told whenever one of them has something new for the catalog.
    pub(crate) fn changed(&self) -> Arc<Notify> {
        self.changed.clone()
    }

    /// Start what is new, stop what is gone, and start anew what changed.
    pub(crate) fn apply_config(&self, loaded: &LoadedConfig, gateway: &Gateway) {
        self.connected.store(true, Ordering::Relaxed);
        let mut running = self.running.lock();
        let mut old = std::mem::take(&mut *running);
        let start_permits =
            self.starting.lock().permits_for(loaded.config.limits.starting as usize);
        for (name, config) in &loaded.config.mcp_servers {
            let limits = loaded.config.limits.for_tool(name, config.timeout);
            let kept = old
                .remove(name)
                .filter(|running| running.config == *config && running.limits == limits);
            let next = kept.unwrap_or_else(|| {
                let upstream = usable_settings(name, config, &limits, loaded).map(|settings| {
                    let settings =
                        UpstreamSettings { start_permits: start_permits.clone(), ..settings };
                    let changed = self.changed.clone();
                    let tell = Arc::new(move || changed.notify_one());
                    Upstream::start(settings, gateway.clone(), tell)
                });
                for problem in upstream.as_ref().err().into_iter().flatten() {
                    tracing::warn!(target: "upstream", "{problem}");
                }
                RunningUpstream { config: config.clone(), limits, upstream }
            });
            running.insert(name.clone(), next);
        }
        drop(running);
        for upstream in old.into_values().filter_map(|gone| gone.upstream.ok()) {
            spawn_to_finish(upstream.stop(ClosePace::Gentle));
        }
    }

    pub(crate) fn current_offerings(&self) -> SourceOfferings {
        let mut offered = SourceOfferings::default();
        for (name, RunningUpstream { upstream, .. }) in self.running.lock().iter() {
            let upstream = match upstream {
                Ok(upstream) => upstream,
                Err(problems) => {
                    offered.health.push(SourceHealth {
                        source: name.clone(),
                        state: SourceState::Failed,
                        problem: problems.first().cloned(),
                        ..SourceHealth::default()
                    });
                    offered.problems.extend(problems.iter().cloned());
                    continue;
                }
            };
            offered.tools.extend(upstream.tools());
            offered.offers.extend(upstream.offers());
            offered.connecting.extend(upstream.connecting_status());
            offered.health.push(upstream.health());
            offered.problems.extend(upstream.problems());
        }
        offered
    }

    /// Wait until each has been tried once.
    pub(crate) async fn wait_until_tried(&self) {
        let all: Vec<_> = (self.running.lock().values())
            .filter_map(|running| running.upstream.as_ref().ok())
            .map(Upstream::wait_first_attempt)
            .collect();
        futures::future::join_all(all).await;
    }

    /// Clients wait no longer for those that have not connected yet.
    pub(crate) fn stop_waiting_for_start(&self) {
        let running = self.running.lock();
        for upstream in running.values().filter_map(|it| it.upstream.as_ref().ok()) {
            upstream.stop_waiting_for_start();
        }
    }

    /// How the tools of one differ from what was approved; approve them if so
    /// asked. None if there is no such server.
    pub(crate) fn check_pinned_tools(
        &self,
        name: &str,
        approve: bool,
    ) -> Option<Result<Vec<PinDifference>>> {
        let running = self.running.lock();
        let upstream = match &running.get(name)?.upstream {
            Ok(upstream) => upstream,
            Err(problems) => return problems.first().map(|problem| Err(problem.clone())),
        };
        Some(upstream.pin_differences().and_then(|differences| {
            if approve {
                upstream.approve_tools()?;
            }
            Ok(differences)
        }))
    }

    pub(crate) async fn stop_all(&self, pace: ClosePace) {
        let all = std::mem::take(&mut *self.running.lock());
        let all = all.into_values().filter_map(|running| running.upstream.ok());
        let stopped = futures::future::join_all(all.map(|upstream| upstream.stop(pace)));
        match pace {
            ClosePace::Gentle => drop(stopped.await),
            // What hangs on is dropped, and ends with that.
            ClosePace::Quick => drop(tokio::time::timeout(QUICK_STOP_TIMEOUT, stopped).await),
        }
    }
}

/// Where it is kept what a server offers, for the next time.
pub(crate) fn upstream_listing_file(loaded: &LoadedConfig, server: &str) -> std::path::PathBuf {
    moonlark_mcp_client::listing_file_path(&loaded.state, server)
}

/// The settings of a server that has all it needs.
fn usable_settings(
    name: &str,
    config: &McpServerConfig,
    limits: &CallLimits,
    loaded: &LoadedConfig,
) -> Result<UpstreamSettings, Vec<Problem>> {
    if !config.outage.is_empty() {
        return Err(config.outage.clone());
    }
    upstream_settings(name, config, limits.clone(), loaded).map_err(|problem| vec![problem])
}

/// The address of a server, if it has one. That it can be read was checked with the file,
/// where it is in the file: what cannot is never taken for a command.
pub(crate) fn upstream_url(name: &str, config: &McpServerConfig) -> Result<Option<Url>> {
    let url = config.url.as_deref().map(Url::parse).transpose();
    url.map_err(|error| {
        Problem::bad_config(format!("the address of {name} cannot be read: {error}"))
            .at_location(SourceLocation::in_file(format!("mcp_servers.{name}.url")))
            .with_hint("write it as https://host/path")
    })
}

/// What the configuration means for the one that connects.
fn upstream_settings(
    name: &str,
    config: &McpServerConfig,
    limits: CallLimits,
    loaded: &LoadedConfig,
) -> Result<UpstreamSettings> {
    let root = &loaded.root;
    let hidden = |of: &BTreeMap<String, RedactedString>| -> BTreeMap<String, SecretText> {
        of.iter().map(|(key, value)| (key.clone(), SecretText::new(value.0.clone()))).collect()
    };
    let url = upstream_url(name, config)?;
    let transport = match (&config.command, url.clone()) {
        (Some(command), _) => McpTransportConfig::Stdio {
            command: command.clone(),
            args: config.args.clone(),
            env: hidden(&config.env),
            cwd: config.cwd.as_ref().map_or_else(|| root.clone(), |cwd| root.join(cwd)),
        },
        (None, Some(url)) => {
            let headers = hidden(&config.headers);
            match config.transport.unwrap_or_default() {
                McpHttpTransport::StreamableHttp => McpTransportConfig::Http { url, headers },
                McpHttpTransport::Sse => McpTransportConfig::Sse { url, headers },
            }
        }
        (None, None) => {
            return Err(Problem::bad_config(format!("{name} has neither command nor url"))
                .at_location(SourceLocation::in_file(format!("mcp_servers.{name}"))));
        }
    };
    let connect = config.connect_timeout.to_duration();
    let secrets = config.secrets.iter().map(ConfigSecret::to_secret_value);
    let login = login_secret(&config.auth).map(|(key, text)| SecretValue {
        key: key.to_owned(),
        value: text.expose_secret().to_owned(),
        by_name: true,
    });
    let secrets = secrets.chain(login).collect();
    let secrets = match &config.auth {
        // There will be tokens.
        UpstreamAuthConfig::OAuth(_) | UpstreamAuthConfig::Bearer(BearerTokenSource::File(_)) => {
            Secrets::with_learning(secrets)
        }
        UpstreamAuthConfig::Bearer(BearerTokenSource::Token(_)) | UpstreamAuthConfig::None => {
            Secrets::new(secrets)
        }
    };
    let scope =
        CallScope { secrets: secrets.clone(), limits: limits.clone(), ..CallScope::default() };
    Ok(UpstreamSettings {
        target: UpstreamTarget {
            name: name.to_owned(),
            transport,
            limits: McpConnectionLimits { message: limits.value, connect },
        },
        auth: url.map(|url| {
            moonlark_oauth::build_authorizer(upstream_account(name, config, url, loaded), secrets)
        }),
        scope: Arc::new(scope),
        expose: config.expose,
        prefix: config.prefix.clone(),
        lazy: config.lazy,
        idle_stop: config.idle_stop.map(|seconds| seconds.to_duration()),
        pin: config.pin,
        // That they can be read was checked with the file.
        include: config.include.iter().filter_map(|it| it.parse().ok()).collect(),
        exclude: config.exclude.iter().filter_map(|it| it.parse().ok()).collect(),
        tools: tool_configs(&config.tools),
        start_permits: Arc::new(Semaphore::new(1)),
        roots: root_uris(config, root),
        state: loaded.state.clone(),
    })
}

/// The secret that the configuration has for a login, and its key.
fn login_secret(auth: &UpstreamAuthConfig) -> Option<(&'static str, &SecretText)> {
    match auth {
        UpstreamAuthConfig::Bearer(BearerTokenSource::Token(token)) => Some(("auth.token", token)),
        UpstreamAuthConfig::OAuth(oauth) => {
            Some(("auth.client_secret", oauth.client_secret.as_ref()?))
        }
        UpstreamAuthConfig::Bearer(BearerTokenSource::File(_)) | UpstreamAuthConfig::None => None,
    }
}

/// An upstream as far as logging in goes.
pub(crate) fn upstream_account(
    name: &str,
    config: &McpServerConfig,
    url: Url,
    loaded: &LoadedConfig,
) -> UpstreamAccount {
    UpstreamAccount::new(name, url, config.auth.clone(), loaded.state.clone(), loaded.root.clone())
}

fn root_uris(config: &McpServerConfig, root: &Path) -> Vec<String> {
    let uri = |folder: &String| {
        let folder = root.join(folder);
        let folder = folder.canonicalize().unwrap_or(folder);
        Url::from_directory_path(folder).ok().map(String::from)
    };
    config.roots.iter().filter_map(uri).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_cannot_be_read_is_a_problem_and_no_command() {
        let loaded = moonlark_config::config_file::load_config(
            None,
            tempfile::tempdir().unwrap().path(),
            &|_| None,
        );
        let loaded = loaded.unwrap();
        let config = McpServerConfig { url: Some("exam ple".into()), ..McpServerConfig::default() };
        let settings = usable_settings("docs", &config, &CallLimits::default(), &loaded);
        assert_eq!(
            settings.err().unwrap()[0].to_string(),
            "error[bad_config]: the address of docs cannot be read: relative URL without a base\n  \
             --> mcp_servers.docs.url\nhint: write it as https://host/path"
        );
        let config = McpServerConfig::default();
        let settings = usable_settings("docs", &config, &CallLimits::default(), &loaded);
        assert_eq!(
            settings.err().unwrap()[0].to_string(),
            "error[bad_config]: docs has neither command nor url\n  --> mcp_servers.docs"
        );
    }
}
