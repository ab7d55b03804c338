//! The order in which the entries of a dense table were used last: a list through positions, eight bytes an entry.

const NONE: u32 = u32::MAX;
/// Stands in `older` of an entry that is not in the list.
const OUTSIDE: u32 = u32::MAX - 1;

#[derive(Clone, Copy, Debug)]
struct Link {
    older: u32,
    newer: u32,
}

/// Which entry was used longest ago; entries may be taken out of the order and come back.
#[derive(Debug)]
pub(super) struct Uses {
    links: Vec<Link>,
    oldest: u32,
    newest: u32,
}

impl Default for Uses {
    fn default() -> Self {
        Self { links: Vec::new(), oldest: NONE, newest: NONE }
    }
}

impl Uses {
    /// Adds an entry behind the others, outside of the order.
    pub(super) fn add(&mut self) {
        super::grow_a_little(&mut self.links);
        self.links.push(Link { older: OUTSIDE, newer: NONE });
    }

    /// The entry was used now.
    pub(super) fn use_now(&mut self, at: u32) {
        if self.newest == at {
            return;
        }
        self.leave_out(at);
        let older = self.newest;
        self.links[at as usize] = Link { older, newer: NONE };
        match older {
            NONE => self.oldest = at,
            older => self.links[older as usize].newer = at,
        }
        self.newest = at;
    }

    /// The entry has no place in the order until it is used again.
    pub(super) fn leave_out(&mut self, at: u32) {
        let Link { older, newer } = self.links[at as usize];
        if older == OUTSIDE {
            return;
        }
        self.links[at as usize] = Link { older: OUTSIDE, newer: NONE };
        self.join(older, newer);
    }

    /// The entry is gone, and the last one stands in its place.
    pub(super) fn swap_remove(&mut self, at: u32) {
        self.leave_out(at);
        self.links.swap_remove(at as usize);
        let Some(moved) = self.links.get(at as usize).copied().filter(|moved| moved.older != OUTSIDE) else { return };
        match moved.older {
            NONE => self.oldest = at,
            older => self.links[older as usize].newer = at,
        }
        match moved.newer {
            NONE => self.newest = at,
            newer => self.links[newer as usize].older = at,
        }
    }

    /// The entry that was used longest ago.
    pub(super) fn oldest(&self) -> Option<u32> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    /// Puts the entries into this order, the one that was used longest ago first; the others are left out.
    pub(super) fn arrange(&mut self, order: impl Iterator<Item = u32>) {
        self.links.fill(Link { older: OUTSIDE, newer: NONE });
        (self.oldest, self.newest) = (NONE, NONE);
        order.for_each(|at| self.use_now(at));
    }

    /// Gives memory back that so few entries do not need.
    pub(super) fn shrink(&mut self) {
        super::shrink_a_lot(&mut self.links);
    }

    fn join(&mut self, older: u32, newer: u32) {
        match older {
            NONE => self.oldest = newer,
            older => self.links[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => self.links[newer as usize].older = older,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every entry has a name of its own; the model keeps the names in order of use.
    #[test]
    fn it_agrees_with_a_list() {
        let (mut uses, mut names, mut model) = (Uses::default(), Vec::new(), Vec::new());
        let mut state = 3_u64;
        for step in 0..20_000_u32 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = u32::try_from(state >> 33).unwrap() % (u32::try_from(names.len()).unwrap() + 1);
            let name = names.get(at as usize).copied();
            match (name, step % 5) {
                (None, _) => {
                    uses.add();
                    names.push(step);
                    uses.use_now(at);
                    model.push(step);
                }
                (Some(name), 0 | 1) => {
                    uses.use_now(at);
                    model.retain(|known| *known != name);
                    model.push(name);
                }
                (Some(name), 2) => {
                    uses.leave_out(at);
                    model.retain(|known| *known != name);
                }
                (Some(name), _) if names.len() > 20 => {
                    uses.swap_remove(at);
                    names.swap_remove(at as usize);
                    model.retain(|known| *known != name);
                }
                _ => {}
            }
            assert_eq!(uses.oldest().map(|at| names[at as usize]), model.first().copied());
        }
        let order: Vec<_> = (0..u32::try_from(names.len()).unwrap()).rev().collect();
        uses.arrange(order.into_iter());
        assert_eq!(uses.oldest().map(|at| at as usize), names.len().checked_sub(1));
    }
}
