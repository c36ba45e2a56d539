//! The APIs of a project: their documents read, and read again when they
//! change.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use moonlark_child::spawn_owned;
use moonlark_core::catalog::ConnectingSource;
use moonlark_core::limits::CallLimits;
use moonlark_core::secret::{SecretText, SecretValue, Secrets};
use moonlark_core::source_resources::{SourceHealth, SourceState};
use moonlark_core::tool::{CallScope, SourceKind};
use moonlark_core::{Problem, ProblemCode, Result, SourceLocation, Tool, Value};
use moonlark_http::RetryBackoff;
use moonlark_openapi::{
    self, ApiCredential, ApiCredentials, ApiSettings, ClientCredentials, OriginMemory,
    RefPermission, SpecLocation,
};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio_util::task::AbortOnDropHandle;
use url::Url;

use crate::upstreams::SourceOfferings;
use moonlark_config::config_file::LoadedConfig;
use moonlark_config::{ApiAuthConfig, ApiConfig, ApiSchemeAuth, to_tool_values, tool_configs};

/// Before a document that could not be read is tried again.
const INITIAL_SPEC_RETRY_DELAY: Duration = Duration::from_secs(2);
const MAX_SPEC_RETRY_DELAY: Duration = Duration::from_secs(300);

/// Flaws of one document that are logged one by one.
const MAX_LOGGED_SPEC_FLAWS: usize = 5;

#[derive(Default)]
pub(crate) struct ApiSources {
    running: Mutex<BTreeMap<String, RunningApi>>,
}

struct RunningApi {
    config: ApiConfig,
    limits: CallLimits,
    frozen: BTreeMap<String, Value>,
    state: Arc<Mutex<ApiDocumentState>>,
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
struct ApiDocumentState {
    tools: Vec<Arc<Tool>>,
    flaws: Vec<Problem>,
    /// Why the newest document is not in use.
    problem: Option<Problem>,
    files: Vec<PathBuf>,
    tried: bool,
}

impl ApiSources {
    /// Read what is new or changed, and forget what is gone.
    pub(crate) fn apply_config(&self, loaded: &LoadedConfig, changed: &Arc<Notify>) {
        let mut running = self.running.lock();
        let mut old = std::mem::take(&mut *running);
        let frozen: BTreeMap<String, Value> =
            to_tool_values(&loaded.config.frozen_params).collect();
        for (name, config) in &loaded.config.apis {
            let limits = loaded.config.limits.for_tool(name, config.timeout);
            let kept = old
                .remove(name)
                .filter(|it| it.config == *config && it.limits == limits && it.frozen == frozen);
            let next = match kept {
                Some(mut kept) => {
                    kept.wake_if_files_changed();
                    kept
                }
                None => start_api(name, config, limits, frozen.clone(), loaded, changed.clone()),
            };
            running.insert(name.clone(), next);
        }
    }

    pub(crate) fn current_offerings(&self) -> SourceOfferings {
        let mut offered = SourceOfferings::default();
        for (name, running) in self.running.lock().iter() {
            let state = running.state.lock();
            offered.tools.extend(state.tools.iter().cloned());
            if !state.tried {
                let prefix = running.config.prefix.clone();
                let prefix = prefix.unwrap_or_else(|| format!("{}__", name.replace('.', "_")));
                let (source, expose) = (name.clone(), running.config.expose);
                offered.connecting.push(ConnectingSource {
                    source,
                    kind: SourceKind::Api,
                    prefix,
                    expose,
                    is_remembered: false,
                });
            }
            offered.problems.extend(state.problem.clone());
            offered.problems.extend(state.flaws.iter().cloned());
            offered.health.push(SourceHealth {
                source: name.clone(),
                state: match (&state.problem, state.tried) {
                    (_, false) => SourceState::Connecting,
                    (Some(_), true) if state.tools.is_empty() => SourceState::Failed,
                    _ => SourceState::Ready,
                },
                tools: state.tools.len(),
                problem: state.problem.clone(),
                flaws: state.flaws.clone(),
                ..SourceHealth::default()
            });
        }
        offered
    }

    /// The files that the documents consist of.
    pub(crate) fn document_files(&self) -> Vec<PathBuf> {
        let running = self.running.lock();
        running.values().flat_map(|it| it.state.lock().files.clone()).collect()
    }

    /// Wait until each has been tried once.
    pub(crate) async fn wait_until_tried(&self) {
        self.wait_until_matching_tried(|_| true).await;
    }

    /// The same for those whose documents are files.
    pub(crate) async fn wait_until_files_tried(&self) {
        self.wait_until_matching_tried(|it| it.is_local).await;
    }

    async fn wait_until_matching_tried(&self, which: impl Fn(&RunningApi) -> bool) {
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

impl RunningApi {
    /// Whether a file of the document was written since it was read.
    fn wake_if_files_changed(&mut self) {
        let files = self.state.lock().files.clone();
        let now: Vec<_> =
            files.into_iter().map(|file| (file.clone(), modified_time(&file))).collect();
        if now != std::mem::replace(&mut self.seen, now.clone()) {
            self.again.notify_one();
        }
    }
}

fn modified_time(file: &Path) -> Option<SystemTime> {
    std::fs::metadata(file).and_then(|it| it.modified()).ok()
}

fn start_api(
    name: &str,
    config: &ApiConfig,
    limits: CallLimits,
    frozen: BTreeMap<String, Value>,
    loaded: &LoadedConfig,
    changed: Arc<Notify>,
) -> RunningApi {
    let state = Arc::new(Mutex::new(ApiDocumentState::default()));
    let (tell, tried) = watch::channel(false);
    let again = Arc::new(Notify::new());
    let spec = spec_location(config, &loaded.root);
    let settings = match config.outage.first() {
        Some(problem) => Err(problem.clone()),
        None => api_settings(name, config, limits.clone(), frozen.clone()),
    };
    let settings = settings.map(|mut settings| {
        if let SpecLocation::Web(url) = &spec {
            let file = loaded.state.join("apis").join(format!("{name}.json"));
            settings.memory = Some(OriginMemory { file, spec: url.clone() });
        }
        settings
    });
    let refs: Vec<RefPermission> =
        config.refs.iter().map(|it| RefPermission::parse(it, &loaded.root)).collect();
    // A change of a file must be noticed also when it could not be read.
    if let SpecLocation::File(file) = &spec {
        state.lock().files = vec![file.clone()];
    }
    let is_local = matches!(spec, SpecLocation::File(_));
    let seen = state.lock().files.iter().map(|file| (file.clone(), modified_time(file))).collect();
    let (shared, wake, refresh) = (state.clone(), again.clone(), config.refresh.to_duration());
    let api = name.to_owned();
    let _reading = spawn_owned(async move {
        let mut backoff = RetryBackoff::new(INITIAL_SPEC_RETRY_DELAY, MAX_SPEC_RETRY_DELAY);
        loop {
            let read = match &settings {
                Ok(settings) => read_document(settings, &spec, &refs).await,
                Err(problem) => Err(problem.clone()),
            };
            let ended_well = read.is_ok();
            {
                let mut state = shared.lock();
                state.tried = true;
                match read {
                    Ok(next) => {
                        tracing::debug!("{api}: {} operations", next.tools.len());
                        log_spec_flaws(&api, &state.flaws, &next.flaws);
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
            let web = settings.is_ok() && !is_local;
            let wait = match (ended_well, web) {
                (true, true) => {
                    backoff.reset();
                    refresh
                }
                (false, true) => backoff.next_pause(),
                // A file is read again when it changes.
                (_, false) => Duration::MAX,
            };
            tokio::select! {
                () = wake.notified() => {}
                () = tokio::time::sleep(wait.min(Duration::from_secs(365 * 24 * 3600))) => {}
            }
        }
    });
    RunningApi {
        config: config.clone(),
        limits,
        frozen,
        state,
        is_local,
        tried,
        seen,
        again,
        _reading,
    }
}

/// The tools of one document that belongs to no project, and what of it cannot
/// be used.
pub(crate) async fn read_standalone_document(
    name: &str,
    spec: &str,
    root: &Path,
) -> Result<(Vec<Arc<Tool>>, Vec<Problem>)> {
    let config = ApiConfig { spec: spec.to_owned(), ..ApiConfig::default() };
    let settings = api_settings(name, &config, CallLimits::default(), BTreeMap::new())?;
    let state = read_document(&settings, &spec_location(&config, root), &[]).await?;
    // Where it is matters only to those who call it.
    let flaws = state.flaws.into_iter().filter(|it| it.code != ProblemCode::BadConfig);
    Ok((state.tools, flaws.collect()))
}

/// Say what cannot be used of a document, once.
fn log_spec_flaws(api: &str, known: &[Problem], flaws: &[Problem]) {
    let new: Vec<&Problem> = flaws.iter().filter(|it| !known.contains(it)).collect();
    for flaw in new.iter().take(MAX_LOGGED_SPEC_FLAWS) {
        tracing::warn!(target: "upstream", "{api}: {}", flaw.to_line());
    }
    if new.len() > MAX_LOGGED_SPEC_FLAWS {
        let more = new.len() - MAX_LOGGED_SPEC_FLAWS;
        tracing::warn!(target: "upstream", "{api}: and {more} more: see `moonlark doctor`");
    }
}

async fn read_document(
    settings: &ApiSettings,
    spec: &SpecLocation,
    refs: &[RefPermission],
) -> Result<ApiDocumentState> {
    let place =
        |problem: Problem| problem.at_location(SourceLocation::in_file(settings.file.clone()));
    let loaded = moonlark_openapi::load_document(spec, refs).await.map_err(place)?;
    let refused: Vec<Problem> = loaded.problems.into_iter().map(place).collect();
    let (settings, document) = (settings.clone(), Arc::new(loaded.document));
    let file = settings.file.clone();
    // Thousands of operations are work for a thread that has time.
    let made =
        tokio::task::spawn_blocking(move || moonlark_openapi::build_api_tools(settings, document))
            .await;
    let made = made.unwrap_or_else(|_| Err(Problem::internal("the document could not be read")));
    let place = |problem: Problem| problem.at_location(SourceLocation::in_file(file.clone()));
    let (tools, flaws) = made.map_err(place)?;
    Ok(ApiDocumentState {
        tools: tools.into_iter().map(Arc::new).collect(),
        flaws: refused.into_iter().chain(flaws).collect(),
        problem: None,
        files: loaded.files,
        tried: true,
    })
}

fn spec_location(config: &ApiConfig, root: &Path) -> SpecLocation {
    match Url::parse(&config.spec) {
        Ok(url) if matches!(url.scheme(), "http" | "https") => SpecLocation::Web(url),
        _ => SpecLocation::File(root.join(&config.spec)),
    }
}

/// What the configuration means for the one that calls.
fn api_settings(
    name: &str,
    config: &ApiConfig,
    limits: CallLimits,
    global: BTreeMap<String, Value>,
) -> Result<ApiSettings> {
    let secret = |text: &str| SecretText::new(text.to_owned());
    let mut secrets: Vec<SecretValue> = config
        .secrets
        .iter()
        .map(|it| {
            // What goes along with every request is nobody's business; an argument or an
            // address may well be part of an answer.
            let credential = it.key.starts_with("auth") || it.key.starts_with("headers");
            SecretValue { by_name: credential || it.by_name, ..it.to_secret_value() }
        })
        .collect();
    let mut credentials = ApiCredentials::default();
    match (&config.auth, &config.auth_env) {
        (ApiAuthConfig::Secret(text), _) => credentials.any = Some(secret(&text.0)),
        (ApiAuthConfig::Schemes(schemes), _) => {
            for (scheme, given) in schemes {
                let credential = match given {
                    ApiSchemeAuth::Secret(text) => ApiCredential::Secret(secret(&text.0)),
                    ApiSchemeAuth::Client(client) => ApiCredential::OAuth(ClientCredentials {
                        client_id: client.client_id.clone(),
                        client_secret: secret(&client.client_secret.0),
                        token_url: client.token_url.as_deref().and_then(|it| Url::parse(it).ok()),
                        scopes: client.scopes.clone(),
                    }),
                };
                credentials.schemes.insert(scheme.clone(), credential);
            }
        }
        (ApiAuthConfig::None, Some(variable)) => {
            let text = config.auth_value.clone().map(|it| it.0).ok_or_else(|| {
                Problem::bad_config(format!("the environment variable {variable} is not set"))
                    .at_location(SourceLocation::in_file(format!("apis.{name}.auth_env")))
                    .with_hint(format!(
                        "set {variable}, or add a line {variable}=… to {}",
                        moonlark_state::secrets_file::secrets_file_display_path()
                    ))
            })?;
            let key = "auth".to_owned();
            secrets.push(SecretValue { key, value: text.clone(), by_name: true });
            credentials.any = Some(SecretText::new(text));
        }
        (ApiAuthConfig::None, None) => {}
    }
    let schemes = &mut credentials.schemes.values();
    let secrets = if schemes.any(|it| matches!(it, ApiCredential::OAuth(_))) {
        // There will be tokens.
        Secrets::with_learning(secrets)
    } else {
        Secrets::new(secrets)
    };
    let mut all_frozen = global;
    all_frozen.extend(to_tool_values(&config.frozen_params));
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
        file: moonlark_knowledge::redact_repository_url(&config.spec),
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
        scope: Arc::new(CallScope { limits, secrets, ..CallScope::default() }),
    })
}
