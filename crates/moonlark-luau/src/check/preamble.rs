//! The line before the script that declares the tools it uses.
//!
//! A type checker cannot forget what it was once told, so tools are told with
//! every script anew, and only those that the script names. Whatever else a
//! source may have is `any`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Range;

use moonlark_core::sdk::{SdkFunction, SdkSource};
use moonlark_render::luau::sdk_docs::declared_result;

use super::sdk_names::SdkCallStyle;

/// What `files.read(…)` gives, and `pcall`, whose second value is a result or a
/// Problem.
const COMMON_DECLARATIONS: &str = "type M0_Promise<T> = { await: (any) -> T } \
    local pcall: (any, ...any) -> (boolean, ...any) = nil :: any \
    local xpcall: (any, any, ...any) -> (boolean, ...any) = nil :: any ";

/// A table with more text than this is not worth a wait.
const MAX_PREAMBLE_BYTES: usize = 200_000;

/// A function that a script uses.
#[derive(Clone, Copy)]
pub(super) struct UsedFunction<'c> {
    pub(super) way: SdkCallStyle,
    pub(super) source: &'c SdkSource,
    pub(super) function: &'c SdkFunction,
}

#[derive(Default)]
pub(super) struct CheckPreamble<'c> {
    /// One line, with its end.
    pub(super) text: String,
    /// Which columns declare whose result.
    results: Vec<(Range<usize>, UsedFunction<'c>)>,
}

impl<'c> CheckPreamble<'c> {
    pub(super) fn new(used: &[UsedFunction<'c>]) -> CheckPreamble<'c> {
        let mut preamble =
            CheckPreamble { text: COMMON_DECLARATIONS.to_owned(), results: Vec::new() };
        let mut ways: BTreeMap<(&str, bool), Vec<String>> = BTreeMap::new();
        let mut results: BTreeMap<(&str, &str), String> = BTreeMap::new();
        for (index, it) in used.iter().enumerate() {
            let (source, name) = (it.source.name.as_str(), it.function.name.as_str());
            let result = results
                .entry((source, name))
                .or_insert_with(|| preamble.declare_result(index + 1, *it))
                .clone();
            let waits = it.way == SdkCallStyle::Sdk;
            let result = if waits { result } else { format!("M0_Promise<{result}>") };
            ways.entry((source, waits)).or_default().push(format!("{name}: (any) -> {result}"));
        }
        let mut sdk = String::new();
        for ((source, waits), functions) in ways {
            let table = format!("{{ {}, [string]: any }}", functions.join(", "));
            let _ = if waits {
                write!(sdk, "{source}: {table}, ")
            } else {
                write!(preamble.text, "local {source}: {table} = nil :: any ")
            };
        }
        let _ = writeln!(preamble.text, "local sdk: {{ {sdk}[string]: any }} = nil :: any");
        preamble
    }

    /// Declare what the function gives, and say how it is called here.
    fn declare_result(&mut self, number: usize, used: UsedFunction<'c>) -> String {
        let Some((body, types)) = declared_result(used.function, &format!("M{number}_")) else {
            return "any".to_owned();
        };
        let size: usize = types.iter().map(|(_, body)| body.len()).sum();
        if body == "any" || size + body.len() + self.text.len() > MAX_PREAMBLE_BYTES {
            return "any".to_owned();
        }
        let start = self.text.len();
        for (name, body) in types {
            let _ = write!(self.text, "type {name} = {body} ");
        }
        let _ = write!(self.text, "type M{number} = {body} ");
        self.results.push((start..self.text.len(), used));
        format!("M{number}")
    }

    /// Whose result a type is that was declared in this column.
    pub(super) fn function_declared_at(&self, column: u32) -> Option<UsedFunction<'c>> {
        let column = usize::try_from(column).ok()?;
        self.results.iter().find(|(range, _)| range.contains(&column)).map(|(_, used)| *used)
    }
}
