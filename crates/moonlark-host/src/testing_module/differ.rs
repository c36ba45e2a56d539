//! Diffs: where two values differ, for people.

use moonlark_core::value::{Value, shorten_text};

/// Differences shown before the rest is only counted.
const MAX_SHOWN_DIFFERENCES: usize = 8;

/// None when they are equal. Two spellings of one thing are: 1 and 1.0, a field
/// that is null and one that is missing, an empty list and an empty object (some
/// languages write them alike).
///
/// Items are counted from `first`, as the language of the test does.
pub(super) fn differences(actual: &Value, expected: &Value, first: usize) -> Option<String> {
    let mut found = Vec::new();
    Comparison { first, found: &mut found }.compare(actual, expected, String::new());
    if found.is_empty() {
        return None;
    }
    let rest = found.len().saturating_sub(MAX_SHOWN_DIFFERENCES);
    found.truncate(MAX_SHOWN_DIFFERENCES);
    if rest > 0 {
        found.push(format!("and {rest} more"));
    }
    Some(match found.as_slice() {
        [only] => only.clone(),
        many => format!("the values differ:\n  {}", many.join("\n  ")),
    })
}

/// A value in a message.
pub(super) fn show(value: &Value) -> String {
    shorten_text(&value.to_json_lossy().to_string()).into_owned()
}

struct Comparison<'a> {
    first: usize,
    found: &'a mut Vec<String>,
}

impl Comparison<'_> {
    fn compare(&mut self, actual: &Value, expected: &Value, at: String) {
        let first = self.first;
        match (actual, expected) {
            (Value::Int(a), Value::Float(b)) | (Value::Float(b), Value::Int(a))
                if *a as f64 == *b => {}
            (Value::Float(a), Value::Float(b)) if a.is_nan() && b.is_nan() => {}
            (Value::Array(a), Value::Object(b)) if a.is_empty() && b.is_empty() => {}
            (Value::Object(a), Value::Array(b)) if a.is_empty() && b.is_empty() => {}
            (Value::Array(a), Value::Array(b)) => {
                for (index, (a, b)) in a.iter().zip(b).enumerate() {
                    self.compare(a, b, format!("{at}[{}]", index + first));
                }
                for (index, extra) in a.iter().enumerate().skip(b.len()) {
                    let index = index + first;
                    self.found.push(format!("{at}[{index}] is {}, expected nothing", show(extra)));
                }
                for (index, missing) in b.iter().enumerate().skip(a.len()) {
                    let index = index + first;
                    self.found
                        .push(format!("{at}[{index}] is missing, expected {}", show(missing)));
                }
            }
            (Value::Object(a), Value::Object(b)) => {
                for (key, b) in b {
                    match a.get(key) {
                        Some(a) => self.compare(a, b, join(&at, key)),
                        None if *b == Value::Null => {}
                        None => {
                            self.found.push(format!(
                                "{} is missing, expected {}",
                                join(&at, key),
                                show(b)
                            ));
                        }
                    }
                }
                for (key, a) in
                    a.iter().filter(|(key, a)| **a != Value::Null && !b.contains_key(*key))
                {
                    self.found.push(format!("{} is {}, expected nothing", join(&at, key), show(a)));
                }
            }
            (Value::Str(a), Value::Str(b)) if a != b && (a.contains('\n') || b.contains('\n')) => {
                self.found.push(lines(a, b, &name(&at)));
            }
            (a, b) if a == b => {}
            (a, b) => self.found.push(format!("{} {}, expected {}", is(&at), show(a), show(b))),
        }
    }
}

/// Long texts line by line: the lines around the first that differs.
fn lines(actual: &str, expected: &str, what: &str) -> String {
    let (a, b): (Vec<&str>, Vec<&str>) = (actual.lines().collect(), expected.lines().collect());
    let first = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
    let mut report = format!("{what} differs from line {} on:", first + 1);
    for line in &a[first.saturating_sub(1).min(a.len())..first.min(a.len())] {
        report.push_str(&format!("\n      {}", shorten_text(line)));
    }
    for line in b.iter().skip(first).take(3) {
        report.push_str(&format!("\n    - {}", shorten_text(line)));
    }
    for line in a.iter().skip(first).take(3) {
        report.push_str(&format!("\n    + {}", shorten_text(line)));
    }
    report.push_str("\n    (- expected, + actual)");
    report
}

fn join(at: &str, key: &str) -> String {
    if at.is_empty() { key.to_owned() } else { format!("{at}.{key}") }
}

fn name(at: &str) -> String {
    if at.is_empty() { "the text".to_owned() } else { at.to_owned() }
}

fn is(at: &str) -> String {
    if at.is_empty() { "got".to_owned() } else { format!("{at} is") }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::*;

    fn check(actual: Json, expected: Json) -> String {
        let value = |json| Value::from_json(json).unwrap();
        differences(&value(actual), &value(expected), 0).unwrap_or_else(|| "equal".to_owned())
    }

    #[test]
    fn differences_are_named_by_their_place() {
        for (actual, expected, report) in [
            (json!(1), json!(1.0), "equal"),
            (json!({"a": null}), json!({}), "equal"),
            (json!({}), json!({"a": null}), "equal"),
            (json!([]), json!({}), "equal"),
            (json!(1), json!("1"), "got 1, expected \"1\""),
            (json!({"a": {"b": [1, 2]}}), json!({"a": {"b": [1, 3]}}), "a.b[1] is 2, expected 3"),
            (json!([1]), json!([1, 2]), "[1] is missing, expected 2"),
            (json!([1, 2]), json!([1]), "[1] is 2, expected nothing"),
            (
                json!({"a": 1, "b": 2}),
                json!({"a": 2, "c": 3}),
                "the values differ:\n  a is 1, expected 2\n  c is missing, expected 3\n  b is 2, expected nothing",
            ),
            (
                json!("one\ntwo\nthree"),
                json!("one\n2\nthree"),
                "the text differs from line 2 on:\n      one\n    - 2\n    - three\n    + two\n    + three\n    (- expected, + actual)",
            ),
        ] {
            assert_eq!(check(actual, expected), report);
        }
    }

    #[test]
    fn items_are_counted_as_the_language_does() {
        let (a, b) = (Value::from_json(json!([1, 2])), Value::from_json(json!([1, 3, 4])));
        assert_eq!(
            differences(&a.unwrap(), &b.unwrap(), 1).unwrap(),
            "the values differ:\n  [2] is 2, expected 3\n  [3] is missing, expected 4"
        );
    }

    #[test]
    fn many_differences_are_counted() {
        let report = check(json!(vec![0; 20]), json!(vec![1; 20]));
        assert!(report.ends_with("\n  and 12 more"), "{report}");
    }
}
