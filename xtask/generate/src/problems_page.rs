//! `docs/reference/problems.md`: every code, its meaning and its HTTP status.

use std::fmt::Write;

use moonlark_core::{Problem, ProblemCode, SourceLocation};
use serde_json::json;

use super::{cell, made_from};

pub(crate) fn page() -> String {
    let example = Problem::denied("http.get may not reach localhost:8080")
        .at_location(SourceLocation::at_line("tools/tickets.lua", 12))
        .with_hint("add \"net:localhost:8080\" to allow for tools.script.tickets in moonlark.toml");
    let body = json!({ "error": example.to_json() });
    let mut page = format!(
        "\
# Problems

{}

Whatever goes wrong is a Problem: a code that never changes its meaning, a message for people, a
place where there is one, and a hint that says what to do next. Programs decide by the code and
never by the message. The terminal shows it like this:

```text
{example}
```

REST answers with the status of the code and this body; an MCP tool result with `isError` has the
same object as its structured content:

```json
{body:#}
```

`retryable` is there, and true, when the same call may succeed later; the table shows what holds
for a code as a rule, and a single Problem may know better. `retry_after` is there, in seconds,
when it is known how long to wait.

| code | status | retryable | meaning |
|---|---|---|---|
",
        made_from("`ProblemCode` in crates/moonlark-core")
    );
    for code in ProblemCode::ALL_CODES {
        let status = moonlark_server::status_for_code(*code).as_u16();
        let retry = if code.is_retryable() { "yes" } else { "no" };
        let _ = writeln!(page, "| `{code}` | {status} | {retry} | {} |", cell(code.meaning()));
    }
    page
}
