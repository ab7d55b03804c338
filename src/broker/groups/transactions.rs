//! Offsets that come as part of a transaction: the partition of the group is in it before they are staged.

use std::rc::Rc;

use crate::broker::messages::Answer;
use crate::broker::shard::{Served, Shard};
use crate::ids::Sequence;
use crate::runtime::disk::Disk;
use crate::state::enlisting::Question;
use crate::state::groups::messages::{Command, Commit, Transaction};
use crate::wire::error_code::ErrorCode;

impl<D: Disk> Shard<D> {
    /// Asks the coordinator of the transaction, then the group.
    pub(super) fn serve_transaction_commit(self: &Rc<Self>, partition: i32, mut commit: Commit) -> Served {
        let shard = Rc::clone(self);
        Served::Later(Box::pin(async move {
            let entered = match &mut commit.transaction {
                Some(transaction) => shard.enter_transaction(partition, transaction).await,
                None => Ok(()),
            };
            let command = Command::Commit(commit);
            if let Err(error) = entered {
                return Answer::Group(Box::new(command.refused(error)));
            }
            match shard.serve_group_command(partition, command) {
                Served::Now(answer) => answer,
                Served::Later(answer) => answer.await,
            }
        }))
    }

    /// Brings the partition into the transaction, or sees that it is there.
    async fn enter_transaction(
        self: &Rc<Self>,
        partition: i32,
        transaction: &mut Transaction,
    ) -> Result<(), ErrorCode> {
        let key = self.coordinator_of(partition)?.log.partition.key;
        let (speaker, protocol) = (transaction.speaker.clone(), transaction.protocol);
        // The batch will not have the producer's numbers.
        let question = Question { speaker, base_sequence: Sequence(-1), protocol };
        transaction.entry = Some(self.enter(key, &question).await?);
        Ok(())
    }
}
