//! The type a derive stands on, checked.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::ext::IdentExt;
use syn::{
    Attribute, Data, DeriveInput, Error, Fields, Generics, Ident, LitStr, Path, Result, Token, Type, parse_quote,
};

/// Variants that a u16 can tell apart.
const VARIANTS_MAX: usize = 1 << 16;

/// A struct or an enum.
pub struct Input {
    /// Its name.
    pub name: Ident,
    /// Its parameters, as declared.
    pub generics: Generics,
    /// Where the traits are.
    pub krate: Path,
    /// Whether it has a `Debug` of its own.
    pub no_debug: bool,
    /// What it is made of.
    pub shape: Shape,
}

/// What a type is made of.
pub enum Shape {
    /// A struct.
    Struct(Variant),
    /// An enum.
    Enum(Vec<Variant>),
}

/// A struct, or one variant of an enum.
pub struct Variant {
    /// The path that names it in patterns and literals: `Self`, `Self::A`.
    pub path: TokenStream,
    /// Its name as printed.
    pub name: String,
    /// Its fields.
    pub fields: Fields,
}

impl Input {
    /// Checks the type's kind and its attributes, and its fields' and variants'.
    pub fn new(item: DeriveInput) -> Result<Input> {
        let mut input = Input {
            krate: parse_quote!(::ticktape),
            no_debug: false,
            shape: shape(&item)?,
            name: item.ident,
            generics: item.generics,
        };
        let mut seen = Vec::new();
        for attribute in &item.attrs {
            if attribute.path().is_ident("codec") {
                input.codec_attribute(attribute, &mut seen)?;
            } else if attribute.path().is_ident("repr") {
                refuse_packed(attribute)?;
            }
        }
        Ok(input)
    }

    fn codec_attribute(&mut self, attribute: &Attribute, seen: &mut Vec<&'static str>) -> Result<()> {
        attribute.parse_nested_meta(|meta| {
            let key = if meta.path.is_ident("no_debug") {
                self.no_debug = true;
                "no_debug"
            } else if meta.path.is_ident("crate") {
                let path: LitStr = meta.value()?.parse()?;
                self.krate = from_root(path.parse()?);
                "crate"
            } else {
                return Err(meta.error("unknown codec attribute: there are `no_debug` and `crate = \"path\"`"));
            };
            if seen.contains(&key) {
                return Err(meta.error(format!("codec attribute `{key}` is given twice")));
            }
            seen.push(key);
            Ok(())
        })
    }

    /// The generics with `bound` on every type parameter, and on every field whose type is projected from one.
    pub fn bounded(&self, bound: &TokenStream) -> Generics {
        let mut generics = self.generics.clone();
        let parameters: Vec<Ident> = self.generics.type_params().map(|parameter| parameter.ident.clone()).collect();
        let projected = self.fields().map(|field| &field.ty).filter(|ty| is_projection(ty, &parameters)).cloned();
        let mut bounded: Vec<Type> = parameters.iter().map(|parameter| parse_quote!(#parameter)).collect();
        bounded.extend(projected);
        if !bounded.is_empty() {
            let clause = generics.make_where_clause();
            clause.predicates.extend(bounded.iter().map(|ty| -> syn::WherePredicate { parse_quote!(#ty: #bound) }));
        }
        generics
    }

    fn fields(&self) -> impl Iterator<Item = &syn::Field> {
        let variants = match &self.shape {
            Shape::Struct(variant) => std::slice::from_ref(variant),
            Shape::Enum(variants) => variants.as_slice(),
        };
        variants.iter().flat_map(|variant| &variant.fields)
    }
}

impl Variant {
    /// Names to bind the fields to, in order.
    pub fn bindings(&self) -> Vec<Ident> {
        (0..self.fields.len()).map(|i| format_ident!("field_{i}", span = proc_macro2::Span::mixed_site())).collect()
    }

    /// The pattern that binds them.
    pub fn pattern(&self) -> TokenStream {
        let (path, bindings) = (&self.path, self.bindings());
        let members = self.fields.members();
        quote!(#path { #(#members: #bindings),* })
    }
}

fn shape(item: &DeriveInput) -> Result<Shape> {
    match &item.data {
        Data::Struct(data) => {
            refuse_on_fields(&data.fields)?;
            let name = item.ident.unraw().to_string();
            Ok(Shape::Struct(Variant { path: quote!(Self), name, fields: data.fields.clone() }))
        }
        Data::Enum(data) => {
            if let Some(extra) = data.variants.iter().nth(VARIANTS_MAX) {
                return Err(Error::new_spanned(extra, format!("an enum encodes at most {VARIANTS_MAX} variants")));
            }
            let variants = data.variants.iter().map(|variant| {
                refuse_attributes(&variant.attrs, "variant")?;
                refuse_on_fields(&variant.fields)?;
                let ident = &variant.ident;
                let (path, name) = (quote!(Self::#ident), ident.unraw().to_string());
                Ok(Variant { path, name, fields: variant.fields.clone() })
            });
            variants.collect::<Result<_>>().map(Shape::Enum)
        }
        Data::Union(data) => Err(Error::new(
            data.union_token.span,
            "a union has no canonical encoding: nothing says which of its fields is there; use an enum",
        )),
    }
}

fn refuse_on_fields(fields: &Fields) -> Result<()> {
    fields.iter().try_for_each(|field| refuse_attributes(&field.attrs, "field"))
}

fn refuse_attributes(attributes: &[Attribute], place: &str) -> Result<()> {
    match attributes.iter().find(|attribute| attribute.path().is_ident("codec")) {
        Some(attribute) => {
            Err(Error::new_spanned(attribute, format!("`codec` attributes belong on the type, not on a {place}")))
        }
        None => Ok(()),
    }
}

fn refuse_packed(attribute: &Attribute) -> Result<()> {
    attribute.parse_nested_meta(|meta| {
        if meta.path.is_ident("packed") {
            return Err(meta.error("a packed type can't be encoded: its fields can't be borrowed; drop `packed`"));
        }
        if meta.input.peek(syn::token::Paren) {
            let content;
            syn::parenthesized!(content in meta.input);
            content.parse::<TokenStream>()?;
        }
        Ok(())
    })
}

/// A path that names a crate, so that no module of the same name gets in the way.
fn from_root(mut path: Path) -> Path {
    let first = &path.segments[0].ident;
    if !(first == "crate" || first == "self" || first == "super") {
        path.leading_colon.get_or_insert(<Token![::]>::default());
    }
    path
}

/// `T::Item`, `<T as Trait>::Item`.
fn is_projection(ty: &Type, parameters: &[Ident]) -> bool {
    let Type::Path(ty) = ty else { return false };
    let first = ty.path.segments.first().map(|segment| &segment.ident);
    ty.qself.is_some() || (ty.path.segments.len() > 1 && first.is_some_and(|first| parameters.contains(first)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(item: DeriveInput) -> String {
        Input::new(item).err().expect("refused").to_string()
    }

    #[test]
    fn what_cannot_be_derived_is_refused_with_the_reason() {
        let cases: [(DeriveInput, &str); 8] = [
            (parse_quote!(union U { a: u8, b: i8 }), "use an enum"),
            (
                parse_quote!(
                    #[codec(skip)]
                    struct S;
                ),
                "unknown codec attribute",
            ),
            (
                parse_quote!(
                    #[codec(no_debug, no_debug)]
                    struct S;
                ),
                "given twice",
            ),
            (
                parse_quote!(
                    #[codec(no_debug)]
                    #[codec(no_debug)]
                    struct S;
                ),
                "given twice",
            ),
            (
                parse_quote!(
                    #[codec(crate = 5)]
                    struct S;
                ),
                "expected string literal",
            ),
            (
                parse_quote!(
                    struct S {
                        #[codec(skip)]
                        a: u8,
                    }
                ),
                "not on a field",
            ),
            (
                parse_quote!(
                    enum E {
                        #[codec(index = 3)]
                        A,
                    }
                ),
                "not on a variant",
            ),
            (
                parse_quote!(
                    #[repr(C, packed(2))]
                    struct S {
                        a: u32,
                    }
                ),
                "drop `packed`",
            ),
        ];
        for (item, reason) in cases {
            let refusal = refusal(item);
            assert!(refusal.contains(reason), "{refusal}");
        }
    }

    #[test]
    fn a_variant_beyond_a_u16_is_refused() {
        let variants = |count: usize| -> DeriveInput {
            let names = (0..count).map(|i| format_ident!("V{i}"));
            parse_quote!(enum E { #(#names),* })
        };
        assert!(Input::new(variants(VARIANTS_MAX)).is_ok());
        assert!(refusal(variants(VARIANTS_MAX + 1)).contains("at most 65536 variants"));
    }

    #[test]
    fn other_attributes_are_none_of_the_derives_business() {
        let item = parse_quote!(
            #[repr(u8, align(8))]
            #[doc = "x"]
            enum E {
                #[allow(unused)]
                A {
                    #[doc = "y"]
                    a: u8,
                },
            }
        );
        assert!(Input::new(item).is_ok());
    }
}
