//! Records are deleted while the commit log stands still, and a checkpoint that has the new log starts in it gets its name:
//! the program is killed before that name is on disk, and the next start loses its power.

use std::time::Duration;

use corelane::runtime::clock;
use corelane::runtime::host::{Queue, spawn};

use crate::admin;
use crate::run::Plan;
use crate::support::dice::Dice;
use crate::support::memory_disk::MemoryDisk;
use crate::support::memory_disk::faults::{Call, End, Point};
use crate::world::{Client, World};

/// How long the life with the attack is, in virtual time.
const LIFE: Duration = Duration::from_secs(3);

/// How far the attack has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stall {
    #[default]
    NotYet,
    InThisLife,
    Over,
}

/// One life is killed, and the start behind it loses its power.
pub fn shape(world: &mut World, plan: &mut Plan, dice: &mut Dice) {
    match world.stall {
        Stall::NotYet => {
            (plan.point, plan.end, plan.stops) = (None, End::Kill, false);
            // Long enough for a checkpoint.
            (plan.operations, plan.serves, plan.fails, plan.room) = (1_000, LIFE, Vec::new(), None);
        }
        Stall::InThisLife => {
            plan.point = Some(Point::any(dice.below(150) as u64));
            plan.end = End::PowerCut { spoils: false };
        }
        Stall::Over => {}
    }
    world.stall = match world.stall {
        Stall::NotYet => Stall::InThisLife,
        _ => Stall::Over,
    };
}

/// See the module.
pub async fn stall(client: Client, disk: MemoryDisk, mut dice: Dice) {
    clock::sleep(Duration::from_millis(50 + dice.below(300) as u64)).await;
    if client.world.borrow().stall != Stall::InThisLife {
        return;
    }
    client.world.borrow_mut().one("stalls");
    disk.hold_blocks(true);
    for _ in 0..4 {
        spawn(Queue::Requests, admin::delete_once(client.clone(), dice.other()));
    }
    clock::sleep(Duration::from_millis(dice.below(20) as u64)).await;
    let after = dice.below(2) as u64;
    disk.end_at(Point { call: Some(Call::SyncFolder), part: "shard-", after }, End::Kill);
    // Nothing was deleted.
    clock::sleep(Duration::from_secs(5)).await;
    disk.hold_blocks(false);
}
