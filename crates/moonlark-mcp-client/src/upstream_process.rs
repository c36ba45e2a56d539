//! The process of an upstream: its program, environment, stderr and exit. How it is
//! spoken to is not known here.

use std::collections::{BTreeMap, VecDeque};
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use moonlark_child::{LaunchSpec, ProcessEnding, SupervisedProcess, SupervisorHandle};
use moonlark_core::Problem;
use moonlark_core::secret::Secrets;
use moonlark_core::value::shorten_text;
use parking_lot::Mutex;
use tokio::io::AsyncRead;
use tokio::net::unix::pipe;
use tokio::process::{ChildStderr, ChildStdout};
use tokio::time::Instant;

use crate::line_reader::{self, InputLine};
use moonlark_core::secret::SecretText;

/// A process that was just started.
pub(super) struct UpstreamProcess {
    pub(super) stdin: pipe::Sender,
    pub(super) stdout: ChildStdout,
    pub(super) stderr: ChildStderr,
    pub(super) status: SupervisorHandle,
    /// How to call it in messages.
    pub(super) shown: String,
}

/// Start `command`, from the operator's configuration.
pub(super) async fn start_process(
    name: &str,
    command: &str,
    args: &[String],
    env: &BTreeMap<String, SecretText>,
    cwd: &Path,
) -> Result<UpstreamProcess, Problem> {
    let shown = display_command(command, args);
    let (name, command, cwd) = (name.to_owned(), command.to_owned(), cwd.to_owned());
    let args = args.iter().map(OsString::from).collect();
    let env = build_environment(env);
    let launch = move || {
        let program = find_program(&name, &command, &env, &cwd)?;
        let folder = File::open(&cwd).map_err(|error| {
            not_started_problem(
                &name,
                &format!("its folder {} cannot be used: {}", cwd.display(), error.kind()),
            )
            .with_hint(format!("correct cwd of mcp_servers.{name}"))
        })?;
        let launch = LaunchSpec { program, args, env, folder: OwnedFd::from(folder), feed: true };
        SupervisedProcess::start(launch)
            .map_err(|error| not_started_problem(&name, &describe_start_error(&error)))
    };
    let started = tokio::task::spawn_blocking(launch).await;
    let SupervisedProcess { stdin, stdout, stderr, status } = started
        .unwrap_or_else(|error| Err(Problem::internal(format!("it was not started: {error}"))))?;
    let Some(stdin) = stdin else { return Err(Problem::internal("a process without an input")) };
    Ok(UpstreamProcess { stdin, stdout, stderr, status, shown })
}

/// The command without what may be secret in its arguments.
pub(super) fn display_command(command: &str, args: &[String]) -> String {
    if args.is_empty() { command.to_owned() } else { format!("{command} …") }
}

/// What any program may need of Moonlark's environment, and what the operator
/// adds. Moonlark's own tokens and settings are not in it.
fn build_environment(own: &BTreeMap<String, SecretText>) -> Vec<(OsString, OsString)> {
    let common = env::vars_os().filter(|(name, _)| is_common_variable(name));
    let mut all: BTreeMap<OsString, OsString> = common.collect();
    for (name, value) in own {
        all.insert(name.into(), value.expose_secret().into());
    }
    all.into_iter().collect()
}

fn is_common_variable(name: &OsStr) -> bool {
    const COMMON_VARIABLES: &[&str] =
        &["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR"];
    COMMON_VARIABLES.iter().any(|common| name == OsStr::new(common))
        || name.as_bytes().starts_with(b"LC_")
}

/// The program's file: as a path from `cwd`, or by its own `PATH`.
fn find_program(
    name: &str,
    command: &str,
    env: &[(OsString, OsString)],
    cwd: &Path,
) -> Result<PathBuf, Problem> {
    if command.contains('/') {
        let path = cwd.join(command);
        return if is_program(&path) {
            Ok(path)
        } else {
            Err(not_started_problem(name, &format!("{} is not a program", path.display()))
                .with_hint(format!("correct command of mcp_servers.{name}")))
        };
    }
    let path = env.iter().find(|(name, _)| name == "PATH").map(|(_, path)| path.as_os_str());
    let folders =
        env::split_paths(path.unwrap_or_else(|| OsStr::new("/usr/local/bin:/usr/bin:/bin")));
    // A relative folder is meant from where the program will run.
    folders.map(|folder| cwd.join(folder).join(command)).find(|path| is_program(path)).ok_or_else(
        || {
            not_started_problem(name, &format!("{} is not installed", shorten_text(command)))
                .with_hint("install it in a folder of the PATH that Moonlark is started with")
        },
    )
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

fn not_started_problem(name: &str, why: &str) -> Problem {
    Problem::unavailable(format!("upstream '{name}' cannot be started: {why}"))
        .with_retryable(false)
}

fn describe_start_error(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::Unsupported => error.to_string(),
        io::ErrorKind::NotFound => "it, or what it is to be run with, is not there".to_owned(),
        kind => kind.to_string(),
    }
}

/// The last lines of its error output.
#[derive(Clone, Default)]
pub(super) struct StderrTail(Arc<Mutex<VecDeque<String>>>);

/// How many of them are kept, and how much of each.
const MAX_STDERR_TAIL_LINES: usize = 20;
const MAX_STDERR_LINE_BYTES: usize = 1000;

impl StderrTail {
    /// Write it to the log as far as there is room, and remember the end.
    pub(super) async fn log_and_remember(
        self,
        name: String,
        secrets: Secrets,
        from: impl AsyncRead + Unpin,
    ) {
        let budget = Mutex::new(StderrLogBudget::new(Instant::now()));
        let say_left_out = |left_out: Option<OmittedStderr>| {
            if let Some(OmittedStderr { lines, bytes }) = left_out {
                tracing::warn!(
                    target: "upstream",
                    "{name}: {lines} lines ({bytes} bytes) of its error output were left out of the log"
                );
            }
        };
        let reading = line_reader::read_lines(from, MAX_STDERR_LINE_BYTES, |line| {
            let (bytes, more) = match line {
                InputLine::Whole(bytes) | InputLine::Half(bytes) => (bytes, ""),
                InputLine::TooLong(head) => (&head[..head.len().min(MAX_STDERR_LINE_BYTES)], "…"),
            };
            let text = String::from_utf8_lossy(bytes.trim_ascii_end());
            let text = secrets.redact_text(&text);
            let (logged, left_out) = budget.lock().try_spend(text.len(), Instant::now());
            say_left_out(left_out);
            if logged {
                tracing::info!(target: "upstream", "{name}: {text}{more}");
            }
            let mut last = self.0.lock();
            if last.len() == MAX_STDERR_TAIL_LINES {
                last.pop_front();
            }
            last.push_back(format!("{text}{more}"));
        });
        let ticking = async {
            loop {
                tokio::time::sleep(STDERR_LOG_WINDOW).await;
                say_left_out(budget.lock().renew_window(Instant::now()));
            }
        };
        tokio::select! {
            // When it cannot be read, there is no more of it.
            _ = reading => {}
            () = ticking => {}
        }
        say_left_out(budget.lock().take_omitted());
    }

    fn joined_lines(&self) -> String {
        let last = self.0.lock();
        last.iter().map(String::as_str).collect::<Vec<_>>().join("\n")
    }
}

/// Lines and bytes of one server's error output that go to the log in each window.
const MAX_LOGGED_STDERR_LINES: usize = 200;
const MAX_LOGGED_STDERR_BYTES: usize = 64 * 1024;
const STDERR_LOG_WINDOW: Duration = Duration::from_secs(10);

/// How much more a server may write to the log.
struct StderrLogBudget {
    since: Instant,
    lines: usize,
    bytes: usize,
    left_out: OmittedStderr,
}

#[derive(Debug, Default, Clone, Copy, PartialEq)]
struct OmittedStderr {
    lines: usize,
    bytes: usize,
}

impl StderrLogBudget {
    fn new(now: Instant) -> StderrLogBudget {
        StderrLogBudget { since: now, lines: 0, bytes: 0, left_out: OmittedStderr::default() }
    }

    /// Whether a line of this length is logged, and what was left out before it.
    fn try_spend(&mut self, bytes: usize, now: Instant) -> (bool, Option<OmittedStderr>) {
        let left_out = self.renew_window(now);
        if self.lines >= MAX_LOGGED_STDERR_LINES || self.bytes + bytes > MAX_LOGGED_STDERR_BYTES {
            self.left_out.lines += 1;
            self.left_out.bytes += bytes;
            return (false, left_out);
        }
        self.lines += 1;
        self.bytes += bytes;
        (true, left_out)
    }

    /// Begin anew if the window is over.
    fn renew_window(&mut self, now: Instant) -> Option<OmittedStderr> {
        if now.duration_since(self.since) < STDERR_LOG_WINDOW {
            return None;
        }
        (self.since, self.lines, self.bytes) = (now, 0, 0);
        self.take_omitted()
    }

    fn take_omitted(&mut self) -> Option<OmittedStderr> {
        let left_out = std::mem::take(&mut self.left_out);
        (left_out.lines > 0).then_some(left_out)
    }
}

/// What a person would want to know of its end.
pub(super) fn process_ended_problem(
    name: &str,
    shown: &str,
    ending: Option<io::Result<ProcessEnding>>,
    said: &StderrTail,
) -> Problem {
    let how = match ending {
        Some(Ok(ProcessEnding::NotStarted { errno })) => {
            return not_started_problem(
                name,
                &describe_start_error(&io::Error::from_raw_os_error(errno)),
            );
        }
        Some(Ok(ProcessEnding::Exited(code))) => format!("exited with code {code}"),
        Some(Ok(ProcessEnding::Killed { signal })) => format!("was killed by signal {signal}"),
        Some(Err(_)) => "ended, how is not known".to_owned(),
        None => "closed its input or output and was ended".to_owned(),
    };
    let said = match said.joined_lines() {
        none if none.is_empty() => String::new(),
        lines => format!("; its output: {lines}"),
    };
    Problem::unavailable(format!("upstream '{name}' {how}{said}"))
        .with_hint(format!("run its command by hand to see why: {shown}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path_of(text: &str) -> Vec<(OsString, OsString)> {
        vec![("PATH".into(), text.into())]
    }

    #[test]
    fn a_command_is_found_by_its_own_path_or_from_its_folder() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("bin/serve");
        std::fs::create_dir(dir.path().join("bin")).unwrap();
        std::fs::write(&program, "").unwrap();
        std::fs::write(dir.path().join("bin/notes"), "").unwrap();
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
        let found = |command, path: &str| {
            find_program("git", command, &path_of(path), dir.path())
                .map_err(|problem| problem.message)
        };
        assert_eq!(found("serve", "/nowhere:bin"), Ok(program.clone()));
        assert_eq!(found("./bin/serve", "/nowhere"), Ok(dir.path().join("./bin/serve")));
        assert_eq!(found(program.to_str().unwrap(), ""), Ok(program.clone()));
        assert_eq!(
            found("notes", "bin"),
            Err("upstream 'git' cannot be started: notes is not installed".to_owned())
        );
        assert!(found("bin/none", "bin").unwrap_err().ends_with("bin/none is not a program"));
    }

    #[test]
    fn a_process_gets_little_of_our_environment_and_all_of_its_own() {
        let own = BTreeMap::from([
            ("TOKEN".to_owned(), SecretText::new("x")),
            ("HOME".to_owned(), SecretText::new("/own")),
        ]);
        let all = build_environment(&own);
        let get = |name: &str| {
            all.iter().find(|(other, _)| other == name).map(|(_, value)| value.to_str().unwrap())
        };
        assert_eq!((get("TOKEN"), get("HOME")), (Some("x"), Some("/own")));
        assert_eq!(get("TERM"), None);
        assert!(all.iter().all(|(name, _)| is_common_variable(name) || name == "TOKEN"), "{all:?}");
        assert!(
            !is_common_variable(OsStr::new("CARGO_HOME"))
                && is_common_variable(OsStr::new("LC_ALL"))
        );
    }

    #[test]
    fn a_flood_of_error_output_is_bounded_per_time_and_counted() {
        let start = Instant::now();
        let mut budget = StderrLogBudget::new(start);
        let logged = (0..200_000).filter(|_| budget.try_spend(100, start).0).count();
        assert_eq!(logged, MAX_LOGGED_STDERR_LINES);
        let later = start + STDERR_LOG_WINDOW;
        let left_out = OmittedStderr { lines: 199_800, bytes: 19_980_000 };
        assert_eq!(budget.try_spend(100, later), (true, Some(left_out)));
        assert_eq!(budget.renew_window(later + STDERR_LOG_WINDOW), None);
        let mut budget = StderrLogBudget::new(start);
        let logged = (0..200).filter(|_| budget.try_spend(1000, start).0).count();
        assert_eq!(logged, MAX_LOGGED_STDERR_BYTES / 1000);
    }

    #[tokio::test]
    async fn its_last_words_are_part_of_the_problem() {
        let said = StderrTail::default();
        let mut text = Vec::new();
        for line in 1..=30 {
            text.extend_from_slice(format!("line {line}\n").as_bytes());
        }
        text.extend_from_slice(b"bad \xff byte\n");
        text.extend_from_slice(&[b'x'; 5000]);
        said.clone().log_and_remember("git".into(), Secrets::default(), text.as_slice()).await;
        let problem =
            process_ended_problem("git", "npx …", Some(Ok(ProcessEnding::Exited(3))), &said);
        let start = "upstream 'git' exited with code 3; its output: line 13\nline 14\n";
        assert!(problem.message.starts_with(start), "{problem}");
        assert!(problem.message.contains("bad \u{fffd} byte\nxxx"), "{problem}");
        assert!(problem.message.ends_with("x…") && problem.message.len() < 1500, "{problem}");
        assert_eq!(
            process_ended_problem(
                "git",
                "npx …",
                Some(Ok(ProcessEnding::Killed { signal: 9 })),
                &StderrTail::default()
            )
            .to_string(),
            "error[unavailable]: upstream 'git' was killed by signal 9\nhint: run its command by hand to see why: npx …"
        );
    }
}
