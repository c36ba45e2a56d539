//! Waiting for sources that a script names and that are still connecting.

use std::time::Duration;

use moonlark_core::sdk::to_identifier;
use moonlark_core::{Problem, Result};
use moonlark_gateway::Call;
use tokio::time::Instant;

use crate::sdk_functions::still_connecting_problem;

/// How long a script waits for what it names.
const SOURCE_CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// The call on a catalog that has what the script names, as far as it can be
/// told from its text, or the Problem that says what is missing.
pub(super) async fn wait_for_sources(call: Call, script: &str) -> Result<Call> {
    let connecting = call.catalog().connecting_sources().iter().map(|it| it.source.clone());
    let named: Vec<String> = connecting.filter(|source| mentions_source(script, source)).collect();
    if named.is_empty() {
        return Ok(call);
    }
    let gateway = call.gateway().clone();
    let mut changes = gateway.subscribe();
    // The script needs time as well.
    let now = Instant::now();
    let until =
        now + (call.deadline().saturating_duration_since(now) / 2).min(SOURCE_CONNECT_TIMEOUT);
    loop {
        changes.mark_unchanged();
        let catalog = gateway.catalog_for(call.caller());
        let missing =
            named.iter().find(|it| catalog.connecting_sources().iter().any(|c| c.source == **it));
        let Some(missing) = missing else { return Ok(call.with_catalog(catalog)) };
        if tokio::time::timeout_at(until, changes.changed()).await.is_err() {
            return Err(with_nothing_called(still_connecting_problem(missing)));
        }
    }
}

fn with_nothing_called(problem: Problem) -> Problem {
    let message = format!("{}; nothing was called", problem.message);
    problem.with_message(message)
}

/// Whether the text has the source's name in it, as a word.
fn mentions_source(script: &str, source: &str) -> bool {
    let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    let has = |word: &str| {
        script.match_indices(word).any(|(at, _)| {
            let before = script[..at].chars().next_back();
            let after = script[at + word.len()..].chars().next();
            !before.is_some_and(is_word) && !after.is_some_and(is_word)
        })
    };
    !source.is_empty() && (has(source) || has(&to_identifier(source)))
}

#[cfg(test)]
mod tests {
    use super::mentions_source;

    #[test]
    fn a_source_is_named_in_either_spelling_and_as_a_whole_word() {
        for (script, named) in [
            ("return sdk.data_server.x()", true),
            ("data_server.x():await()", true),
            ("sdk[\"data-server\"].x()", true),
            ("local my_data_server = 1", false),
            ("data_server2.x()", false),
            ("", false),
        ] {
            assert_eq!(mentions_source(script, "data-server"), named, "{script}");
        }
    }
}
