//! Authorizers: which token goes with a request. What tokens are, where they come from
//! and how they are kept is known elsewhere.

use futures::future::BoxFuture;
use moonlark_core::Problem;

use moonlark_core::secret::SecretText;

pub trait RequestAuthorizer: Send + Sync {
    /// The value of the `Authorization` header, refreshed when needed.
    fn authorization_header(&self) -> BoxFuture<'_, Result<Option<SecretText>, Problem>>;

    /// The server said 401 or 403, with this `WWW-Authenticate`. `Ok(true)`:
    /// the same request is worth one more try.
    fn handle_challenge(
        &self,
        status: u16,
        www_authenticate: Option<String>,
    ) -> BoxFuture<'_, Result<bool, Problem>>;
}
