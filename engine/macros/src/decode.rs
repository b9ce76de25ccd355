//! `derive(Decode)`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::ext::IdentExt;

use crate::input::{Input, Shape, Variant};

/// The `Decode` implementation.
pub fn expand(input: &Input) -> TokenStream {
    let (name, krate) = (&input.name, &input.krate);
    let (min_bytes, body) = match &input.shape {
        Shape::Struct(fields) => {
            let types = fields.fields.iter().map(|field| &field.ty);
            let value = decode_fields(fields, input);
            (quote!(0 #(+ <#types as #krate::Decode>::MIN_BYTES)*), quote!(::core::result::Result::Ok(#value)))
        }
        Shape::Enum(variants) => (quote!(2), decode_variants(variants, input)),
    };
    let generics = input.bounded(&quote!(#krate::Decode));
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();
    quote! {
        #[automatically_derived]
        impl #impl_generics #krate::Decode for #name #type_generics #where_clause {
            const MIN_BYTES: usize = #min_bytes;

            #[inline]
            #[allow(unused_variables)]
            fn decode(
                reader: &mut #krate::Reader<'_>,
            ) -> ::core::result::Result<Self, #krate::DecodeError> {
                #body
            }
        }
    }
}

fn decode_variants(variants: &[Variant], input: &Input) -> TokenStream {
    let (krate, name) = (&input.krate, input.name.unraw().to_string());
    let arms = (0..=u16::MAX).zip(variants).map(|(discriminant, variant)| {
        let value = decode_fields(variant, input);
        quote!(#discriminant => ::core::result::Result::Ok(#value),)
    });
    // Where every number is a variant, the last arm has nothing left to catch.
    quote! {
        #[allow(unreachable_patterns)]
        match <u16 as #krate::Decode>::decode(reader)? {
            #(#arms)*
            value => ::core::result::Result::Err(#krate::DecodeError::BadDiscriminant { name: #name, value }),
        }
    }
}

fn decode_fields(variant: &Variant, input: &Input) -> TokenStream {
    let (path, members, krate) = (&variant.path, variant.fields.members(), &input.krate);
    let types = variant.fields.iter().map(|field| &field.ty);
    quote!(#path { #(#members: <#types as #krate::Decode>::decode(reader)?),* })
}
