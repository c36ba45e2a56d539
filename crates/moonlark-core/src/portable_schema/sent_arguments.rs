//! Arguments as a client sent them that was listed portable schemas: their keys are
//! put back, and what is wrong with them is said by the keys that it knows.

use std::sync::Arc;

use super::ArgumentKeys;
use crate::problem::{Problem, ProblemCode};
use crate::tool::Tool;
use crate::value::Value;

/// How explanations of arguments begin, before the path of one.
const QUOTED_PATH_BEFORE: &str = "parameter '";
const PATHS_BEFORE: [&str; 2] = ["missing required parameter: ", "unknown parameter: "];
const SUGGESTION_BEFORE: &str = " (did you mean ";

/// Arguments of a tool some of whose keys are listed under other names.
pub struct SentArguments {
    tool: Arc<Tool>,
    sent: Value,
}

impl SentArguments {
    /// Put the keys of `args` back; none if all are listed as they are.
    pub fn restore(tool: &Arc<Tool>, args: &mut Value) -> Option<SentArguments> {
        let keys = &tool.portable_input().keys;
        if keys.is_empty() {
            return None;
        }
        let sent = args.clone();
        keys.restore_keys(args);
        Some(SentArguments { tool: tool.clone(), sent })
    }

    /// The same Problem, with the keys that the client sent if it is about its arguments.
    pub fn describe_problem(self, problem: Problem) -> Problem {
        if problem.code != ProblemCode::BadRequest {
            return problem;
        }
        let keys = &self.tool.portable_input().keys;
        let mut args = self.sent.clone();
        keys.restore_keys(&mut args);
        match self.tool.input.check_arguments(args) {
            Err(found) if found.message == problem.message => {
                let message = message_as_sent(keys, &problem.message, &self.sent);
                problem.with_message(message)
            }
            // The tool itself refuses them, in its own words.
            _ => problem,
        }
    }
}

/// One explanation after the other, each with the path that it is about.
fn message_as_sent(keys: &ArgumentKeys, message: &str, sent: &Value) -> String {
    let said: Vec<String> =
        message.split("; ").map(|part| part_as_sent(keys, part, sent)).collect();
    said.join("; ")
}

fn part_as_sent(keys: &ArgumentKeys, part: &str, sent: &Value) -> String {
    if let Some(rest) = part.strip_prefix(QUOTED_PATH_BEFORE)
        && let Some((path, rest)) = rest.split_once('\'')
    {
        return format!("{QUOTED_PATH_BEFORE}{}'{rest}", keys.path_as_sent(path, Some(sent)));
    }
    for before in PATHS_BEFORE {
        let Some(path) = part.strip_prefix(before) else { continue };
        let (path, suggested) = match path.split_once(SUGGESTION_BEFORE) {
            Some((path, suggested)) => (path, suggested.strip_suffix("?)")),
            None => (path, None),
        };
        let path = keys.path_as_sent(path, Some(sent));
        return match suggested {
            Some(name) => {
                let name = keys.path_as_sent(name, Some(sent));
                format!("{before}{path}{SUGGESTION_BEFORE}{name}?)")
            }
            None => format!("{before}{path}"),
        };
    }
    part.to_owned()
}
