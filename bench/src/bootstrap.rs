//! Confidence intervals: how much a mean owes to the questions that happened to be asked.

/// How often figures are drawn again, and from where to where their interval goes.
const BOOTSTRAP_ROUNDS: usize = 1_000;
const INTERVAL: [f64; 2] = [0.025, 0.975];

/// Between what and what the mean of the sets' means lies in 95 of 100 draws of as many
/// values from each set.
pub(super) fn mean_interval(sets: &[Vec<f64>]) -> [f64; 2] {
    let mut draw = RepeatableDraws(0x9e37_79b9_7f4a_7c15);
    let mut means: Vec<f64> = (0..BOOTSTRAP_ROUNDS)
        .map(|_| {
            let of_set = |values: &Vec<f64>| {
                let drawn = (0..values.len()).map(|_| values[draw.below(values.len())]);
                drawn.sum::<f64>() / values.len().max(1) as f64
            };
            sets.iter().map(of_set).sum::<f64>() / sets.len().max(1) as f64
        })
        .collect();
    means.sort_by(f64::total_cmp);
    INTERVAL.map(|share| means[(share * (BOOTSTRAP_ROUNDS - 1) as f64).round() as usize])
}

/// Numbers that look random and are the same in every run.
struct RepeatableDraws(u64);

impl RepeatableDraws {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % most.max(1)
    }
}
