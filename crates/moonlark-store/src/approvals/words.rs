//! Why a call is not made, in words.

use moonlark_core::approval::{Request, Why};
use moonlark_core::value::shorten;
use moonlark_core::{Code, Problem};

use super::row::Row;

pub(super) fn refused(why: Why, row: &Row) -> Problem {
    let (id, tool) = (row.id, &row.tool);
    let problem = |message: String| Problem::new(Code::Forbidden, message);
    let by = row.decided_by.as_deref().unwrap_or("somebody");
    match why {
        Why::Denied => problem(format!("{by} has denied this call of {tool} (approval {id})")),
        Why::Expired => problem(format!("the time for approval {id} is over"))
            .hint("make the call again without the token, to ask anew"),
        Why::Used => problem(format!("approval {id} was used: it is good for one call"))
            .hint("make the call again without the token, to ask anew"),
    }
}

/// Why a token is of no use for this call.
pub(super) fn another(row: Option<&Row>, request: &Request, digest: &[u8]) -> Problem {
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
    Problem::new(Code::Forbidden, message)
        .hint("make the call again without the token, to ask anew")
}

pub(super) fn unknown(text: &str) -> Problem {
    Problem::new(Code::NotFound, format!("there is no approval {}", shorten(text)))
        .hint("`moonlark approvals` lists what waits for a decision")
}
