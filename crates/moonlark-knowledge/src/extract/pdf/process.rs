//! The process that reads a PDF: this binary in another role.
//!
//! It gets the file on its standard input, answers on its standard output, and
//! ends itself when its time is over. It starts nothing and opens nothing, so
//! nothing is left when it ends, whenever that is.

use std::env;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio, exit};
use std::sync::OnceLock;
use std::time::Duration;

use moonlark_core::limits::{seconds, size};
use moonlark_core::{Code, Problem, Result};

use super::{Answer, damaged, paper};
use crate::extract::ExtractLimits;

/// The first argument that asks for this mode.
const MODE: &str = "__read_pdf";
/// The exit code when time is over.
const TOO_LATE: i32 = 87;
/// Reserved, not used up: the library follows nested objects by recursion.
const STACK: usize = 64 * 1024 * 1024;

static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// For the top of a binary's `main`: be the reader if that is what this process
/// was started for, and otherwise note that this binary can be one. Without it,
/// PDFs are read in this very process.
pub fn read_if_asked() {
    let mut arguments = env::args().skip(1);
    if arguments.next().is_some_and(|mode| mode == MODE) {
        serve(arguments.map(|it| it.parse().unwrap_or(0)).collect());
    }
    // Also right when the file was replaced by a newer version meanwhile.
    #[cfg(target_os = "linux")]
    let path = Some(PathBuf::from("/proc/self/exe"));
    #[cfg(not(target_os = "linux"))]
    let path = env::current_exe().ok();
    if let Some(path) = path {
        let _ = PROGRAM.set(path);
    }
}

pub(super) fn program() -> Option<&'static Path> {
    PROGRAM.get().map(PathBuf::as_path)
}

fn serve(limits: Vec<u64>) -> ! {
    let [pages, milliseconds, memory] = limits[..] else { exit(1) };
    bound(memory);
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(milliseconds));
        exit(TOO_LATE)
    });
    let work = move || {
        let mut file = Vec::new();
        std::io::stdin().read_to_end(&mut file).ok()?;
        let answer = paper::read(&file, pages as usize);
        let answer = serde_json::to_vec(&answer).ok()?;
        std::io::stdout().write_all(&answer).ok()
    };
    let worker = std::thread::Builder::new().stack_size(STACK).spawn(work);
    match worker.map(std::thread::JoinHandle::join) {
        Ok(Ok(Some(()))) => exit(0),
        _ => exit(1),
    }
}

/// Private memory, as the kernel counts it, and no core file.
#[cfg(unix)]
fn bound(memory: u64) {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let limit = |most| Rlimit { current: Some(most), maximum: Some(most) };
    let _ = setrlimit(Resource::Data, limit(memory));
    let _ = setrlimit(Resource::Core, limit(0));
}

#[cfg(not(unix))]
fn bound(_memory: u64) {}

pub(super) fn ask(program: &Path, file: &[u8], limits: &ExtractLimits) -> Result<Answer> {
    let lost = |error: std::io::Error| {
        Problem::unavailable(format!("the process that reads PDFs cannot be used: {error}"))
    };
    let mut child = Command::new(program)
        .arg(MODE)
        .args([
            limits.pages.to_string(),
            limits.time.as_millis().to_string(),
            limits.memory.to_string(),
        ])
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(lost)?;
    // It reads everything before it writes anything. If it ends before that,
    // its ending says why.
    if let Some(mut stdin) = child.stdin.take() {
        let _ = stdin.write_all(file);
    }
    let mut answer = Vec::new();
    let most = (limits.text as u64).saturating_mul(2);
    if let Some(stdout) = child.stdout.take() {
        let _ = stdout.take(most + 1).read_to_end(&mut answer);
    }
    if answer.len() as u64 > most {
        let _ = child.kill();
        let _ = child.wait();
        return Err(crate::extract::too_long(limits.text));
    }
    let ending = child.wait().map_err(lost)?;
    match serde_json::from_slice(&answer) {
        Ok(answer) if ending.success() => Ok(answer),
        _ => Err(explain(ending, limits)),
    }
}

fn explain(ending: ExitStatus, limits: &ExtractLimits) -> Problem {
    if ending.code() == Some(TOO_LATE) {
        let spent = seconds(limits.time);
        return Problem::new(Code::Timeout, format!("the PDF takes longer than {spent} to read"));
    }
    #[cfg(unix)]
    if std::os::unix::process::ExitStatusExt::signal(&ending) == Some(libc::SIGABRT) {
        let most = size(limits.memory);
        return Problem::limit(format!(
            "reading the PDF takes more than {most} of memory, or never comes to an end"
        ));
    }
    damaged("it cannot be followed")
}
