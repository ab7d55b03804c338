//! Attacks on the rules of the storage: what clients, people and disks may do and mostly do not.
//!
//! | file | attack | rules |
//! |---|---|---|
//! | `imitations.rs` | values that imitate groups of the commit log at every 4 KiB step, with guessed numbers | S2 |
//! | `damage.rs` | bits of old groups flipped, checkpoints destroyed, small files emptied, empty ones removed | S3, S7, S12, S14 |
//! | `aftermath.rs` | what must still be true after damage that may cost something | S3 |
//! | `burst.rs` | so much at once that files of the commit log are used again | S4, S6 |
//! | `stall.rs` | a commit log that stands still while records are deleted and a checkpoint is written | S8, S10 |
//! | `room.rs` | retries after a disk was full | S16 |
//!
//! One run is under one attack, or under none.

mod aftermath;
mod burst;
mod damage;
mod imitations;
mod room;
mod stall;

use corelane::broker::messages::AckLevel;
use corelane::runtime::host::{Queue, spawn};

use crate::run::Plan;
use crate::support::dice::Dice;
use crate::support::memory_disk::MemoryDisk;
use crate::world::{Client, World};

pub use aftermath::look_back;
pub use burst::BATCH_BYTES as WIDE_BYTES;
pub use stall::Stall;

/// What a run is under.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Attack {
    #[default]
    None,
    /// Clients imitate groups of the commit log.
    Imitations,
    /// Files with little or nothing in them are emptied or removed between two lives.
    Small,
    /// A group of the commit log is damaged at the end.
    Group,
    /// The newest checkpoints are destroyed at the end.
    Checkpoints,
    /// The commit log is written round and round.
    Burst,
    /// Log starts move while the commit log stands still.
    Stall,
    /// The disk is full for a while.
    Room,
    /// Clients send everything twice at once.
    Twice,
}

impl Attack {
    const ALL: [Self; 9] = [
        Self::None,
        Self::Imitations,
        Self::Small,
        Self::Group,
        Self::Checkpoints,
        Self::Burst,
        Self::Stall,
        Self::Room,
        Self::Twice,
    ];

    /// The one whose name holds what `SIM_ATTACK` says; otherwise by chance.
    fn draw(dice: &mut Dice) -> Self {
        let drawn = Self::by_chance(dice);
        let wanted = std::env::var("SIM_ATTACK").ok();
        wanted.and_then(|wanted| Self::ALL.into_iter().find(|attack| attack.name().contains(&wanted))).unwrap_or(drawn)
    }

    fn by_chance(dice: &mut Dice) -> Self {
        match dice.below(16) {
            0 => Self::Imitations,
            1 | 2 => Self::Small,
            3 => Self::Group,
            4 => Self::Checkpoints,
            5 => Self::Burst,
            6 => Self::Stall,
            7 => Self::Room,
            8 => Self::Twice,
            _ => Self::None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::None => "attack: none",
            Self::Imitations => "attack: imitated groups",
            Self::Small => "attack: small files emptied",
            Self::Group => "attack: old group damaged",
            Self::Checkpoints => "attack: checkpoints destroyed",
            Self::Burst => "attack: commit log goes round",
            Self::Stall => "attack: commit log stands still",
            Self::Room => "attack: disk full",
            Self::Twice => "attack: everything sent twice",
        }
    }

    /// The run ends with damage that may cost something: what is left is looked at by other rules.
    pub fn ends_in_damage(self) -> bool {
        matches!(self, Self::Group | Self::Checkpoints)
    }

    /// How often a batch is sent at once.
    pub fn copies(self, level: AckLevel, is_idempotent: bool) -> usize {
        if self == Self::Twice && is_idempotent && level != AckLevel::None { 2 } else { 1 }
    }

    /// Settings that it needs, in place of others.
    fn settings(self) -> &'static [(&'static str, &'static str)] {
        match self {
            // Only writes through the ring can stand still.
            Self::Burst => &[("corelane.log.file.used.bytes", "1048576")],
            Self::Stall => &[("corelane.commit", "ring"), ("corelane.checkpoint.interval.ms", "100")],
            _ => &[],
        }
    }
}

/// A run begins. Its own dice leave the runs without an attack as they are.
pub fn prepare(world: &mut World, seed: u64) {
    let dice = &mut Dice::of(!seed);
    world.attack = Attack::draw(dice);
    world.one(world.attack.name());
    if world.attack == Attack::Burst {
        world.names.push(burst::named(dice));
    }
}

/// Makes a life what the attack needs.
pub fn shape(world: &mut World, plan: &mut Plan, dice: &mut Dice) {
    let settings = world.attack.settings();
    plan.settings.retain(|(name, _)| settings.iter().all(|(ours, _)| ours != name));
    plan.settings.extend(settings);
    match world.attack {
        Attack::Stall => stall::shape(world, plan, dice),
        Attack::Room => room::shape(plan, dice),
        _ => {}
    }
}

/// Between two lives.
pub fn while_down(disk: &MemoryDisk, world: &mut World, dice: &mut Dice) {
    disk.hold_blocks(false);
    match world.attack {
        Attack::Imitations => world.newest_log_file = damage::newest_log_file(disk),
        Attack::Small => damage::spoil_small(disk, world, dice),
        _ => {}
    }
}

/// The clients of a life begin.
pub fn begin(client: &Client, disk: &MemoryDisk, dice: &mut Dice) {
    let attack = client.world.borrow().attack;
    if attack == Attack::None {
        return;
    }
    let (client, disk, dice) = (client.clone(), disk.clone(), dice.other());
    match attack {
        Attack::Burst => spawn(Queue::Requests, burst::write(client, dice)),
        Attack::Stall => spawn(Queue::Requests, stall::stall(client, disk, dice)),
        Attack::Room => spawn(Queue::Requests, room::retry(client, dice)),
        _ => {}
    }
}

/// The value of a record.
pub fn value(attack: Attack, newest_log_file: u64, bytes: usize, dice: &mut Dice) -> Vec<u8> {
    let mut value = vec![dice.below(256) as u8; bytes];
    if attack == Attack::Imitations {
        imitations::put_into(&mut value, newest_log_file, dice);
    }
    value
}
