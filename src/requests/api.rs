//! The API keys that are served, and in which versions.
//!
//! A version is served when Apache Kafka 4.4 serves it and `kafka-protocol` knows it: ListOffsets ends at 10 (Kafka: 11),
//! ApiVersions and DescribeLogDirs at 4 (5). OffsetCommit 10, OffsetFetch 10, DeleteGroups 3 and WriteTxnMarkers 2
//! are served beside that, because Kafka's clients prefer them. Matches on [`Api`] have no wildcard, so that a new key meets each of them.

use std::ops::RangeInclusive;

/// An API key that is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i16)]
pub enum Api {
    /// Append batches.
    Produce = 0,
    /// Read batches.
    Fetch = 1,
    /// Offsets by time.
    ListOffsets = 2,
    /// Brokers, topics, leaders.
    Metadata = 3,
    /// How far a group has read.
    OffsetCommit = 8,
    /// The same, asked back.
    OffsetFetch = 9,
    /// Who coordinates a group.
    FindCoordinator = 10,
    /// Become a member of a group.
    JoinGroup = 11,
    /// A member lives.
    Heartbeat = 12,
    /// Members go.
    LeaveGroup = 13,
    /// Bring or take assignments.
    SyncGroup = 14,
    /// Members of groups.
    DescribeGroups = 15,
    /// Names of groups.
    ListGroups = 16,
    /// What is served.
    ApiVersions = 18,
    /// Make topics.
    CreateTopics = 19,
    /// Remove topics.
    DeleteTopics = 20,
    /// Move log starts.
    DeleteRecords = 21,
    /// A producer's id and epoch.
    InitProducerId = 22,
    /// Where leader epochs end.
    OffsetForLeaderEpoch = 23,
    /// Partitions come into a transaction.
    AddPartitionsToTxn = 24,
    /// A group's offsets come into a transaction.
    AddOffsetsToTxn = 25,
    /// A transaction is committed or aborted.
    EndTxn = 26,
    /// A tool ends what is open of a producer.
    WriteTxnMarkers = 27,
    /// How far a group has read, as part of a transaction.
    TxnOffsetCommit = 28,
    /// Settings of topics and brokers.
    DescribeConfigs = 32,
    /// Set all settings of a resource.
    AlterConfigs = 33,
    /// Folders, sizes, room.
    DescribeLogDirs = 35,
    /// More partitions.
    CreatePartitions = 37,
    /// Remove groups.
    DeleteGroups = 42,
    /// Change settings.
    IncrementalAlterConfigs = 44,
    /// Forget how far a group has read.
    OffsetDelete = 47,
    /// Cluster id, controller, brokers.
    DescribeCluster = 60,
    /// Who writes to partitions.
    DescribeProducers = 61,
    /// How transactional ids stand.
    DescribeTransactions = 65,
    /// Transactional ids.
    ListTransactions = 66,
    /// Topics in pages.
    DescribeTopicPartitions = 75,
}

impl Api {
    /// Every key that is served, ascending.
    pub const ALL: [Self; 36] = [
        Self::Produce,
        Self::Fetch,
        Self::ListOffsets,
        Self::Metadata,
        Self::OffsetCommit,
        Self::OffsetFetch,
        Self::FindCoordinator,
        Self::JoinGroup,
        Self::Heartbeat,
        Self::LeaveGroup,
        Self::SyncGroup,
        Self::DescribeGroups,
        Self::ListGroups,
        Self::ApiVersions,
        Self::CreateTopics,
        Self::DeleteTopics,
        Self::DeleteRecords,
        Self::InitProducerId,
        Self::OffsetForLeaderEpoch,
        Self::AddPartitionsToTxn,
        Self::AddOffsetsToTxn,
        Self::EndTxn,
        Self::WriteTxnMarkers,
        Self::TxnOffsetCommit,
        Self::DescribeConfigs,
        Self::AlterConfigs,
        Self::DescribeLogDirs,
        Self::CreatePartitions,
        Self::DeleteGroups,
        Self::IncrementalAlterConfigs,
        Self::OffsetDelete,
        Self::DescribeCluster,
        Self::DescribeProducers,
        Self::DescribeTransactions,
        Self::ListTransactions,
        Self::DescribeTopicPartitions,
    ];

    /// By its number on the wire.
    #[must_use]
    pub fn from_key(key: i16) -> Option<Self> {
        Self::ALL.into_iter().find(|api| api.key() == key)
    }

    /// Its number on the wire.
    #[must_use]
    pub const fn key(self) -> i16 {
        self as i16
    }

    /// The versions that are served and advertised.
    #[must_use]
    pub fn versions(self) -> RangeInclusive<i16> {
        match self {
            // Served from 3. Older ones are advertised because old librdkafka looks for them, and closed, as in Kafka 4.
            Self::Produce => 0..=13,
            Self::Fetch => 4..=18,
            Self::ListOffsets => 1..=10,
            Self::Metadata => 0..=13,
            Self::OffsetCommit => 2..=10,
            Self::OffsetFetch => 1..=10,
            Self::FindCoordinator | Self::DescribeGroups => 0..=6,
            Self::JoinGroup => 0..=9,
            Self::Heartbeat => 0..=4,
            Self::LeaveGroup | Self::SyncGroup | Self::ListGroups => 0..=5,
            Self::ApiVersions => 0..=4,
            Self::CreateTopics => 2..=7,
            Self::DeleteTopics => 1..=6,
            Self::DeleteRecords => 0..=2,
            Self::InitProducerId | Self::TxnOffsetCommit => 0..=5,
            Self::OffsetForLeaderEpoch => 2..=4,
            Self::AddPartitionsToTxn | Self::EndTxn => 0..=5,
            Self::AddOffsetsToTxn => 0..=4,
            Self::WriteTxnMarkers => 1..=2,
            Self::DescribeConfigs => 1..=4,
            Self::AlterConfigs => 0..=2,
            Self::DescribeLogDirs => 1..=4,
            Self::CreatePartitions | Self::DeleteGroups => 0..=3,
            Self::IncrementalAlterConfigs | Self::ListTransactions => 0..=1,
            Self::DescribeCluster => 0..=2,
            Self::OffsetDelete
            | Self::DescribeProducers
            | Self::DescribeTopicPartitions
            | Self::DescribeTransactions => 0..=0,
        }
    }

    /// True where lengths are compact and structures end in tagged fields.
    #[must_use]
    pub fn is_flexible(self, version: i16) -> bool {
        let first = match self {
            Self::Produce | Self::Metadata => 9,
            Self::Fetch => 12,
            Self::OffsetCommit => 8,
            Self::ListOffsets | Self::OffsetFetch | Self::JoinGroup => 6,
            Self::ApiVersions
            | Self::FindCoordinator
            | Self::ListGroups
            | Self::AddPartitionsToTxn
            | Self::AddOffsetsToTxn
            | Self::EndTxn
            | Self::TxnOffsetCommit => 3,
            Self::CreateTopics | Self::DescribeGroups => 5,
            Self::DeleteTopics
            | Self::OffsetForLeaderEpoch
            | Self::DescribeConfigs
            | Self::Heartbeat
            | Self::LeaveGroup
            | Self::SyncGroup => 4,
            Self::DeleteRecords
            | Self::InitProducerId
            | Self::AlterConfigs
            | Self::DescribeLogDirs
            | Self::CreatePartitions
            | Self::DeleteGroups => 2,
            Self::IncrementalAlterConfigs | Self::WriteTxnMarkers => 1,
            Self::DescribeCluster
            | Self::DescribeProducers
            | Self::DescribeTopicPartitions
            | Self::DescribeTransactions
            | Self::ListTransactions => 0,
            Self::OffsetDelete => return false,
        };
        version >= first
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kafka_protocol::messages::ApiKey;

    /// Served from the fields in Kafka's own schemas, and tried with its clients: kafka-protocol ends one earlier.
    const NEWER: [(Api, i16); 4] =
        [(Api::OffsetCommit, 10), (Api::OffsetFetch, 10), (Api::DeleteGroups, 3), (Api::WriteTxnMarkers, 2)];

    #[test]
    fn versions_and_forms_agree_with_kafka_protocol() {
        for api in Api::ALL {
            let theirs = ApiKey::try_from(api.key()).unwrap();
            let known = theirs.valid_versions();
            let known_max = if NEWER.contains(&(api, *api.versions().end())) { known.max + 1 } else { known.max };
            assert!(*api.versions().end() <= known_max, "{api:?} reads versions that kafka-protocol does not know");
            for version in known.min..=*api.versions().end() {
                let flexible = theirs.request_header_version(version) >= 2;
                assert_eq!(api.is_flexible(version), flexible, "{api:?} version {version}");
            }
        }
        assert!(Api::ALL.is_sorted_by_key(|api| api.key()));
    }
}
