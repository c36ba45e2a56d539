//! Per-catalog cache: something made from a catalog, once for each that is in use.

use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;

use moonlark_core::catalog::Catalog;

/// How many catalogs it is kept for.
const MAX_CACHED_CATALOGS: usize = 64;

/// What is kept must not hold the catalog itself, which would then never go.
pub struct PerCatalog<T>(Mutex<Vec<(Weak<Catalog>, PerCatalogCell<T>)>>);

type PerCatalogCell<T> = Arc<OnceLock<Arc<T>>>;

impl<T> Default for PerCatalog<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> PerCatalog<T> {
    /// What there is for `catalog`, or what `make` makes. Whoever comes
    /// meanwhile waits for it, unless it is for another catalog.
    pub fn get_or_make(&self, catalog: &Arc<Catalog>, make: impl FnOnce() -> T) -> Arc<T> {
        let cell = self.cell_for(catalog);
        if let Some(made) = cell.get() {
            return made.clone();
        }
        run_blocking(|| cell.get_or_init(|| Arc::new(make())).clone())
    }

    fn cell_for(&self, catalog: &Arc<Catalog>) -> PerCatalogCell<T> {
        let mut all = self.0.lock();
        // A weak reference keeps the address from being used again.
        let is = |known: &Weak<Catalog>| std::ptr::eq(known.as_ptr(), Arc::as_ptr(catalog));
        if let Some((_, made)) = all.iter().find(|(known, _)| is(known)) {
            return made.clone();
        }
        all.retain(|(known, _)| known.strong_count() > 0);
        if all.len() == MAX_CACHED_CATALOGS {
            all.remove(0);
        }
        let made = PerCatalogCell::default();
        all.push((Arc::downgrade(catalog), made.clone()));
        made
    }
}

/// Long work, or waiting for it, in the middle of a task: the other tasks of this
/// thread are moved to another one first, where there are others.
pub(crate) fn run_blocking<R>(work: impl FnOnce() -> R) -> R {
    use tokio::runtime::{Handle, RuntimeFlavor};
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn what_takes_long_to_make_holds_up_neither_other_catalogs_nor_the_only_thread() {
        let per = Arc::new(PerCatalog::default());
        let (begin, began) = tokio::sync::oneshot::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let slow = {
            let per = per.clone();
            tokio::spawn(async move {
                *per.get_or_make(&Arc::default(), || {
                    begin.send(()).unwrap();
                    ended.recv().unwrap();
                    1
                })
            })
        };
        began.await.unwrap();
        let other = tokio::spawn(async move { *per.get_or_make(&Arc::default(), || 2) });
        assert_eq!(other.await.unwrap(), 2);
        end.send(()).unwrap();
        assert_eq!(slow.await.unwrap(), 1);
    }

    #[test]
    fn each_catalog_has_its_own_for_as_long_as_it_is_in_use() {
        let per = PerCatalog::default();
        let catalogs = [Arc::new(Catalog::default()), Arc::new(Catalog::default())];
        assert_eq!(*per.get_or_make(&catalogs[0], || 1), 1);
        assert_eq!(*per.get_or_make(&catalogs[1], || 2), 2);
        assert_eq!(*per.get_or_make(&catalogs[0], || 3), 1);
        drop(catalogs);
        assert_eq!(*per.get_or_make(&Arc::default(), || 4), 4);
        assert_eq!(per.0.lock().len(), 1);
    }
}
