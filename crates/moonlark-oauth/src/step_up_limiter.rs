//! Step-up limit: how often an upstream may require more scopes than a token has.

use std::time::{Duration, Instant};

const MAX_STEP_UPS_PER_SCOPE: usize = 2;
const MAX_STEP_UPS: usize = 8;
/// Tokens come and go: what was asked for long ago may be asked for again.
const STEP_UP_WINDOW: Duration = Duration::from_secs(600);

#[derive(Default)]
pub(super) struct StepUpLimiter(Vec<(Instant, String)>);

impl StepUpLimiter {
    /// Whether one more for `scope` is due. If so, it counts.
    pub(super) fn allow_step_up(&mut self, scope: &str) -> bool {
        self.0.retain(|(at, _)| at.elapsed() < STEP_UP_WINDOW);
        let same = self.0.iter().filter(|(_, asked)| asked == scope).count();
        if same >= MAX_STEP_UPS_PER_SCOPE || self.0.len() >= MAX_STEP_UPS {
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
        let mut asked = StepUpLimiter::default();
        assert_eq!(
            [asked.allow_step_up("a"), asked.allow_step_up("a"), asked.allow_step_up("a")],
            [true, true, false]
        );
        assert!(asked.allow_step_up("b"));
        let more = (0..20).filter(|number| asked.allow_step_up(&number.to_string())).count();
        assert_eq!(more, 5);
    }
}
