//! What a server logs while it has no call to log it for.
//!
//! Nobody asked for it now, and everybody who ever wanted to hear of it does. So
//! it is named after its server, without the operator's secrets, short, and not
//! faster than a person reads.

use std::sync::Arc;
use std::time::{Duration, Instant};

use moonlark_core::offers::{News, Said};
use moonlark_core::problem::cut;
use moonlark_core::secret::Secrets;
use moonlark_core::tool::{Source, SourceKind};
use moonlark_core::value::{Object, shorten};
use parking_lot::Mutex;

use super::names::Names;
use super::shared::Shared;

/// Messages at once, and the time after which there may be one more.
const AT_ONCE: u32 = 100;
const ONE_MORE: Duration = Duration::from_millis(50);
/// Bytes of a message as it is; a longer one goes on as the beginning of its text.
const LONGEST: usize = 16 * 1024;

/// Tell whoever wants to know, if it is not too much.
pub(crate) fn say(shared: &Shared, params: Object) {
    if !shared.pace.lets_through(Instant::now()) {
        return;
    }
    let said = said(shared.settings.name(), &shared.names, &shared.settings.scope.secrets, params);
    let data = said.data.to_json_lossy();
    tracing::debug!(target: "upstream", "{} [{}] {data}", shared.settings.name(), said.level);
    shared.gateway.announce(News::Said(said.into()));
}

fn said(source: &str, names: &Names, secrets: &Secrets, mut params: Object) -> Said {
    let data = secrets.redact_message(params.swap_remove("data").unwrap_or_default());
    let json = data.to_json_lossy().to_string();
    let data = match json.len() > LONGEST {
        true => cut(data.as_str().unwrap_or(&json)).into(),
        false => data,
    };
    let text = |key: &str| Some(secrets.redact(params.get(key)?.as_str()?).into_owned());
    Said {
        source: Arc::new(Source { kind: SourceKind::Upstream, name: source.to_owned() }),
        level: text("level").map_or("info".to_owned(), |level| shorten(&level).into_owned()),
        logger: names.logger_out(text("logger").map(|logger| shorten(&logger).into_owned())),
        data,
    }
}

/// How much more may be said.
pub(crate) struct Pace(Mutex<(u32, Option<Instant>)>);

impl Default for Pace {
    fn default() -> Self {
        Self(Mutex::new((AT_ONCE, None)))
    }
}

impl Pace {
    fn lets_through(&self, now: Instant) -> bool {
        let (left, since) = &mut *self.0.lock();
        let waited = now.saturating_duration_since(*since.get_or_insert(now));
        let earned = waited.as_millis() / ONE_MORE.as_millis();
        if earned > 0 {
            *left = u32::try_from(earned).unwrap_or(AT_ONCE).saturating_add(*left).min(AT_ONCE);
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
    use moonlark_core::secret::Secret;
    use serde_json::json;

    use super::super::testing::object;
    use super::*;

    fn check(names: &Names, params: serde_json::Value, expected: (&str, Option<&str>, Value)) {
        let secret = Secret { key: "token".into(), value: "hunter22".into(), by_name: false };
        let said = said("docs", names, &Secrets::new(vec![secret]), object(params));
        assert_eq!((said.level.as_str(), said.logger.as_deref(), said.data), expected);
    }

    #[test]
    fn a_message_is_named_after_its_server_and_has_no_secrets() {
        let docs = Names::of("docs");
        check(
            &docs,
            json!({"level": "error", "logger": "db", "data": {"hunter22": ["is hunter22"]}}),
            (
                "error",
                Some("docs/db"),
                Value::object([("[redacted:token]", vec!["is [redacted:token]"].into())]),
            ),
        );
        check(&docs, json!({"data": "one"}), ("info", Some("docs"), "one".into()));
        check(&docs, json!({"level": 7}), ("info", Some("docs"), Value::Null));
        let alone = Names::transparent("docs");
        check(&alone, json!({"level": "debug", "data": 1}), ("debug", None, Value::Int(1)));
        let named = json!({"level": "debug", "logger": "db", "data": 1});
        check(&alone, named, ("debug", Some("db"), Value::Int(1)));
    }

    #[test]
    fn a_long_message_is_cut_after_its_secrets_are_out() {
        let docs = Names::of("docs");
        let long = format!("{}hunter22{}", "x".repeat(4090), "y".repeat(LONGEST));
        let cut = format!("{}[redac…", "x".repeat(4090));
        check(&docs, json!({"data": long}), ("info", Some("docs"), cut.into()));
        let wide = json!({"data": {"a": "x".repeat(LONGEST)}, "level": "l".repeat(200)});
        let level = format!("{}…", "l".repeat(100));
        let cut = format!("{{\"a\":\"{}…", "x".repeat(4090));
        check(&docs, wide, (&level, Some("docs"), cut.into()));
    }

    #[test]
    fn a_flood_is_thinned_out() {
        let (pace, start) = (Pace::default(), Instant::now());
        let through = |at: u64| {
            let now = start + Duration::from_millis(at);
            (0..1000).filter(|_| pace.lets_through(now)).count()
        };
        assert_eq!((through(0), through(49), through(50), through(250)), (100, 0, 1, 4));
        assert_eq!(through(1_000_000), 100);
    }
}
