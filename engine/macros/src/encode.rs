//! `derive(Encode)`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::Path;

use crate::input::{Input, Shape, Variant};

/// The `Encode` implementation.
pub fn expand(input: &Input) -> TokenStream {
    let (name, krate) = (&input.name, &input.krate);
    let (body, fixed) = match &input.shape {
        Shape::Struct(fields) => {
            let (pattern, body) = (fields.pattern(), encode_fields(fields, None, krate));
            (quote!(let #pattern = self; #body), fixed_methods(fields, krate))
        }
        Shape::Enum(variants) if variants.is_empty() => (quote!(match *self {}), TokenStream::new()),
        Shape::Enum(variants) => {
            let arms = (0..=u16::MAX).zip(variants).map(|(discriminant, variant)| {
                let (pattern, body) = (variant.pattern(), encode_fields(variant, Some(discriminant), krate));
                quote!(#pattern => { #body })
            });
            (quote!(match self { #(#arms)* }), TokenStream::new())
        }
    };
    let generics = input.bounded(&quote!(#krate::Encode));
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();
    quote! {
        #[automatically_derived]
        impl #impl_generics #krate::Encode for #name #type_generics #where_clause {
            #[inline]
            fn encode(&self, out: &mut ::std::vec::Vec<u8>) {
                #krate::Encode::encode_nested(self, out, 0);
            }

            #[inline]
            #[allow(unused_variables)]
            fn encode_nested(&self, out: &mut ::std::vec::Vec<u8>, depth: u32) {
                #body
            }

            #fixed
        }
    }
}

/// Writes a variant. Where its fields are of fixed size (known when the type is compiled), room is made once for all of
/// them: a check and a new length for every field would cost several times the stores.
fn encode_fields(variant: &Variant, discriminant: Option<u16>, krate: &Path) -> TokenStream {
    let (bindings, bytes) = (variant.bindings(), fixed_bytes(variant, krate));
    let (head_bytes, head_nested, head_fixed) = match discriminant {
        Some(value) => (
            2usize,
            quote!(#krate::Encode::encode(&#value, out);),
            quote!(let room = #krate::Encode::encode_fixed(&#value, room);),
        ),
        None => (0, TokenStream::new(), TokenStream::new()),
    };
    quote! {
        if let ::core::option::Option::Some(bytes) = (|| #bytes)() {
            let bytes = #head_bytes + bytes;
            out.resize(out.len() + bytes, 0);
            // Counted from the end, so that the room's size is a constant and no store needs a check.
            let end = out.len();
            let room = out.split_at_mut(end - bytes).1;
            #head_fixed
            #(let room = #krate::Encode::encode_fixed(#bindings, room);)*
        } else {
            #head_nested
            #(#krate::Encode::encode_nested(#bindings, out, depth);)*
        }
    }
}

/// An expression for the size of a variant's fields, `None` where it varies.
fn fixed_bytes(variant: &Variant, krate: &Path) -> TokenStream {
    let types = variant.fields.iter().map(|field| &field.ty);
    quote!(::core::option::Option::Some(0usize #(+ <#types as #krate::Encode>::fixed_bytes()?)*))
}

fn fixed_methods(fields: &Variant, krate: &Path) -> TokenStream {
    let (pattern, bindings, bytes) = (fields.pattern(), fields.bindings(), fixed_bytes(fields, krate));
    quote! {
        #[inline]
        fn fixed_bytes() -> ::core::option::Option<usize> {
            #bytes
        }

        #[inline]
        fn encode_fixed<'room>(&self, room: &'room mut [u8]) -> &'room mut [u8] {
            let #pattern = self;
            #(let room = #krate::Encode::encode_fixed(#bindings, room);)*
            room
        }
    }
}
