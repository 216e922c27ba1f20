//! SQL condition about the items that the public sees, for both stores.

/// Expands to the condition that an object has an item that the public sees, as
/// [`is_public`](crate::model::is_public) decides. The argument is the column with the row number of the object.
macro_rules! has_public_item {
    ($object:literal) => {
        concat!(
            "EXISTS (SELECT 1 FROM items WHERE items.object = ",
            $object,
            " AND existence AND coalesce(state, initial_state, 'ACTIVE') IN ('ACTIVE', 'UNAVAILABLE'))"
        )
    };
}

pub(in crate::journal::store) use has_public_item;

#[cfg(test)]
mod tests {
    use crate::model::{State, is_public};

    #[test]
    fn condition_has_the_states_that_are_public() {
        let condition = has_public_item!("o");
        let (_, states) = condition.split_once(" IN (").unwrap();
        let states: Vec<_> = states.trim_end_matches("))").split(", ").map(|state| state.trim_matches('\'')).collect();
        for state in ["ACTIVE", "UNAVAILABLE", "INACTIVE", "DELETED", "EMBARGOED", "EXPIRED", "REQUESTED", "OTHER"] {
            let parsed: State = serde_json::from_value(state.into()).unwrap();
            assert_eq!(states.contains(&state), is_public(Some(&parsed)), "{state}");
        }
        assert!(is_public(None) && states.contains(&"ACTIVE"));
    }
}
