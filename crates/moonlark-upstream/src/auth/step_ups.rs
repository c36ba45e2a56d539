//! How often an upstream may ask for more permissions than a token has before
//! it is told no: one that asks in circles would keep us going for ever.

use std::time::{Duration, Instant};

const MOST_OF_ONE: usize = 2;
const MOST: usize = 8;
/// Tokens come and go: what was asked for long ago may be asked for again.
const REMEMBERED: Duration = Duration::from_secs(600);

#[derive(Default)]
pub(super) struct StepUps(Vec<(Instant, String)>);

impl StepUps {
    /// Whether one more for `scope` is due. If so, it counts.
    pub(super) fn allow(&mut self, scope: &str) -> bool {
        self.0.retain(|(at, _)| at.elapsed() < REMEMBERED);
        let same = self.0.iter().filter(|(_, asked)| asked == scope).count();
        if same >= MOST_OF_ONE || self.0.len() >= MOST {
            return false;
        }
        self.0.push((Instant::now(), scope.to_owned()));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asking_in_circles_ends() {
        let mut asked = StepUps::default();
        assert_eq!([asked.allow("a"), asked.allow("a"), asked.allow("a")], [true, true, false]);
        assert!(asked.allow("b"));
        let more = (0..20).filter(|number| asked.allow(&number.to_string())).count();
        assert_eq!(more, 5);
    }
}
