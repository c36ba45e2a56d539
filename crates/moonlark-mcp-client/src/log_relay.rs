//! Log messages of a server outside of calls.
//!
//! Nobody asked for it now, and everybody who ever wanted to hear of it does. So
//! it is named after its server, without the operator's secrets, short, and not
//! faster than a person reads.

use std::sync::Arc;
use std::time::{Duration, Instant};

use moonlark_core::problem::cut_message;
use moonlark_core::secret::Secrets;
use moonlark_core::source_resources::{SourceEvent, SourceLogMessage};
use moonlark_core::tool::{Source, SourceKind};
use moonlark_core::value::{Object, shorten_text};
use parking_lot::Mutex;

use crate::name_mapping::NameMapping;
use crate::upstream_state::UpstreamState;

/// Messages at once, and the time after which there may be one more.
const MAX_LOG_BURST: u32 = 100;
const LOG_REFILL_INTERVAL: Duration = Duration::from_millis(50);
/// Bytes of a message as it is; a longer one goes on as the beginning of its text.
const MAX_LOG_DATA_BYTES: usize = 16 * 1024;

/// Tell whoever wants to know, if it is not too much.
pub(crate) fn relay_log_message(shared: &UpstreamState, params: Object) {
    if !shared.pace.allow_message(Instant::now()) {
        return;
    }
    let said = build_log_message(
        shared.settings.name(),
        &shared.names,
        &shared.settings.scope.secrets,
        params,
    );
    let data = said.data.to_json_lossy();
    tracing::debug!(target: "upstream", "{} [{}] {data}", shared.settings.name(), said.level);
    shared.gateway.announce_event(SourceEvent::Said(said.into()));
}

fn build_log_message(
    source: &str,
    names: &NameMapping,
    secrets: &Secrets,
    mut params: Object,
) -> SourceLogMessage {
    let data = secrets.redact_message(params.swap_remove("data").unwrap_or_default());
    let json = data.to_json_lossy().to_string();
    let data = if json.len() > MAX_LOG_DATA_BYTES {
        cut_message(data.as_str().unwrap_or(&json)).into()
    } else {
        data
    };
    let text = |key: &str| Some(secrets.redact_text(params.get(key)?.as_str()?).into_owned());
    SourceLogMessage {
        source: Arc::new(Source { kind: SourceKind::Upstream, name: source.to_owned() }),
        level: text("level").map_or("info".to_owned(), |level| shorten_text(&level).into_owned()),
        logger: names
            .logger_to_caller(text("logger").map(|logger| shorten_text(&logger).into_owned())),
        data,
    }
}

/// How much more may be said.
pub(crate) struct LogThrottle(Mutex<(u32, Option<Instant>)>);

impl Default for LogThrottle {
    fn default() -> Self {
        Self(Mutex::new((MAX_LOG_BURST, None)))
    }
}

impl LogThrottle {
    fn allow_message(&self, now: Instant) -> bool {
        let (left, since) = &mut *self.0.lock();
        let waited = now.saturating_duration_since(*since.get_or_insert(now));
        let earned = waited.as_millis() / LOG_REFILL_INTERVAL.as_millis();
        if earned > 0 {
            *left = u32::try_from(earned)
                .unwrap_or(MAX_LOG_BURST)
                .saturating_add(*left)
                .min(MAX_LOG_BURST);
            *since = Some(now);
        }
        let lets = *left > 0;
        *left = left.saturating_sub(1);
        lets
    }
}

#[cfg(test)]
mod tests {
    use moonlark_core::Value;
    use moonlark_core::secret::SecretValue;
    use serde_json::json;

    use super::*;
    use crate::mcp_testing::object;

    fn check(
        names: &NameMapping,
        params: serde_json::Value,
        expected: (&str, Option<&str>, Value),
    ) {
        let secret = SecretValue { key: "token".into(), value: "hunter22".into(), by_name: false };
        let said = build_log_message("docs", names, &Secrets::new(vec![secret]), object(params));
        assert_eq!((said.level.as_str(), said.logger.as_deref(), said.data), expected);
    }

    #[test]
    fn a_message_is_named_after_its_server_and_has_no_secrets() {
        let docs = NameMapping::with_prefixes("docs");
        check(
            &docs,
            json!({"level": "error", "logger": "db", "data": {"hunter22": ["is hunter22"]}}),
            (
                "error",
                Some("docs/db"),
                Value::from_fields([("[redacted:token]", vec!["is [redacted:token]"].into())]),
            ),
        );
        check(&docs, json!({"data": "one"}), ("info", Some("docs"), "one".into()));
        check(&docs, json!({"level": 7}), ("info", Some("docs"), Value::Null));
        let alone = NameMapping::without_prefixes("docs");
        check(&alone, json!({"level": "debug", "data": 1}), ("debug", None, Value::Int(1)));
        let named = json!({"level": "debug", "logger": "db", "data": 1});
        check(&alone, named, ("debug", Some("db"), Value::Int(1)));
    }

    #[test]
    fn a_long_message_is_cut_after_its_secrets_are_out() {
        let docs = NameMapping::with_prefixes("docs");
        let long = format!("{}hunter22{}", "x".repeat(4090), "y".repeat(MAX_LOG_DATA_BYTES));
        let cut = format!("{}[redac…", "x".repeat(4090));
        check(&docs, json!({"data": long}), ("info", Some("docs"), cut.into()));
        let wide = json!({"data": {"a": "x".repeat(MAX_LOG_DATA_BYTES)}, "level": "l".repeat(200)});
        let level = format!("{}…", "l".repeat(100));
        let cut = format!("{{\"a\":\"{}…", "x".repeat(4090));
        check(&docs, wide, (&level, Some("docs"), cut.into()));
    }

    #[test]
    fn a_flood_is_thinned_out() {
        let (pace, start) = (LogThrottle::default(), Instant::now());
        let through = |at: u64| {
            let now = start + Duration::from_millis(at);
            (0..1000).filter(|_| pace.allow_message(now)).count()
        };
        assert_eq!((through(0), through(49), through(50), through(250)), (100, 0, 1, 4));
        assert_eq!(through(1_000_000), 100);
    }
}
