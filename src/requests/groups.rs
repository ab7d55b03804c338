//! What the requests of consumer groups share: whom they ask, and how many at a time.

#![allow(async_fn_in_trait, reason = "nothing here moves between threads")]

use std::collections::HashSet;
use std::future::{Future, poll_fn};
use std::hash::Hash;
use std::net::IpAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use super::cluster::Cluster;
use crate::broker::shard::Shard;
use crate::runtime::disk::Disk;
use crate::state::groups::messages::{Answer, Command, ListedGroup};
use crate::wire::error_code::ErrorCode;

/// Groups of one request that are asked for at the same time; the others wait, so that a long list takes little memory.
const AT_A_TIME: usize = 64;

/// The coordinators of groups as requests see them; tests put groups without files behind it.
pub trait Groups: Cluster {
    /// The partition of `__consumer_offsets` that a group belongs to; makes the topic when it is not there yet.
    ///
    /// # Errors
    /// 15 while the topic cannot be made.
    async fn group_partition(&self, group: &str) -> Result<i32, ErrorCode>;
    /// Makes the topic of transactional ids when it is not there yet.
    ///
    /// # Errors
    /// 53 where transactions are switched off, 15 while the topic cannot be made.
    async fn find_transaction_coordinator(&self) -> Result<(), ErrorCode>;
    /// Asks the coordinator of a group, wherever it is.
    async fn ask_group(&self, group: &str, command: Command) -> Answer;
    /// The groups of all coordinators; an error while one of them is loading.
    async fn list_groups(&self) -> (ErrorCode, Vec<ListedGroup>);
}

impl<D: Disk> Groups for Rc<Shard<D>> {
    async fn group_partition(&self, group: &str) -> Result<i32, ErrorCode> {
        Shard::group_partition(self, group).await
    }

    async fn find_transaction_coordinator(&self) -> Result<(), ErrorCode> {
        Shard::find_transaction_coordinator(self).await
    }

    async fn ask_group(&self, group: &str, command: Command) -> Answer {
        Shard::ask_group(self, group, command).await
    }

    async fn list_groups(&self) -> (ErrorCode, Vec<ListedGroup>) {
        Shard::list_groups(self).await
    }
}

/// Asks about many groups, each its own coordinator; `take` gets the answers in the order of asking.
pub(crate) async fn ask_each(
    groups: &impl Groups,
    mut commands: impl Iterator<Item = (String, Command)>,
    mut take: impl FnMut(Answer),
) {
    loop {
        let some = commands.by_ref().take(AT_A_TIME);
        let some = some.map(|(group, command)| Box::pin(async move { groups.ask_group(&group, command).await }));
        let some: Vec<_> = some.collect();
        if some.is_empty() {
            return;
        }
        all(some).await.into_iter().for_each(&mut take);
    }
}

/// Waits for all of the futures; gives their values in their order.
async fn all<F: Future>(futures: Vec<Pin<Box<F>>>) -> Vec<F::Output> {
    let mut places: Vec<_> = futures.into_iter().map(|future| (future, None)).collect();
    poll_fn(|context| {
        let mut waiting = false;
        for (future, value) in places.iter_mut().filter(|(_, value)| value.is_none()) {
            match future.as_mut().poll(context) {
                Poll::Ready(ready) => *value = Some(ready),
                Poll::Pending => waiting = true,
            }
        }
        if waiting { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    places.into_iter().filter_map(|(_, value)| value).collect()
}

/// The same list without what is there for the second time: what a request repeats is answered once, so that a small
/// request cannot have a large answer many times over.
pub(crate) fn each_first<T: Clone + Eq + Hash>(mut list: Vec<T>) -> Vec<T> {
    let mut seen = HashSet::with_capacity(list.len());
    list.retain(|item| seen.insert(item.clone()));
    list
}

/// A client's address as Kafka shows it: a slash and what Java prints, which is never shortened.
///
/// Source: apache/kafka `RequestContext.clientAddress`, Java's `InetAddress.toString`.
pub(crate) fn client_host(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(address) => format!("/{address}"),
        IpAddr::V6(address) => {
            let parts = address.segments().map(|part| format!("{part:x}"));
            format!("/{}", parts.join(":"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_java_writes_them() {
        let shown = |address: &str| client_host(address.parse().unwrap());
        assert_eq!(shown("127.0.0.1"), "/127.0.0.1");
        assert_eq!(shown("::1"), "/0:0:0:0:0:0:0:1");
        assert_eq!(shown("fe80::0:12ab"), "/fe80:0:0:0:0:0:0:12ab");
        assert_eq!(shown("::ffff:10.0.0.7"), "/10.0.0.7");
    }

    #[test]
    fn what_is_repeated_stays_once_in_its_first_place() {
        assert_eq!(each_first(vec!["b", "a", "b", "c", "a"]), ["b", "a", "c"]);
    }
}
