//! `bool`, `char`, text, `Option`, `Result`, references and markers.

use std::marker::PhantomData;

use super::collections::encode_count;
use super::{Decode, DecodeError, Encode, Reader};

impl Encode for bool {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    #[inline]
    fn fixed_bytes() -> Option<usize> {
        Some(1)
    }

    #[inline(always)]
    fn encode_fixed<'a>(&self, room: &'a mut [u8]) -> &'a mut [u8] {
        u8::from(*self).encode_fixed(room)
    }
}

impl Decode for bool {
    const MIN_BYTES: usize = 1;

    #[inline]
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match reader.array()? {
            [0] => Ok(false),
            [1] => Ok(true),
            [value] => Err(DecodeError::BadBool { value }),
        }
    }
}

impl Encode for char {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        u32::from(*self).encode(out);
    }

    #[inline]
    fn fixed_bytes() -> Option<usize> {
        Some(4)
    }

    #[inline(always)]
    fn encode_fixed<'a>(&self, room: &'a mut [u8]) -> &'a mut [u8] {
        u32::from(*self).encode_fixed(room)
    }
}

impl Decode for char {
    const MIN_BYTES: usize = 4;

    #[inline]
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let value = u32::decode(reader)?;
        char::from_u32(value).ok_or(DecodeError::BadChar { value })
    }
}

impl Encode for str {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        encode_count(self.len(), out);
        out.extend_from_slice(self.as_bytes());
    }
}

impl Encode for String {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        self.as_str().encode(out);
    }
}

impl Decode for String {
    const MIN_BYTES: usize = 4;

    #[inline]
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let len = reader.count(1)?;
        match str::from_utf8(reader.take(len)?) {
            Ok(text) => Ok(text.to_owned()),
            Err(error) => Err(DecodeError::BadUtf8 { valid_up_to: error.valid_up_to() }),
        }
    }
}

impl<T: Encode> Encode for Option<T> {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        self.encode_nested(out, 0);
    }

    #[inline]
    fn encode_nested(&self, out: &mut Vec<u8>, depth: u32) {
        out.push(u8::from(self.is_some()));
        if let Some(value) = self {
            value.encode_nested(out, depth);
        }
    }
}

impl<T: Decode> Decode for Option<T> {
    const MIN_BYTES: usize = 1;

    #[inline]
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match reader.array()? {
            [0] => Ok(None),
            [1] => T::decode(reader).map(Some),
            [value] => Err(DecodeError::BadTag { value }),
        }
    }
}

impl<T: Encode, E: Encode> Encode for Result<T, E> {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        self.encode_nested(out, 0);
    }

    #[inline]
    fn encode_nested(&self, out: &mut Vec<u8>, depth: u32) {
        out.push(u8::from(self.is_err()));
        match self {
            Ok(value) => value.encode_nested(out, depth),
            Err(error) => error.encode_nested(out, depth),
        }
    }
}

impl<T: Decode, E: Decode> Decode for Result<T, E> {
    const MIN_BYTES: usize = 1;

    #[inline]
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match reader.array()? {
            [0] => T::decode(reader).map(Ok),
            [1] => E::decode(reader).map(Err),
            [value] => Err(DecodeError::BadTag { value }),
        }
    }
}

impl<T: Encode + ?Sized> Encode for &T {
    #[inline]
    fn encode(&self, out: &mut Vec<u8>) {
        (**self).encode(out);
    }

    #[inline]
    fn encode_nested(&self, out: &mut Vec<u8>, depth: u32) {
        (**self).encode_nested(out, depth);
    }
}

impl<T: ?Sized> Encode for PhantomData<T> {
    #[inline]
    fn encode(&self, _out: &mut Vec<u8>) {}

    #[inline]
    fn fixed_bytes() -> Option<usize> {
        Some(0)
    }

    #[inline(always)]
    fn encode_fixed<'a>(&self, room: &'a mut [u8]) -> &'a mut [u8] {
        room
    }
}

impl<T: ?Sized> Decode for PhantomData<T> {
    const MIN_BYTES: usize = 0;

    #[inline]
    fn decode(_reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(PhantomData)
    }
}
