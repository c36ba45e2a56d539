//! Encoded forms of a secret: in JSON, in an address, in Base64 (`Authorization: Basic`
//! has a password in the middle of one), as hexadecimal digits.
//!
//! A script that wants to hide a secret can write it in many more; these are those that
//! nobody has to intend.

use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use url::form_urlencoded;

/// Encoded, a shorter value would turn up in ordinary text.
const MIN_ENCODED_SECRET_BYTES: usize = 8;

/// `value` and everything that stands for it, each once.
pub(super) fn encoded_forms(value: &str) -> Vec<String> {
    let mut forms = vec![value.to_owned()];
    forms.extend(json_forms(value));
    forms.extend(url_forms(value));
    if value.len() >= MIN_ENCODED_SECRET_BYTES {
        let bytes = value.as_bytes();
        forms.extend((0..3).map(|before| base64_form(&STANDARD_NO_PAD, bytes, before)));
        forms.extend((0..3).map(|before| base64_form(&URL_SAFE_NO_PAD, bytes, before)));
        let digits: String = bytes.iter().fold(String::new(), |mut digits, byte| {
            let _ = write!(digits, "{byte:02x}");
            digits
        });
        forms.extend([digits.to_uppercase(), digits]);
    }
    forms.sort_unstable();
    forms.dedup();
    forms
}

/// As different writers of JSON escape it.
fn json_forms(value: &str) -> [String; 3] {
    let whole = serde_json::Value::from(value).to_string();
    let plain = whole[1..whole.len() - 1].to_owned();
    let mut ascii = String::new();
    for unit in plain.encode_utf16() {
        match u8::try_from(unit) {
            Ok(byte) if byte.is_ascii() => ascii.push(byte.into()),
            _ => {
                let _ = write!(ascii, "\\u{unit:04x}");
            }
        }
    }
    let slashed = plain.replace('/', "\\/");
    [plain, ascii, slashed]
}

/// As different writers of addresses escape it.
fn url_forms(value: &str) -> Vec<String> {
    let escaped = |kept: &str| {
        let mut text = String::new();
        for byte in value.bytes() {
            if byte.is_ascii_alphanumeric() || kept.as_bytes().contains(&byte) {
                text.push(byte.into());
            } else {
                let _ = write!(text, "%{byte:02X}");
            }
        }
        text
    };
    let form: String = form_urlencoded::byte_serialize(value.as_bytes()).collect();
    // By RFC 3986, by `encodeURIComponent`, and by those who leave in a path or a query
    // what may stand there.
    let mut all = vec![
        form,
        escaped("-._~"),
        escaped("-._~!*'()"),
        escaped("-._~!$&'()*+,;=:@"),
        escaped("-._~!$&'()*+,;=:@/?"),
    ];
    for index in 0..all.len() {
        all.push(with_lowercase_escapes(&all[index]));
    }
    all
}

/// `%2F` as `%2f`.
fn with_lowercase_escapes(text: &str) -> String {
    let mut rest = text;
    let mut small = String::new();
    while let Some(at) = rest.find('%') {
        let end = (at + 3).min(rest.len());
        small.push_str(&rest[..at]);
        small.push_str(&rest[at..end].to_ascii_lowercase());
        rest = &rest[end..];
    }
    small + rest
}

/// The part of a longer text in Base64 that depends on `bytes` alone, where so many
/// bytes come `before` them, counted in threes.
fn base64_form(engine: &impl Engine, bytes: &[u8], before: usize) -> String {
    let mut padded = vec![0; before];
    padded.extend_from_slice(bytes);
    let text = engine.encode(&padded);
    // Each character is six bits; those that others have a part in do not count.
    let first = (before * 8).div_ceil(6);
    let last = padded.len() * 8 / 6;
    text[first..last].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_value_has_few_forms() {
        assert_eq!(encoded_forms("abcd"), ["abcd"]);
        assert_eq!(
            encoded_forms("hunter22"),
            [
                "68756E7465723232",
                "68756e7465723232",
                "aHVudGVyMj",
                "h1bnRlcjIy",
                "hunter22",
                "odW50ZXIyM",
            ]
        );
    }

    #[test]
    fn a_value_is_found_in_base64_wherever_it_stands() {
        for before in ["", "a", "ab", "abc", "admin:"] {
            for after in ["", "x", "xy"] {
                let text = STANDARD_NO_PAD.encode(format!("{before}hunter22{after}"));
                assert!(encoded_forms("hunter22").iter().any(|form| text.contains(form)), "{text}");
            }
        }
        let url = URL_SAFE_NO_PAD.encode("u:\u{3bf}\u{3bf}>>>???\u{3bf}");
        let found = encoded_forms("\u{3bf}\u{3bf}>>>???\u{3bf}");
        assert!(found.iter().any(|form| url.contains(form)), "{url}");
    }

    #[test]
    fn a_value_is_found_however_json_and_addresses_write_it() {
        let forms = encoded_forms("a\"ä/b c+\n");
        for expected in [
            r#"a\"ä/b c+\n"#,
            r#"a\"\u00e4/b c+\n"#,
            r#"a\"ä\/b c+\n"#,
            "a%22%C3%A4%2Fb%20c%2B%0A",
            "a%22%c3%a4%2fb%20c%2b%0a",
            "a%22%C3%A4%2Fb+c%2B%0A",
            "a%22%C3%A4/b%20c+%0A",
        ] {
            assert!(forms.iter().any(|form| form == expected), "{expected}: {forms:#?}");
        }
    }
}
