//! The APIs of a project: their documents read, and read again when they
//! change.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use moonlark_core::catalog::Connecting;
use moonlark_core::limits::Limits;
use moonlark_core::offers::Health;
use moonlark_core::secret::{Secret, Secrets};
use moonlark_core::tool::{Scope, SourceKind};
use moonlark_core::{Code, Place, Problem, Result, Tool, Value};
use moonlark_upstream::mcp::SecretText;
use moonlark_upstream::openapi::{
    self, ApiSettings, ClientCredentials, Credential, Credentials, OriginMemory, RefPermission,
    Spec,
};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio_util::task::AbortOnDropHandle;
use url::Url;

use crate::config::{Api, ApiAuth, ApiScheme, tool_configs};
use crate::config_file::Loaded;

/// Before a document that could not be read is tried again.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// Flaws of one document that are logged one by one.
const MAX_LOGGED_FLAWS: usize = 5;

#[derive(Default)]
pub(crate) struct Apis {
    running: Mutex<BTreeMap<String, Running>>,
}

struct Running {
    config: Api,
    limits: Limits,
    frozen: BTreeMap<String, Value>,
    state: Arc<Mutex<State>>,
    /// Its document is a file of this machine.
    is_local: bool,
    tried: watch::Receiver<bool>,
    /// When its files were last written, as far as they are files.
    seen: Vec<(PathBuf, Option<SystemTime>)>,
    again: Arc<Notify>,
    _reading: AbortOnDropHandle<()>,
}

/// What is known of one API.
#[derive(Default)]
struct State {
    tools: Vec<Arc<Tool>>,
    flaws: Vec<Problem>,
    /// Why the newest document is not in use.
    problem: Option<Problem>,
    files: Vec<PathBuf>,
    tried: bool,
}

/// What all of them have for the catalog.
#[derive(Default)]
pub(crate) struct Offered {
    pub(crate) tools: Vec<Arc<Tool>>,
    pub(crate) connecting: Vec<Connecting>,
    pub(crate) health: Vec<Health>,
    pub(crate) problems: Vec<Problem>,
}

impl Apis {
    /// Read what is new or changed, and forget what is gone.
    pub(crate) fn apply(&self, loaded: &Loaded, changed: &Arc<Notify>) {
        let mut running = self.running.lock();
        let mut old = std::mem::take(&mut *running);
        let frozen = frozen(&loaded.config.frozen_params);
        for (name, config) in &loaded.config.apis {
            let limits = loaded.config.limits.of(name, config.timeout);
            let kept = old
                .remove(name)
                .filter(|it| it.config == *config && it.limits == limits && it.frozen == frozen);
            let next = match kept {
                Some(mut kept) => {
                    kept.look();
                    kept
                }
                None => start(name, config, limits, frozen.clone(), loaded, changed.clone()),
            };
            running.insert(name.clone(), next);
        }
    }

    pub(crate) fn offered(&self) -> Offered {
        let mut offered = Offered::default();
        for (name, running) in self.running.lock().iter() {
            let state = running.state.lock();
            offered.tools.extend(state.tools.iter().cloned());
            if !state.tried {
                let prefix = running.config.prefix.clone();
                let prefix = prefix.unwrap_or_else(|| format!("{}__", name.replace('.', "_")));
                let (source, expose) = (name.clone(), running.config.expose);
                offered.connecting.push(Connecting {
                    source,
                    kind: SourceKind::Api,
                    prefix,
                    expose,
                    is_remembered: false,
                });
            }
            offered.problems.extend(state.problem.clone());
            offered.problems.extend(state.flaws.iter().cloned());
            offered.health.push(Health {
                source: name.clone(),
                state: match (&state.problem, state.tried) {
                    (_, false) => "connecting",
                    (Some(_), true) if state.tools.is_empty() => "failed",
                    _ => "ready",
                },
                tools: state.tools.len(),
                problem: state.problem.clone(),
                flaws: state.flaws.clone(),
                ..Health::default()
            });
        }
        offered
    }

    /// The files that the documents consist of.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let running = self.running.lock();
        running.values().flat_map(|it| it.state.lock().files.clone()).collect()
    }

    /// Wait until each has been tried once.
    pub(crate) async fn settled(&self) {
        self.settled_of(|_| true).await;
    }

    /// The same for those whose documents are files.
    pub(crate) async fn files_settled(&self) {
        self.settled_of(|it| it.is_local).await;
    }

    async fn settled_of(&self, which: impl Fn(&Running) -> bool) {
        let running: Vec<_> = {
            let running = self.running.lock();
            running.values().filter(|it| which(it)).map(|it| it.tried.clone()).collect()
        };
        for mut tried in running {
            let _ = tried.wait_for(|tried| *tried).await;
        }
    }

    /// Whether a document that is a file has not been read yet.
    pub(crate) fn is_reading_files(&self) -> bool {
        self.running.lock().values().any(|it| it.is_local && !*it.tried.borrow())
    }
}

impl Running {
    /// Whether a file of the document was written since it was read.
    fn look(&mut self) {
        let files = self.state.lock().files.clone();
        let now: Vec<_> = files.into_iter().map(|file| (file.clone(), written(&file))).collect();
        if now != std::mem::replace(&mut self.seen, now.clone()) {
            self.again.notify_one();
        }
    }
}

fn written(file: &Path) -> Option<SystemTime> {
    std::fs::metadata(file).and_then(|it| it.modified()).ok()
}

fn start(
    name: &str,
    config: &Api,
    limits: Limits,
    frozen: BTreeMap<String, Value>,
    loaded: &Loaded,
    changed: Arc<Notify>,
) -> Running {
    let state = Arc::new(Mutex::new(State::default()));
    let (tell, tried) = watch::channel(false);
    let again = Arc::new(Notify::new());
    let spec = spec(config, &loaded.root);
    let settings = match config.outage.first() {
        Some(problem) => Err(problem.clone()),
        None => settings(name, config, limits.clone(), frozen.clone()),
    };
    let settings = settings.map(|mut settings| {
        if let Ok(Spec::Web(url)) = &spec {
            let file = loaded.state.join("apis").join(format!("{name}.json"));
            settings.memory = Some(OriginMemory { file, spec: url.clone() });
        }
        settings
    });
    let refs: Vec<RefPermission> =
        config.refs.iter().map(|it| RefPermission::parse(it, &loaded.root)).collect();
    // A change of a file must be noticed also when it could not be read.
    if let Ok(Spec::File(file)) = &spec {
        state.lock().files = vec![file.clone()];
    }
    let is_local = matches!(spec, Ok(Spec::File(_)));
    let seen = state.lock().files.iter().map(|file| (file.clone(), written(file))).collect();
    let (shared, wake, refresh) = (state.clone(), again.clone(), config.refresh.duration());
    let api = name.to_owned();
    let reading = tokio::spawn(async move {
        let mut pause = FIRST_PAUSE;
        loop {
            let read = match (&settings, &spec) {
                (Ok(settings), Ok(spec)) => read(settings, spec, &refs).await,
                (Err(problem), _) | (_, Err(problem)) => Err(problem.clone()),
            };
            let ended_well = read.is_ok();
            {
                let mut state = shared.lock();
                state.tried = true;
                match read {
                    Ok(next) => {
                        tracing::debug!("{api}: {} operations", next.tools.len());
                        log_flaws(&api, &state.flaws, &next.flaws);
                        *state = next;
                    }
                    // The old document goes on working.
                    Err(problem) => {
                        // Once, however often it is tried.
                        if state.problem.as_ref() != Some(&problem) {
                            tracing::warn!(target: "upstream", "{api}: {problem}");
                        }
                        state.problem = Some(problem);
                    }
                }
            }
            tell.send_replace(true);
            changed.notify_one();
            // Settings that cannot be used do not become better by waiting.
            let web = settings.is_ok() && matches!(spec, Ok(Spec::Web(_)));
            let wait = match (ended_well, web) {
                (true, true) => {
                    pause = FIRST_PAUSE;
                    refresh
                }
                (false, true) => {
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    pause
                }
                // A file is read again when it changes.
                (_, false) => Duration::MAX,
            };
            tokio::select! {
                () = wake.notified() => {}
                () = tokio::time::sleep(wait.min(Duration::from_secs(365 * 24 * 3600))) => {}
            }
        }
    });
    Running {
        config: config.clone(),
        limits,
        frozen,
        state,
        is_local,
        tried,
        seen,
        again,
        _reading: AbortOnDropHandle::new(reading),
    }
}

/// The tools of one document that belongs to no project, and what of it cannot
/// be used.
pub(crate) async fn look(
    name: &str,
    spec: &str,
    root: &Path,
) -> Result<(Vec<Arc<Tool>>, Vec<Problem>)> {
    let config = Api { spec: spec.to_owned(), ..Api::default() };
    let settings = settings(name, &config, Limits::default(), BTreeMap::new())?;
    let state = read(&settings, &self::spec(&config, root)?, &[]).await?;
    // Where it is matters only to those who call it.
    let flaws = state.flaws.into_iter().filter(|it| it.code != Code::BadConfig);
    Ok((state.tools, flaws.collect()))
}

/// Say what cannot be used of a document, once.
fn log_flaws(api: &str, known: &[Problem], flaws: &[Problem]) {
    let new: Vec<&Problem> = flaws.iter().filter(|it| !known.contains(it)).collect();
    for flaw in new.iter().take(MAX_LOGGED_FLAWS) {
        tracing::warn!(target: "upstream", "{api}: {}", flaw.line());
    }
    if new.len() > MAX_LOGGED_FLAWS {
        let more = new.len() - MAX_LOGGED_FLAWS;
        tracing::warn!(target: "upstream", "{api}: and {more} more: see `moonlark doctor`");
    }
}

async fn read(settings: &ApiSettings, spec: &Spec, refs: &[RefPermission]) -> Result<State> {
    let place = |problem: Problem| problem.at(Place::file(settings.file.clone()));
    let loaded = openapi::load(spec, refs).await.map_err(place)?;
    let refused: Vec<Problem> = loaded.problems.into_iter().map(place).collect();
    let (settings, document) = (settings.clone(), Arc::new(loaded.document));
    let file = settings.file.clone();
    // Thousands of operations are work for a thread that has time.
    let made = tokio::task::spawn_blocking(move || openapi::tools(settings, document)).await;
    let made = made.unwrap_or_else(|_| Err(Problem::internal("the document could not be read")));
    let place = |problem: Problem| problem.at(Place::file(file.clone()));
    let (tools, flaws) = made.map_err(place)?;
    Ok(State {
        tools: tools.into_iter().map(Arc::new).collect(),
        flaws: refused.into_iter().chain(flaws).collect(),
        problem: None,
        files: loaded.files,
        tried: true,
    })
}

fn spec(config: &Api, root: &Path) -> Result<Spec> {
    match Url::parse(&config.spec) {
        Ok(url) if matches!(url.scheme(), "http" | "https") => Ok(Spec::Web(url)),
        _ => Ok(Spec::File(root.join(&config.spec))),
    }
}

/// What the configuration means for the one that calls.
fn settings(
    name: &str,
    config: &Api,
    limits: Limits,
    global: BTreeMap<String, Value>,
) -> Result<ApiSettings> {
    let secret = |text: &str| SecretText::new(text.to_owned());
    let mut secrets: Vec<Secret> = config
        .secrets
        .iter()
        .map(|it| {
            // What goes along with every request is nobody's business; an argument or an
            // address may well be part of an answer.
            let credential = it.key.starts_with("auth") || it.key.starts_with("headers");
            Secret {
                key: it.key.clone(),
                value: it.expose().to_owned(),
                by_name: credential || it.by_name,
            }
        })
        .collect();
    let mut credentials = Credentials::default();
    match (&config.auth, &config.auth_env) {
        (ApiAuth::Secret(text), _) => credentials.any = Some(secret(&text.0)),
        (ApiAuth::Schemes(schemes), _) => {
            for (scheme, given) in schemes {
                let credential = match given {
                    ApiScheme::Secret(text) => Credential::Secret(secret(&text.0)),
                    ApiScheme::Client(client) => Credential::OAuth(ClientCredentials {
                        client_id: client.client_id.clone(),
                        client_secret: secret(&client.client_secret.0),
                        token_url: client.token_url.as_deref().and_then(|it| Url::parse(it).ok()),
                        scopes: client.scopes.clone(),
                    }),
                };
                credentials.schemes.insert(scheme.clone(), credential);
            }
        }
        (ApiAuth::None, Some(variable)) => {
            let text = config.auth_value.clone().map(|it| it.0).ok_or_else(|| {
                Problem::bad_config(format!("the environment variable {variable} is not set"))
                    .at(Place::file(format!("apis.{name}.auth_env")))
                    .hint(format!(
                        "set {variable}, or add a line {variable}=… to {}",
                        crate::secrets_file::shown_path()
                    ))
            })?;
            secrets.push(Secret { key: "auth".to_owned(), value: text.clone(), by_name: true });
            credentials.any = Some(SecretText::new(text));
        }
        (ApiAuth::None, None) => {}
    }
    let schemes = &mut credentials.schemes.values();
    let secrets = match schemes.any(|it| matches!(it, Credential::OAuth(_))) {
        // There will be tokens.
        true => Secrets::learning(secrets),
        false => Secrets::new(secrets),
    };
    let mut all_frozen = global;
    all_frozen.extend(frozen(&config.frozen_params));
    let tools = tool_configs(&config.tools);
    // Whatever of these came from the environment, or is called like a secret.
    let is_secret = |name: &str| {
        let keys = config.secrets.iter().map(|it| it.key.as_str());
        let mut keys = keys.filter(|it| it.starts_with("frozen_params") || it.starts_with("tools"));
        keys.any(|key| key.split('.').any(|part| part == name))
    };
    let secret_frozen = all_frozen
        .keys()
        .chain(tools.values().flat_map(|tool| tool.arguments.keys()))
        .filter(|name| is_secret(name))
        .cloned()
        .collect();
    Ok(ApiSettings {
        name: name.to_owned(),
        file: moonlark_knowledge::without_secrets(&config.spec),
        base_url: config.base_url.as_deref().and_then(|it| Url::parse(it).ok()),
        credentials,
        headers: config.headers.iter().map(|(key, it)| (key.clone(), secret(&it.0))).collect(),
        auth_hosts: config.auth_hosts.iter().filter_map(|it| it.parse().ok()).collect(),
        memory: None,
        secret_frozen,
        frozen: all_frozen,
        tools,
        // That they can be read was checked with the file.
        include: config.include.iter().filter_map(|it| it.parse().ok()).collect(),
        exclude: config.exclude.iter().filter_map(|it| it.parse().ok()).collect(),
        rate: config.rate.as_deref().and_then(|it| it.parse().ok()),
        concurrency: config.concurrency.map(|it| it as usize),
        expose: config.expose,
        prefix: config.prefix.clone(),
        scope: Arc::new(Scope { limits, secrets, ..Scope::default() }),
    })
}

fn frozen(params: &BTreeMap<String, serde_json::Value>) -> BTreeMap<String, Value> {
    let read = |(key, it): (&String, &serde_json::Value)| {
        Some((key.clone(), Value::from_json(it.clone()).ok()?))
    };
    params.iter().filter_map(read).collect()
}
