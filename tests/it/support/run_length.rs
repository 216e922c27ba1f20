//! Length of searches, kill loops and floods. They are short by default; `TIDINGS_TEST_LENGTH=10` makes them ten times as
//! long (see CONTRIBUTING.md).

use std::{fmt::Debug, ops::Mul};

/// Returns a usual number of cases, kills or messages, multiplied by the variable `TIDINGS_TEST_LENGTH`.
pub(crate) fn lengthened<N: TryFrom<u32, Error: Debug> + Mul<Output = N>>(usual: N) -> N {
    let factor = std::env::var("TIDINGS_TEST_LENGTH").map_or(1, |factor| factor.parse().unwrap());
    usual * N::try_from(factor).unwrap()
}
