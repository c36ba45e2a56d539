//! Seeded random numbers: everything random in an agent's script comes from the seed of
//! its run, so that a resumed run draws the same again.

use sha2::{Digest, Sha256};

/// What is drawn from a seed; the same for nobody else.
pub(super) fn fill_seeded(seed: &[u8; 32], what: &str, number: u64, bytes: &mut [u8]) {
    for (block, chunk) in (0u64..).zip(bytes.chunks_mut(32)) {
        let mut hash = Sha256::new();
        hash.update(seed);
        hash.update((what.len() as u64).to_le_bytes());
        hash.update(what.as_bytes());
        hash.update(number.to_le_bytes());
        hash.update(block.to_le_bytes());
        let drawn = hash.finalize();
        chunk.copy_from_slice(&drawn[..chunk.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_repeat_for_one_seed_and_differ_otherwise() {
        let draw = |seed: u8, what: &str, number: u64| {
            let mut bytes = [0; 70];
            fill_seeded(&[seed; 32], what, number, &mut bytes);
            bytes
        };
        assert_eq!(draw(1, "a", 0), draw(1, "a", 0));
        let all = [draw(1, "a", 0), draw(1, "a", 1), draw(2, "a", 0), draw(1, "b", 0)];
        for (at, one) in all.iter().enumerate() {
            assert!(!all[at + 1..].contains(one));
            assert_ne!(one[..32], one[32..64]);
        }
    }
}
