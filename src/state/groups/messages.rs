//! What is asked of the groups of one coordinator, and what they answer: plain values, the same for every protocol version.

use bytes::Bytes;

use crate::ids::{Offset, TopicId};
use crate::state::enlisting::{Entry, Protocol};
use crate::state::transactions::messages::Speaker;
use crate::wire::error_code::ErrorCode;

/// What is asked of a coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// A member joins, or joins again; answered by [`Answer::Joined`], when the round is complete.
    Join(Join),
    /// A member asks for its assignment, the leader brings those of all; answered by [`Answer::Synced`].
    Sync(Sync),
    /// A member lives; answered by [`Answer::Done`].
    Heartbeat(Membership),
    /// Members leave; answered by [`Answer::Left`].
    Leave(Leave),
    /// Offsets are to be kept; answered by [`Answer::Committed`].
    Commit(Commit),
    /// Kept offsets are wanted; answered by [`Answer::Offsets`].
    Offsets(OffsetsWanted),
    /// Offsets are to be forgotten; answered by [`Answer::OffsetsDeleted`].
    DeleteOffsets(DeleteOffsets),
    /// The group is to be removed; answered by [`Answer::Done`].
    DeleteGroup {
        /// Its name.
        group: String,
    },
    /// What is known of the group; answered by [`Answer::Described`].
    Describe {
        /// Its name.
        group: String,
    },
    /// All groups; answered by [`Answer::Listed`].
    List,
    /// A topic is no more: nothing is kept for it any longer; answered by [`Answer::Done`].
    TopicDeleted {
        /// Its name.
        topic: String,
        /// Its id: what was committed for a later topic of that name stays. Zeros for all of that name.
        topic_id: TopicId,
    },
}

/// JoinGroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Join {
    /// Which group.
    pub group: String,
    /// Empty for a member that has no id yet.
    pub member_id: String,
    /// Name of a static member.
    pub instance_id: Option<String>,
    /// Name that the client gives itself.
    pub client_id: String,
    /// Where it comes from, as Kafka writes it: a slash and the address.
    pub client_host: String,
    /// Without a sign of life for so long, the member is gone.
    pub session_timeout_ms: i32,
    /// So long the round waits for the member.
    pub rebalance_timeout_ms: i32,
    /// "consumer", "connect" …
    pub protocol_type: String,
    /// Names of assignors, the preferred one first, with what the member says to each.
    pub protocols: Vec<(String, Bytes)>,
    /// The version of the request wants an unknown member to come again with an id (4 and later).
    pub wants_member_id_first: bool,
    /// The client knows an answer that tells the leader to skip the assignment (9 and later).
    pub may_skip_assignment: bool,
}

/// The answer to [`Join`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    /// Error or none.
    pub error: ErrorCode,
    /// Which round; -1 with an error.
    pub generation: i32,
    /// Type of the group; none with an error.
    pub protocol_type: Option<String>,
    /// The assignor that was chosen; none with an error.
    pub protocol: Option<String>,
    /// The leader's id; empty with an error.
    pub leader: String,
    /// The leader keeps the assignment as it is (a static leader that came back).
    pub skip_assignment: bool,
    /// The member's id, also the new one of an error 79.
    pub member_id: String,
    /// For the leader: everybody, with what they said to the chosen assignor. For others empty.
    pub members: Vec<JoinedMember>,
}

/// A member as the leader sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinedMember {
    /// Its id.
    pub member_id: String,
    /// Its name as a static member.
    pub instance_id: Option<String>,
    /// What it said to the assignor.
    pub metadata: Bytes,
}

/// Who speaks, and in which round it thinks it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// Which group.
    pub group: String,
    /// Which round.
    pub generation: i32,
    /// The member's id.
    pub member_id: String,
    /// Its name as a static member.
    pub instance_id: Option<String>,
}

/// SyncGroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sync {
    /// Who.
    pub who: Membership,
    /// The type that the member believes in; none before version 5.
    pub protocol_type: Option<String>,
    /// The assignor that the member believes in; none before version 5.
    pub protocol: Option<String>,
    /// From the leader: member id and assignment.
    pub assignments: Vec<(String, Bytes)>,
}

/// The answer to [`Sync`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Synced {
    /// Error or none.
    pub error: ErrorCode,
    /// Type of the group; none with an error.
    pub protocol_type: Option<String>,
    /// The assignor; none with an error.
    pub protocol: Option<String>,
    /// The member's own assignment; empty with an error.
    pub assignment: Bytes,
}

/// LeaveGroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leave {
    /// Which group.
    pub group: String,
    /// Member id (may be empty for a static member, who is then known by name) and static name.
    pub members: Vec<(String, Option<String>)>,
}

/// The answer to [`Leave`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// What is wrong with all of it.
    pub error: ErrorCode,
    /// For each member in order: id and static name as they were asked, and what became of it.
    pub members: Vec<(String, Option<String>, ErrorCode)>,
}

/// OffsetCommit and TxnOffsetCommit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Who; generation -1 and an empty member id for a client that manages its partitions itself.
    pub who: Membership,
    /// Kept for so long, from versions 2 to 4; none or -1 for the broker's own rule.
    pub retention_ms: Option<i64>,
    /// What is to be kept, in the order of the request; topics that do not exist are answered before they come here.
    pub offsets: Vec<OffsetToCommit>,
    /// The transaction that they belong to: they count when it is committed.
    pub transaction: Option<Transaction>,
}

/// The transaction of a [`Commit`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// Whose.
    pub speaker: Speaker,
    /// What the version of the request wants: that the partition of the group is in it, or comes into it.
    pub protocol: Protocol,
    /// The yes of the transaction's coordinator, once it was asked.
    pub entry: Option<Entry>,
}

/// One partition of a [`Commit`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetToCommit {
    /// Topic.
    pub topic: String,
    /// Its id as the catalog knows it.
    pub topic_id: TopicId,
    /// Partition index.
    pub partition: i32,
    /// Next offset to be read.
    pub offset: Offset,
    /// Leader epoch of the last record read; -1 for none.
    pub leader_epoch: i32,
    /// Whatever the client wants to keep beside it.
    pub metadata: String,
}

/// OffsetFetch, one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetsWanted {
    /// Which group.
    pub group: String,
    /// Who asks, from version 9: member id and its epoch (-1 for none). Classic groups do not look at it.
    pub member: Option<(String, i32)>,
    /// What is wanted; none for all that is kept.
    pub topics: Option<Vec<TopicWanted>>,
    /// Offsets on which a transaction is open are refused with 88 instead of given as they were before.
    pub require_stable: bool,
}

/// One topic of [`OffsetsWanted`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicWanted {
    /// Its name.
    pub topic: String,
    /// Its id where the client gave that (version 10): what was kept for an earlier topic of that name is not given.
    /// Zeros otherwise.
    pub topic_id: TopicId,
    /// Partition indexes.
    pub partitions: Vec<i32>,
}

/// The answer to [`OffsetsWanted`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetsKept {
    /// What is wrong with all of it.
    pub error: ErrorCode,
    /// In the order of the request, or sorted by topic and partition if all were wanted.
    pub topics: Vec<(String, Vec<OffsetKept>)>,
}

/// The kept offset of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetKept {
    /// Partition index.
    pub partition: i32,
    /// Next offset to be read; -1 for none.
    pub offset: Offset,
    /// -1 for none.
    pub leader_epoch: i32,
    /// Empty for none.
    pub metadata: String,
    /// Error or none.
    pub error: ErrorCode,
}

/// OffsetDelete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeleteOffsets {
    /// Which group.
    pub group: String,
    /// Topic and partition, in the order of the request; topics that do not exist are answered before they come here.
    pub partitions: Vec<(String, i32)>,
}

/// What the coordinator of a group knows of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// Error or none. 69 for a group that does not exist, with state `Dead`; versions before 6 tell the state alone.
    pub error: ErrorCode,
    /// Kafka's sentence beside the error, from version 6.
    pub error_message: Option<String>,
    /// Kafka's name of the state: `Stable`, `PreparingRebalance`, `CompletingRebalance`, `Empty`, `Dead`.
    pub state: String,
    /// Empty for none.
    pub protocol_type: String,
    /// The assignor; empty unless the group is stable.
    pub protocol: String,
    /// Everybody.
    pub members: Vec<DescribedMember>,
}

/// A member as the outside sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedMember {
    /// Its id.
    pub member_id: String,
    /// Its name as a static member.
    pub instance_id: Option<String>,
    /// Name that the client gives itself.
    pub client_id: String,
    /// Where it comes from.
    pub client_host: String,
    /// What it said to the assignor; empty unless the group is stable.
    pub metadata: Bytes,
    /// What it was given; empty before the first assignment and while a new one is made.
    pub assignment: Bytes,
}

/// A group in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedGroup {
    /// Its name.
    pub group: String,
    /// Empty for none.
    pub protocol_type: String,
    /// Kafka's name of the state.
    pub state: String,
    /// Kafka's name of the kind: `classic`.
    pub kind: String,
}

/// Answers to [`Command`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To a join.
    Joined(Joined),
    /// To a sync.
    Synced(Synced),
    /// To a leave.
    Left(Left),
    /// To a commit: a code for each partition in order. Of a group that does not exist it is 69, which is told as 22
    /// below version 9.
    Committed(Vec<ErrorCode>),
    /// To a look-up of offsets.
    Offsets(OffsetsKept),
    /// To a removal of offsets: the code of all, and one for each partition in order.
    OffsetsDeleted(ErrorCode, Vec<ErrorCode>),
    /// To a description.
    Described(Described),
    /// To a list; an error while the coordinator is loading.
    Listed(ErrorCode, Vec<ListedGroup>),
    /// To everything else.
    Done(ErrorCode),
}

impl Command {
    /// The answer that refuses the whole of it.
    #[must_use]
    pub fn refused(&self, error: ErrorCode) -> Answer {
        match self {
            Self::Join(join) => Answer::Joined(Joined::refused(error, join.member_id.clone())),
            Self::Sync(_) => Answer::Synced(Synced::refused(error)),
            Self::Leave(_) => Answer::Left(Left { error, members: Vec::new() }),
            Self::Commit(commit) => Answer::Committed(vec![error; commit.offsets.len()]),
            Self::Offsets(_) => Answer::Offsets(OffsetsKept { error, topics: Vec::new() }),
            Self::DeleteOffsets(delete) => {
                Answer::OffsetsDeleted(error, vec![ErrorCode::None; delete.partitions.len()])
            }
            Self::Describe { .. } => Answer::Described(Described::refused(error)),
            Self::List => Answer::Listed(error, Vec::new()),
            Self::Heartbeat(_) | Self::DeleteGroup { .. } | Self::TopicDeleted { .. } => Answer::Done(error),
        }
    }

    /// The group that is not to be on its way out when this is done; none for what only looks, and for what concerns
    /// many.
    pub(super) fn waits_for_removal_of(&self) -> Option<&str> {
        match self {
            Self::Join(join) => Some(&join.group),
            Self::Sync(sync) => Some(&sync.who.group),
            Self::Heartbeat(who) => Some(&who.group),
            Self::Leave(leave) => Some(&leave.group),
            Self::Commit(commit) => Some(&commit.who.group),
            Self::DeleteOffsets(delete) => Some(&delete.group),
            Self::DeleteGroup { group } => Some(group),
            Self::Offsets(_) | Self::Describe { .. } | Self::List | Self::TopicDeleted { .. } => None,
        }
    }
}

impl Answer {
    /// What is answered instead when the log could not take what this promises.
    #[must_use]
    pub fn turned(self, error: ErrorCode) -> Self {
        match self {
            Self::Joined(joined) => Self::Joined(Joined::refused(error, joined.member_id)),
            Self::Synced(_) => Self::Synced(Synced::refused(error)),
            Self::Left(_) => Self::Left(Left { error, members: Vec::new() }),
            Self::Committed(codes) => Self::Committed(vec![error; codes.len()]),
            Self::Offsets(_) => Self::Offsets(OffsetsKept { error, topics: Vec::new() }),
            Self::OffsetsDeleted(_, codes) => Self::OffsetsDeleted(error, vec![ErrorCode::None; codes.len()]),
            Self::Described(_) => Self::Described(Described::refused(error)),
            Self::Listed(..) => Self::Listed(error, Vec::new()),
            Self::Done(_) => Self::Done(error),
        }
    }
}

impl Joined {
    /// An answer with an error.
    #[must_use]
    pub fn refused(error: ErrorCode, member_id: String) -> Self {
        Self {
            error,
            generation: -1,
            protocol_type: None,
            protocol: None,
            leader: String::new(),
            skip_assignment: false,
            member_id,
            members: Vec::new(),
        }
    }
}

impl Synced {
    /// An answer with an error.
    #[must_use]
    pub fn refused(error: ErrorCode) -> Self {
        Self { error, protocol_type: None, protocol: None, assignment: Bytes::new() }
    }
}

impl Described {
    /// An answer with an error.
    #[must_use]
    pub fn refused(error: ErrorCode) -> Self {
        Self {
            error,
            error_message: None,
            state: String::new(),
            protocol_type: String::new(),
            protocol: String::new(),
            members: Vec::new(),
        }
    }
}
