//! The indexes of the catalogs that are in use, each made when it is first
//! searched.

use std::sync::{Arc, Weak};

use moonlark_core::{Catalog, Problem, Result, Tool};
use tokio::sync::Mutex;

use crate::function_index::{self, FunctionIndex};

/// Callers who see different functions have different catalogs: so many of them
/// keep their index.
const MAX_CACHED_INDEXES: usize = 16;

/// Who makes one holds the lock: the others wait for it instead of making it
/// as well. The one used last is last.
#[derive(Default)]
pub(crate) struct FunctionIndexCache(Mutex<Vec<CachedFunctionIndex>>);

struct CachedFunctionIndex {
    catalog: Weak<Catalog>,
    tools: Vec<Weak<Tool>>,
    index: Arc<FunctionIndex>,
}

impl FunctionIndexCache {
    pub(crate) async fn get_or_build(&self, catalog: &Arc<Catalog>) -> Result<Arc<FunctionIndex>> {
        let mut all = self.0.lock().await;
        let is =
            |kept: &CachedFunctionIndex| std::ptr::eq(kept.catalog.as_ptr(), Arc::as_ptr(catalog));
        // Many catalogs differ from the one before in what is wrong only.
        let known = all
            .iter()
            .position(is)
            .or_else(|| all.iter().position(|it| it.matches_catalog(catalog)));
        if let Some(known) = known {
            let kept = all.remove(known);
            let index = kept.index.clone();
            all.push(CachedFunctionIndex { catalog: Arc::downgrade(catalog), ..kept });
            return Ok(index);
        }
        all.retain(|kept| kept.catalog.strong_count() > 0);
        if all.len() == MAX_CACHED_INDEXES {
            all.remove(0);
        }
        let this = catalog.clone();
        // A large catalog takes a moment, in which others are served.
        let made = tokio::task::spawn_blocking(move || Arc::new(FunctionIndex::new(&this))).await;
        let index = made.map_err(|_| Problem::internal("the functions could not be indexed"))?;
        let tools = function_index::all_functions(catalog)
            .map(|(_, it)| Arc::downgrade(&it.tool))
            .collect();
        all.push(CachedFunctionIndex {
            catalog: Arc::downgrade(catalog),
            tools,
            index: index.clone(),
        });
        Ok(index)
    }
}

impl CachedFunctionIndex {
    fn matches_catalog(&self, catalog: &Catalog) -> bool {
        let mut tools = self.tools.iter();
        let same = |(_, function): (_, &moonlark_core::sdk::SdkFunction)| {
            tools.next().is_some_and(|it| std::ptr::eq(it.as_ptr(), Arc::as_ptr(&function.tool)))
        };
        function_index::all_functions(catalog).all(same) && tools.next().is_none()
    }
}
