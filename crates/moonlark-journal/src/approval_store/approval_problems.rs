//! Problems of approvals: why a call is not made.

use moonlark_core::Problem;
use moonlark_core::value::shorten_text;
use moonlark_gateway::approval::{ApprovalRefusal, ApprovalRequest};

use super::approval_row::ApprovalRow;

const ASK_ANEW_HINT: &str = "make the call again without the token, to ask anew";

pub(super) fn refused_problem(why: ApprovalRefusal, row: &ApprovalRow) -> Problem {
    let (id, tool) = (row.id, &row.tool);
    let by = row.decided_by.as_deref().unwrap_or("somebody");
    match why {
        ApprovalRefusal::Denied => {
            Problem::forbidden(format!("{by} has denied this call of {tool} (approval {id})"))
        }
        ApprovalRefusal::Expired => {
            Problem::forbidden(format!("approval {id} has expired")).with_hint(ASK_ANEW_HINT)
        }
        ApprovalRefusal::Used => {
            Problem::forbidden(format!("approval {id} was used: an approval is valid for one call"))
                .with_hint(ASK_ANEW_HINT)
        }
    }
}

/// Why a token is of no use for this call.
pub(super) fn wrong_token_problem(
    row: Option<&ApprovalRow>,
    request: &ApprovalRequest,
    digest: &[u8],
) -> Problem {
    let message = match row {
        None => "no approval has this token".to_owned(),
        Some(row) if row.tool != request.tool => {
            format!("the token is for another call, of {}", row.tool)
        }
        Some(row) if row.digest != digest => {
            "the token was given for other arguments than these".to_owned()
        }
        Some(_) => "the token was given to another caller".to_owned(),
    };
    Problem::forbidden(message).with_hint(ASK_ANEW_HINT)
}

pub(super) fn unknown_approval_problem(text: &str) -> Problem {
    Problem::not_found(format!("there is no approval {}", shorten_text(text)))
        .with_hint("`moonlark approvals` lists what waits for a decision")
}
