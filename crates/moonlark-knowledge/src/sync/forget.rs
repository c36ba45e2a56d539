//! Removing a source with all its documents.

use moonlark_core::Result;

use super::write::remove;
use crate::index::{Segments, settle};
use crate::knowledge::Inner;
use crate::store::{self, Attempt, Explain, SourceLock};

/// In commits of this many, so that others can write in between.
const AT_ONCE: usize = 2_000;

pub(crate) fn forget(knowledge: &Inner, name: &str) -> Result<()> {
    let file = knowledge.store.file();
    if !file.exists() {
        return Ok(());
    }
    let _lock = SourceLock::take(file, name)?;
    let connection = knowledge.store.writer()?;
    let forget = || -> Attempt<()> {
        let Some(source) = store::find_source(&connection, name)? else { return Ok(()) };
        let mut segments = Segments::default();
        for some in store::documents_of(&connection, source)?.chunks(AT_ONCE) {
            let transaction = connection.unchecked_transaction()?;
            for document in some {
                remove(&transaction, &mut segments, *document)?;
            }
            segments.flush(&transaction)?;
            store::touch(&transaction)?;
            transaction.commit()?;
        }
        let transaction = connection.unchecked_transaction()?;
        while settle(&transaction)? {}
        store::forget_source(&transaction, source)?;
        store::touch(&transaction)?;
        transaction.commit()?;
        store::give_back(&connection)?;
        Ok(())
    };
    forget().explain(file)
}
