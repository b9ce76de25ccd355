//! Sequences, maps, sets, arrays and boxes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{Decode, DecodeError, Encode, Reader};
use crate::limits::{DECODE_DEPTH_MAX, ZERO_WIDTH_COUNT_MAX};

/// Writes a count, or a length in bytes.
#[inline]
pub(super) fn encode_count(count: usize, out: &mut Vec<u8>) {
    let count = u32::try_from(count).expect("a collection or text encodes at most u32::MAX elements");
    count.encode(out);
}

/// The depth of what stands within, the encoder's side of [`Reader::nested`].
#[inline]
fn within(depth: u32) -> u32 {
    assert!(depth < DECODE_DEPTH_MAX, "value nests deeper than {DECODE_DEPTH_MAX}: it could never be decoded");
    depth + 1
}

/// Writes a count and what `elements` writes, asserting what [`Reader::count`] will check.
#[inline]
fn encode_counted(count: usize, out: &mut Vec<u8>, elements: impl FnOnce(&mut Vec<u8>)) {
    encode_count(count, out);
    let start = out.len();
    elements(out);
    assert!(
        count <= ZERO_WIDTH_COUNT_MAX || out.len() > start,
        "{count} elements that encode to nothing, at most {ZERO_WIDTH_COUNT_MAX} may be in a collection"
    );
}

/// Both methods of a container, of which one knows the depth.
macro_rules! encode_at_depth {
    (|$self:ident, $out:ident, $depth:ident| $body:block) => {
        #[inline]
        fn encode(&self, out: &mut Vec<u8>) {
            self.encode_nested(out, 0);
        }

        #[inline]
        fn encode_nested(&$self, $out: &mut Vec<u8>, $depth: u32) $body
    };
}

impl<T: Encode> Encode for [T] {
    encode_at_depth!(|self, out, depth| {
        let depth = within(depth);
        encode_counted(self.len(), out, |out| T::encode_slice(self, out, depth));
    });
}

impl<T: Encode> Encode for Vec<T> {
    encode_at_depth!(|self, out, depth| {
        self.as_slice().encode_nested(out, depth);
    });
}

impl<T: Decode> Decode for Vec<T> {
    const MIN_BYTES: usize = 4;

    #[inline]
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let count = reader.count(T::MIN_BYTES)?;
        reader.nested(|reader| T::decode_vec(reader, count))
    }
}

impl<T: Encode> Encode for VecDeque<T> {
    encode_at_depth!(|self, out, depth| {
        let depth = within(depth);
        let (front, back) = self.as_slices();
        encode_counted(self.len(), out, |out| {
            T::encode_slice(front, out, depth);
            T::encode_slice(back, out, depth);
        });
    });
}

impl<T: Decode> Decode for VecDeque<T> {
    const MIN_BYTES: usize = 4;

    #[inline]
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Vec::decode(reader).map(VecDeque::from)
    }
}

impl<T: Encode, const N: usize> Encode for [T; N] {
    encode_at_depth!(|self, out, depth| {
        T::encode_slice(self, out, depth);
    });

    #[inline]
    fn fixed_bytes() -> Option<usize> {
        Some(N * T::fixed_bytes()?)
    }

    #[inline]
    fn encode_fixed<'a>(&self, room: &'a mut [u8]) -> &'a mut [u8] {
        T::encode_fixed_slice(self, room)
    }
}

impl<T: Decode, const N: usize> Decode for [T; N] {
    const MIN_BYTES: usize = N.saturating_mul(T::MIN_BYTES);

    #[inline]
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        T::decode_array(reader)
    }
}

impl<T: Encode> Encode for Box<T> {
    encode_at_depth!(|self, out, depth| {
        (**self).encode_nested(out, within(depth));
    });
}

impl<T: Decode> Decode for Box<T> {
    const MIN_BYTES: usize = T::MIN_BYTES;

    #[inline]
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        reader.nested(T::decode).map(Box::new)
    }
}

impl<K: Encode, V: Encode> Encode for BTreeMap<K, V> {
    encode_at_depth!(|self, out, depth| {
        let depth = within(depth);
        encode_counted(self.len(), out, |out| {
            for (key, value) in self {
                key.encode_nested(out, depth);
                value.encode_nested(out, depth);
            }
        });
    });
}

impl<K: Decode + Ord, V: Decode> Decode for BTreeMap<K, V> {
    const MIN_BYTES: usize = 4;

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let count = reader.count(K::MIN_BYTES.saturating_add(V::MIN_BYTES))?;
        // Gathered first: a map is built from ascending entries at once, much faster than entry by entry.
        let entries = reader.nested(|reader| {
            let mut entries: Vec<(K, V)> = Vec::with_capacity(reader.capacity::<(K, V)>(count));
            for index in 0..count {
                let key = K::decode(reader)?;
                if entries.last().is_some_and(|(last, _)| *last >= key) {
                    return Err(DecodeError::NotAscending { index });
                }
                entries.push((key, V::decode(reader)?));
            }
            Ok(entries)
        })?;
        Ok(entries.into_iter().collect())
    }
}

impl<K: Encode> Encode for BTreeSet<K> {
    encode_at_depth!(|self, out, depth| {
        let depth = within(depth);
        encode_counted(self.len(), out, |out| self.iter().for_each(|key| key.encode_nested(out, depth)));
    });
}

impl<K: Decode + Ord> Decode for BTreeSet<K> {
    const MIN_BYTES: usize = 4;

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let keys = Vec::<K>::decode(reader)?;
        match keys.windows(2).position(|pair| pair[0] >= pair[1]) {
            Some(before) => Err(DecodeError::NotAscending { index: before + 1 }),
            None => Ok(keys.into_iter().collect()),
        }
    }
}
