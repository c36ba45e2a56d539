//! Mocks: a test's answers for host functions and tools, and the calls that were made.
//!
//! The gateway asks here first, so a test mocks whatever a script can call, and
//! neither modules nor engines know.

use parking_lot::Mutex;
use url::Url;

use moonlark_core::grant::matches_pattern;
use moonlark_core::module::ScriptLanguage;
use moonlark_core::problem::{Problem, Result};
use moonlark_core::value::{Object, Value, shorten_text};

/// The mocks of one test.
#[derive(Debug, Default)]
pub struct TestMocks(Mutex<TestMocksState>);

#[derive(Debug, Default)]
struct TestMocksState {
    mocks: Vec<TestMock>,
    /// Target, function, arguments.
    calls: Vec<(String, String, Value)>,
    /// What the test is written in.
    language: Option<ScriptLanguage>,
}

/// One answer, for calls that look as it says.
#[derive(Debug, Clone)]
pub struct TestMock {
    /// What is called: a module such as `http`, one of its functions such as
    /// `sqlite.query`, or a tool by its name.
    pub target: String,
    /// Arguments the call must have; `*` in a text stands for anything.
    pub when: Object,
    pub answer: Result<Value>,
}

/// Calls that a test may look at afterwards.
const MAX_RECORDED_CALLS: usize = 10_000;

impl TestMocks {
    pub fn add_mock(&self, mock: TestMock) {
        self.0.lock().mocks.push(mock);
    }

    /// Say what the test is written in, so that reports count as it does.
    pub fn set_language(&self, language: ScriptLanguage) {
        self.0.lock().language = Some(language);
    }

    pub fn language(&self) -> Option<ScriptLanguage> {
        self.0.lock().language
    }

    /// The arguments of the calls of `target` so far.
    pub fn recorded_calls(&self, target: &str) -> Vec<Value> {
        let state = self.0.lock();
        let calls =
            state.calls.iter().filter(|(of, function, _)| of == target || function == target);
        calls.map(|(.., call)| call.clone()).collect()
    }

    /// The answer for a call of `target`; none when nothing of it is mocked. The
    /// newest mock that fits answers.
    pub(crate) fn answer_call(
        &self,
        target: &str,
        function: &str,
        args: &Value,
    ) -> Option<Result<Value>> {
        let mut state = self.0.lock();
        let meant = |mock: &TestMock| mock.target == target || mock.target == function;
        if !state.mocks.iter().any(meant) {
            return None;
        }
        let mut facts = match args {
            Value::Object(args) => args.clone(),
            _ => Object::new(),
        };
        let mut address = None;
        if target == "http" {
            describe_request(function, &mut facts);
            address = full_url(&facts);
        }
        let fits = |mock: &&TestMock| {
            let is_met = |(key, wanted): (&String, &Value)| {
                let whole = || address.as_ref().filter(|_| key == "url");
                matches_expected(wanted, facts.get(key))
                    || whole().is_some_and(|it| matches_expected(wanted, Some(it)))
            };
            meant(mock) && mock.when.iter().all(is_met)
        };
        let answer = state.mocks.iter().rev().find(fits).map(|mock| mock.answer.clone());
        let call = Value::Object(facts);
        let shown = call.to_json_lossy().to_string();
        if state.calls.len() < MAX_RECORDED_CALLS {
            state.calls.push((target.to_owned(), function.to_owned(), call));
        }
        Some(answer.unwrap_or_else(|| {
            Err(Problem::tool_error(format!(
                "no mock fits this call of {function}: {}",
                shorten_text(&shown)
            ))
            .with_hint("add a mock for it, or make one that fits more"))
        }))
    }
}

/// The arguments of a request, whichever function was called: `http.request`
/// has them in a table, and the others have their method as a name.
fn describe_request(function: &str, facts: &mut Object) {
    if let Some(Value::Object(options)) = facts.get("opts").cloned() {
        *facts = options;
        facts.entry("method".to_owned()).or_insert_with(|| "GET".into());
    }
    let method = match facts.get("method").and_then(Value::as_str) {
        Some(method) => method.to_uppercase(),
        None => function.rsplit('.').next().unwrap_or_default().to_uppercase(),
    };
    facts.insert("method".to_owned(), Value::Str(method));
}

/// The address with the query that the arguments add to it.
fn full_url(facts: &Object) -> Option<Value> {
    let Some(Value::Object(query)) = facts.get("query") else { return None };
    let mut url = Url::parse(facts.get("url")?.as_str()?).ok()?;
    let text = |value: &Value| match value {
        Value::Str(text) => text.clone(),
        other => other.to_json_lossy().to_string(),
    };
    for (key, value) in query {
        match value {
            Value::Null => {}
            Value::Array(items) => {
                url.query_pairs_mut().extend_pairs(items.iter().map(|item| (key, text(item))));
            }
            value => {
                url.query_pairs_mut().append_pair(key, &text(value));
            }
        }
    }
    Some(Value::Str(url.into()))
}

fn matches_expected(wanted: &Value, given: Option<&Value>) -> bool {
    match (wanted, given) {
        (Value::Str(pattern), Some(Value::Str(text))) => matches_pattern(pattern, text),
        (Value::Object(wanted), Some(Value::Object(given))) => {
            wanted.iter().all(|(key, wanted)| matches_expected(wanted, given.get(key)))
        }
        (wanted, Some(given)) => wanted == given,
        (wanted, None) => *wanted == Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(json: serde_json::Value) -> Object {
        match Value::from_json(json).unwrap() {
            Value::Object(object) => object,
            _ => panic!("not an object"),
        }
    }

    #[test]
    fn the_newest_mock_that_fits_answers_and_calls_are_kept() {
        let mocks = TestMocks::default();
        let ask = |args| match mocks.answer_call("http", "http.get", &Value::Object(object(args))) {
            None => "real".to_owned(),
            Some(Ok(value)) => value.to_json_lossy().to_string(),
            Some(Err(problem)) => problem.message,
        };
        assert_eq!(ask(json!({"url": "https://a.example/1"})), "real");
        for (url, answer) in [("https://a.example/*", "any"), ("https://a.example/1", "one")] {
            mocks.add_mock(TestMock {
                target: "http".to_owned(),
                when: object(json!({"url": url, "method": "GET"})),
                answer: Ok(answer.into()),
            });
        }
        assert_eq!(ask(json!({"url": "https://a.example/1"})), "\"one\"");
        assert_eq!(ask(json!({"url": "https://a.example/2"})), "\"any\"");
        assert_eq!(
            ask(json!({"url": "https://b.example/"})),
            "no mock fits this call of http.get: {\"url\":\"https://b.example/\",\"method\":\"GET\"}"
        );
        assert_eq!(mocks.recorded_calls("http").len(), 3);
        assert_eq!(mocks.recorded_calls("http.get").len(), 3);
        assert_eq!(mocks.recorded_calls("http.post").len(), 0);
        assert_eq!(mocks.recorded_calls("exec").len(), 0);
    }

    #[test]
    fn an_address_is_compared_with_its_query() {
        let ask = |pattern: &str, function: &str, args| {
            let mocks = TestMocks::default();
            let when = object(json!({"url": pattern, "method": "GET"}));
            mocks.add_mock(TestMock {
                target: "http".to_owned(),
                when,
                answer: Ok("answered".into()),
            });
            let answer = mocks.answer_call("http", function, &Value::Object(object(args)));
            answer.is_some_and(|answer| answer.is_ok())
        };
        let page = |number: i64| json!({"url": "https://a.example/x", "query": {"page": number, "tag": ["a", "b c"]}});
        assert!(ask("https://a.example/x", "http.get", page(2)));
        assert!(ask("*page=2*", "http.get", page(2)));
        assert!(ask("*page=2&tag=a&tag=b+c", "http.get", page(2)));
        assert!(!ask("*page=2*", "http.get", page(3)));
        assert!(ask("*page=2*", "http.request", json!({"opts": page(2)})));
        assert!(!ask("*page=2*", "http.post", page(2)));
    }
}
