//! One worker process, as the pool sees it.

use std::collections::HashSet;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Weak};
use std::time::Duration;

use moonlark_core::Catalog;
use moonlark_core::limits::format_seconds;
use moonlark_core::sdk::Sdk;
use moonlark_core::source_resources::SourceState;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::check_clock::OUT_OF_TIME_EXIT_CODE;
use super::check_protocol::{
    CatalogNames, CheckOrder, CheckRequest, CheckWorkerReport, FinishedCheck, FunctionSchemas,
    MAX_CHECK_FRAME_BYTES, SourceFunctions, ToolDefinitions, WantedDefinitions, decode_frame,
    encode_frame,
};
use super::check_server;

/// Catalogs that a worker remembers: callers who see different tools have
/// different ones.
const MAX_KNOWN_CATALOGS: usize = 4;
/// For a machine that has no time for the worker; its own time is bounded by the
/// kernel.
const CHECK_WORKER_TIMEOUT: Duration =
    Duration::from_secs(if cfg!(debug_assertions) { 60 } else { 10 });
/// How long a worker that has closed its output may take to be gone.
const CHECK_WORKER_EXIT_TIMEOUT: Duration = Duration::from_secs(2);

/// Killed when it is dropped; reaped by the runtime.
pub(super) struct CheckWorker {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// What it has been told, by the number that it knows a catalog by.
    told: Vec<(u64, SentCatalog)>,
    next_catalog: u64,
}

/// A weak reference keeps the catalog's address from being used again.
struct SentCatalog(Weak<Catalog>);

/// Why a check came to no end.
#[derive(Debug)]
pub(super) enum CheckFailure {
    /// Because of the script: what to say of it.
    Stopped(String),
    /// Reading the script alone took all the time that there was.
    OutOfTime(String),
    /// For some other reason.
    Lost(String),
}

impl CheckWorker {
    pub(super) fn start(program: &Path) -> std::io::Result<CheckWorker> {
        let mut child = Command::new(program)
            .arg(check_server::check_mode_arg())
            // Nothing of our environment is a script's business.
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(std::io::Error::other("it has no pipes"));
        };
        let output = BufReader::new(output);
        Ok(CheckWorker { child, input, output, told: Vec::new(), next_catalog: 0 })
    }

    /// Check a script. With the report comes the worker, for the next one, if it
    /// may have another.
    pub(super) async fn check_script(
        mut self,
        script: &str,
        catalog: &Arc<Catalog>,
        limit: Duration,
    ) -> Result<(FinishedCheck, Option<CheckWorker>), CheckFailure> {
        match tokio::time::timeout(
            CHECK_WORKER_TIMEOUT,
            self.exchange_messages(script, catalog, limit),
        )
        .await
        {
            Ok(Ok(report)) => {
                let again = report.reusable.then_some(self);
                Ok((report, again))
            }
            Ok(Err(_)) => Err(self.explain_end(limit).await),
            Err(_) => {
                let time = format_seconds(CHECK_WORKER_TIMEOUT);
                Err(CheckFailure::Lost(format!("the check had not ended after {time}")))
            }
        }
    }

    async fn exchange_messages(
        &mut self,
        script: &str,
        catalog: &Arc<Catalog>,
        limit: Duration,
    ) -> std::io::Result<FinishedCheck> {
        let request = self.build_request(script, catalog, limit);
        self.send_order(&CheckOrder::Check(request)).await?;
        loop {
            match self.receive_report().await? {
                CheckWorkerReport::Checked(report) => return Ok(report),
                CheckWorkerReport::Wanted(wanted) => {
                    let definitions = build_definitions(catalog.sdk(), &wanted);
                    self.send_order(&CheckOrder::Definitions(definitions)).await?;
                }
            }
        }
    }

    /// The catalog is named, and described only when it is new to this worker.
    fn build_request(
        &mut self,
        script: &str,
        catalog: &Arc<Catalog>,
        limit: Duration,
    ) -> CheckRequest {
        let request = CheckRequest {
            catalog: 0,
            names: None,
            forget: None,
            script: script.to_owned(),
            limit,
            run_type_functions: false,
        };
        let known = self.told.iter().position(|(_, told)| told.is_catalog(catalog));
        if let Some(known) = known {
            let told = self.told.remove(known);
            let number = told.0;
            self.told.push(told);
            return CheckRequest { catalog: number, ..request };
        }
        let full = self.told.len() >= MAX_KNOWN_CATALOGS;
        let forget = full.then(|| self.told.remove(0).0);
        self.next_catalog += 1;
        self.told.push((self.next_catalog, SentCatalog(Arc::downgrade(catalog))));
        let names = Some(catalog_names(catalog));
        CheckRequest { catalog: self.next_catalog, names, forget, ..request }
    }

    async fn send_order(&mut self, order: &CheckOrder) -> std::io::Result<()> {
        self.input.write_all(&encode_frame(order)?).await?;
        self.input.flush().await
    }

    async fn receive_report(&mut self) -> std::io::Result<CheckWorkerReport> {
        let length = self.output.read_u32_le().await? as usize;
        if length > MAX_CHECK_FRAME_BYTES {
            return Err(std::io::Error::other("a message beyond all limits"));
        }
        // Grows with what arrives, not with what was announced.
        let mut body = Vec::new();
        let read = (&mut self.output).take(length as u64).read_to_end(&mut body).await?;
        if read < length {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        decode_frame(&body)
    }

    async fn explain_end(mut self, limit: Duration) -> CheckFailure {
        let ended = tokio::time::timeout(CHECK_WORKER_EXIT_TIMEOUT, self.child.wait()).await;
        let status = ended.ok().and_then(Result::ok);
        let mut words = Vec::new();
        if let Some(stderr) = self.child.stderr.take() {
            let reading = stderr.take(64 * 1024);
            let reading = async move { { reading }.read_to_end(&mut words).await.map(|_| words) };
            words = match tokio::time::timeout(CHECK_WORKER_EXIT_TIMEOUT, reading).await {
                Ok(Ok(words)) => words,
                _ => Vec::new(),
            };
        }
        explain_exit(status, &String::from_utf8_lossy(&words), limit)
    }
}

/// What the kernel and the Rust runtime say last; nothing of the script gets there.
fn explain_exit(status: Option<ExitStatus>, words: &str, limit: Duration) -> CheckFailure {
    if words.contains("overflowed its stack") {
        return CheckFailure::Stopped(
            "it nests deeper or grows larger than the check can follow".to_owned(),
        );
    }
    if words.contains("memory allocation of") || words.contains("capacity overflow") {
        return CheckFailure::Stopped(
            "checking it takes more memory than there is for it".to_owned(),
        );
    }
    if is_out_of_time(status) {
        let time = format_seconds(limit);
        return CheckFailure::OutOfTime(format!(
            "checking it takes more than {time} of processor time"
        ));
    }
    let status = status.map_or_else(|| "it closed its output".to_owned(), |it| it.to_string());
    tracing::error!("a process that checks scripts ended: {status}: {words}");
    CheckFailure::Lost(format!("the process that checks scripts ended: {status}"))
}

/// By its own clock or, should that have failed, by the kernel's.
fn is_out_of_time(status: Option<ExitStatus>) -> bool {
    if status.and_then(|it| std::os::unix::process::ExitStatusExt::signal(&it))
        == Some(CPU_LIMIT_SIGNAL)
    {
        return true;
    }
    status.and_then(|it| it.code()) == Some(OUT_OF_TIME_EXIT_CODE)
}
const CPU_LIMIT_SIGNAL: i32 = rustix::process::Signal::XCPU.as_raw();

impl SentCatalog {
    fn is_catalog(&self, catalog: &Arc<Catalog>) -> bool {
        std::ptr::eq(self.0.as_ptr(), Arc::as_ptr(catalog))
    }
}

fn catalog_names(catalog: &Catalog) -> CatalogNames {
    let sources = catalog.sdk().sources().iter();
    let down = catalog.health().iter().filter(|it| it.state != SourceState::Ready);
    let awaited = catalog.connecting_sources().iter().map(|it| it.source.clone());
    CatalogNames {
        sources: sources.map(|it| (it.name.clone(), it.original.clone())).collect(),
        awaited: awaited.chain(down.map(|it| it.source.clone())).collect(),
    }
}

fn build_definitions(sdk: &Sdk, wanted: &WantedDefinitions) -> ToolDefinitions {
    let names: HashSet<&str> = wanted.names.iter().map(String::as_str).collect();
    let mut told = ToolDefinitions { sources: Vec::new(), functions: Vec::new() };
    let mut functions = wanted.functions.clone();
    for place in &wanted.sources {
        let Some(source) = sdk.sources().get(*place) else { continue };
        let all = source.functions.iter().enumerate();
        functions.extend(
            all.filter(|(_, it)| names.contains(&*it.name) || names.contains(&*it.original))
                .map(|(function, _)| (*place, function)),
        );
        let names = source.functions.iter().map(|it| (it.name.clone(), it.original.clone()));
        told.sources.push(SourceFunctions { source: *place, functions: names.collect() });
    }
    for (source, function) in functions {
        let found = sdk.sources().get(source).and_then(|it| it.functions.get(function));
        let Some(found) = found else { continue };
        // Not kept with the tool, which may never be called.
        let output = found.tool.output.as_ref().map(|it| Arc::unwrap_or_clone(it.peek_json()));
        let input = Arc::unwrap_or_clone(found.tool.input.peek_json());
        told.functions.push(FunctionSchemas { source, function, input, output });
    }
    told
}
