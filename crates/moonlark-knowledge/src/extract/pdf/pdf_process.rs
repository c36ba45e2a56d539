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

use moonlark_core::limits::{format_seconds, format_size};
use moonlark_core::{Problem, ProblemCode, Result};

use super::{PdfAnswer, damaged_pdf_problem, pdf_reader};
use crate::extract::ExtractLimits;

/// The first argument that asks for this mode.
const READ_PDF_MODE: &str = "__read_pdf";
/// The exit code when time is over.
const TIMEOUT_EXIT_CODE: i32 = 87;
/// Reserved, not used up: the library follows nested objects by recursion.
const PDF_STACK_BYTES: usize = 64 * 1024 * 1024;

static PDF_READER_PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// For the top of a binary's `main`: be the reader if that is what this process
/// was started for, and otherwise note that this binary can be one. Without it,
/// PDFs are read in this very process.
pub fn run_pdf_reader_if_requested() {
    let mut arguments = env::args().skip(1);
    if arguments.next().is_some_and(|mode| mode == READ_PDF_MODE) {
        run_reader(arguments.map(|it| it.parse().unwrap_or(0)).collect());
    }
    // Also right when the file was replaced by a newer version meanwhile.
    #[cfg(target_os = "linux")]
    let path = Some(PathBuf::from("/proc/self/exe"));
    #[cfg(not(target_os = "linux"))]
    let path = env::current_exe().ok();
    if let Some(path) = path {
        let _ = PDF_READER_PROGRAM.set(path);
    }
}

pub(super) fn reader_program() -> Option<&'static Path> {
    PDF_READER_PROGRAM.get().map(PathBuf::as_path)
}

fn run_reader(limits: Vec<u64>) -> ! {
    let [pages, milliseconds, memory] = limits[..] else { exit(1) };
    limit_memory(memory);
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(milliseconds));
        exit(TIMEOUT_EXIT_CODE)
    });
    let work = move || {
        let mut file = Vec::new();
        std::io::stdin().read_to_end(&mut file).ok()?;
        let answer = pdf_reader::read_pdf(&file, pages as usize);
        let answer = serde_json::to_vec(&answer).ok()?;
        std::io::stdout().write_all(&answer).ok()
    };
    let worker = std::thread::Builder::new().stack_size(PDF_STACK_BYTES).spawn(work);
    match worker.map(std::thread::JoinHandle::join) {
        Ok(Ok(Some(()))) => exit(0),
        _ => exit(1),
    }
}

/// Private memory, as the kernel counts it, and no core file.
fn limit_memory(memory: u64) {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let limit = |most| Rlimit { current: Some(most), maximum: Some(most) };
    let _ = setrlimit(Resource::Data, limit(memory));
    let _ = setrlimit(Resource::Core, limit(0));
}

pub(super) fn read_in_child(
    program: &Path,
    file: &[u8],
    limits: &ExtractLimits,
) -> Result<PdfAnswer> {
    let lost = |error: std::io::Error| {
        Problem::unavailable(format!("the process that reads PDFs cannot be used: {error}"))
    };
    let mut child = Command::new(program)
        .arg(READ_PDF_MODE)
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
        return Err(crate::extract::too_long_problem(limits.text));
    }
    let ending = child.wait().map_err(lost)?;
    match serde_json::from_slice(&answer) {
        Ok(answer) if ending.success() => Ok(answer),
        _ => Err(exit_problem(ending, limits)),
    }
}

fn exit_problem(ending: ExitStatus, limits: &ExtractLimits) -> Problem {
    if ending.code() == Some(TIMEOUT_EXIT_CODE) {
        let spent = format_seconds(limits.time);
        return Problem::new(
            ProblemCode::Timeout,
            format!("the PDF takes longer than {spent} to read"),
        );
    }
    if std::os::unix::process::ExitStatusExt::signal(&ending) == Some(libc::SIGABRT) {
        let most = format_size(limits.memory);
        return Problem::limit_exceeded(format!(
            "reading the PDF takes more than {most} of memory, or never comes to an end"
        ));
    }
    damaged_pdf_problem("it cannot be followed")
}
