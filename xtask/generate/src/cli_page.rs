//! `docs/reference/cli.md`: every command and option.

use std::fmt::Write;

use clap::{Arg, Command};

use super::{cell, made_from};

const INTRODUCTION: &str = "\
Data goes to stdout, messages and logs go to stderr. The exit code is 0 when the command did
its work, 1 when it failed and 2 when the command line itself is wrong.
";

pub(crate) fn page() -> String {
    let mut command = moonlark::cli::clap_command();
    command.build();
    let mut page = format!(
        "# Command line\n\n{}\n\n{INTRODUCTION}",
        made_from("the commands in crates/moonlark/src/cli")
    );
    page.push_str("\n## Options of every command\n\n");
    table(&mut page, command.get_arguments().filter(|arg| arg.is_global_set()));
    for inner in command.get_subcommands() {
        section(&mut page, inner);
    }
    page
}

/// A section for a command that does something, and for those below it.
fn section(page: &mut String, command: &Command) {
    if command.get_name() == "help" {
        return;
    }
    if !command.has_subcommands() {
        return own_section(page, command);
    }
    if command.get_arguments().any(|arg| !is_everywhere(arg)) {
        own_section(page, command);
    }
    for inner in command.get_subcommands() {
        section(page, inner);
    }
}

fn own_section(page: &mut String, command: &Command) {
    let usage = command.clone().render_usage().to_string();
    // The second line, if there is one, is that of the subcommands.
    let usage = usage.lines().next().unwrap_or_default().trim_start_matches("Usage: ");
    let name = command.get_bin_name().unwrap_or(command.get_name());
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let _ = write!(page, "\n## `{name}`\n\n{}\n\n`{usage}`\n", sentence(&about));
    let own: Vec<&Arg> = command.get_arguments().filter(|arg| !is_everywhere(arg)).collect();
    if !own.is_empty() {
        page.push('\n');
        table(page, own.into_iter());
    }
}

fn is_everywhere(arg: &Arg) -> bool {
    arg.is_global_set() || matches!(arg.get_id().as_str(), "help" | "version")
}

fn table<'a>(page: &mut String, args: impl Iterator<Item = &'a Arg>) {
    page.push_str("| option | |\n|---|---|\n");
    for arg in args {
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        let values: Vec<String> = arg
            .get_possible_values()
            .iter()
            .map(|value| format!("`{}`", value.get_name()))
            .collect();
        let choice = if arg.get_action().takes_values() && !values.is_empty() {
            format!(" One of {}.", values.join(", "))
        } else {
            String::new()
        };
        let _ =
            writeln!(page, "| `{}` | {}{choice} |", cell(&spelling(arg)), cell(&sentence(&help)));
    }
}

/// `-v, --verbose`, `--port <PORT>` or `[PATHS]...`.
fn spelling(arg: &Arg) -> String {
    match (arg.get_short(), arg.get_long()) {
        (Some(short), Some(_)) => format!("-{short}, {arg}"),
        _ => arg.to_string(),
    }
}

/// clap drops the full stop of a doc comment.
fn sentence(text: &str) -> String {
    if text.ends_with('.') || text.is_empty() { text.to_owned() } else { format!("{text}.") }
}
