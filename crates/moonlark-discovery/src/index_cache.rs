//! The indexes of the catalogs that are in use, each made when it is first
//! searched.

use std::sync::{Arc, Weak};

use moonlark_core::{Catalog, Problem, Result, Tool};
use parking_lot::Mutex;
use tokio::sync::OnceCell;

use crate::function_index::{self, FunctionIndex};

/// Callers who see different functions have different catalogs: so many of them
/// keep their index.
const MAX_CACHED_INDEXES: usize = 16;

/// The one used last is last. Whoever needs an index that is being made waits for it
/// instead of making it as well, and nobody else does.
#[derive(Default)]
pub(crate) struct FunctionIndexCache(Mutex<Vec<CachedFunctionIndex>>);

struct CachedFunctionIndex {
    catalog: Weak<Catalog>,
    tools: Vec<Weak<Tool>>,
    index: Arc<OnceCell<Arc<FunctionIndex>>>,
}

impl FunctionIndexCache {
    pub(crate) async fn get_or_build(&self, catalog: &Arc<Catalog>) -> Result<Arc<FunctionIndex>> {
        let index = self.find_or_add(catalog);
        let made = index.get_or_try_init(async || {
            let this = catalog.clone();
            // A large catalog takes a moment, in which others are served.
            let making = tokio::task::spawn_blocking(move || Arc::new(FunctionIndex::new(&this)));
            making.await.map_err(|_| Problem::internal("the functions could not be indexed"))
        });
        made.await.cloned()
    }

    fn find_or_add(&self, catalog: &Arc<Catalog>) -> Arc<OnceCell<Arc<FunctionIndex>>> {
        let mut all = self.0.lock();
        let is =
            |kept: &CachedFunctionIndex| std::ptr::eq(kept.catalog.as_ptr(), Arc::as_ptr(catalog));
        // Many catalogs differ from the one before in what is wrong only.
        let known = all
            .iter()
            .position(is)
            .or_else(|| all.iter().position(|it| it.matches_catalog(catalog)));
        let (tools, index) = match known {
            Some(known) => {
                let kept = all.remove(known);
                (kept.tools, kept.index)
            }
            None => {
                all.retain(|kept| kept.catalog.strong_count() > 0);
                if all.len() == MAX_CACHED_INDEXES {
                    all.remove(0);
                }
                let functions = function_index::all_functions(catalog);
                (functions.map(|(_, it)| Arc::downgrade(&it.tool)).collect(), Arc::default())
            }
        };
        let kept = index.clone();
        all.push(CachedFunctionIndex { catalog: Arc::downgrade(catalog), tools, index });
        kept
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
