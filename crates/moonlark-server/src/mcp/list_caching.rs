//! How long clients may keep a list, and whether several may share it. Only the
//! clients of 2026-07-28 are told.

use moonlark_gateway::{Caller, Gateway};
use rmcp::model::CacheScope;

/// A client that listens is told of changes; one that does not looks this often.
const LIST_TTL_MS: u64 = 60_000;
/// While sources connect, lists grow.
const CONNECTING_TTL_MS: u64 = 1_000;

pub(super) struct ListCaching {
    pub(super) ttl_ms: u64,
    pub(super) scope: CacheScope,
}

impl ListCaching {
    /// For the lists of one caller. Others may be given the same only where nobody
    /// is told apart: where there is no rule, and callers show no names.
    pub(super) fn for_caller(gateway: &Gateway, caller: &Caller) -> ListCaching {
        let connecting = !gateway.catalog_for(caller).connecting_sources().is_empty();
        let same_for_all = gateway.policy().is_empty() && caller.name.is_none();
        ListCaching {
            ttl_ms: if connecting { CONNECTING_TTL_MS } else { LIST_TTL_MS },
            scope: if same_for_all { CacheScope::Public } else { CacheScope::Private },
        }
    }
}
