//! Reading of single objects and items.

use std::collections::BTreeMap;

use rusqlite::{CachedStatement, Connection, OptionalExtension};

use super::super::value::params;
use super::columns::{self, item_columns, object_columns};
use crate::{
    journal::{
        registry::{ItemRecord, ObjectState},
        store::{ItemSelection, StoreError},
    },
    model::Uri,
};

const NUMBER: &str = "SELECT object FROM objects WHERE uri = ?";
const OBJECT: &str = concat!("SELECT object, ", object_columns!(), " FROM objects WHERE uri = ?");
const ITEMS: &str = concat!("SELECT ", item_columns!(), " FROM items WHERE object = ?");
const ITEM: &str = concat!("SELECT ", item_columns!(), " FROM items WHERE object = ? AND uri = ?");

/// Prepared statements that read objects and items.
pub(in super::super) struct RegistryReader<'c> {
    number: CachedStatement<'c>,
    object: CachedStatement<'c>,
    items: CachedStatement<'c>,
    item: CachedStatement<'c>,
}

impl<'c> RegistryReader<'c> {
    pub(in super::super) fn new(connection: &'c Connection) -> rusqlite::Result<Self> {
        Ok(Self {
            number: connection.prepare_cached(NUMBER)?,
            object: connection.prepare_cached(OBJECT)?,
            items: connection.prepare_cached(ITEMS)?,
            item: connection.prepare_cached(ITEM)?,
        })
    }

    /// Reads an object with the selected items; returns its row number and its state.
    pub(in super::super) fn object(
        &mut self,
        uri: &Uri,
        items: &ItemSelection,
    ) -> Result<Option<(i64, ObjectState)>, StoreError> {
        let mut result = self.object.query(params![uri.as_str()])?;
        let Some(row) = result.next()? else { return Ok(None) };
        let (number, mut state) = (row.get::<_, i64>(0)?, columns::object(row, 1)?);
        drop(result);
        match items {
            ItemSelection::All => self.items(number, &mut state.items)?,
            ItemSelection::Some(selected) => {
                for item in selected.as_slice() {
                    let record = self.item(number, item)?;
                    state.items.extend(record.map(|record| (item.clone(), record)));
                }
            }
        }
        Ok(Some((number, state)))
    }

    /// Returns the row number of an object, if it has a row.
    pub(in super::super) fn number(&mut self, uri: &Uri) -> Result<Option<i64>, StoreError> {
        Ok(self.number.query_row(params![uri.as_str()], |row| row.get(0)).optional()?)
    }

    /// Reads one item of the object with this row number.
    pub(in super::super) fn item(&mut self, number: i64, item: &Uri) -> Result<Option<Box<ItemRecord>>, StoreError> {
        let mut result = self.item.query(params![number, item.as_str()])?;
        result.next()?.map(|row| Ok(columns::item(row)?.1)).transpose()
    }

    fn items(&mut self, number: i64, items: &mut BTreeMap<Uri, Box<ItemRecord>>) -> Result<(), StoreError> {
        let mut result = self.items.query(params![number])?;
        while let Some(row) = result.next()? {
            items.extend([columns::item(row)?]);
        }
        Ok(())
    }
}
