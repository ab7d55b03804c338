//! `corelane repair accept-loss`: a partition that refuses writes because acknowledged records are gone takes them again.

use super::{Failed, not_there};
use crate::config::offline_args::AcceptLossArgs;

/// See the module.
///
/// # Errors
/// A sentence: what stands against it.
pub(super) fn run(_args: &AcceptLossArgs) -> Result<(), Failed> {
    Err(not_there("repair accept-loss"))
}
