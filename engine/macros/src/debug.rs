//! The `Debug` that comes with `derive(Encode)`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::Fields;
use syn::ext::IdentExt;

use crate::input::{Input, Shape, Variant};

/// The `Debug` implementation, to the character what std's derive prints.
pub fn expand(input: &Input) -> TokenStream {
    let name = &input.name;
    let body = match &input.shape {
        Shape::Enum(variants) if variants.is_empty() => quote!(match *self {}),
        Shape::Enum(variants) => {
            let arms = variants.iter().map(arm);
            quote!(match self { #(#arms)* })
        }
        Shape::Struct(fields) => {
            let arm = arm(fields);
            quote!(match self { #arm })
        }
    };
    let generics = input.bounded(&quote!(::core::fmt::Debug));
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();
    quote! {
        #[automatically_derived]
        impl #impl_generics ::core::fmt::Debug for #name #type_generics #where_clause {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                #body
            }
        }
    }
}

fn arm(variant: &Variant) -> TokenStream {
    let (pattern, name, bindings) = (variant.pattern(), &variant.name, variant.bindings());
    let print = match &variant.fields {
        Fields::Unit => quote!(f.write_str(#name)),
        Fields::Unnamed(_) => quote!(f.debug_tuple(#name)#(.field(#bindings))*.finish()),
        Fields::Named(fields) => {
            let names = fields.named.iter().filter_map(|field| Some(field.ident.as_ref()?.unraw().to_string()));
            quote!(f.debug_struct(#name)#(.field(#names, #bindings))*.finish())
        }
    };
    quote!(#pattern => #print,)
}
