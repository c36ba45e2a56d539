//! The upstream servers of a project: started, changed and stopped as the
//! configuration says, and only those it changes.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use moonlark_core::catalog::Connecting;
use moonlark_core::limits::Limits;
use moonlark_core::offers::{Health, Offers};
use moonlark_core::secret::{Secret, Secrets};
use moonlark_core::tool::Scope;
use moonlark_core::{Gateway, Problem, Result, Tool};
use moonlark_upstream::auth::{self, Account, Auth, Bearer};
use moonlark_upstream::mcp::{Difference, LinkLimits, SecretText, Settings, Target, Upstream, Way};
use parking_lot::Mutex;
use tokio::sync::Notify;
use url::Url;

use crate::config::{Hidden, McpServer, Transport};
use crate::config_file::Loaded;

/// Where Moonlark keeps what it must remember, beside the configuration.
const STATE: &str = ".moonlark";

#[derive(Default)]
pub(crate) struct Upstreams {
    running: Mutex<BTreeMap<String, Running>>,
    changed: Arc<Notify>,
    connected: AtomicBool,
}

struct Running {
    config: McpServer,
    limits: Limits,
    upstream: Upstream,
}

/// What all of them have for the catalog.
#[derive(Default)]
pub(crate) struct Offered {
    pub(crate) tools: Vec<Arc<Tool>>,
    pub(crate) offers: Vec<Arc<Offers>>,
    pub(crate) connecting: Vec<Connecting>,
    pub(crate) health: Vec<Health>,
    pub(crate) problems: Vec<Problem>,
}

impl Upstreams {
    /// Whether they were asked for. Most commands do not need them.
    pub(crate) fn is_connected(&self) -> bool {
        self.connected.load(Ordering::Relaxed)
    }

    /// Told whenever one of them has something new for the catalog.
    pub(crate) fn changed(&self) -> Arc<Notify> {
        self.changed.clone()
    }

    /// Start what is new, stop what is gone, and start anew what changed.
    pub(crate) fn apply(&self, loaded: &Loaded, gateway: &Gateway) {
        self.connected.store(true, Ordering::Relaxed);
        let mut running = self.running.lock();
        let mut old = std::mem::take(&mut *running);
        for (name, config) in &loaded.config.mcp_servers {
            let limits = loaded.config.limits.of(name, config.timeout);
            let kept = old
                .remove(name)
                .filter(|running| running.config == *config && running.limits == limits);
            let next = kept.unwrap_or_else(|| {
                let settings = settings(name, config, limits.clone(), &loaded.root);
                let changed = self.changed.clone();
                let tell = Arc::new(move || changed.notify_one());
                let upstream = Upstream::start(settings, gateway.clone(), tell);
                Running { config: config.clone(), limits, upstream }
            });
            running.insert(name.clone(), next);
        }
        drop(running);
        for (_, gone) in old {
            tokio::spawn(gone.upstream.stop());
        }
    }

    pub(crate) fn offered(&self) -> Offered {
        let mut offered = Offered::default();
        for Running { upstream, .. } in self.running.lock().values() {
            offered.tools.extend(upstream.tools());
            offered.offers.extend(upstream.offers());
            offered.connecting.extend(upstream.connecting());
            offered.health.push(upstream.health());
            offered.problems.extend(upstream.problems());
        }
        offered
    }

    /// Wait until each has been tried once.
    pub(crate) async fn settled(&self) {
        let all: Vec<_> =
            self.running.lock().values().map(|running| running.upstream.settled()).collect();
        futures::future::join_all(all).await;
    }

    /// How the tools of one differ from what was approved; approve them if so
    /// asked. None if there is no such server.
    pub(crate) fn pinned(&self, name: &str, approve: bool) -> Option<Result<Vec<Difference>>> {
        let running = self.running.lock();
        let upstream = &running.get(name)?.upstream;
        Some(upstream.differences().and_then(|differences| {
            if approve {
                upstream.approve()?;
            }
            Ok(differences)
        }))
    }

    pub(crate) async fn stop(&self) {
        let all = std::mem::take(&mut *self.running.lock());
        futures::future::join_all(all.into_values().map(|running| running.upstream.stop())).await;
    }
}

/// Where an upstream's own things are kept.
pub(crate) fn state_of(root: &Path) -> std::path::PathBuf {
    root.join(STATE)
}

/// What the configuration means for the one that connects.
pub(crate) fn settings(name: &str, config: &McpServer, limits: Limits, root: &Path) -> Settings {
    let hidden = |of: &BTreeMap<String, Hidden>| -> BTreeMap<String, SecretText> {
        of.iter().map(|(key, value)| (key.clone(), SecretText::new(value.0.clone()))).collect()
    };
    let url = config.url.as_deref().and_then(|url| Url::parse(url).ok());
    let way = match (&config.command, url.clone()) {
        (None, Some(url)) => {
            let headers = hidden(&config.headers);
            match config.transport.unwrap_or_default() {
                Transport::StreamableHttp => Way::Http { url, headers },
                Transport::Sse => Way::Sse { url, headers },
            }
        }
        (command, _) => Way::Stdio {
            // That it is there was checked when the file was read.
            command: command.clone().unwrap_or_default(),
            args: config.args.clone(),
            env: hidden(&config.env),
            cwd: config.cwd.as_ref().map_or_else(|| root.to_owned(), |cwd| root.join(cwd)),
        },
    };
    let connect = config.connect_timeout.duration();
    let secrets = config.secrets.iter().map(|secret| Secret {
        key: secret.key.clone(),
        value: secret.expose().to_owned(),
        by_name: secret.by_name,
    });
    let login = login(&config.auth).map(|(key, text)| Secret {
        key: key.to_owned(),
        value: text.expose().to_owned(),
        by_name: true,
    });
    let secrets = secrets.chain(login).collect();
    let secrets = match &config.auth {
        // There will be tokens.
        Auth::OAuth(_) | Auth::Bearer(Bearer::File(_)) => Secrets::learning(secrets),
        Auth::Bearer(Bearer::Token(_)) | Auth::None => Secrets::new(secrets),
    };
    let scope = Scope { secrets: secrets.clone(), limits: limits.clone(), ..Scope::default() };
    Settings {
        target: Target {
            name: name.to_owned(),
            way,
            limits: LinkLimits { message: limits.value, connect },
        },
        auth: url.map(|url| auth::authorizer(account(name, config, url, root), secrets)),
        scope: Arc::new(scope),
        expose: config.expose,
        prefix: config.prefix.clone(),
        lazy: config.lazy,
        idle_stop: config.idle_stop.map(|seconds| seconds.duration()),
        pin: config.pin,
        roots: roots(config, root),
        state: state_of(root),
    }
}

/// The secret that the configuration has for a login, and its key.
fn login(auth: &Auth) -> Option<(&'static str, &SecretText)> {
    match auth {
        Auth::Bearer(Bearer::Token(token)) => Some(("auth.token", token)),
        Auth::OAuth(oauth) => Some(("auth.client_secret", oauth.client_secret.as_ref()?)),
        Auth::Bearer(Bearer::File(_)) | Auth::None => None,
    }
}

/// An upstream as far as logging in goes.
pub(crate) fn account(name: &str, config: &McpServer, url: Url, root: &Path) -> Account {
    Account {
        name: name.to_owned(),
        url,
        auth: config.auth.clone(),
        state_dir: state_of(root),
        base_dir: root.to_owned(),
        // For identity providers of tests, which ask nobody.
        follow: std::env::var_os("MOONLARK_OAUTH_FOLLOW").is_some_and(|it| it == "1"),
    }
}

fn roots(config: &McpServer, root: &Path) -> Vec<String> {
    let uri = |folder: &String| {
        let folder = root.join(folder);
        let folder = folder.canonicalize().unwrap_or(folder);
        Url::from_directory_path(folder).ok().map(String::from)
    };
    config.roots.iter().filter_map(uri).collect()
}
