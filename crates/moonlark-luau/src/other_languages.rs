//! Hints for scripts that were written with another language in mind: how the same is
//! written here.
//!
//! Models know more JavaScript, Python and Lua 5.4 than Luau. A parser's message
//! about such a line names a character; the hint names the way to write it. The
//! table of all of them is `run/tests/other_languages.rs`.

mod code_text;
mod name_hints;
mod runtime_hints;
mod syntax_hints;

pub(crate) use name_hints::{
    FieldReceiver, hint_for_constant, hint_for_field, hint_for_global, hint_for_member,
};
pub(crate) use runtime_hints::hint_for_runtime_error;
pub(crate) use syntax_hints::hint_for_syntax;
