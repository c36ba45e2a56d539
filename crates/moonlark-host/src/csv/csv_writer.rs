//! Rows to CSV text.

use moonlark_core::value::{Object, shorten_text};
use moonlark_core::{Problem, Result, Value};
use moonlark_gateway::Call;

use crate::args::{check_result_size, check_time_left, kind_with_article};

pub(super) struct CsvWriter<'a> {
    call: &'a Call,
    delimiter: char,
    out: String,
}

impl<'a> CsvWriter<'a> {
    pub(super) fn new(call: &'a Call, delimiter: char) -> Self {
        Self { call, delimiter, out: String::new() }
    }

    pub(super) fn write_header(&mut self, columns: &[String]) -> Result<()> {
        for (index, column) in columns.iter().enumerate() {
            self.write_field(index, columns.len(), column)?;
        }
        self.end_row()
    }

    pub(super) fn write_object(
        &mut self,
        row: usize,
        columns: &[String],
        object: &Object,
    ) -> Result<()> {
        let value_at = |index: usize| object.get(&columns[index]);
        self.write_values(row, columns, columns.len(), value_at)
    }

    pub(super) fn write_list(
        &mut self,
        row: usize,
        columns: &[String],
        list: &[Value],
    ) -> Result<()> {
        if !columns.is_empty() && list.len() > columns.len() {
            return Err(Problem::bad_request(format!(
                "row {} has {} fields, but there are {} columns",
                row + 1,
                list.len(),
                columns.len()
            )));
        }
        let count = list.len().max(columns.len());
        self.write_values(row, columns, count, |index| list.get(index))
    }

    fn write_values<'v>(
        &mut self,
        row: usize,
        columns: &[String],
        count: usize,
        value_at: impl Fn(usize) -> Option<&'v Value>,
    ) -> Result<()> {
        for index in 0..count {
            let value = value_at(index).unwrap_or(&Value::Null);
            let field =
                field_text(value).map_err(|why| field_problem(row, index, columns, &why))?;
            self.write_field(index, count, &field)?;
        }
        self.end_row()
    }

    pub(super) fn into_text(self) -> String {
        self.out
    }

    fn write_field(&mut self, index: usize, count: usize, field: &str) -> Result<()> {
        if index > 0 {
            self.out.push(self.delimiter);
        }
        let special = [self.delimiter, '"', '\r', '\n', '\u{feff}'];
        // An empty line is no row, so a row of one empty field is quoted.
        if field.contains(special) || (count == 1 && field.is_empty()) {
            self.out.push('"');
            self.out.push_str(&field.replace('"', "\"\""));
            self.out.push('"');
        } else {
            self.out.push_str(field);
        }
        check_result_size(self.call, self.out.len())
    }

    fn end_row(&mut self) -> Result<()> {
        self.out.push('\n');
        // Rows of few fields each can have as many columns as there are rows.
        check_time_left(self.call)?;
        check_result_size(self.call, self.out.len())
    }
}

/// The field, or why there is none.
fn field_text(value: &Value) -> Result<std::borrow::Cow<'_, str>, String> {
    Ok(match value {
        Value::Null => "".into(),
        Value::Bool(flag) => flag.to_string().into(),
        Value::Int(int) => int.to_string().into(),
        Value::Float(float) if float.is_finite() => format!("{float:?}").into(),
        Value::Str(text) => text.into(),
        Value::Float(_) => return Err("is NaN or infinite, which CSV has no form for".to_owned()),
        Value::Bytes(_) => return Err("is not UTF-8 text".to_owned()),
        Value::Array(_) | Value::Object(_) => {
            return Err(format!("is {}, and a field is only text", kind_with_article(value)));
        }
    })
}

fn field_problem(row: usize, column: usize, columns: &[String], why: &str) -> Problem {
    let column = match columns.get(column) {
        Some(name) => format!("{:?}", shorten_text(name)),
        None => (column + 1).to_string(),
    };
    Problem::bad_request(format!("row {}, column {column} {why}", row + 1))
        .with_hint("encode it as text first, such as with json.encode")
}
