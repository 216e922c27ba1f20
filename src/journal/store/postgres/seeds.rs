//! The table `seeds`: facts from crawls, ordered between the changes.

use super::connection::Session;
use crate::{
    journal::store::{Seed, StoreError, rows},
    model::Seq,
};

pub(super) const INSERT: &str = "INSERT INTO seeds (number, seq, object, delta)
    SELECT $1::bigint + n.position, $2::bigint, n.object, n.delta
    FROM unnest($3::text[], $4::text[]) WITH ORDINALITY AS n(object, delta, position)";

/// Writes seeds as the rows after `newest`, ordered after the change `head`.
pub(super) async fn insert(session: &Session, newest: i64, head: Seq, seeds: &[Seed]) -> Result<(), StoreError> {
    if seeds.is_empty() {
        return Ok(());
    }
    let objects: Vec<&str> = seeds.iter().map(|seed| seed.object.as_str()).collect();
    let deltas = seeds.iter().map(|seed| rows::to_json(&seed.delta)).collect::<Result<Vec<_>, _>>()?;
    session.execute(INSERT, &[&newest, &rows::number(head.0), &objects, &deltas]).await?;
    Ok(())
}
