//! Previews of large values: their beginning, and their type.
//!
//! A preview is for reading, not for parsing: JSON in which what was left out
//! is said in place, as `… 4,998 more`.

use std::fmt::Write;

use moonlark_core::value::Value;

/// How much of a value is shown.
struct PreviewDetail {
    items: usize,
    fields: usize,
    text: usize,
    depth: usize,
}

/// From much to little: the first that fits is taken.
const PREVIEW_DETAILS: [PreviewDetail; 9] = [
    PreviewDetail { items: 100, fields: 100, text: 4000, depth: 32 },
    PreviewDetail { items: 40, fields: 64, text: 1000, depth: 16 },
    PreviewDetail { items: 20, fields: 64, text: 400, depth: 12 },
    PreviewDetail { items: 10, fields: 48, text: 200, depth: 10 },
    PreviewDetail { items: 5, fields: 32, text: 120, depth: 8 },
    PreviewDetail { items: 3, fields: 24, text: 80, depth: 6 },
    PreviewDetail { items: 2, fields: 16, text: 60, depth: 5 },
    PreviewDetail { items: 1, fields: 12, text: 40, depth: 4 },
    PreviewDetail { items: 1, fields: 6, text: 20, depth: 2 },
];

/// The beginning of a value, in at most about `bytes` bytes.
pub fn preview_value(value: &Value, bytes: usize) -> String {
    // A text has no structure to keep: as much of it as there is room for.
    if let Value::Str(text) = value {
        let mut room = bytes.saturating_sub(40);
        loop {
            let mut shown = String::new();
            write_cut_text(text, room, &mut shown);
            // Escapes take more room than what they stand for.
            if shown.len() <= bytes || room == 0 {
                return shown;
            }
            room /= 2;
        }
    }
    let mut last = String::new();
    for detail in &PREVIEW_DETAILS {
        let mut drawing = PreviewWriter { out: String::new(), most: bytes, detail };
        if drawing.write_value(value, 0).is_some() {
            return drawing.out;
        }
        last = drawing.out;
    }
    last.truncate(last.floor_char_boundary(bytes.saturating_sub('…'.len_utf8())));
    last + "…"
}

struct PreviewWriter<'a> {
    out: String,
    most: usize,
    detail: &'a PreviewDetail,
}

/// None as soon as it is too long, so no attempt costs more than its room.
type PreviewProgress = Option<()>;

impl PreviewWriter<'_> {
    fn write_value(&mut self, value: &Value, depth: usize) -> PreviewProgress {
        match value {
            Value::Null => self.out.push_str("null"),
            Value::Bool(flag) => self.write_display(flag),
            Value::Int(int) => self.write_display(int),
            Value::Float(float) => self.write_display(float),
            Value::Bytes(bytes) => {
                self.write_display(format_args!("<{} bytes>", format_grouped(bytes.len())))
            }
            Value::Str(text) => write_cut_text(text, self.detail.text, &mut self.out),
            Value::Array(items) if items.is_empty() => self.out.push_str("[]"),
            Value::Object(fields) if fields.is_empty() => self.out.push_str("{}"),
            Value::Array(items) if depth == self.detail.depth => {
                self.write_display(format_args!("[… {} items]", format_grouped(items.len())));
            }
            Value::Object(fields) if depth == self.detail.depth => {
                self.write_display(format_args!("{{… {} fields}}", format_grouped(fields.len())));
            }
            Value::Array(items) => {
                self.out.push('[');
                for (index, item) in items.iter().take(self.detail.items).enumerate() {
                    self.write_separator(index);
                    self.write_value(item, depth + 1)?;
                }
                self.write_rest_count(items.len(), self.detail.items, "");
                self.out.push(']');
            }
            Value::Object(fields) => {
                self.out.push('{');
                for (index, (key, field)) in fields.iter().take(self.detail.fields).enumerate() {
                    self.write_separator(index);
                    write_cut_text(key, 100, &mut self.out);
                    self.out.push_str(": ");
                    self.write_value(field, depth + 1)?;
                }
                self.write_rest_count(fields.len(), self.detail.fields, " fields");
                self.out.push('}');
            }
        }
        (self.out.len() <= self.most).then_some(())
    }

    fn write_separator(&mut self, index: usize) {
        if index > 0 {
            self.out.push_str(", ");
        }
    }

    fn write_rest_count(&mut self, all: usize, shown: usize, what: &str) {
        if all > shown {
            self.write_display(format_args!(", … {} more{what}", format_grouped(all - shown)));
        }
    }

    fn write_display(&mut self, what: impl std::fmt::Display) {
        // Writing to a string cannot fail.
        let _ = write!(self.out, "{what}");
    }
}

/// The beginning of a text in quotes, with what is missing after it.
fn write_cut_text(text: &str, most: usize, out: &mut String) {
    let shown = text.floor_char_boundary(most);
    let _ = write!(out, "{}", serde_json::Value::from(&text[..shown]));
    if shown < text.len() {
        let _ = write!(out, " … {} more bytes", format_grouped(text.len() - shown));
    }
}

/// `4,998`.
pub(super) fn format_grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}
