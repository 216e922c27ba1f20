//! Macro for enums whose variants have names in the configuration, a protocol or the journal.

/// Defines an enum whose variants have names. Each variant and its name are declared once.
macro_rules! named_values {
    ($(#[$of_type:meta])* pub enum $Type:ident { $($(#[$of_value:meta])* $Value:ident = $name:literal,)* }) => {
        $(#[$of_type])*
        pub enum $Type {
            $($(#[$of_value])* $Value,)*
        }

        impl $Type {
            /// All variants.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$Value),*];

            /// Returns the name of the variant.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$Value => $name,)*
                }
            }
        }
    };
}
