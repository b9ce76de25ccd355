//! Integers, and the engine's own numbers.

use super::{Decode, DecodeError, Encode, Reader};
use crate::units::{Seq, SessionId, TimerId, Timestamp};

macro_rules! integers {
    ($($integer:ty),*) => {$(
        impl Encode for $integer {
            #[inline]
            fn encode(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            encode_integer!($integer);

            #[inline]
            fn encode_slice(values: &[Self], out: &mut Vec<u8>, _depth: u32) {
                let start = out.len();
                out.resize(start + size_of_val(values), 0);
                Self::encode_fixed_slice(values, &mut out[start..]);
            }
        }

        impl Decode for $integer {
            decode_integer!($integer);
        }
    )*};
}

macro_rules! encode_integer {
    ($integer:ty) => {
        #[inline]
        fn fixed_bytes() -> Option<usize> {
            Some(size_of::<$integer>())
        }

        #[inline(always)]
        fn encode_fixed<'a>(&self, room: &'a mut [u8]) -> &'a mut [u8] {
            let (place, rest) = room.split_first_chunk_mut().expect("room was made for all");
            *place = self.to_le_bytes();
            rest
        }

        #[inline]
        fn encode_fixed_slice<'a>(values: &[Self], room: &'a mut [u8]) -> &'a mut [u8] {
            let (places, rest) = room.split_at_mut(size_of_val(values));
            let (chunks, _) = places.as_chunks_mut::<{ size_of::<$integer>() }>();
            for (chunk, value) in chunks.iter_mut().zip(values) {
                *chunk = value.to_le_bytes();
            }
            rest
        }
    };
}

macro_rules! decode_integer {
    ($integer:ty) => {
        const MIN_BYTES: usize = size_of::<$integer>();

        #[inline]
        fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
            Ok(<$integer>::from_le_bytes(reader.array()?))
        }

        #[inline]
        fn decode_vec(reader: &mut Reader<'_>, count: usize) -> Result<Vec<Self>, DecodeError> {
            let (chunks, _) = reader.take(count * Self::MIN_BYTES)?.as_chunks::<{ size_of::<$integer>() }>();
            Ok(chunks.iter().map(|chunk| <$integer>::from_le_bytes(*chunk)).collect())
        }

        #[inline]
        fn decode_array<const N: usize>(reader: &mut Reader<'_>) -> Result<[Self; N], DecodeError> {
            let (chunks, _) = reader.take(N * Self::MIN_BYTES)?.as_chunks::<{ size_of::<$integer>() }>();
            Ok(std::array::from_fn(|i| <$integer>::from_le_bytes(chunks[i])))
        }
    };
}

integers!(u16, u32, u64, u128, i8, i16, i32, i64, i128);

impl Encode for u8 {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(*self);
    }

    encode_integer!(u8);

    #[inline]
    fn encode_slice(values: &[Self], out: &mut Vec<u8>, _depth: u32) {
        out.extend_from_slice(values);
    }
}

impl Decode for u8 {
    decode_integer!(u8);
}

macro_rules! wrapped_u64 {
    ($($name:ident),*) => {$(
        impl Encode for $name {
            #[inline]
            fn encode(&self, out: &mut Vec<u8>) {
                self.0.encode(out);
            }

            #[inline]
            fn fixed_bytes() -> Option<usize> {
                u64::fixed_bytes()
            }

            #[inline(always)]
            fn encode_fixed<'a>(&self, room: &'a mut [u8]) -> &'a mut [u8] {
                self.0.encode_fixed(room)
            }
        }

        impl Decode for $name {
            const MIN_BYTES: usize = u64::MIN_BYTES;

            #[inline]
            fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
                u64::decode(reader).map($name)
            }
        }
    )*};
}

wrapped_u64!(Seq, Timestamp, SessionId, TimerId);
