//! Producers as they were at one moment, taken a few at a time while they go on changing.

use std::collections::BTreeMap;

use corelane::ids::{Offset, ProducerEpoch, ProducerId, Sequence};
use corelane::state::producers::{Appended, BatchIdentity, ProducerState, Producers};
use proptest::collection::vec;
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
enum Step {
    Write(i64),
    Forget(i64),
    ExpireBefore(i64),
    Take(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..200_i64).prop_map(Step::Write),
        3 => (0..200_i64).prop_map(Step::Forget),
        1 => (0..400_i64).prop_map(Step::ExpireBefore),
        4 => (1..70_usize).prop_map(Step::Take),
    ]
}

struct World {
    producers: Producers,
    writes: i64,
}

impl World {
    fn write(&mut self, id: i64) {
        let batch = BatchIdentity {
            producer_id: ProducerId(id),
            epoch: ProducerEpoch(0),
            base_sequence: Sequence(0),
            last_offset_delta: 0,
            transactional: false,
        };
        self.writes += 1;
        let appended = Appended { base_offset: Offset(self.writes), max_timestamp: 0, append_ms: self.writes };
        self.producers.remember(&batch, &appended, self.writes.unsigned_abs());
    }

    fn all(&self) -> BTreeMap<i64, ProducerState> {
        self.producers.iter().map(|(id, state)| (id.0, *state)).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn what_is_taken_is_what_was_there_each_once(
        before in vec(0..200_i64, 0..300),
        steps in vec(step(), 0..120),
    ) {
        let mut world = World { producers: Producers::new(7), writes: 0 };
        before.iter().for_each(|id| world.write(*id));
        let expected = world.all();
        prop_assert_eq!(world.producers.freeze(), Some(expected.len()));
        prop_assert_eq!(world.producers.freeze(), None, "one moment at a time");
        let mut taken = Vec::new();
        let mut goes_on = true;
        for step in steps {
            match step {
                Step::Write(id) => world.write(id),
                Step::Forget(id) => _ = world.producers.forget(ProducerId(id)),
                Step::ExpireBefore(limit_ms) => _ = world.producers.expire(limit_ms),
                Step::Take(count) if goes_on => {
                    goes_on = world.producers.take_frozen(count, |id, state| taken.push((id.0, *state)));
                }
                Step::Take(_) => {}
            }
        }
        while goes_on {
            goes_on = world.producers.take_frozen(10, |id, state| taken.push((id.0, *state)));
        }
        prop_assert_eq!(taken.len(), expected.len());
        prop_assert_eq!(taken.into_iter().collect::<BTreeMap<_, _>>(), expected);
        prop_assert_eq!(world.producers.freeze(), Some(world.all().len()), "and the next moment can be taken");
    }
}
