//! The original name of a tool or a parameter that is listed under another one, for models: they
//! see nothing but the list.

use crate::visible_text::visible_line;

/// `description` with the original name, unless it says it already.
pub fn with_original_name(description: &str, original: &str) -> String {
    let (description, original) = (description.trim_end(), visible_line(original));
    if description.is_empty() {
        format!("Original name: {original}")
    } else if description.contains(&original) {
        description.to_owned()
    } else {
        format!("{description} (original name: {original})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_said_once_and_in_one_line() {
        for (description, original, expected) in [
            ("", "ключ", "Original name: ключ"),
            ("Opens the door.\n", "ключ", "Opens the door. (original name: ключ)"),
            ("The ключ of the door", "ключ", "The ключ of the door"),
            ("Both", "a\nb\u{200b}", "Both (original name: a\\nb\\u{200b})"),
        ] {
            assert_eq!(with_original_name(description, original), expected);
        }
        let long = with_original_name("", &"x".repeat(1000));
        assert_eq!(long.len(), "Original name: ".len() + 256 + "…".len());
    }
}
