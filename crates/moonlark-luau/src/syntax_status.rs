//! Syntax status of a text: complete, incomplete or wrong, for prompts that read line by
//! line.

use mlua::chunk::Compiler;
use moonlark_core::Result;

use crate::execute_tool::AGENT_SCRIPT_NAME;
use crate::script_unit::{MAX_LUAU_SOURCE_BYTES, ScriptUnit};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyntaxStatus {
    Right,
    /// It may become one: its end is missing.
    Unfinished,
    Wrong,
}

/// What is wrong with it as a text, if anything.
pub fn check_compiles(text: &str) -> Result<()> {
    ScriptUnit::from_text(AGENT_SCRIPT_NAME, text.to_owned()).map(drop)
}

pub fn syntax_status(text: &str) -> SyntaxStatus {
    if text.len() > MAX_LUAU_SOURCE_BYTES {
        return SyntaxStatus::Wrong;
    }
    match Compiler::new().compile(text) {
        Ok(_) => SyntaxStatus::Right,
        // The compiler has no other word for it.
        Err(error) if error.to_string().contains("got <eof>") => SyntaxStatus::Unfinished,
        Err(_) => SyntaxStatus::Wrong,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_only_lacks_its_end_is_unfinished() {
        for (text, expected) in [
            ("", SyntaxStatus::Right),
            ("return 1", SyntaxStatus::Right),
            ("for i = 1, 3 do", SyntaxStatus::Unfinished),
            ("local t = {", SyntaxStatus::Unfinished),
            ("print(", SyntaxStatus::Unfinished),
            ("local a =", SyntaxStatus::Unfinished),
            ("end", SyntaxStatus::Wrong),
            ("local = 1", SyntaxStatus::Wrong),
        ] {
            assert_eq!(syntax_status(text), expected, "{text}");
        }
    }
}
