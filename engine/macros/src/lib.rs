//! `#[derive(Encode, Decode)]`: the canonical codec for a user's types. WIRE.md, "Codec".
//!
//! A struct is its fields in declaration order; an enum is the index of its variant in declaration order, as a u16, then
//! the variant's fields. Discriminants written in the source (`A = 5`) play no part. A type parameter gets the bound that
//! the derive is for.
//!
//! `derive(Encode)` also makes the type printable, exactly as std's `derive(Debug)` would, because inputs and outputs turn
//! up in tools and messages. So deriving `Debug` beside it is a conflict; a type that has a `Debug` of its own says
//! `#[codec(no_debug)]`.
//!
//! | attribute of the type | effect |
//! |---|---|
//! | `#[codec(no_debug)]` | `derive(Encode)` writes no `Debug` |
//! | `#[codec(crate = "path")]` | the traits are found there instead of in `::ticktape` |

#![forbid(unsafe_code)]

mod debug;
mod decode;
mod encode;
mod input;

use input::Input;
use proc_macro::TokenStream;

/// Implements `ticktape::Encode`, and `std::fmt::Debug` unless the type says `#[codec(no_debug)]`.
#[proc_macro_derive(Encode, attributes(codec))]
pub fn derive_encode(item: TokenStream) -> TokenStream {
    expand(item, |input| {
        let mut tokens = encode::expand(input);
        if !input.no_debug {
            tokens.extend(debug::expand(input));
        }
        tokens
    })
}

/// Implements `ticktape::Decode`.
#[proc_macro_derive(Decode, attributes(codec))]
pub fn derive_decode(item: TokenStream) -> TokenStream {
    expand(item, decode::expand)
}

fn expand(item: TokenStream, generate: impl FnOnce(&Input) -> proc_macro2::TokenStream) -> TokenStream {
    syn::parse(item)
        .and_then(Input::new)
        .map_or_else(|error| error.into_compile_error(), |input| generate(&input))
        .into()
}
