//! The product of two rows, with what the processor has for it.
//!
//! The build needs no flags: what there is, is found out when a search begins.

/// One row, made ready to be multiplied with many.
pub(super) struct DotProduct<'a> {
    query: &'a [i8],
    /// The same numbers, each in two bytes.
    #[cfg(target_arch = "x86_64")]
    wide: Option<Vec<i16>>,
}

impl<'a> DotProduct<'a> {
    pub(super) fn for_query(query: &'a [i8]) -> Self {
        Self {
            query,
            #[cfg(target_arch = "x86_64")]
            wide: is_x86_feature_detected!("avx2")
                .then(|| query.iter().map(|it| i16::from(*it)).collect()),
        }
    }

    /// The product with a row of the same length.
    #[inline]
    pub(super) fn with_row(&self, row: &[i8]) -> i32 {
        #[cfg(target_arch = "x86_64")]
        if let Some(wide) = &self.wide {
            // SAFETY: there is `wide` only where the processor has AVX2.
            return unsafe { dot_avx2(row, wide) };
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: every processor of this architecture has NEON.
        return unsafe { dot_neon(row, self.query) };
        #[cfg(not(target_arch = "aarch64"))]
        dot_portable(row, self.query)
    }
}

pub(super) fn dot_portable(row: &[i8], query: &[i8]) -> i32 {
    row.iter().zip(query).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn dot_avx2(row: &[i8], wide: &[i16]) -> i32 {
    use std::arch::x86_64::{
        __m128i, __m256i, _mm_loadu_si128, _mm256_add_epi32, _mm256_cvtepi8_epi16,
        _mm256_loadu_si256, _mm256_madd_epi16, _mm256_setzero_si256, _mm256_storeu_si256,
    };
    const NUMBERS_PER_STEP: usize = 16;
    let (rows, queries) = (row.chunks_exact(NUMBERS_PER_STEP), wide.chunks_exact(NUMBERS_PER_STEP));
    let (row_rest, query_rest) = (rows.remainder(), queries.remainder());
    let mut sums = _mm256_setzero_si256();
    for (row, query) in rows.zip(queries) {
        // SAFETY: both are NUMBERS_PER_STEP numbers long, and loads may be unaligned.
        let (row, query) = unsafe {
            (
                _mm_loadu_si128(row.as_ptr().cast::<__m128i>()),
                _mm256_loadu_si256(query.as_ptr().cast::<__m256i>()),
            )
        };
        // Two products of at most 127² each fit in 32 bits, and so do the sums
        // of rows of up to a hundred thousand numbers.
        sums = _mm256_add_epi32(sums, _mm256_madd_epi16(_mm256_cvtepi8_epi16(row), query));
    }
    let mut lanes = [0_i32; 8];
    // SAFETY: eight lanes of 32 bits are what is stored.
    unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast::<__m256i>(), sums) };
    let rest = row_rest.iter().zip(query_rest).map(|(a, b)| i32::from(*a) * i32::from(*b));
    lanes.iter().sum::<i32>() + rest.sum::<i32>()
}

#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "neon")]
unsafe fn dot_neon(row: &[i8], query: &[i8]) -> i32 {
    use std::arch::aarch64::{
        vaddvq_s32, vdupq_n_s32, vget_low_s8, vld1q_s8, vmull_high_s8, vmull_s8, vpadalq_s16,
    };
    const NUMBERS_PER_STEP: usize = 16;
    let (rows, queries) =
        (row.chunks_exact(NUMBERS_PER_STEP), query.chunks_exact(NUMBERS_PER_STEP));
    let (row_rest, query_rest) = (rows.remainder(), queries.remainder());
    let mut sums = vdupq_n_s32(0);
    for (row, query) in rows.zip(queries) {
        // SAFETY: both are NUMBERS_PER_STEP numbers long, and loads may be unaligned.
        let (row, query) = unsafe { (vld1q_s8(row.as_ptr()), vld1q_s8(query.as_ptr())) };
        sums = vpadalq_s16(sums, vmull_s8(vget_low_s8(row), vget_low_s8(query)));
        sums = vpadalq_s16(sums, vmull_high_s8(row, query));
    }
    vaddvq_s32(sums) + dot_portable(row_rest, query_rest)
}
