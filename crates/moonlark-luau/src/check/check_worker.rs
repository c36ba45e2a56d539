//! One worker process, as the pool sees it.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use moonlark_core::Catalog;
use moonlark_core::limits::format_seconds;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::check_clock::OUT_OF_TIME_EXIT_CODE;
use super::check_protocol::{CheckRequest, FinishedCheck, MAX_CHECK_FRAME_BYTES, encode_frame};
use super::check_server::CHECK_MODE_ARG;
use super::described_catalog::DescribedCatalog;

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
}

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
            .arg(CHECK_MODE_ARG)
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
        Ok(CheckWorker { child, input, output: BufReader::new(output) })
    }

    /// Check a script. With the report comes the worker, for the next one, if it
    /// may have another.
    pub(super) async fn check_script(
        mut self,
        script: &str,
        catalog: &Catalog,
        limit: Duration,
    ) -> Result<(FinishedCheck, Option<CheckWorker>), CheckFailure> {
        let request = CheckRequest {
            script: script.to_owned(),
            catalog: DescribedCatalog::for_script(catalog, script),
            limit,
            run_type_functions: false,
        };
        match tokio::time::timeout(CHECK_WORKER_TIMEOUT, self.exchange_messages(&request)).await {
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
        request: &CheckRequest,
    ) -> std::io::Result<FinishedCheck> {
        self.input.write_all(&encode_frame(request)?).await?;
        self.input.flush().await?;
        let length = self.output.read_u32_le().await? as usize;
        if length > MAX_CHECK_FRAME_BYTES {
            return Err(std::io::Error::other("a message beyond all limits"));
        }
        // Grows with what arrives, not with what was announced.
        let mut body = Vec::new();
        (&mut self.output).take(length as u64).read_to_end(&mut body).await?;
        Ok(serde_json::from_slice(&body)?)
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
    if status.is_some_and(is_out_of_time) {
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
fn is_out_of_time(status: ExitStatus) -> bool {
    status.signal() == Some(CPU_LIMIT_SIGNAL) || status.code() == Some(OUT_OF_TIME_EXIT_CODE)
}
const CPU_LIMIT_SIGNAL: i32 = rustix::process::Signal::XCPU.as_raw();
