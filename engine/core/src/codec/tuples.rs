//! Tuples of up to twelve, and the one of none.

use super::{Decode, DecodeError, Encode, Reader};

macro_rules! tuples {
    ($(($($name:ident)*))*) => {$(
        impl<$($name: Encode),*> Encode for ($($name,)*) {
            #[inline]
            fn encode(&self, out: &mut Vec<u8>) {
                self.encode_nested(out, 0);
            }

            #[inline]
            #[allow(non_snake_case, unused_variables)]
            fn encode_nested(&self, out: &mut Vec<u8>, depth: u32) {
                let ($($name,)*) = self;
                $($name.encode_nested(out, depth);)*
            }

            #[inline]
            fn fixed_bytes() -> Option<usize> {
                Some(0 $(+ $name::fixed_bytes()?)*)
            }

            #[inline]
            #[allow(non_snake_case)]
            fn encode_fixed<'a>(&self, room: &'a mut [u8]) -> &'a mut [u8] {
                let ($($name,)*) = self;
                $(let room = $name.encode_fixed(room);)*
                room
            }
        }

        impl<$($name: Decode),*> Decode for ($($name,)*) {
            const MIN_BYTES: usize = 0 $(+ $name::MIN_BYTES)*;

            #[inline]
            #[allow(clippy::unused_unit, unused_variables)]
            fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
                Ok(($($name::decode(reader)?,)*))
            }
        }
    )*};
}

tuples! {
    ()
    (A)
    (A B)
    (A B C)
    (A B C D)
    (A B C D E)
    (A B C D E F)
    (A B C D E F G)
    (A B C D E F G H)
    (A B C D E F G H I)
    (A B C D E F G H I J)
    (A B C D E F G H I J K)
    (A B C D E F G H I J K L)
}
