//! The order in which all shards start and stop; shard 0 leads.

use std::io;
use std::rc::Rc;
use std::sync::Arc;

use super::kafka_checkpoints;
use super::messages::{Answer, Ask, LogMarks};
use super::recovery::{self, Opened, Progress, Steps};
use super::shard::Shard;
use crate::log::recover::Searched;
use crate::log::store::{Store, StoreState};
use crate::runtime::disk::Disk;

/// From the data folder to shards that serve (storage.md §6); the store is for [`shut_down`].
///
/// # Errors
/// A sentence: why the data folder cannot be served. The next start finds what this one found.
pub async fn bring_up<D: Disk>(shard: &Rc<Shard<D>>) -> Result<Store<D::File>, String> {
    let (disk, layout) = (&shard.disk, &shard.layout);
    let mut steps = Steps::begin();
    let opened = recovery::open(disk, layout, shard.config(), shard.shards(), &mut steps).await?;
    let Opened { mut store, catalog_host, mut plan } = opened;
    shard.host_catalog(catalog_host);
    if all_recovered(shard, || Ask::Recover(Arc::clone(&plan))).await? == Progress::WantsMore {
        tracing::warn!("some files are not as they were left: all that the commit logs still hold is looked through");
        plan = Arc::new(recovery::widen(disk, layout, &plan).await?);
        all_recovered(shard, || Ask::Recover(Arc::clone(&plan))).await?;
    }
    steps.done("partitions brought back");
    if plan.searched != Searched::Nothing {
        let synced = disk.sync_fs(layout.root()).await;
        synced.map_err(|error| format!("cannot flush what was recovered: {error}"))?;
    }
    all_recovered(shard, || Ask::Settle(Arc::clone(&plan))).await?;
    steps.done("flushed, new commit logs made");
    let state = StoreState { live_generation: plan.generation, ..store.state() };
    store.write(state).await.map_err(|error| format!("cannot write the store: {error}"))?;
    let asked: Vec<_> = shard.all_shards().map(|other| shard.ask(other, Ask::Serve)).collect();
    for done in asked {
        done.await;
    }
    let removed = recovery::remove_old_shards(disk, layout, shard.shards()).await;
    removed.unwrap_or_else(|error| tracing::warn!("the folder of a shard that is no more cannot be removed: {error}"));
    Ok(store)
}

async fn all_recovered<D: Disk>(shard: &Rc<Shard<D>>, ask: impl Fn() -> Ask) -> Result<Progress, String> {
    let asked: Vec<_> = shard.all_shards().map(|other| shard.ask(other, ask())).collect();
    let mut result = Ok(Progress::Done);
    for answer in asked {
        match answer.await {
            Answer::Recovered(Ok(Progress::Done)) => {}
            Answer::Recovered(Ok(Progress::WantsMore)) => result = result.and(Ok(Progress::WantsMore)),
            Answer::Recovered(Err(sentence)) => result = Err(sentence),
            _ => unreachable!("a start is answered by what came of it"),
        }
    }
    result
}

/// No new work anywhere, then everything to disk, then the word that it is.
///
/// # Errors
/// A sentence: what could not be written. The next start recovers.
pub async fn shut_down<D: Disk>(shard: &Rc<Shard<D>>, mut store: Store<D::File>) -> Result<(), String> {
    let drained: Vec<_> = shard.all_shards().map(|other| shard.ask(other, Ask::Drain)).collect();
    for done in drained {
        done.await;
    }
    let closing: Vec<_> = shard.all_shards().map(|other| shard.ask(other, Ask::Close)).collect();
    let mut closed: Vec<LogMarks> = Vec::new();
    for answer in closing {
        if let Answer::Closed(partitions) = answer.await {
            closed.extend(partitions?);
        }
    }
    closed.sort_by(|one, other| one.name.cmp(&other.name));
    let (disk, layout) = (&shard.disk, &shard.layout);
    let in_a_sentence = |error: io::Error| format!("cannot write the last state of the data folder: {error}");
    kafka_checkpoints::write(disk, layout, &closed).await.map_err(in_a_sentence)?;
    kafka_checkpoints::write_clean_shutdown(disk, layout).await.map_err(in_a_sentence)?;
    disk.sync_fs(layout.root()).await.map_err(in_a_sentence)?;
    let state = StoreState { clean: true, ..store.state() };
    store.write(state).await.map_err(in_a_sentence)
}
