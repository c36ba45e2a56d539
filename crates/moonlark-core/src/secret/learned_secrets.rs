//! Learned secrets: tokens that were obtained at run time, not configured.
//!
//! The last of a key stays known for a while after the next has come: an answer to it may
//! still be on its way. How many there are of a key is bounded.

use std::time::{Duration, Instant};

use super::{MIN_SECRET_BYTES, SecretValue};

/// As long as the longest answer may take, by far.
const REPLACED_SECRET_LIFETIME: Duration = Duration::from_secs(60 * 60);
/// Of one key, the one in use included.
const MAX_SECRETS_PER_KEY: usize = 4;

#[derive(Default)]
pub(super) struct LearnedSecrets(Vec<(SecretValue, Option<Instant>)>);

impl LearnedSecrets {
    /// Whether anything is new by that.
    pub(super) fn learn_secret(&mut self, key: &str, value: &str, now: Instant) -> bool {
        let Self(all) = self;
        let is_it = |it: &SecretValue| it.key == key && it.value == value;
        let in_use = all.iter().any(|(it, replaced)| is_it(it) && replaced.is_none());
        if in_use || value.len() < MIN_SECRET_BYTES {
            return false;
        }
        all.retain(|(it, replaced)| {
            !is_it(it)
                && replaced.is_none_or(|at| now.duration_since(at) < REPLACED_SECRET_LIFETIME)
        });
        for (_, replaced) in all.iter_mut().filter(|(it, _)| it.key == key) {
            replaced.get_or_insert(now);
        }
        all.push((
            SecretValue { key: key.to_owned(), value: value.to_owned(), by_name: true },
            None,
        ));
        let many = all.iter().filter(|(it, _)| it.key == key).count();
        if many > MAX_SECRETS_PER_KEY
            && let Some(oldest) = all.iter().position(|(it, _)| it.key == key)
        {
            all.remove(oldest);
        }
        true
    }

    pub(super) fn secrets(&self) -> impl Iterator<Item = &SecretValue> {
        self.0.iter().map(|(secret, _)| secret)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_stays_known_for_a_while_after_it_was_replaced() {
        let mut learned = LearnedSecrets::default();
        let begin = Instant::now();
        let mut learn = |key: &str, value: &str, minutes: u64| {
            let is_new =
                learned.learn_secret(key, value, begin + Duration::from_secs(minutes * 60));
            let all: Vec<&str> = learned.secrets().map(|it| it.value.as_str()).collect();
            (is_new, all.join(" "))
        };
        let said = |is_new: bool, all: &str| (is_new, all.to_owned());
        assert_eq!(learn("access", "one-1", 0), said(true, "one-1"));
        assert_eq!(learn("access", "one-1", 1), said(false, "one-1"));
        assert_eq!(learn("access", "abc", 1), said(false, "one-1"));
        assert_eq!(learn("again", "other", 2), said(true, "one-1 other"));
        assert_eq!(learn("access", "two-2", 10), said(true, "one-1 other two-2"));
        // The one in use never ages; the one before it does.
        assert_eq!(learn("access", "three", 80), said(true, "other two-2 three"));
        // One that comes back is in use again.
        assert_eq!(learn("access", "two-2", 90), said(true, "other three two-2"));
        // And never too many.
        learn("access", "four", 91);
        learn("access", "five", 92);
        assert_eq!(learn("access", "six6", 93), said(true, "other two-2 four five six6"));
    }
}
