//! Quantized vectors as rows of bytes, and nearest-neighbour search.
//!
//! A row is a unit vector, each number of it in one byte. All rows of a length
//! have one scale, so a row needs nothing beside it: a product of two rows and
//! that scale are the cosine, to within a few thousandths. Every row is looked
//! at: a hundred thousand take about a millisecond, which is less than what it
//! would cost to keep a graph of them up to date.

mod dot_product;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::fuse::CosineStats;
use crate::row_bitmap::RowBitmap;

/// How many times the usual size a number in a row may be. What is larger is
/// cut to that.
const QUANTIZATION_CLIP_FACTOR: f32 = 8.0;

/// The rows that come nearest to a question, and how near rows are in general.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NearestRows {
    /// Numbers of rows and their cosines, nearest first; of equals, the first
    /// row first.
    pub best: Vec<(u32, f32)>,
    /// Of all rows that were looked at.
    pub cosines: CosineStats,
}

/// A vector as a row. One that points nowhere stays so.
pub fn quantize_vector(vector: &[f32]) -> Vec<i8> {
    let norm = vector.iter().map(|it| it * it).sum::<f32>().sqrt();
    if norm.is_nan() || norm <= f32::MIN_POSITIVE || norm.is_infinite() {
        return vec![0; vector.len()];
    }
    let scale = quantization_scale(vector.len()) / norm;
    // `as` cuts what is too large.
    vector.iter().map(|it| (it * scale).round().clamp(-127.0, 127.0) as i8).collect()
}

/// The cosine of two rows of one length.
pub fn cosine_similarity(row: &[i8], other: &[i8]) -> f32 {
    cosine_from_product(dot_product::dot_product(row, other), row.len())
}

/// The `most` of these rows that come nearest to `query`: of all rows, or of
/// those that `mask` has.
pub fn top_k(rows: &[i8], query: &[i8], most: usize, mask: Option<&RowBitmap>) -> NearestRows {
    let length = query.len();
    if length == 0 {
        return NearestRows::default();
    }
    // The nearest is the greatest; of equals, the first.
    let mut heap: BinaryHeap<Reverse<(i32, Reverse<u32>)>> =
        BinaryHeap::with_capacity(most.min(1024) + 1);
    let (mut count, mut sum, mut squares) = (0_u64, 0_i64, 0_f64);
    for (number, row) in rows.chunks_exact(length).enumerate() {
        if mask.is_some_and(|mask| !mask.get(number)) {
            continue;
        }
        let near = dot_product::dot_product(row, query);
        count += 1;
        sum += i64::from(near);
        squares += f64::from(near) * f64::from(near);
        if heap.len() < most {
            heap.push(Reverse((near, Reverse(number as u32))));
        } else if let Some(mut last) = heap.peek_mut()
            && near > last.0.0
        {
            *last = Reverse((near, Reverse(number as u32)));
        }
    }
    let best = heap.into_sorted_vec().into_iter();
    let mean = sum as f64 / count.max(1) as f64;
    let deviation = (squares / count.max(1) as f64 - mean * mean).max(0.0).sqrt();
    let unit = f64::from(cosine_from_product(1, length));
    NearestRows {
        best: best.map(|Reverse((near, row))| (row.0, cosine_from_product(near, length))).collect(),
        cosines: CosineStats {
            rows: count as usize,
            mean: (mean * unit) as f32,
            deviation: (deviation * unit) as f32,
        },
    }
}

/// What a number of a unit vector is multiplied by: its usual size is one over
/// the root of the length.
fn quantization_scale(length: usize) -> f32 {
    let root = (length as f32).sqrt();
    127.0 / QUANTIZATION_CLIP_FACTOR.min(root) * root
}

fn cosine_from_product(product: i32, length: usize) -> f32 {
    product as f32 / (quantization_scale(length) * quantization_scale(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that look random and are always the same.
    fn vector(seed: u64, length: usize) -> Vec<f32> {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
        };
        (0..length).map(|_| next()).collect()
    }

    fn exact(a: &[f32], b: &[f32]) -> f32 {
        let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
        dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
    }

    #[test]
    fn a_cosine_of_rows_is_that_of_the_vectors() {
        for length in [1, 7, 31, 256, 384, 1536] {
            for seed in 1..20 {
                let (a, b) = (vector(seed, length), vector(seed + 100, length));
                let near = cosine_similarity(&quantize_vector(&a), &quantize_vector(&b));
                assert!((near - exact(&a, &b)).abs() < 0.02, "{length} {seed}: {near}");
            }
        }
    }

    #[test]
    fn the_nearest_rows_come_first_whatever_the_machine_can_do() {
        for length in [1, 7, 15, 16, 33, 256] {
            let rows: Vec<i8> =
                (1..200).flat_map(|seed| quantize_vector(&vector(seed, length))).collect();
            let query = quantize_vector(&vector(7, length));
            let mut expected: Vec<(u32, f32)> = rows
                .chunks(length)
                .zip(0..)
                .map(|(row, number)| (number, cosine_similarity(row, &query)))
                .collect();
            expected.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
            expected.truncate(10);
            assert_eq!(top_k(&rows, &query, 10, None).best, expected, "{length}");
        }
    }

    #[test]
    fn only_what_the_mask_has_is_found() {
        let rows: Vec<i8> = (1..200).flat_map(|seed| quantize_vector(&vector(seed, 64))).collect();
        let mut mask = RowBitmap::all_clear(199);
        mask.insert(3);
        mask.insert(190);
        mask.insert(5_000);
        let found = top_k(&rows, &quantize_vector(&vector(4, 64)), 10, Some(&mask));
        assert_eq!(found.best.iter().map(|it| it.0).collect::<Vec<_>>(), [3, 190]);
        assert_eq!((found.cosines.rows, mask.count_set()), (2, 3));
        assert!(mask.remove(3) && !mask.get(3) && mask.get(190));
    }

    #[test]
    fn equals_keep_their_order() {
        let row = quantize_vector(&vector(1, 8));
        let rows: Vec<i8> = (0..50).flat_map(|_| row.clone()).collect();
        let found = top_k(&rows, &row, 3, None);
        assert_eq!(found.best.iter().map(|it| it.0).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(found.cosines.deviation, 0.0);
    }

    #[test]
    fn nothing_is_near_to_nothing() {
        assert_eq!(top_k(&[], &[], 3, None), NearestRows::default());
        assert_eq!(top_k(&[], &[1, 2], 3, None).best, []);
        assert_eq!(top_k(&[1, 2], &[1, 2], 0, None).best, []);
        assert_eq!(quantize_vector(&[0.0, 0.0]), [0, 0]);
        assert_eq!(quantize_vector(&[f32::NAN, 1.0]), [0, 0]);
        assert_eq!(quantize_vector(&[f32::INFINITY, 1.0]), [0, 0]);
    }
}
