//! `derive(Encode)`.

use proc_macro2::TokenStream;
use quote::quote;

use crate::input::{Input, Shape, Variant};

/// The `Encode` implementation.
pub fn expand(input: &Input) -> TokenStream {
    let (name, krate) = (&input.name, &input.krate);
    let body = match &input.shape {
        Shape::Struct(fields) => {
            let (pattern, fields) = (fields.pattern(), encode_fields(fields, input));
            quote!(let #pattern = self; #fields)
        }
        Shape::Enum(variants) if variants.is_empty() => quote!(match *self {}),
        Shape::Enum(variants) => {
            let arms = (0..=u16::MAX).zip(variants).map(|(discriminant, variant)| {
                let (pattern, fields) = (variant.pattern(), encode_fields(variant, input));
                quote!(#pattern => { #krate::Encode::encode(&#discriminant, out); #fields })
            });
            quote!(match self { #(#arms)* })
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
        }
    }
}

fn encode_fields(variant: &Variant, input: &Input) -> TokenStream {
    let (bindings, krate) = (variant.bindings(), &input.krate);
    quote!(#(#krate::Encode::encode_nested(#bindings, out, depth);)*)
}
