//! `numeric`: as a number where that keeps every digit, else as a string.

use moonlark_core::Value;

use super::take_bytes;

/// Groups of four decimal digits, as many as there are before the point, the
/// sign, digits after the point, the groups.
pub(super) fn decode_numeric(mut bytes: &[u8]) -> Option<Value> {
    let groups = u16::from_be_bytes(take_bytes(&mut bytes)?);
    let weight = i16::from_be_bytes(take_bytes(&mut bytes)?);
    let sign = u16::from_be_bytes(take_bytes(&mut bytes)?);
    let scale = u16::from_be_bytes(take_bytes(&mut bytes)?);
    let negative = match sign {
        0 => false,
        0x4000 => true,
        0xc000 => return Some(Value::Float(f64::NAN)),
        0xd000 => return Some(Value::Float(f64::INFINITY)),
        0xf000 => return Some(Value::Float(f64::NEG_INFINITY)),
        _ => return None,
    };
    let digits: Vec<u16> = (0..groups)
        .map(|_| take_bytes(&mut bytes).map(u16::from_be_bytes).filter(|group| *group < 10_000))
        .collect::<Option<_>>()?;
    // The group with this power of ten thousand.
    let group = |power: i32| {
        let index = usize::try_from(i32::from(weight) - power).ok();
        index.and_then(|index| digits.get(index)).copied().unwrap_or(0)
    };
    let whole: String =
        (0..=i32::from(weight)).rev().map(|power| format!("{:04}", group(power))).collect();
    let whole = whole.trim_start_matches('0');
    let mut text = format!(
        "{}{}",
        if negative { "-" } else { "" },
        if whole.is_empty() { "0" } else { whole }
    );
    if scale > 0 {
        let after = i32::from(scale.div_ceil(4));
        let fraction: String = (1..=after).map(|power| format!("{:04}", group(-power))).collect();
        text.push('.');
        text.push_str(fraction.get(..usize::from(scale))?);
    }
    Some(number_from_text(text))
}

fn number_from_text(text: String) -> Value {
    if let Ok(int) = text.parse() {
        return Value::Int(int);
    }
    let plain =
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    match plain.parse::<f64>() {
        Ok(float) if float.to_string() == plain => Value::Float(float),
        _ => Value::Str(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_never_lost() {
        for (text, expected) in [
            ("0", Value::Int(0)),
            ("-9223372036854775808", Value::Int(i64::MIN)),
            ("9223372036854775808", Value::Str("9223372036854775808".into())),
            ("1.50", Value::Float(1.5)),
            ("5.00", Value::Float(5.0)),
            ("0.1", Value::Float(0.1)),
            ("0.10000000000000000001", Value::Str("0.10000000000000000001".into())),
            ("123456789012345.678", Value::Str("123456789012345.678".into())),
            ("1000000000000000000000000", Value::Float(1e24)),
        ] {
            assert_eq!(number_from_text(text.to_owned()), expected, "{text}");
        }
    }

    #[test]
    fn groups_become_digits() {
        let read = |words: &[u16]| {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
            decode_numeric(&bytes)
        };
        assert_eq!(read(&[2, 1, 0x4000, 0, 12, 345]), Some(Value::Int(-120_345)));
        assert_eq!(read(&[1, 0xffff, 0, 3, 1250]), Some(Value::Float(0.125)));
        // 0.00001: the first group after the point is zero and not sent.
        assert_eq!(read(&[1, 0xfffe, 0, 5, 1000]), Some(Value::Float(0.000_01)));
        assert_eq!(read(&[0, 0, 0, 2]), Some(Value::Float(0.0)));
        assert_eq!(read(&[1, 0, 0, 0, 10_000]), None);
        assert_eq!(read(&[2, 0, 0, 0, 1]), None);
    }
}
