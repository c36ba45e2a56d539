//! One command from its start to its answer: fed, read and bounded.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path};
use std::time::Duration;

use moonlark_core::grant::{AllowedDir, AllowedExec};
use moonlark_core::limits::{format_seconds, format_size};
use moonlark_core::value::{TextOrBytes, shorten_text};
use moonlark_core::{Problem, ProblemCode, Result};
use moonlark_gateway::Call;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;

use super::{ExecOutput, ExecRunArgs, command};
use crate::args::check_result_size;
use crate::fs::open_script_dir;
use moonlark_child::{LaunchSpec, ProcessEnding, SupervisedProcess};

pub(super) async fn run_command(
    call: Call,
    allowed: AllowedExec,
    args: ExecRunArgs,
) -> Result<ExecOutput> {
    let patience = parse_timeout(args.timeout)?;
    let folder = call.grants().check_dir("exec.run")?;
    let (argv, env) = (command::to_os_arguments(args.args)?, command::build_environment(args.env)?);
    let name = allowed.command().to_owned();
    let feed = args.stdin.is_some();
    let start = move || {
        let program = command::find_program(&allowed)?;
        let folder = open_working_dir(&folder, args.cwd.as_deref())?;
        SupervisedProcess::start(LaunchSpec { program, args: argv, env, folder, feed })
            .map_err(|error| not_started_problem(allowed.command(), &error))
    };
    let started = tokio::task::spawn_blocking(start).await;
    let SupervisedProcess { stdin, stdout, stderr, mut status } = started
        .unwrap_or_else(|error| Err(Problem::internal(format!("it was not started: {error}"))))?;

    let most = call.limits().http_body;
    let work = async {
        tokio::try_join!(
            write_stdin(stdin, args.stdin.unwrap_or_default()),
            read_output(&name, "stdout", stdout, most),
            read_output(&name, "stderr", stderr, most),
            async {
                status.wait_for_end().await.map_err(|error| lost_process_problem(&name, &error))
            },
        )
    };
    let outcome = tokio::time::timeout(patience, work).await.unwrap_or_else(|_| {
        let spent = format_seconds(patience);
        Err(Problem::new(ProblemCode::Timeout, format!("{name} did not end within {spent}")))
    });
    let ((), stdout, stderr, ending) = match outcome {
        Ok(all) => all,
        Err(problem) => {
            status.kill().await;
            return Err(problem);
        }
    };
    if let ProcessEnding::NotStarted { errno } = ending {
        return Err(not_started_problem(&name, &io::Error::from_raw_os_error(errno)));
    }
    check_result_size(&call, stdout.len() + stderr.len())?;
    if args.check && ending != ProcessEnding::Exited(0) {
        return Err(exit_problem(&name, ending, &stderr));
    }
    let exit_code = ending.exit_code();
    let success = exit_code == 0;
    Ok(ExecOutput { stdout: TextOrBytes(stdout), stderr: TextOrBytes(stderr), exit_code, success })
}

/// How long the script itself is willing to wait. The call's deadline is the
/// caller's to enforce: it drops all of this.
fn parse_timeout(timeout: Option<f64>) -> Result<Duration> {
    let Some(timeout) = timeout else { return Ok(Duration::MAX) };
    match Duration::try_from_secs_f64(timeout) {
        Ok(patience) if !patience.is_zero() => Ok(patience),
        // Longer than a Duration can hold is as good as for ever.
        Err(_) if timeout > 0.0 => Ok(Duration::MAX),
        _ => Err(Problem::bad_request(format!(
            "timeout must be a number of seconds over 0, got {timeout}"
        ))),
    }
}

/// The folder to run in. Resolved by the system below the script's directory,
/// and kept open: neither `..` nor a link leads out of it, then or later.
fn open_working_dir(allowed: &AllowedDir, cwd: Option<&str>) -> Result<OwnedFd> {
    let dir = open_script_dir(allowed)?;
    let Some(cwd) = cwd else { return Ok(dir.into_std_file().into()) };
    let shown = shorten_text(cwd);
    let outside = || {
        Problem::denied("exec.run may not leave the script's directory")
            .with_hint("give cwd as a folder below the script, such as \"data\"")
    };
    if Path::new(cwd).components().any(|part| matches!(part, Component::RootDir)) {
        return Err(outside());
    }
    let found = dir.open_dir(cwd).map_err(|error| match error.kind() {
        // The system itself denies with a number, confinement without one.
        io::ErrorKind::PermissionDenied if error.raw_os_error().is_none() => outside(),
        io::ErrorKind::NotFound => {
            Problem::new(ProblemCode::NotFound, format!("no folder {shown}"))
        }
        io::ErrorKind::NotADirectory => Problem::bad_request(format!("{shown} is not a folder")),
        kind => Problem::bad_request(format!("the folder {shown} cannot be used: {kind}")),
    })?;
    Ok(found.into_std_file().into())
}

/// A command need not read what it is given.
async fn write_stdin(stdin: Option<pipe::Sender>, data: TextOrBytes) -> Result<()> {
    if let Some(mut stdin) = stdin {
        let _ = stdin.write_all(&data.0).await;
    }
    Ok(())
}

async fn read_output(
    name: &str,
    stream: &str,
    from: impl AsyncRead + Unpin,
    most: usize,
) -> Result<Vec<u8>> {
    let mut data = Vec::new();
    // One byte more than allowed tells that there is more.
    from.take(most as u64 + 1)
        .read_to_end(&mut data)
        .await
        .map_err(|error| lost_process_problem(name, &error))?;
    if data.len() > most {
        return Err(Problem::limit_exceeded(format!(
            "{name} wrote more than {} to {stream}",
            format_size(most)
        ))
        .with_hint("have it write less, or raise limits.http_body"));
    }
    Ok(data)
}

/// The supervisor is gone without a word.
fn lost_process_problem(name: &str, error: &io::Error) -> Problem {
    Problem::tool_error(format!("how {name} ended is not known: {}", error.kind()))
        .with_hint("the process that watches over it was killed, perhaps for lack of memory")
}

fn not_started_problem(name: &str, error: &io::Error) -> Problem {
    let reason = match error.raw_os_error() {
        Some(libc::E2BIG) => {
            return Problem::bad_request(format!("the arguments of {name} are too long"))
                .with_hint("give it long text by stdin");
        }
        Some(libc::ENOEXEC) => "it is not a program".to_owned(),
        Some(libc::ENOENT) => "it, or what it is to be run with, is not there".to_owned(),
        _ if error.kind() == io::ErrorKind::Unsupported => error.to_string(),
        _ => error.kind().to_string(),
    };
    let busy = matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOMEM | libc::EMFILE));
    Problem::unavailable(format!("{name} cannot be started: {reason}")).with_retryable(busy)
}

/// For those who asked for success: what a person would look at first.
fn exit_problem(name: &str, ending: ProcessEnding, stderr: &[u8]) -> Problem {
    let how = match ending {
        ProcessEnding::Killed { signal } => format!("{name} was killed by signal {signal}"),
        other => format!("{name} exited with {}", other.exit_code()),
    };
    let said = String::from_utf8_lossy(stderr);
    let last = said.lines().map(str::trim).rfind(|line| !line.is_empty());
    Problem::tool_error(match last {
        Some(line) => format!("{how}: {}", shorten_text(line)),
        None => how,
    })
}
