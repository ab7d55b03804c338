//! What payers know of their transactions, and what must come of them: committed ones are there whole and once, of aborted
//! ones nothing is visible, offsets go with them, and nothing stays open.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use corelane::broker::messages::PartitionKey;
use corelane::ids::TopicId;
use corelane::runtime::clock;
use corelane::wire::error_code::ErrorCode;

use crate::attacks::Attack;
use crate::cluster::bytes_of;
use crate::payers::{Visible, kept_offset, settle};
use crate::readers::batches;
use crate::support::dice::Dice;
use crate::world::{Client, World};

/// The topic of the payers; it is never deleted.
pub const LEDGER: &str = "ledger";
pub const PARTITIONS: i32 = 2;
pub const STAMP: i64 = 1_700_000_000_000;

/// How a transaction ended, as far as its payer knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Nobody has asked for its end, or not yet: it can only be aborted.
    Open,
    Committed,
    Aborted,
    /// Its commit was asked for, and not answered.
    Unknown,
}

/// A batch of a transaction.
#[derive(Clone, Debug)]
pub struct Paid {
    pub partition: i32,
    /// Its timestamp: no other one has it.
    pub stamp: i64,
    /// Where it is, once somebody was told.
    pub offset: Option<i64>,
}

#[derive(Clone, Debug)]
struct Transaction {
    fate: Fate,
    batches: Vec<Paid>,
    offset: Option<i64>,
}

/// A transactional id and all that it was used for.
#[derive(Clone, Debug, Default)]
pub struct Payer {
    /// Producer id and epoch; none before it is taken over again.
    pub identity: Option<(i64, i16)>,
    /// It speaks the classic protocol from the last time that it was taken over: the same epoch must not be used for both, a
    /// batch of the other one would come into a transaction that is being ended. Clients keep to that, too.
    pub is_classic: bool,
    sequences: BTreeMap<i32, i32>,
    transactions: Vec<Transaction>,
}

impl Payer {
    /// A new one has the id: what was open is aborted.
    pub fn begin_again(&mut self, id: i64, epoch: i16) {
        self.identity = Some((id, epoch));
        self.sequences.clear();
        let open = self.transactions.iter_mut().filter(|transaction| transaction.fate == Fate::Open);
        open.for_each(|transaction| transaction.fate = Fate::Aborted);
    }

    /// The next transaction comes under this id and epoch.
    pub fn go_on_as(&mut self, id: i64, epoch: i16) {
        if self.identity != Some((id, epoch)) {
            self.identity = Some((id, epoch));
            self.sequences.clear();
        }
    }

    /// The number of a new transaction.
    pub fn begin(&mut self) -> usize {
        self.transactions.push(Transaction { fate: Fate::Open, batches: Vec::new(), offset: None });
        self.transactions.len() - 1
    }

    pub fn next_sequence(&mut self, partition: i32, records: i32) -> i32 {
        let next = self.sequences.entry(partition).or_default();
        *next += records;
        *next - records
    }

    /// The number of a new batch of a transaction.
    pub fn write(&mut self, number: usize, paid: Paid) -> usize {
        let batches = &mut self.transactions[number].batches;
        batches.push(paid);
        batches.len() - 1
    }

    /// The offset that goes with a transaction: larger than that of any before.
    pub fn offset_of(&mut self, number: usize) -> i64 {
        self.transactions[number].offset = Some(number as i64 + 1);
        number as i64 + 1
    }

    pub fn settle(&mut self, number: usize, fate: Fate) {
        self.transactions[number].fate = fate;
    }
}

/// All payers.
#[derive(Default)]
pub struct Ledger {
    pub payers: Vec<Payer>,
    /// Its topic, once it was made.
    pub topic: Option<TopicId>,
    /// Stamps that somebody has seen as committed.
    seen: HashSet<i64>,
}

impl Ledger {
    /// An answer says where a batch is.
    pub fn told(&mut self, payer: usize, number: usize, batch: usize, offset: i64) {
        let known = self.payers[payer].transactions[number].batches[batch].offset.get_or_insert(offset);
        assert_eq!(*known, offset, "a batch of a transaction has got another offset");
    }

    /// Whose batch a stamp is.
    fn by_stamp(&self) -> HashMap<i64, (usize, usize, usize)> {
        let mut found = HashMap::new();
        for (payer, known) in self.payers.iter().enumerate() {
            for (number, transaction) in known.transactions.iter().enumerate() {
                for (batch, paid) in transaction.batches.iter().enumerate() {
                    found.insert(paid.stamp, (payer, number, batch));
                }
            }
        }
        found
    }

    /// What a reader sees belongs to transactions that were committed, or may have been.
    fn note_seen(&mut self, visible: &Visible) {
        let whose = self.by_stamp();
        for (partition, batches) in visible {
            for (offset, stamp) in batches {
                let (payer, number, batch) = whose[stamp];
                let transaction = &self.payers[payer].transactions[number];
                let paid = &transaction.batches[batch];
                let place = format!("payer {payer}, transaction {number}, at {offset} of {partition}: {transaction:?}");
                assert!(matches!(transaction.fate, Fate::Committed | Fate::Unknown), "visible: {place}");
                assert!(paid.partition == *partition && paid.offset.is_none_or(|told| told == *offset), "{place}");
                self.seen.insert(*stamp);
            }
        }
    }

    /// With nothing open: every transaction against what is visible, and the offset that its payer's group has.
    fn compare(&mut self, visible: &Visible, kept: &[i64]) {
        let mut there: HashMap<i64, usize> = HashMap::new();
        visible.values().flatten().for_each(|(_, stamp)| *there.entry(*stamp).or_default() += 1);
        for (at, payer) in self.payers.iter_mut().enumerate() {
            let mut newest = -1;
            for (number, transaction) in payer.transactions.iter_mut().enumerate() {
                let found: Vec<_> =
                    transaction.batches.iter().map(|paid| there.get(&paid.stamp).copied().unwrap_or(0)).collect();
                let (is_whole, is_empty) =
                    (found.iter().all(|count| *count == 1), found.iter().all(|count| *count == 0));
                let was_seen = transaction.batches.iter().any(|paid| self.seen.contains(&paid.stamp));
                let committed = match transaction.fate {
                    Fate::Committed => is_whole,
                    Fate::Open | Fate::Aborted => !is_empty,
                    Fate::Unknown if found.is_empty() => kept[at] == number as i64 + 1,
                    Fate::Unknown => is_whole,
                };
                let is_right = match transaction.fate {
                    Fate::Committed => is_whole,
                    Fate::Open | Fate::Aborted => is_empty && !was_seen,
                    Fate::Unknown => is_whole || is_empty && !was_seen,
                };
                assert!(
                    is_right,
                    "payer {at}, transaction {number}: {transaction:?}, found {found:?}, seen {was_seen}"
                );
                transaction.fate = if committed { Fate::Committed } else { Fate::Aborted };
                if let (true, Some(offset)) = (committed, transaction.offset) {
                    newest = offset;
                }
            }
            assert_eq!(kept[at], newest, "offset of payer {at}, {:?}", payer.transactions);
        }
    }
}

/// In some runs without another attack there are payers; the others stay as they are.
pub fn prepare(world: &mut World, seed: u64) {
    let dice = &mut Dice::of(seed.rotate_left(32) ^ 0x7061_7965);
    if world.attack == Attack::None && dice.below(3) == 0 {
        world.ledger.payers = vec![Payer::default(); 1 + dice.below(3)];
    }
}

/// The topic is there and known.
pub async fn make(client: &Client, dice: &mut Dice) {
    let known = client.world.borrow().ledger.topic;
    let found = client.cluster.topic(LEDGER).map(|topic| topic.id);
    assert!(known.is_none() || known == found, "the topic of the payers is gone");
    client.world.borrow_mut().ledger.topic = found;
    if found.is_none() {
        let configs = [("segment.bytes", "1048576".to_owned())];
        // If the disk does not let it, there is nothing to be paid in this life.
        let _made = client.cluster.create(dice.below(8), LEDGER, PARTITIONS, &configs).await;
        client.world.borrow_mut().ledger.topic = client.cluster.topic(LEDGER).map(|topic| topic.id);
    }
}

/// After a start: everything open is ended by taking the ids over, then all is looked at.
pub async fn check(client: &Client, dice: &mut Dice) {
    let payers = client.world.borrow().ledger.payers.len();
    let found = client.cluster.topic(LEDGER).map(|topic| topic.id);
    if payers == 0 || found.is_none() {
        return assert_eq!(client.world.borrow().ledger.topic, None, "the topic of the payers is gone");
    }
    client.world.borrow_mut().ledger.topic = found;
    for at in 0..payers {
        settle(client, at, dice).await;
    }
    let visible = read_committed(client, dice, true).await;
    let mut kept = Vec::new();
    for at in 0..payers {
        kept.push(kept_offset(client, at, dice).await);
    }
    let world = &mut *client.world.borrow_mut();
    world.ledger.note_seen(&visible);
    world.ledger.compare(&visible, &kept);
    world.one("ledgers compared");
}

/// Reads the ledger now and then until this life ends.
pub async fn watch(client: Client, mut dice: Dice) {
    while client.goes_on() {
        clock::sleep(Duration::from_micros(dice.below(200_000) as u64)).await;
        let visible = read_committed(&client, &mut dice, false).await;
        client.world.borrow_mut().ledger.note_seen(&visible);
    }
}

/// Everything that a reader of what is committed sees; with `is_all`, that must go to the end.
async fn read_committed(client: &Client, dice: &mut Dice, is_all: bool) -> Visible {
    let Some(topic) = client.world.borrow().ledger.topic else { return Visible::new() };
    let mut visible = Visible::new();
    for partition in 0..PARTITIONS {
        let key = PartitionKey { topic, partition };
        let (mut next, mut reader) = (0, Reader::default());
        loop {
            let fetched = client.cluster.read_committed(dice.below(8), key, next, [1_000, 20_000][dice.below(2)]).await;
            client.world.borrow_mut().operate();
            if fetched.error == ErrorCode::KafkaStorageError && !is_all {
                client.note_refused("a read");
                break;
            }
            assert_eq!(fetched.error, ErrorCode::None, "{LEDGER}-{partition} at {next}");
            let (stable, end) = (fetched.last_stable_offset.0, fetched.high_watermark.0);
            assert!(stable <= end && (!is_all || stable == end), "{LEDGER}-{partition}: stable to {stable} of {end}");
            let aborted = fetched.aborted.iter().map(|(id, first)| (id.0, first.0)).collect();
            let read = batches(bytes_of(&fetched));
            if read.is_empty() {
                assert!(next >= stable, "{LEDGER}-{partition}: nothing at {next}, stable to {stable}");
                break;
            }
            if is_all && std::env::var_os("SIM_TELL").is_some() {
                println!("  {LEDGER}-{partition} from {next}: aborted {aborted:?}");
                for (facts, batch) in &read {
                    let what =
                        if facts.attributes & 0x20 == 0 { "" } else { ["abort", "commit"][usize::from(batch[69])] };
                    let stamp = facts.base_timestamp - STAMP;
                    let (id, epoch) = (facts.producer_id, facts.producer_epoch);
                    println!("    {} of {id}/{epoch}, {stamp} {what}", facts.base_offset);
                }
            }
            reader.expect(aborted);
            for (facts, batch) in read {
                assert!(
                    facts.base_offset.0 == next && facts.next_offset().0 <= stable,
                    "{facts:?} at {next} of {stable}"
                );
                next = facts.next_offset().0;
                reader.take(&facts, &batch);
            }
        }
        visible.insert(partition, reader.visible);
    }
    visible
}

/// A reader as clients are: leaves out what the list of aborted transactions names, up to their markers.
#[derive(Default)]
struct Reader {
    expected: Vec<(i64, i64)>,
    aborted: HashSet<i64>,
    visible: Vec<(i64, i64)>,
}

impl Reader {
    fn expect(&mut self, aborted: Vec<(i64, i64)>) {
        self.expected = aborted;
        self.expected.sort_by_key(|(_, first)| std::cmp::Reverse(*first));
    }

    fn take(&mut self, facts: &corelane::log::scan::BatchFacts, batch: &[u8]) {
        let last = facts.next_offset().0 - 1;
        while let Some((id, _)) = self.expected.pop_if(|(_, first)| *first <= last) {
            self.aborted.insert(id);
        }
        if facts.attributes & 0x20 != 0 {
            // The type of the marker is the second number of its key, behind length, attributes, time and offset.
            let is_abort = batch[61 + 5 + 3] == 0;
            if is_abort {
                self.aborted.remove(&facts.producer_id);
            }
            return;
        }
        if !self.aborted.contains(&facts.producer_id) {
            self.visible.push((facts.base_offset.0, facts.base_timestamp - STAMP));
        }
    }
}
