//! Decisions: no I/O, clock, async, threads or randomness. Time comes in as `now_ms`.

pub mod compaction;
pub mod enlisting;
pub mod eviction;
pub mod fetch_sessions;
mod frozen;
pub mod groups;
mod index;
mod marks;
pub mod producer;
pub mod producers;
pub mod retention;
pub mod transactions;
mod unstable;
pub mod window;

/// Room for one more, without the doubling of a `Vec`: large tables would take much more than they hold.
fn grow_a_little<T>(entries: &mut Vec<T>) {
    if entries.len() == entries.capacity() {
        entries.reserve_exact((entries.len() / 16).max(4));
    }
}

/// Gives memory back when less than a quarter of it is in use.
fn shrink_a_lot<T>(entries: &mut Vec<T>) {
    if entries.len() < entries.capacity() / 4 {
        entries.shrink_to(entries.len() + entries.len() / 16);
    }
}
