//! JSON text that is sent as `jsonb`.

use std::borrow::Cow;

use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgArgumentBuffer, PgHasArrayType, PgTypeInfo};
use sqlx::types::Json;
use sqlx::{Encode, Postgres, Type};

/// Text that is known to be JSON. PostgreSQL reads an array of these about twice as fast as it turns an array of texts
/// into one of `jsonb`, and it need not be parsed and written again on this side, as [`Json`] would.
pub(super) struct Jsonb<'t>(pub(super) Cow<'t, str>);

impl Type<Postgres> for Jsonb<'_> {
    fn type_info() -> PgTypeInfo {
        <Json<()> as Type<Postgres>>::type_info()
    }
}

impl PgHasArrayType for Jsonb<'_> {
    fn array_type_info() -> PgTypeInfo {
        <Json<()> as PgHasArrayType>::array_type_info()
    }
}

impl Encode<'_, Postgres> for Jsonb<'_> {
    fn encode_by_ref(&self, buf: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        // The version of the format, the only one there is.
        buf.push(1);
        buf.extend_from_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }
}
