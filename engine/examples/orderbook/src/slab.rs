//! Values in numbered slots that are reused: no allocation while as many leave as arrive.

/// No slot.
pub(crate) const NONE: u32 = u32::MAX;

/// What a slab may hold.
pub(crate) trait Slot: Copy {
    /// Stands in a slot until its first value does.
    const BLANK: Self;
}

#[derive(Clone, Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<T>,
    /// Used as a stack, so that the slot freed last, whose line is still cached, is taken next.
    free: Vec<u32>,
}

impl<T: Slot> Slab<T> {
    pub(crate) fn with_capacity(slots: usize) -> Self {
        Slab { slots: Vec::with_capacity(slots), free: Vec::with_capacity(slots) }
    }

    /// Values in use.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Slots that were ever used at once: what the memory is for.
    #[inline]
    pub(crate) fn high_water(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<T>() + self.free.capacity() * size_of::<u32>()
    }

    #[inline]
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| self.grow());
        self.slots[slot as usize] = value;
        slot
    }

    /// Does not take the value along: that would keep it from being built in its slot.
    #[cold]
    fn grow(&mut self) -> u32 {
        let slot = u32::try_from(self.slots.len()).ok().filter(|&slot| slot != NONE).expect("orders_max is below 2^30");
        self.slots.push(T::BLANK);
        // Every slot may be free at once; freeing must never be what allocates.
        self.free.reserve(self.slots.capacity() - self.free.len());
        slot
    }

    #[inline]
    pub(crate) fn remove(&mut self, slot: u32) {
        self.free.push(slot);
    }

    #[inline]
    pub(crate) fn get(&self, slot: u32) -> Option<&T> {
        self.slots.get(slot as usize)
    }
}

impl<T> std::ops::Index<u32> for Slab<T> {
    type Output = T;

    #[inline]
    fn index(&self, slot: u32) -> &T {
        &self.slots[slot as usize]
    }
}

impl<T> std::ops::IndexMut<u32> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, slot: u32) -> &mut T {
        &mut self.slots[slot as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Slot for i32 {
        const BLANK: Self = 0;
    }

    #[test]
    fn slots_are_reused_last_freed_first() {
        let mut slab = Slab::with_capacity(2);
        let slots: Vec<u32> = (0..5).map(|n| slab.insert(n)).collect();
        assert_eq!(slots, [0, 1, 2, 3, 4]);
        slab.remove(1);
        slab.remove(3);
        assert_eq!((slab.len(), slab.high_water()), (3, 5));
        assert_eq!((slab.insert(33), slab.insert(11), slab.insert(5)), (3, 1, 5));
        assert_eq!((slab[3], slab[1], slab[5]), (33, 11, 5));
    }

    #[test]
    fn nothing_is_allocated_while_as_many_leave_as_arrive() {
        let mut slab = Slab::with_capacity(1);
        let mut live: Vec<u32> = (0..100).map(|n| slab.insert(n)).collect();
        let bytes = slab.bytes();
        for round in 0..10 {
            live.drain(..).for_each(|slot| slab.remove(slot));
            live.extend((0..100).map(|n| slab.insert(n + round)));
        }
        assert_eq!(slab.bytes(), bytes);
    }
}
