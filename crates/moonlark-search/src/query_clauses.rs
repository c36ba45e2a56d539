//! Clauses: the parts of a question that asks for more than one thing.
//!
//! A question is cut where a sentence ends, at commas and at "and" and "then". A
//! stretch that is too short to be asked alone belongs to the one before it. What
//! begins with a verb is a request of its own: "find the customer and refund the last
//! order" is two.

use crate::action_words::is_request_verb;
use crate::tokenizer::{self, TermRole};

/// Stretches that are looked at: whoever asks for more is heard as far as this.
const MAX_QUERY_CLAUSES: usize = 6;
/// Words that a clause has at least.
const MIN_CLAUSE_WORDS: usize = 2;
/// Words between two clauses. Longer ones come before those that they begin with.
const CLAUSE_JOINTS: [&str; 3] = [" and then ", " then ", " and "];

/// The clauses of a question, in order; just one where it is not made of several.
pub fn split_clauses(question: &str) -> Vec<String> {
    let mut clauses: Vec<String> = Vec::new();
    for part in cut_at_joints(question) {
        if let Some(last) = clauses.last_mut()
            && count_words(part) < MIN_CLAUSE_WORDS
        {
            last.push(' ');
            last.push_str(part);
        } else if clauses.len() < MAX_QUERY_CLAUSES {
            clauses.push(part.to_owned());
        }
    }
    clauses
}

/// The requests in a question, in order. A clause without a verb of its own goes on
/// with what the one before it began: "delete the topic, its tags" deletes both.
/// Nothing where it is no more than one, or where it begins otherwise: what is asked
/// after "what" and "how" has one subject.
pub fn split_requests(question: &str) -> Vec<String> {
    let mut requests: Vec<String> = Vec::new();
    let mut verb: Option<String> = None;
    for part in cut_at_joints(question).into_iter().take(MAX_QUERY_CLAUSES) {
        let Some((first, stem)) = first_word(part) else { continue };
        if is_request_verb(&stem) {
            verb = Some(first.to_owned());
            requests.push(part.to_owned());
        } else if let (Some(verb), true) = (&verb, begins_with_determiner(part)) {
            requests.push(format!("{verb} {part}"));
        } else {
            let Some(last) = requests.last_mut() else { return Vec::new() };
            last.push(' ');
            last.push_str(part);
        }
    }
    if requests.len() > 1 { requests } else { Vec::new() }
}

fn cut_at_joints(question: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut at) = (0, 0);
    while at < question.len() {
        let rest = &question[at..];
        if let Some(quoted) = rest.strip_prefix('"') {
            // What is quoted stays whole.
            at += quoted.find('"').map_or(1, |end| end + 2);
            continue;
        }
        match joint_length(rest) {
            0 => at += rest.chars().next().map_or(1, char::len_utf8),
            length => {
                parts.push(question[start..at].trim());
                at += length;
                start = at;
            }
        }
    }
    parts.push(question[start..].trim());
    parts.retain(|part| !part.is_empty());
    // "a, and b": the comma ended the clause, and the word begins none.
    for part in &mut parts {
        for joint in CLAUSE_JOINTS {
            let word = joint.trim();
            let next = part.get(..word.len()).is_some_and(|it| it.eq_ignore_ascii_case(word));
            if next && part[word.len()..].starts_with(' ') {
                *part = part[word.len()..].trim_start();
            }
        }
    }
    parts
}

/// The bytes of what separates two clauses here, or 0.
fn joint_length(rest: &str) -> usize {
    let Some(first) = rest.chars().next() else { return 0 };
    let after = &rest[first.len_utf8()..];
    match first {
        '\n' | '。' | '，' | '；' => first.len_utf8(),
        ',' | ';' | '.' | '!' | '?' if after.starts_with(char::is_whitespace) => 1,
        ' ' => {
            let same = |joint: &&&str| {
                rest.get(..joint.len()).is_some_and(|it| it.eq_ignore_ascii_case(joint))
            };
            CLAUSE_JOINTS.iter().find(same).map_or(0, |joint| joint.len() - 1)
        }
        _ => 0,
    }
}

fn count_words(text: &str) -> usize {
    let mut words = 0;
    tokenizer::for_each_term(text, |term| words += usize::from(term.role == TermRole::Word));
    words
}

/// The first word that says something, as it is written and as its stem.
fn first_word(text: &str) -> Option<(&str, String)> {
    let mut found = None;
    tokenizer::for_each_term(text, |term| {
        if found.is_none() && term.role == TermRole::Word {
            found = Some((term.at.clone(), term.text.to_owned()));
        }
    });
    found.map(|(at, stem)| (&text[at], stem))
}

fn begins_with_determiner(text: &str) -> bool {
    const CLAUSE_DETERMINERS: [&str; 9] =
        ["a", "all", "an", "her", "his", "its", "our", "the", "their"];
    let first = text.split_whitespace().next().unwrap_or_default();
    CLAUSE_DETERMINERS.iter().any(|it| it.eq_ignore_ascii_case(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_cut_where_another_thing_is_asked() {
        for (question, expected) in [
            ("list pull requests", &["list pull requests"][..]),
            (
                "find the customer, and then refund the last order",
                &["find the customer", "refund the last order"],
            ),
            ("Read the page. Write a report!", &["Read the page", "Write a report!"]),
            (
                "make a folder, Bob, and share the folder",
                &["make a folder Bob", "share the folder"],
            ),
            ("post \"this, and that\" today", &["post \"this, and that\" today"]),
            (
                "post \"this without end, and that one thing",
                &["post \"this without end", "that one thing"],
            ),
            ("版本 1.2 之後", &["版本 1.2 之後"]),
            ("", &[]),
            (", , and ", &[]),
        ] {
            assert_eq!(split_clauses(question), expected, "{question}");
        }
    }

    #[test]
    fn what_begins_with_a_verb_is_a_request() {
        for (question, expected) in [
            (
                "find the customer and refund the last order",
                &["find the customer", "refund the last order"][..],
            ),
            (
                "delete the deployment, its service and its ingress",
                &["delete the deployment", "delete its service", "delete its ingress"],
            ),
            ("what is in the bin, and who put it there", &[]),
            (
                "create a channel, invite Bob and Carol, and set the topic",
                &["create a channel", "invite Bob Carol", "set the topic"],
            ),
            ("documents about terms and conditions", &[]),
            ("list issues", &[]),
        ] {
            assert_eq!(split_requests(question), expected, "{question}");
        }
    }

    #[test]
    fn of_a_question_without_end_some_clauses_are_looked_at() {
        let question = "read the file, ".repeat(1_000);
        assert_eq!(split_clauses(&question).len(), MAX_QUERY_CLAUSES);
        assert_eq!(split_requests(&question).len(), MAX_QUERY_CLAUSES);
    }
}
