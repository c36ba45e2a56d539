//! Id lookup: whole ids, or the beginning or the end of one.

use moonlark_core::Problem;
use moonlark_core::record_id::RecordId;
use moonlark_core::value::shorten_text;

/// Fewer digits name nothing.
const MIN_ID_DIGITS: usize = 4;
/// Ids that are looked for, and shown, where several fit.
pub(crate) const MAX_CANDIDATES: usize = 6;

/// The condition for the column `id` that its hexadecimal digits begin or end with `?1`.
pub(crate) const ID_HAS_PART: &str =
    "(lower(hex(id)) LIKE '%' || ?1 OR lower(hex(id)) LIKE ?1 || '%')";

/// The digits of a part of an id; none if the text can be no such part.
pub(crate) fn hex_digits(text: &str) -> Option<String> {
    let digits = text.to_lowercase().replace('-', "");
    let is_part = digits.len() >= MIN_ID_DIGITS && digits.bytes().all(|it| it.is_ascii_hexdigit());
    is_part.then_some(digits)
}

/// Several ids fit. The ends are shown: the beginnings are the time, and much alike.
pub(crate) fn ambiguous_id_problem(what: &str, text: &str, found: &[RecordId]) -> Problem {
    let ends: Vec<String> = found.iter().map(|id| short_id(*id)).collect();
    let more = if found.len() < MAX_CANDIDATES { "" } else { ", …" };
    Problem::bad_request(format!(
        "several {what} have an id that begins or ends with {}: those that end with {}{more}",
        shorten_text(text),
        ends.join(", ")
    ))
    .with_hint("name one of them by its end, or write more of its id")
}

/// Enough of an id to name it: the end, which is random.
fn short_id(id: RecordId) -> String {
    let text = id.to_string();
    text[text.len() - 8..].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_an_id_is_some_digits_with_dashes_or_without() {
        assert_eq!(hex_digits("01A1-ed07").as_deref(), Some("01a1ed07"));
        assert_eq!(hex_digits("9c91").as_deref(), Some("9c91"));
        for text in ["", "9c9", "wipe", "9c91%", "----"] {
            assert_eq!(hex_digits(text), None, "{text}");
        }
    }
}
