//! The index of the catalog that is in use, made when it is first searched.

use std::sync::{Arc, Weak};

use moonlark_core::{Catalog, Problem, Result, Tool};
use tokio::sync::Mutex;

use crate::functions;
use crate::index::Index;

/// Who makes one holds the lock: the others wait for it instead of making it
/// as well.
#[derive(Default)]
pub(crate) struct Current(Mutex<Option<Kept>>);

struct Kept {
    catalog: Weak<Catalog>,
    tools: Vec<Weak<Tool>>,
    index: Arc<Index>,
}

impl Current {
    pub(crate) async fn of(&self, catalog: &Arc<Catalog>) -> Result<Arc<Index>> {
        let mut kept = self.0.lock().await;
        if let Some(kept) = &mut *kept {
            if std::ptr::eq(kept.catalog.as_ptr(), Arc::as_ptr(catalog)) {
                return Ok(kept.index.clone());
            }
            // Many catalogs differ from the one before in what is wrong only.
            if kept.is_of(catalog) {
                kept.catalog = Arc::downgrade(catalog);
                return Ok(kept.index.clone());
            }
        }
        let this = catalog.clone();
        // A large catalog takes a moment, in which others are served.
        let made = tokio::task::spawn_blocking(move || Arc::new(functions::index(&this))).await;
        let index = made.map_err(|_| Problem::internal("the functions could not be indexed"))?;
        let tools = functions::all(catalog).map(|(_, it)| Arc::downgrade(&it.tool)).collect();
        *kept = Some(Kept { catalog: Arc::downgrade(catalog), tools, index: index.clone() });
        Ok(index)
    }
}

impl Kept {
    fn is_of(&self, catalog: &Catalog) -> bool {
        let mut tools = self.tools.iter();
        let same = |(_, function): (_, &moonlark_core::sdk::SdkFunction)| {
            tools.next().is_some_and(|it| std::ptr::eq(it.as_ptr(), Arc::as_ptr(&function.tool)))
        };
        functions::all(catalog).all(same) && tools.next().is_none()
    }
}
