//! Values of statements.

use std::error::Error;

use bytes::{Buf, BufMut, BytesMut};
use tokio_postgres::types::{Format, IsNull, Kind, ToSql, Type, to_sql_checked};

use crate::text::storable;

/// Value of a statement.
pub(super) type Value<'a> = &'a (dyn ToSql + Sync);

/// A value as the database gets it: each text in it, alone or in an array, is [`storable`]. The session wraps all values,
/// so no column can forget it.
#[derive(Debug)]
pub(super) struct StorableValue<'a>(pub(super) Value<'a>);

impl ToSql for StorableValue<'_> {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        let mut encoded = out.split_off(out.len());
        let is_null = self.0.to_sql_checked(ty, &mut encoded)?;
        match ty.kind() {
            _ if !encoded.contains(&0) => {}
            Kind::Simple if is_text(ty) => encoded = text(&encoded),
            Kind::Array(member) if is_text(member) => encoded = array(encoded)?,
            _ => {}
        }
        out.unsplit(encoded);
        Ok(is_null)
    }

    fn accepts(_: &Type) -> bool {
        // The wrapped value checks its type.
        true
    }

    fn encode_format(&self, ty: &Type) -> Format {
        self.0.encode_format(ty)
    }

    to_sql_checked!();
}

fn is_text(ty: &Type) -> bool {
    matches!(*ty, Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME)
}

fn text(encoded: &[u8]) -> BytesMut {
    match std::str::from_utf8(encoded) {
        Ok(text) => BytesMut::from(storable(text).as_bytes()),
        // Values are made of Rust strings.
        Err(_) => BytesMut::from(encoded),
    }
}

/// Converts the members of an array: a head with the number of dimensions, a flag and the type, each dimension with its
/// length and lower bound, and then each member with its length.
fn array(mut encoded: BytesMut) -> Result<BytesMut, Box<dyn Error + Sync + Send>> {
    let dimensions = usize::try_from(encoded.as_ref().get_i32())?;
    let mut converted = encoded.split_to(12 + 8 * dimensions);
    while encoded.has_remaining() {
        let length = encoded.get_i32();
        // A null has a negative length.
        match usize::try_from(length) {
            Err(_) => converted.put_i32(length),
            Ok(length) => {
                let member = text(&encoded.split_to(length));
                converted.put_i32(i32::try_from(member.len())?);
                converted.put_slice(&member);
            }
        }
    }
    Ok(converted)
}

#[cfg(test)]
mod tests {
    use super::{BytesMut, StorableValue, ToSql, Type, Value};

    fn encoded(value: Value<'_>, ty: &Type) -> BytesMut {
        // The value follows others in the same message.
        let mut out = BytesMut::from(&b"before"[..]);
        let _ = StorableValue(value).to_sql_checked(ty, &mut out).unwrap();
        out
    }

    #[test]
    fn texts_have_no_nul_and_other_values_stay() {
        let same = |given: Value<'_>, expected: Value<'_>, ty: &Type| {
            let mut out = BytesMut::from(&b"before"[..]);
            let _ = expected.to_sql_checked(ty, &mut out).unwrap();
            assert_eq!(encoded(given, ty), out, "{given:?}");
        };
        same(&"a\0b", &"a\u{FFFD}b", &Type::TEXT);
        same(&Some("\0"), &Some("\u{FFFD}"), &Type::TEXT);
        same(&None::<&str>, &None::<&str>, &Type::TEXT);
        same(&vec!["a", "b\0", ""], &vec!["a", "b\u{FFFD}", ""], &Type::TEXT_ARRAY);
        same(&vec![Some("\0a\0"), None], &vec![Some("\u{FFFD}a\u{FFFD}"), None], &Type::TEXT_ARRAY);
        same(&Vec::<&str>::new(), &Vec::<&str>::new(), &Type::TEXT_ARRAY);
        same(&0_i64, &0_i64, &Type::INT8);
        same(&vec![0_i64, 7], &vec![0_i64, 7], &Type::INT8_ARRAY);
        same(&&b"a\0b"[..], &&b"a\0b"[..], &Type::BYTEA);
    }
}
