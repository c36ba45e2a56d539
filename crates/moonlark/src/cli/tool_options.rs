//! `moonlark call greet --name Ann`: options that the command does not have itself are
//! parameters of the tool.
//!
//! Which parameters a tool has is known when it is loaded, and so long after the
//! command line was parsed. So they are taken out of it before, and read with the
//! tool's schema later, in [`super::arguments`].

use std::ffi::OsString;

use clap::Arg;
use serde::{Deserialize, Serialize};

/// One of them, as it was written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ToolOption {
    /// Without the dashes.
    pub(crate) name: String,
    pub(crate) value: Option<String>,
    /// Whether the value is written to it with `=`. Otherwise it may be a word of its own,
    /// behind a parameter that is a flag.
    pub(crate) is_attached: bool,
}

/// Whether one of the commands that call a tool may be meant. For the others, nothing is taken
/// out of the line, and the list of all options need not be made twice.
pub(crate) fn may_have_tool_options(line: impl Iterator<Item = OsString>) -> bool {
    line.skip(1).any(|word| word == "call" || word == "test")
}

/// The command line as clap takes it, and the options that belong to a tool.
pub(crate) fn split_tool_options(
    line: impl Iterator<Item = OsString>,
    mut command: clap::Command,
) -> (Vec<OsString>, Vec<ToolOption>) {
    // So that every subcommand has the options that all have.
    command.build();
    let (mut own, mut of_tool) = (Vec::new(), Vec::new());
    let mut line = line.peekable();
    own.extend(line.next());
    let mut at = &command;
    let mut path = Vec::new();
    while let Some(word) = line.next() {
        let Some(text) = word.to_str() else {
            own.push(word);
            continue;
        };
        if text == "--" {
            own.push(word);
            own.extend(line);
            break;
        }
        let Some(option) = text.strip_prefix("--") else {
            if let Some(below) = at.find_subcommand(text) {
                at = below;
                path.push(below.get_name());
            }
            own.push(word);
            continue;
        };
        let (name, attached) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        if let Some(known) = at.get_arguments().find(|arg| has_long_name(arg, name)) {
            let takes_next = known.get_action().takes_values() && attached.is_none();
            own.push(word);
            own.extend(takes_next.then(|| line.next()).flatten());
        } else if matches!(path.as_slice(), ["call"] | ["tool", "test"]) {
            let is_attached = attached.is_some();
            let value = match attached {
                Some(value) => Some(value.to_owned()),
                None => line
                    .next_if(|next| next.to_str().is_some_and(is_option_value))
                    .and_then(|next| next.into_string().ok()),
            };
            of_tool.push(ToolOption { name: name.to_owned(), value, is_attached });
        } else {
            own.push(word);
        }
    }
    (own, of_tool)
}

fn has_long_name(arg: &Arg, name: &str) -> bool {
    let aliases = arg.get_all_aliases().unwrap_or_default();
    arg.get_long() == Some(name) || aliases.contains(&name)
}

/// Whether a word is no option: negative numbers are none.
fn is_option_value(word: &str) -> bool {
    !word.starts_with('-') || word.parse::<f64>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(line: &str) -> (String, Vec<ToolOption>) {
        let words = line.split(' ').map(OsString::from);
        let (own, of_tool) = split_tool_options(words, super::super::clap_command());
        let own: Vec<_> = own.into_iter().map(|word| word.into_string().unwrap()).collect();
        (own.join(" "), of_tool)
    }

    fn option(name: &str, value: Option<&str>, is_attached: bool) -> ToolOption {
        ToolOption { name: name.to_owned(), value: value.map(str::to_owned), is_attached }
    }

    #[test]
    fn options_that_the_command_does_not_have_belong_to_the_tool() {
        for (line, own, of_tool) in [
            ("moonlark call greet", "moonlark call greet", vec![]),
            (
                "moonlark call greet --name Ann --json",
                "moonlark call greet --json",
                vec![option("name", Some("Ann"), false)],
            ),
            (
                "moonlark --config a.toml call --mcp x=y greet --name=a=b count=1",
                "moonlark --config a.toml call --mcp x=y greet count=1",
                vec![option("name", Some("a=b"), true)],
            ),
            (
                "moonlark call greet --dry-run --count -3 --deep",
                "moonlark call greet",
                vec![
                    option("dry-run", None, false),
                    option("count", Some("-3"), false),
                    option("deep", None, false),
                ],
            ),
            (
                "moonlark tool test a.lua --param name=Ann --name Bob",
                "moonlark tool test a.lua --param name=Ann",
                vec![option("name", Some("Bob"), false)],
            ),
            ("moonlark call greet -- --name Ann", "moonlark call greet -- --name Ann", vec![]),
            ("moonlark call --help", "moonlark call --help", vec![]),
            // Everywhere else it is a mistake, which clap names.
            ("moonlark serve --prot 1", "moonlark serve --prot 1", vec![]),
            ("moonlark tool list --name call", "moonlark tool list --name call", vec![]),
        ] {
            assert_eq!(split(line), (own.to_owned(), of_tool), "{line}");
        }
    }
}
