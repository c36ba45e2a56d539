//! A file of weights: safetensors.
//!
//! Eight bytes say how long the heading is, the heading is JSON and says where each
//! tensor is, and then come the tensors. Nothing is taken on trust: a tensor has to have
//! the shape that is asked for, to lie within the file and to consist of numbers.

use std::cell::Cell;

use serde_json::{Map, Value};

use super::ModelFileFault;

/// A heading has some dozens of bytes for each tensor.
const MAX_HEADING_BYTES: usize = 1 << 20;

pub(super) struct WeightsFile<'a> {
    tensors: Map<String, Value>,
    numbers: &'a [u8],
    /// Bytes that were not read yet. Tensors could lie over each other, and a small file be
    /// read into much memory.
    left: Cell<usize>,
}

impl<'a> WeightsFile<'a> {
    pub(super) fn parse(file: &'a [u8]) -> Result<WeightsFile<'a>, ModelFileFault> {
        let fault = |said: &str| ModelFileFault(format!("the weights are no safetensors: {said}"));
        let (length, rest) = file.split_first_chunk::<8>().ok_or_else(|| fault("too short"))?;
        let length = usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX);
        if length > MAX_HEADING_BYTES {
            return Err(fault("their heading is too long"));
        }
        let (heading, numbers) =
            rest.split_at_checked(length).ok_or_else(|| fault("their heading is cut off"))?;
        let tensors = serde_json::from_slice(heading)
            .map_err(|error| fault(&format!("their heading is no JSON object: {error}")))?;
        Ok(WeightsFile { tensors, numbers, left: Cell::new(numbers.len()) })
    }

    /// The numbers of a tensor of this shape. Some files put the name of the whole model
    /// before all others.
    pub(super) fn read_tensor(
        &self,
        name: &str,
        shape: &[usize],
    ) -> Result<Vec<f32>, ModelFileFault> {
        let fault = |said: &str| ModelFileFault(format!("the weights: {name} {said}"));
        let found = self.tensors.get(name).or_else(|| self.tensors.get(&format!("bert.{name}")));
        let about = found.ok_or_else(|| fault("is missing"))?;
        let list = |key: &str| -> Option<Vec<usize>> {
            let of = about.get(key)?.as_array()?.iter();
            of.map(|it| it.as_u64().and_then(|it| usize::try_from(it).ok())).collect()
        };
        if list("shape").as_deref() != Some(shape) {
            return Err(fault(&format!("has another shape than {shape:?}")));
        }
        let bytes = match list("data_offsets").as_deref() {
            Some([start, end]) => self.numbers.get(*start..*end),
            _ => None,
        };
        let bytes = bytes.ok_or_else(|| fault("lies outside of the file"))?;
        let left = self.left.get().checked_sub(bytes.len());
        self.left.set(left.ok_or_else(|| fault("lies over another"))?);
        let kind = about.get("dtype").and_then(Value::as_str);
        let numbers: Vec<f32> = match kind {
            Some("F32") => {
                bytes.as_chunks::<4>().0.iter().map(|it| f32::from_le_bytes(*it)).collect()
            }
            Some("BF16") => bytes.as_chunks::<2>().0.iter().map(|it| widen_bf16(*it)).collect(),
            Some("F16") => bytes.as_chunks::<2>().0.iter().map(|it| widen_f16(*it)).collect(),
            _ => return Err(fault("is of no type that can be read: F32, F16, BF16")),
        };
        let width = if kind == Some("F32") { 4 } else { 2 };
        if numbers.len() != shape.iter().product::<usize>() || bytes.len() != numbers.len() * width
        {
            return Err(fault("has more or fewer numbers than its shape"));
        }
        if !numbers.iter().all(|it| it.is_finite()) {
            return Err(fault("has numbers that are none"));
        }
        Ok(numbers)
    }
}

fn widen_bf16(bytes: [u8; 2]) -> f32 {
    f32::from_bits(u32::from(u16::from_le_bytes(bytes)) << 16)
}

fn widen_f16(bytes: [u8; 2]) -> f32 {
    let bits = u16::from_le_bytes(bytes);
    let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f32::from(bits & 0x3ff));
    match exponent {
        0 => sign * fraction * 2.0_f32.powi(-24),
        0x1f => f32::NAN,
        exponent => sign * (1.0 + fraction / 1024.0) * 2.0_f32.powi(exponent - 15),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_numbers_are_read_as_they_are() {
        for (bits, expected) in [
            (0x3c00_u16, 1.0),
            (0xc000, -2.0),
            (0x3555, 0.333_251_95),
            (0x0001, 5.960_464_5e-8),
            (0x7bff, 65_504.0),
            (0x0000, 0.0),
        ] {
            assert_eq!(widen_f16(bits.to_le_bytes()), expected);
        }
        assert!(widen_f16(0x7c00_u16.to_le_bytes()).is_nan());
        assert_eq!(widen_bf16(0x3f80_u16.to_le_bytes()), 1.0);
    }
}
