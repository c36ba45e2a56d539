//! One worker process, as the pool sees it.

use std::collections::HashSet;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Weak};
use std::time::Duration;

use moonlark_core::Catalog;
use moonlark_core::limits::seconds;
use moonlark_core::sdk::Sdk;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::clock::OUT_OF_TIME_EXIT_CODE;
use super::wire::{
    CatalogNames, CheckOrder, CheckReport, CheckRequest, CheckedReport, FunctionSchemas,
    MAX_FRAME_BYTES, SourceFunctions, ToolDefinitions, WantedDefinitions, decode_frame,
    encode_frame,
};
use super::worker;

/// Catalogs that a worker remembers: callers who see different tools have
/// different ones.
const MAX_KNOWN_CATALOGS: usize = 4;
/// For a machine that has no time for the worker; its own time is bounded by the
/// kernel.
const CHECK_TIMEOUT: Duration = Duration::from_secs(if cfg!(debug_assertions) { 60 } else { 10 });
/// How long a worker that has closed its output may take to be gone.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// Killed when it is dropped; reaped by the runtime.
pub(super) struct CheckWorker {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// What it has been told, by the number that it knows a catalog by.
    told: Vec<(u64, ToldCatalog)>,
    next_catalog: u64,
}

/// A weak reference keeps the catalog's address from being used again.
struct ToldCatalog(Weak<Catalog>);

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
            .arg(worker::worker_mode())
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
    pub(super) async fn check(
        mut self,
        script: &str,
        catalog: &Arc<Catalog>,
        limit: Duration,
    ) -> Result<(CheckedReport, Option<CheckWorker>), CheckFailure> {
        match tokio::time::timeout(CHECK_TIMEOUT, self.converse(script, catalog, limit)).await {
            Ok(Ok(report)) => {
                let again = report.reusable.then_some(self);
                Ok((report, again))
            }
            Ok(Err(_)) => Err(self.explain_end(limit).await),
            Err(_) => {
                let time = seconds(CHECK_TIMEOUT);
                Err(CheckFailure::Lost(format!("the check had not ended after {time}")))
            }
        }
    }

    async fn converse(
        &mut self,
        script: &str,
        catalog: &Arc<Catalog>,
        limit: Duration,
    ) -> std::io::Result<CheckedReport> {
        let request = self.request(script, catalog, limit);
        self.send(&CheckOrder::Check(request)).await?;
        loop {
            match self.receive().await? {
                CheckReport::Checked(report) => return Ok(report),
                CheckReport::Wanted(wanted) => {
                    let definitions = define(catalog.sdk(), &wanted);
                    self.send(&CheckOrder::Definitions(definitions)).await?;
                }
            }
        }
    }

    /// The catalog is named, and described only when it is new to this worker.
    fn request(&mut self, script: &str, catalog: &Arc<Catalog>, limit: Duration) -> CheckRequest {
        let request = CheckRequest {
            catalog: 0,
            names: None,
            forget: None,
            script: script.to_owned(),
            limit,
            run_type_functions: false,
        };
        let known = self.told.iter().position(|(_, told)| told.is(catalog));
        if let Some(known) = known {
            let told = self.told.remove(known);
            let number = told.0;
            self.told.push(told);
            return CheckRequest { catalog: number, ..request };
        }
        let full = self.told.len() >= MAX_KNOWN_CATALOGS;
        let forget = full.then(|| self.told.remove(0).0);
        self.next_catalog += 1;
        self.told.push((self.next_catalog, ToldCatalog(Arc::downgrade(catalog))));
        let names = Some(catalog_names(catalog));
        CheckRequest { catalog: self.next_catalog, names, forget, ..request }
    }

    async fn send(&mut self, order: &CheckOrder) -> std::io::Result<()> {
        self.input.write_all(&encode_frame(order)?).await?;
        self.input.flush().await
    }

    async fn receive(&mut self) -> std::io::Result<CheckReport> {
        let length = self.output.read_u32_le().await? as usize;
        if length > MAX_FRAME_BYTES {
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
        let ended = tokio::time::timeout(END_TIMEOUT, self.child.wait()).await;
        let status = ended.ok().and_then(Result::ok);
        let mut words = Vec::new();
        if let Some(stderr) = self.child.stderr.take() {
            let reading = stderr.take(64 * 1024);
            let reading = async move { { reading }.read_to_end(&mut words).await.map(|_| words) };
            words = match tokio::time::timeout(END_TIMEOUT, reading).await {
                Ok(Ok(words)) => words,
                _ => Vec::new(),
            };
        }
        explain(status, &String::from_utf8_lossy(&words), limit)
    }
}

/// What the kernel and the Rust runtime say last; nothing of the script gets there.
fn explain(status: Option<ExitStatus>, words: &str, limit: Duration) -> CheckFailure {
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
        let time = seconds(limit);
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
    #[cfg(unix)]
    if status.and_then(|it| std::os::unix::process::ExitStatusExt::signal(&it)) == Some(SIGXCPU) {
        return true;
    }
    status.and_then(|it| it.code()) == Some(OUT_OF_TIME_EXIT_CODE)
}

#[cfg(unix)]
const SIGXCPU: i32 = rustix::process::Signal::XCPU.as_raw();

impl ToldCatalog {
    fn is(&self, catalog: &Arc<Catalog>) -> bool {
        std::ptr::eq(self.0.as_ptr(), Arc::as_ptr(catalog))
    }
}

fn catalog_names(catalog: &Catalog) -> CatalogNames {
    let sources = catalog.sdk().sources().iter();
    let down = catalog.health().iter().filter(|it| it.state != "ready");
    let awaited = catalog.connecting().iter().map(|it| it.source.clone());
    CatalogNames {
        sources: sources.map(|it| (it.name.clone(), it.original.clone())).collect(),
        awaited: awaited.chain(down.map(|it| it.source.clone())).collect(),
    }
}

fn define(sdk: &Sdk, wanted: &WantedDefinitions) -> ToolDefinitions {
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
        let output = found.tool.output.as_ref().map(|it| Arc::unwrap_or_clone(it.outline()));
        let input = Arc::unwrap_or_clone(found.tool.input.outline());
        told.functions.push(FunctionSchemas { source, function, input, output });
    }
    told
}
