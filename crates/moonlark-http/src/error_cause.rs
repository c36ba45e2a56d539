//! The root cause of an error: the outer errors of a client only say "request".

use std::error::Error;

/// The innermost of an error's sources, or the error itself.
pub fn innermost_error<'a>(error: &'a (dyn Error + 'static)) -> &'a (dyn Error + 'static) {
    let mut inner = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner
}

/// The text of the innermost error.
pub fn innermost_error_text(error: &(dyn Error + 'static)) -> String {
    innermost_error(error).to_string()
}
