//! The disk is full from one moment to the next: writes fail that were staged already. When there is room again, producers
//! retry what they were refused, and must find it.

use std::time::Duration;

use corelane::broker::messages::AckLevel;
use corelane::runtime::clock;

use crate::producers::{Round, send};
use crate::run::Plan;
use crate::support::dice::Dice;
use crate::world::Client;

/// Longer than it takes a partition to try a write again that found no room.
const HEALS: Duration = Duration::from_millis(2_500);

/// The disk is full for a while, and the life goes on long enough for what was refused to be tried again.
pub fn shape(plan: &mut Plan, dice: &mut Dice) {
    let millis = |millis| Duration::from_millis(millis);
    plan.room =
        Some((dice.below(20_000) as u64, millis(20 + dice.below(300) as u64), millis(1 + dice.below(200) as u64)));
    (plan.point, plan.stops, plan.fails) = (None, false, Vec::new());
    plan.serves = HEALS * 3;
}

/// See the module.
pub async fn retry(client: Client, mut dice: Dice) {
    while client.goes_on() && client.may_fail {
        clock::sleep(HEALS).await;
        retry_refused(&client, &mut dice).await;
    }
}

/// Sessions whose producers have given up go on, as soon as somebody takes them.
async fn retry_refused(client: &Client, dice: &mut Dice) {
    let refused: Vec<_> = {
        let world = client.world.borrow();
        let is_refused = |at: &usize| {
            let session = &world.sessions[*at];
            session.is_open
                && !session.is_busy
                && session.is_idempotent()
                && session.open_batches() > 0
                && !session.was_overtaken()
        };
        (0..world.sessions.len()).filter(is_refused).collect()
    };
    for at in refused {
        let first = {
            let world = &mut *client.world.borrow_mut();
            let session = &mut world.sessions[at];
            session.is_busy = true;
            session.sent.len() - session.open_batches()
        };
        let round = send(client, at, first, AckLevel::Durable, dice.below(8)).await;
        let world = &mut *client.world.borrow_mut();
        world.sessions[at].is_busy = false;
        if round == Round::Done {
            world.one("retries after a full disk");
        }
    }
}
