//! What becomes of a call that a person decides on, by what is on record of it.

/// How a request stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Waiting,
    Approved,
    Denied,
    /// The call was made.
    Used,
}

impl State {
    pub const ALL: [State; 4] = [State::Waiting, State::Approved, State::Denied, State::Used];

    pub fn as_str(self) -> &'static str {
        match self {
            State::Waiting => "waiting",
            State::Approved => "approved",
            State::Denied => "denied",
            State::Used => "used",
        }
    }
}

/// What is on record of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    pub state: State,
    /// There was time to decide, and to make the call, and it is over.
    pub expired: bool,
}

/// What becomes of the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// It is made, which uses the approval up.
    Make,
    /// Somebody has to decide.
    Wait,
    /// Somebody has to decide, and nobody was asked yet.
    Ask,
    Refuse(Why),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    Denied,
    Expired,
    Used,
}

/// `token` is whether the call came with the token of this very request, and
/// `by_caller` whether that decides.
pub fn next(known: Option<Known>, token: bool, by_caller: bool) -> Next {
    let Some(Known { state, expired }) = known else { return Next::Ask };
    match (state, expired) {
        // Whoever comes back with a token means this request, and no new one.
        (State::Used, _) if token => Next::Refuse(Why::Used),
        (State::Used, _) => Next::Ask,
        (_, true) if token => Next::Refuse(Why::Expired),
        (_, true) => Next::Ask,
        (State::Denied, false) => Next::Refuse(Why::Denied),
        (State::Approved, false) => Next::Make,
        (State::Waiting, false) if token && by_caller => Next::Make,
        (State::Waiting, false) => Next::Wait,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every case there is: state, expired, token, and what follows for each
    /// kind of decider.
    #[test]
    fn a_call_is_made_only_on_a_decision_in_time_and_only_once() {
        use Next::{Ask, Make, Refuse, Wait};
        use State::{Approved, Denied, Used, Waiting};
        use Why::{Denied as No, Expired as Late, Used as Twice};
        let cases = [
            (Waiting, false, false, Wait, Wait),
            (Waiting, false, true, Make, Wait),
            (Waiting, true, false, Ask, Ask),
            (Waiting, true, true, Refuse(Late), Refuse(Late)),
            (Approved, false, false, Make, Make),
            (Approved, false, true, Make, Make),
            (Approved, true, false, Ask, Ask),
            (Approved, true, true, Refuse(Late), Refuse(Late)),
            (Denied, false, false, Refuse(No), Refuse(No)),
            (Denied, false, true, Refuse(No), Refuse(No)),
            (Denied, true, false, Ask, Ask),
            (Denied, true, true, Refuse(Late), Refuse(Late)),
            (Used, false, false, Ask, Ask),
            (Used, false, true, Refuse(Twice), Refuse(Twice)),
            (Used, true, false, Ask, Ask),
            (Used, true, true, Refuse(Twice), Refuse(Twice)),
        ];
        for (state, expired, token, by_caller, by_operator) in cases {
            let known = Some(Known { state, expired });
            assert_eq!(next(known, token, true), by_caller, "{state:?} {expired} {token}");
            assert_eq!(next(known, token, false), by_operator, "{state:?} {expired} {token}");
        }
        for by_caller in [true, false] {
            assert_eq!(next(None, false, by_caller), Ask);
        }
    }
}
