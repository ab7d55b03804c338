//! The catalog of a stopped broker, as the commands that change it see it.

use std::sync::Arc;

use super::Failed;
use super::folder::Held;
use crate::broker::catalog::{Catalog, CatalogRecord};
use crate::broker::catalog_host;
use crate::log::catalog_log::{self, CatalogLog};
use crate::log::store::{Store, StoreState};
use crate::runtime::disk::{Access, Create, Disk};
use crate::runtime::executors::block_on;
use crate::runtime::real_disk::RealDisk;

/// What the store says.
///
/// # Errors
/// A sentence: it is missing or damaged.
pub fn store_state(held: &Held) -> Result<StoreState, Failed> {
    let path = held.layout.own().join("store");
    let cannot = |error: std::io::Error| format!("{} cannot be read: {error}", path.display());
    let file = RealDisk.open(&path, Access::Buffered, Create::Never).map_err(cannot)?;
    let slots = block_on(crate::log::store::read_slots(&file, &path)).map_err(cannot)?;
    let newest = slots.into_iter().filter_map(Result::ok).max_by_key(|state| state.counter);
    Ok(newest.ok_or_else(|| format!("{}: both copies of the store's state are damaged", path.display()))?)
}

/// Changes what the store says.
///
/// # Errors
/// A sentence: what the disk says.
pub fn write_store(held: &Held, next: StoreState) -> Result<(), Failed> {
    let opened = block_on(Store::open_or_create(&RealDisk, &held.layout.own(), next.block_log2));
    let mut store: Store<_> = opened.map_err(|error| error.to_string())?;
    Ok(block_on(store.write(next)).map_err(|error| error.to_string())?)
}

/// The catalog, open for more records.
///
/// # Errors
/// A sentence: it is missing, damaged, or of another data folder.
pub fn open(held: &Held, store: &StoreState) -> Result<(CatalogLog<RealDisk>, Catalog), Failed> {
    let own = held.layout.own();
    // A catalog that is not there would be made.
    if !catalog_log::file_paths(&own).iter().any(|path| path.exists()) {
        return Err(format!("{} holds no catalog; see `corelane repair catalog`", own.display()).into());
    }
    let opened = block_on(CatalogLog::open_or_create(RealDisk, &own, store.store_id));
    let (log, records) = opened.map_err(|error| error.to_string())?;
    let mut catalog = Catalog::new(Arc::new(held.config.clone()));
    for (kind, bytes) in &records {
        let record =
            CatalogRecord::decode(*kind, bytes).map_err(|error| format!("{error}; start the release that wrote it"))?;
        catalog.apply(&record);
    }
    Ok((log, catalog))
}

/// Makes records durable, all or none.
///
/// # Errors
/// A sentence: what the disk says.
pub fn append(log: CatalogLog<RealDisk>, records: &[CatalogRecord], next: &Catalog) -> Result<(), Failed> {
    let host = catalog_host::CatalogHost::new(log);
    Ok(block_on(host.append(records, next)).map_err(|error| format!("the catalog cannot be written: {error}"))?)
}
