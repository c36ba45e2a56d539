//! The checker process: this binary in another role.
//!
//! Reading a script, and finding the types in it, is native work on text that a
//! stranger wrote. Here it may overflow the stack, never end, or take all memory
//! it can get: the kernel or the clock ends this process, and nothing else.
//!
//! It has an empty environment, opens nothing, and ends when its input does.

use std::io::BufReader;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use moonlark_core::Module;

use super::check_clock::{CheckClock, used_processor_time};
use super::check_protocol::{CheckRequest, read_frame, write_frame};
use super::script_checker::{JudgedScript, ScriptChecker, TypingLimits};

/// The first argument that asks for this mode.
pub(super) const CHECK_MODE_ARG: &str = "__check";
/// The parser nests as deep as it allows itself, types as deep as they like. Only
/// what is used is taken.
pub(super) const CHECK_STACK_BYTES: usize = 128 << 20;
/// What checks may take beyond what a fresh worker has; the definitions of what all scripts
/// may name are a few megabytes of it.
const MAX_CHECK_GROWTH_BYTES: u64 = 264 << 20;
/// A worker that keeps more than this beyond that is replaced.
const MAX_RETAINED_BYTES: u64 = 56 << 20;
/// When nothing was asked for this long, the definitions are read, which takes some thirty
/// milliseconds. Earlier they would be in the way of a server that starts: its first script
/// may need no types.
const DEFINITIONS_DELAY: Duration = Duration::from_millis(250);
/// Asking the kernel for that takes as long as a short check: it is asked after one that took
/// longer than this, and after so many others.
const SHORT_CHECK_TIME: Duration = Duration::from_millis(5);
const SHORT_CHECKS_PER_LOOK: u32 = 16;
/// How long after the clock the kernel ends the process, should that have failed.
const KERNEL_GRACE_SECONDS: u64 = 1;

static CHECK_PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// For the top of a binary's `main`: be a worker if that is what this process was
/// started for, and otherwise note that this binary can be one. Without it,
/// scripts are checked in this very process.
pub fn check_scripts_if_asked(modules: fn() -> Vec<Module>) {
    if std::env::args_os().nth(1).is_some_and(|mode| mode == CHECK_MODE_ARG) {
        serve_checks(modules());
    }
    // Also right when the file was replaced by a newer version meanwhile.
    #[cfg(target_os = "linux")]
    let path = Some(PathBuf::from("/proc/self/exe"));
    #[cfg(not(target_os = "linux"))]
    let path = std::env::current_exe().ok();
    if let Some(path) = path {
        set_check_program(path);
    }
}

/// Check scripts in processes of this program, whose `main` begins as above.
pub fn set_check_program(program: PathBuf) {
    let _ = CHECK_PROGRAM.set(program);
}

pub(super) fn check_program() -> Option<&'static Path> {
    CHECK_PROGRAM.get().map(PathBuf::as_path)
}

fn serve_checks(modules: Vec<Module>) -> ! {
    let worker = std::thread::Builder::new()
        .stack_size(CHECK_STACK_BYTES)
        .spawn(move || CheckServer::new(modules).serve_requests());
    // Without one, the pool sees that the process has ended.
    let served = worker.is_ok_and(|worker| worker.join().is_ok());
    std::process::exit(if served { 0 } else { 1 })
}

struct CheckServer {
    checker: ScriptChecker,
    modules: Arc<Vec<Module>>,
    clock: CheckClock,
    /// Private memory after the start.
    fresh_bytes: u64,
    /// Since the kernel was asked how much there is.
    short_checks: u32,
}

impl CheckServer {
    fn new(modules: Vec<Module>) -> CheckServer {
        let modules = Arc::new(modules);
        let checker = ScriptChecker::new(&modules);
        let clock = CheckClock::start();
        let fresh_bytes = bounds::private_bytes();
        bounds::limit_memory(fresh_bytes.map(|fresh| fresh + MAX_CHECK_GROWTH_BYTES));
        CheckServer {
            checker,
            modules,
            clock,
            fresh_bytes: fresh_bytes.unwrap_or(0),
            short_checks: 0,
        }
    }

    fn serve_requests(mut self) {
        let mut input = BufReader::new(std::io::stdin());
        if !stdin_has_input_within(DEFINITIONS_DELAY) {
            self.checker.load_definitions();
        }
        while let Ok(request) = read_frame::<CheckRequest>(&mut input) {
            bounds::limit_processor_time(request.limit.as_secs() + 1 + KERNEL_GRACE_SECONDS);
            let began = used_processor_time();
            // A defect of the checker costs the check, not the script.
            let checked = catch_unwind(AssertUnwindSafe(|| self.run_check(request)));
            self.clock.end_check();
            let report = match checked {
                Ok(judged) => {
                    let is_small = self.is_small_after(used_processor_time().saturating_sub(began));
                    judged.into_report(is_small)
                }
                Err(_) => {
                    JudgedScript { is_untyped: true, ..JudgedScript::default() }.into_report(false)
                }
            };
            if write_frame(&mut std::io::stdout(), &report).is_err() || !report.reusable {
                return;
            }
        }
    }

    fn run_check(&mut self, request: CheckRequest) -> JudgedScript {
        let CheckRequest { script, catalog, limit, run_type_functions } = request;
        let stop = self.clock.begin_check(limit);
        let catalog = catalog.into_catalog(&self.modules);
        let bound = TypingLimits {
            stop,
            clock: Some(&self.clock),
            run_type_functions,
            always_typed: false,
        };
        self.checker.check_script(&script, &catalog, bound)
    }

    /// Whether the process may go on after a check of that length.
    fn is_small_after(&mut self, took: Duration) -> bool {
        self.short_checks += 1;
        if took < SHORT_CHECK_TIME && self.short_checks < SHORT_CHECKS_PER_LOOK {
            return true;
        }
        self.short_checks = 0;
        bounds::private_bytes().is_none_or(|now| now < self.fresh_bytes + MAX_RETAINED_BYTES)
    }
}

/// Wait until there is something to read, or the end of it.
fn stdin_has_input_within(timeout: Duration) -> bool {
    let mut stdin = libc::pollfd { fd: libc::STDIN_FILENO, events: libc::POLLIN, revents: 0 };
    let millis = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: one descriptor, which the call fills in.
    unsafe { libc::poll(&raw mut stdin, 1, millis) != 0 }
}

mod bounds {
    use rustix::process::{Resource, Rlimit, setrlimit};

    /// Private writable memory, which is what the limit is about. None where the
    /// system does not tell.
    pub(super) fn private_bytes() -> Option<u64> {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmData:"))?;
        let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kilobytes * 1024)
    }

    pub(super) fn limit_memory(most: Option<u64>) {
        let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
        if most.is_some() {
            let _ = setrlimit(Resource::Data, Rlimit { current: most, maximum: most });
        }
    }

    /// From now on. The kernel counts whole seconds since the process began.
    pub(super) fn limit_processor_time(seconds: u64) {
        let used = super::used_processor_time();
        let most = Rlimit { current: Some(used.as_secs() + seconds), maximum: None };
        let _ = setrlimit(Resource::Cpu, most);
    }
}
