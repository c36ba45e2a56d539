//! Whether a text is a script: for prompts, where it comes line by line, and for
//! those who only want to know.

use mlua::chunk::Compiler;
use moonlark_core::Result;

use crate::run::SCRIPT;
use crate::unit::{MAX_SOURCE, Unit};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Syntax {
    Right,
    /// It may become one: its end is missing.
    Unfinished,
    Wrong,
}

/// What is wrong with it as a text, if anything.
pub fn compiles(text: &str) -> Result<()> {
    Unit::of_text(SCRIPT, text.to_owned()).map(drop)
}

pub fn syntax(text: &str) -> Syntax {
    if text.len() > MAX_SOURCE {
        return Syntax::Wrong;
    }
    match Compiler::new().compile(text) {
        Ok(_) => Syntax::Right,
        // The compiler has no other word for it.
        Err(error) if error.to_string().contains("got <eof>") => Syntax::Unfinished,
        Err(_) => Syntax::Wrong,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_only_lacks_its_end_is_unfinished() {
        for (text, expected) in [
            ("", Syntax::Right),
            ("return 1", Syntax::Right),
            ("for i = 1, 3 do", Syntax::Unfinished),
            ("local t = {", Syntax::Unfinished),
            ("print(", Syntax::Unfinished),
            ("local a =", Syntax::Unfinished),
            ("end", Syntax::Wrong),
            ("local = 1", Syntax::Wrong),
        ] {
            assert_eq!(syntax(text), expected, "{text}");
        }
    }
}
