//! What a fork says about itself: which of its calls came from the record of the other run,
//! which are new, which are not made any more, and where the two first differ.

use moonlark_core::Value;
use moonlark_core::value::Object;
use moonlark_gateway::run::{ForkDifference, ForkReport, ForkedCall, NewCallFate, shown_arguments};

/// Calls of each kind that the text names.
const MAX_NAMED_CALLS: usize = 20;
/// Letters of the arguments of one.
const MAX_NAMED_ARGUMENT_BYTES: usize = 200;
/// Calls of each kind in the answer.
const MAX_REPORTED_CALLS: usize = 1000;

/// For programs.
pub(super) fn encode_fork(report: &ForkReport) -> Value {
    let reused = report.reused.iter().take(MAX_REPORTED_CALLS).map(|call| {
        let mut fields = Object::new();
        fields.insert("tool".to_owned(), call.tool.as_str().into());
        fields.insert("place".to_owned(), call.place.to_string().into());
        if call.place != call.recorded_place {
            fields.insert("recorded_place".to_owned(), call.recorded_place.to_string().into());
        }
        Value::Object(fields)
    });
    let calls = |calls: &[ForkedCall]| {
        Value::Array(calls.iter().take(MAX_REPORTED_CALLS).map(encode_call).collect())
    };
    let count = |count: usize| Value::Int(i64::try_from(count).unwrap_or(i64::MAX));
    Value::from_fields([
        ("of", report.source.to_string().into()),
        ("new_calls", report.policy.as_str().into()),
        (
            "counts",
            Value::from_fields([
                ("recorded", count(report.reused.len())),
                ("new", count(report.new.len())),
                ("dropped", count(report.dropped.len())),
            ]),
        ),
        ("recorded", Value::Array(reused.collect())),
        ("new", calls(&report.new)),
        ("not_made", calls(&report.unmade)),
        ("dropped", calls(&report.dropped)),
        ("first_difference", report.first_difference.as_ref().map(encode_difference).into()),
    ])
}

fn encode_difference(difference: &ForkDifference) -> Value {
    Value::from_fields([
        ("place", difference.place.to_string().into()),
        ("was", difference.was.as_ref().map(encode_call).into()),
        ("now", difference.now.as_ref().map(encode_call).into()),
    ])
}

fn encode_call(call: &ForkedCall) -> Value {
    let mut fields = Object::new();
    fields.insert("tool".to_owned(), call.tool.as_str().into());
    fields.insert("place".to_owned(), call.place.to_string().into());
    fields.insert("arguments".to_owned(), shown_arguments(call).into());
    if let Some(fate) = call.fate.filter(|fate| *fate != NewCallFate::Pending) {
        fields.insert("state".to_owned(), fate.as_str().into());
    }
    Value::Object(fields)
}

/// For people and models.
pub(super) fn describe_fork(report: &ForkReport) -> String {
    let ForkReport { reused, new, unmade, dropped, .. } = report;
    let mut lines = vec![format!(
        "fork of run {}: {} from its record, {} new, {} no longer made",
        report.source,
        counted_calls(reused.len()),
        new.len(),
        dropped.len()
    )];
    if let Some(difference) = &report.first_difference {
        let (was, now) = (difference.was.as_ref(), difference.now.as_ref());
        let what = match (was, now) {
            (Some(was), Some(now)) => format!("was {}, is {}", call_text(was), call_text(now)),
            (None, Some(now)) => format!("{} is new", call_text(now)),
            (Some(was), None) => format!("{} is not made", call_text(was)),
            (None, None) => String::new(),
        };
        lines.push(format!("first difference at {}: {what}", difference.place));
    }
    for (title, calls) in [("new", new), ("new", unmade), ("no longer made", dropped)] {
        for call in calls.iter().take(MAX_NAMED_CALLS) {
            let fate = match call.fate {
                Some(NewCallFate::Pending) => ", not waited for and not made",
                Some(NewCallFate::Planned) => ", planned",
                Some(NewCallFate::Made) => ", made",
                Some(NewCallFate::Refused) => ", refused",
                None => "",
            };
            lines.push(format!("{title}{fate}: {} at {}", call_text(call), call.place));
        }
        if calls.len() > MAX_NAMED_CALLS {
            lines.push(format!("{title}: … and {} more", calls.len() - MAX_NAMED_CALLS));
        }
    }
    lines.join("\n")
}

fn counted_calls(count: usize) -> String {
    if count == 1 { "1 call".to_owned() } else { format!("{count} calls") }
}

fn call_text(call: &ForkedCall) -> String {
    let args = shown_arguments(call);
    let end = args.floor_char_boundary(MAX_NAMED_ARGUMENT_BYTES);
    let more = if end < args.len() { "…" } else { "" };
    format!("{} {}{more}", call.tool, &args[..end])
}
