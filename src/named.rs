//! Enums whose values have names: in the configuration, in a protocol or in the journal.

/// Defines such an enum. Each of its values stands once, with its name.
macro_rules! named_values {
    ($(#[$of_type:meta])* pub enum $Type:ident { $($(#[$of_value:meta])* $Value:ident = $name:literal,)* }) => {
        $(#[$of_type])*
        pub enum $Type {
            $($(#[$of_value])* $Value,)*
        }

        impl $Type {
            /// Every value.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$Value),*];

            /// The name of the value.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$Value => $name,)*
                }
            }
        }
    };
}
