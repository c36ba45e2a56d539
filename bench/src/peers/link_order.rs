//! `cargo x bench link-order`: which functions a server runs from its start to its first answer,
//! and while it is idle, for the linker to lay them side by side.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::echo::ANSWER;
use crate::server::{Server, beside};
use crate::upstream_path::processes;

use super::instructions::{Profiles, require_valgrind, wait_for_workers};
use super::projects::{EchoUpstream, PeerProject};
use super::rest_rows::{MOONLARK_STREAM, ask_echo};
use super::script_rows::script_arguments;
use super::session_client::SessionClient;
use super::starlark_rows::call_echo;

/// From the root of the repository.
const LINK_ORDER_FILE: &str = "crates/moonlark/link_order.txt";
const TOOL_COUNT: usize = 10;
/// What goes on beside calls happens once in a second, and after a while.
const IDLE_TIME: Duration = Duration::from_secs(6);
/// What a function calls itself from is a function of its own to callgrind.
const RECURSION_MARK: char = '\'';

pub fn write_link_order() -> Result<()> {
    require_valgrind()?;
    let mut names = BTreeSet::new();
    for run in [run_lua_tools, run_starlark_files, run_upstream] {
        names.extend(run()?);
    }
    let mut text =
        "# Functions that a server runs from its start to its first answer, and while it is \
                    idle.\n# Written by `cargo x bench link-order`, read by the linker.\n"
            .to_owned();
    names.iter().try_for_each(|name| writeln!(text, "{name}"))?;
    std::fs::write(LINK_ORDER_FILE, text)
        .with_context(|| format!("{LINK_ORDER_FILE} cannot be written"))?;
    eprintln!("{LINK_ORDER_FILE}: {} functions", names.len());
    Ok(())
}

fn run_lua_tools() -> Result<BTreeSet<String>> {
    let project = PeerProject::moonlark_with_lua_tools(TOOL_COUNT)?;
    let profiles = Profiles::new()?;
    let server = Server::start_announced(profiles.command(&project), MOONLARK_STREAM)?;
    ask_echo(&server)?;
    std::thread::sleep(IDLE_TIME);
    let group = processes(server.pid())?.gateway;
    server.terminate()?;
    wait_for_workers(&group)?;
    read_profiles(&profiles)
}

fn run_starlark_files() -> Result<BTreeSet<String>> {
    let project = PeerProject::moonlark_with_starlark(TOOL_COUNT)?;
    // Valgrind makes fifty times as slow.
    std::fs::write(project.folder().join("moonlark.toml"), "[limits]\nload = 300\n")?;
    run_over_stdio(&project, |client| call_echo(client, ANSWER).map(drop))
}

fn run_upstream() -> Result<BTreeSet<String>> {
    let upstream = EchoUpstream { tools: TOOL_COUNT, has_annotations: false, delay_millis: 0 };
    let project = PeerProject::moonlark_over_upstream(upstream)?;
    // The process that checks does not work under callgrind.
    project.switch_off_type_check()?;
    let script = "return sdk.echo.echo({ message = \"hello\" }).echo";
    run_over_stdio(&project, |client| {
        client.call("execute", &script_arguments(script), ANSWER).map(drop)
    })
}

fn run_over_stdio(
    project: &PeerProject,
    call: impl FnOnce(&mut SessionClient) -> Result<()>,
) -> Result<BTreeSet<String>> {
    let profiles = Profiles::new()?;
    let mut client = SessionClient::start(profiles.command(project))?;
    call(&mut client)?;
    std::thread::sleep(IDLE_TIME);
    let group = processes(client.pid())?.gateway;
    client.end()?;
    wait_for_workers(&group)?;
    read_profiles(&profiles)
}

fn read_profiles(profiles: &Profiles) -> Result<BTreeSet<String>> {
    let program = beside("moonlark")?;
    let mut names = BTreeSet::new();
    for path in profiles.files()? {
        names.extend(executed_functions(&std::fs::read_to_string(path)?, &program));
    }
    ensure!(!names.is_empty(), "callgrind names no function of {}", program.display());
    Ok(names)
}

/// The functions of `program` in a profile, as the linker calls them. A name stands at its first
/// use, and a number for it later: `fn=(12) name`, `fn=(12)`.
fn executed_functions(profile: &str, program: &Path) -> BTreeSet<String> {
    let (mut objects, mut functions) = (HashMap::new(), HashMap::new());
    let mut is_of_program = false;
    let mut executed = BTreeSet::new();
    for line in profile.lines() {
        let Some((kind, rest)) = line.split_once("=(") else { continue };
        let Some((number, name)) = rest.split_once(')') else { continue };
        let (known, name) = match kind {
            "ob" | "cob" => (&mut objects, name.trim()),
            "fn" | "cfn" => {
                (&mut functions, name.trim().split(RECURSION_MARK).next().unwrap_or(""))
            }
            _ => continue,
        };
        if !name.is_empty() {
            known.insert(number, name);
        }
        match kind {
            "ob" => is_of_program = objects.get(number).is_some_and(|it| Path::new(it) == program),
            "fn" if is_of_program => executed.extend(functions.get(number).copied()),
            _ => {}
        }
    }
    // Parts without a name have an address.
    executed
        .into_iter()
        .filter(|name| !name.starts_with("0x") && *name != "???")
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_the_program_are_read_under_their_own_names() {
        let profile = "ob=(1) /lib/ld.so\nfn=(1) _dl_start\n1 2\ncob=(2) /bin/moonlark\ncfn=(2) main\n\
                       ob=(2)\nfn=(2)\n0 1\nfn=(3) _ZN4walkE'2\n0 1\nfn=(4) 0x0001\n0 1\nob=(1)\nfn=(5) free\n";
        let found = executed_functions(profile, Path::new("/bin/moonlark"));
        assert_eq!(found, BTreeSet::from(["main".to_owned(), "_ZN4walkE".to_owned()]));
    }
}
