//! Macro for enums whose variants have names in the configuration, a protocol or the journal.

/// An enum whose variants have names.
pub trait NamedValue: Copy {
    /// Returns all variants.
    fn all() -> &'static [Self];

    /// Returns the name of the variant.
    fn name(self) -> &'static str;
}

/// Defines an enum whose variants have names. Each variant and its name are declared once.
macro_rules! named_values {
    ($(#[$of_type:meta])* $vis:vis enum $Type:ident { $($(#[$of_value:meta])* $Value:ident = $name:literal,)* }) => {
        $(#[$of_type])*
        $vis enum $Type {
            $($(#[$of_value])* $Value,)*
        }

        impl $Type {
            /// All variants.
            $vis const ALL: [Self; [$($name),*].len()] = [$(Self::$Value),*];

            /// Returns the name of the variant.
            #[must_use]
            $vis const fn name(self) -> &'static str {
                match self {
                    $(Self::$Value => $name,)*
                }
            }
        }

        impl $crate::named::NamedValue for $Type {
            fn all() -> &'static [Self] {
                &Self::ALL
            }

            fn name(self) -> &'static str {
                Self::name(self)
            }
        }
    };
}
