//! Approval state: what follows for a call from the approvals on record.

/// How a request stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApprovalState {
    Waiting,
    Approved,
    Denied,
    /// The call was made.
    Used,
}

impl ApprovalState {
    pub const ALL_STATES: [ApprovalState; 4] = [
        ApprovalState::Waiting,
        ApprovalState::Approved,
        ApprovalState::Denied,
        ApprovalState::Used,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            ApprovalState::Waiting => "waiting",
            ApprovalState::Approved => "approved",
            ApprovalState::Denied => "denied",
            ApprovalState::Used => "used",
        }
    }
}

/// What is on record of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApprovalRecord {
    pub state: ApprovalState,
    /// There was time to decide, and to make the call, and it is over.
    pub expired: bool,
}

/// What becomes of the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApprovalVerdict {
    /// It is made, which uses the approval up.
    Make,
    /// Somebody has to decide.
    Wait,
    /// Somebody has to decide, and nobody was asked yet.
    Ask,
    Refuse(ApprovalRefusal),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApprovalRefusal {
    Denied,
    Expired,
    Used,
}

/// `token` is whether the call came with the token of this very request, and
/// `by_caller` whether that decides.
pub fn decide_next_step(
    known: Option<ApprovalRecord>,
    token: bool,
    by_caller: bool,
) -> ApprovalVerdict {
    let Some(ApprovalRecord { state, expired }) = known else { return ApprovalVerdict::Ask };
    match (state, expired) {
        // Whoever comes back with a token means this request, and no new one.
        (ApprovalState::Used, _) if token => ApprovalVerdict::Refuse(ApprovalRefusal::Used),
        (ApprovalState::Used, _) => ApprovalVerdict::Ask,
        (_, true) if token => ApprovalVerdict::Refuse(ApprovalRefusal::Expired),
        (_, true) => ApprovalVerdict::Ask,
        (ApprovalState::Denied, false) => ApprovalVerdict::Refuse(ApprovalRefusal::Denied),
        (ApprovalState::Approved, false) => ApprovalVerdict::Make,
        (ApprovalState::Waiting, false) if token && by_caller => ApprovalVerdict::Make,
        (ApprovalState::Waiting, false) => ApprovalVerdict::Wait,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every case there is: state, expired, token, and what follows for each
    /// kind of decider.
    #[test]
    fn a_call_is_made_only_on_a_decision_in_time_and_only_once() {
        use ApprovalRefusal::{Denied as No, Expired as Late, Used as Twice};
        use ApprovalState::{Approved, Denied, Used, Waiting};
        use ApprovalVerdict::{Ask, Make, Refuse, Wait};
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
            let known = Some(ApprovalRecord { state, expired });
            assert_eq!(
                decide_next_step(known, token, true),
                by_caller,
                "{state:?} {expired} {token}"
            );
            assert_eq!(
                decide_next_step(known, token, false),
                by_operator,
                "{state:?} {expired} {token}"
            );
        }
        for by_caller in [true, false] {
            assert_eq!(decide_next_step(None, false, by_caller), Ask);
        }
    }
}
