//! The protocol's error codes that we answer with.

use std::fmt;

/// Declares the codes once: variant, number, Kafka's name, what it tells the client.
macro_rules! error_codes {
    ($($(#[doc = $doc:literal])+ $variant:ident = $code:literal $name:literal;)+) => {
        /// An error code of the protocol, named as in Kafka's `Errors`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(i16)]
        pub enum ErrorCode {
            $($(#[doc = $doc])+ $variant = $code,)+
        }

        impl ErrorCode {
            /// Every code that we answer with.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// Kafka's name, as people search for it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }
    };
}

error_codes! {
    /// Something that no other code describes went wrong.
    UnknownServerError = -1 "UNKNOWN_SERVER_ERROR";
    /// No error.
    None = 0 "NONE";
    /// The offset lies outside of what the partition holds.
    OffsetOutOfRange = 1 "OFFSET_OUT_OF_RANGE";
    /// The CRC or the frame of the records is wrong.
    CorruptMessage = 2 "CORRUPT_MESSAGE";
    /// No such topic, or no such partition of it.
    UnknownTopicOrPartition = 3 "UNKNOWN_TOPIC_OR_PARTITION";
    /// The fetch size is not acceptable.
    InvalidFetchSize = 4 "INVALID_FETCH_SIZE";
    /// The partition has no leader at the moment; ask again.
    LeaderNotAvailable = 5 "LEADER_NOT_AVAILABLE";
    /// Another broker leads the partition; look it up again.
    NotLeaderOrFollower = 6 "NOT_LEADER_OR_FOLLOWER";
    /// The answer did not come in time.
    RequestTimedOut = 7 "REQUEST_TIMED_OUT";
    /// The batch is larger than the topic allows.
    MessageTooLarge = 10 "MESSAGE_TOO_LARGE";
    /// The text kept with an offset is too long.
    OffsetMetadataTooLarge = 12 "OFFSET_METADATA_TOO_LARGE";
    /// The coordinator is still reading its state.
    CoordinatorLoadInProgress = 14 "COORDINATOR_LOAD_IN_PROGRESS";
    /// There is no coordinator yet.
    CoordinatorNotAvailable = 15 "COORDINATOR_NOT_AVAILABLE";
    /// Another broker coordinates this.
    NotCoordinator = 16 "NOT_COORDINATOR";
    /// The topic's name is not allowed, or the topic is not for clients.
    InvalidTopicException = 17 "INVALID_TOPIC_EXCEPTION";
    /// The batch is larger than a segment may be.
    RecordListTooLarge = 18 "RECORD_LIST_TOO_LARGE";
    /// Too few replicas to accept the write now.
    NotEnoughReplicas = 19 "NOT_ENOUGH_REPLICAS";
    /// `acks` is not -1, 0 or 1.
    InvalidRequiredAcks = 21 "INVALID_REQUIRED_ACKS";
    /// The member speaks of a generation that is over.
    IllegalGeneration = 22 "ILLEGAL_GENERATION";
    /// The member knows none of the group's assignors, or is of another type.
    InconsistentGroupProtocol = 23 "INCONSISTENT_GROUP_PROTOCOL";
    /// The group has no name.
    InvalidGroupId = 24 "INVALID_GROUP_ID";
    /// The group does not know this member.
    UnknownMemberId = 25 "UNKNOWN_MEMBER_ID";
    /// The session time-out is not acceptable.
    InvalidSessionTimeout = 26 "INVALID_SESSION_TIMEOUT";
    /// The group is choosing anew; join again.
    RebalanceInProgress = 27 "REBALANCE_IN_PROGRESS";
    /// Not allowed for this topic.
    TopicAuthorizationFailed = 29 "TOPIC_AUTHORIZATION_FAILED";
    /// Not allowed for this group.
    GroupAuthorizationFailed = 30 "GROUP_AUTHORIZATION_FAILED";
    /// Not allowed for the cluster.
    ClusterAuthorizationFailed = 31 "CLUSTER_AUTHORIZATION_FAILED";
    /// A record's timestamp is out of the range that the topic accepts.
    InvalidTimestamp = 32 "INVALID_TIMESTAMP";
    /// This version of the request is not served.
    UnsupportedVersion = 35 "UNSUPPORTED_VERSION";
    /// The topic exists already.
    TopicAlreadyExists = 36 "TOPIC_ALREADY_EXISTS";
    /// The number of partitions is not acceptable.
    InvalidPartitions = 37 "INVALID_PARTITIONS";
    /// The replication factor is not acceptable.
    InvalidReplicationFactor = 38 "INVALID_REPLICATION_FACTOR";
    /// The replica assignment is not acceptable.
    InvalidReplicaAssignment = 39 "INVALID_REPLICA_ASSIGNMENT";
    /// A setting is not acceptable.
    InvalidConfig = 40 "INVALID_CONFIG";
    /// Only the controller answers this.
    NotController = 41 "NOT_CONTROLLER";
    /// The parts of the request contradict each other.
    InvalidRequest = 42 "INVALID_REQUEST";
    /// The format of the stored records does not support this.
    UnsupportedForMessageFormat = 43 "UNSUPPORTED_FOR_MESSAGE_FORMAT";
    /// A rule of this broker forbids it.
    PolicyViolation = 44 "POLICY_VIOLATION";
    /// The producer's sequence is neither the next one nor a known one.
    OutOfOrderSequenceNumber = 45 "OUT_OF_ORDER_SEQUENCE_NUMBER";
    /// A newer incarnation of this producer has written.
    InvalidProducerEpoch = 47 "INVALID_PRODUCER_EPOCH";
    /// The transaction is not in a state that allows this.
    InvalidTxnState = 48 "INVALID_TXN_STATE";
    /// The transactional id and the producer id do not belong together.
    InvalidProducerIdMapping = 49 "INVALID_PRODUCER_ID_MAPPING";
    /// The transaction's time-out is not acceptable.
    InvalidTransactionTimeout = 50 "INVALID_TRANSACTION_TIMEOUT";
    /// Another step of the same transaction is under way.
    ConcurrentTransactions = 51 "CONCURRENT_TRANSACTIONS";
    /// A newer coordinator has written.
    TransactionCoordinatorFenced = 52 "TRANSACTION_COORDINATOR_FENCED";
    /// Not allowed for this transactional id.
    TransactionalIdAuthorizationFailed = 53 "TRANSACTIONAL_ID_AUTHORIZATION_FAILED";
    /// The operation was not tried because another part of the request failed.
    OperationNotAttempted = 55 "OPERATION_NOT_ATTEMPTED";
    /// The disk failed or is full.
    KafkaStorageError = 56 "KAFKA_STORAGE_ERROR";
    /// The log directory is not known.
    LogDirNotFound = 57 "LOG_DIR_NOT_FOUND";
    /// The group is not empty.
    NonEmptyGroup = 68 "NON_EMPTY_GROUP";
    /// The group is not known.
    GroupIdNotFound = 69 "GROUP_ID_NOT_FOUND";
    /// The fetch session is not known.
    FetchSessionIdNotFound = 70 "FETCH_SESSION_ID_NOT_FOUND";
    /// The fetch session has moved on.
    InvalidFetchSessionEpoch = 71 "INVALID_FETCH_SESSION_EPOCH";
    /// Topics cannot be deleted here.
    TopicDeletionDisabled = 73 "TOPIC_DELETION_DISABLED";
    /// The client knows an older leader epoch.
    FencedLeaderEpoch = 74 "FENCED_LEADER_EPOCH";
    /// The client knows a newer leader epoch.
    UnknownLeaderEpoch = 75 "UNKNOWN_LEADER_EPOCH";
    /// The compression is not known to this version of the request.
    UnsupportedCompressionType = 76 "UNSUPPORTED_COMPRESSION_TYPE";
    /// The group wants the member to give itself an id first.
    MemberIdRequired = 79 "MEMBER_ID_REQUIRED";
    /// The group has as many members as it may have.
    GroupMaxSizeReached = 81 "GROUP_MAX_SIZE_REACHED";
    /// Another member has taken this instance id.
    FencedInstanceId = 82 "FENCED_INSTANCE_ID";
    /// The group reads this topic at present.
    GroupSubscribedToTopic = 86 "GROUP_SUBSCRIBED_TO_TOPIC";
    /// A record does not follow the rules.
    InvalidRecord = 87 "INVALID_RECORD";
    /// Offsets of an open transaction are in the way.
    UnstableOffsetCommit = 88 "UNSTABLE_OFFSET_COMMIT";
    /// Quota exceeded; wait before asking again.
    ThrottlingQuotaExceeded = 89 "THROTTLING_QUOTA_EXCEEDED";
    /// A newer incarnation of this producer exists.
    ProducerFenced = 90 "PRODUCER_FENCED";
    /// No such resource.
    ResourceNotFound = 91 "RESOURCE_NOT_FOUND";
    /// No topic has this id.
    UnknownTopicId = 100 "UNKNOWN_TOPIC_ID";
    /// The fetch session was made with another topic id.
    InconsistentTopicId = 103 "INCONSISTENT_TOPIC_ID";
    /// The transactional id is not known.
    TransactionalIdNotFound = 105 "TRANSACTIONAL_ID_NOT_FOUND";
    /// The fetch session was made with names, the request has ids, or the other way round.
    FetchSessionTopicIdError = 106 "FETCH_SESSION_TOPIC_ID_ERROR";
    /// The request is for another kind of endpoint than this listener's.
    MismatchedEndpointType = 114 "MISMATCHED_ENDPOINT_TYPE";
    /// There is no such kind of endpoint.
    UnsupportedEndpointType = 115 "UNSUPPORTED_ENDPOINT_TYPE";
    /// Abort the transaction, then go on.
    TransactionAbortable = 120 "TRANSACTION_ABORTABLE";
}

impl ErrorCode {
    /// The number that goes on the wire.
    #[must_use]
    pub const fn code(self) -> i16 {
        self as i16
    }

    /// Whether the code says that nothing went wrong.
    #[must_use]
    pub const fn is_none(self) -> bool {
        matches!(self, Self::None)
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name(), self.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_what_kafka_protocol_calls_by_that_number() {
        for code in ErrorCode::ALL.iter().filter(|code| !code.is_none()) {
            let theirs = kafka_protocol::ResponseError::try_from_code(code.code()).map(|e| format!("{e:?}"));
            let ours = format!("{code:?}");
            assert_eq!(theirs.as_deref(), Some(ours.as_str()), "code {code}");
        }
    }
}
