//! The tables and functions of a store, and bringing them up to date.
//!
//! Each version is a file that is never changed once it is released. Whoever finds an older one brings it up to
//! date, under a lock and in one transaction: however many clients start at once, it is done once, whole or not.

use std::time::Duration;

use azureal_core::StoreError;
use deadpool_postgres::Object;
use tokio_postgres::error::SqlState;

use super::connection::{Call, Connections};
use super::error::Fault;
use super::recount;

/// What brings a store from each version to the next, beginning with nothing.
const VERSIONS: [&str; 2] = [include_str!("schema/0001.sql"), include_str!("schema/0002.sql")];
/// The version that this build writes.
const KNOWN: u32 = VERSIONS.len() as u32;
/// The key of the lock: the name of the project as a number.
const LOCK: i64 = i64::from_be_bytes(*b"azureal\0");
/// What PostgreSQL calls the encoding that can hold every text.
const ENCODING: &str = "UTF8";

/// Puts the name of the schema into a statement. It is one that needs no quotes.
pub(super) fn in_schema(sql: &str, schema: &str) -> String {
    sql.replace("@schema@", schema)
}

/// Makes sure that the tables are there and of a version that we know.
pub(super) async fn prepare(
    connections: &Connections,
    schema: &str,
    patience: Duration,
) -> Result<(), StoreError> {
    let look = in_schema("SELECT version, getdatabaseencoding()::text FROM @schema@.format", schema);
    let found = match connections.call_for(Call::new(look), patience).await {
        Ok(rows) => match rows.first() {
            Some(row) => {
                let encoding: String = row.try_get(1).map_err(|error| other(connections.place(), error))?;
                check_encoding(connections.place(), &encoding)?;
                row.try_get(0).map_err(|error| other(connections.place(), error))?
            }
            None => 0,
        },
        Err((fault, _)) if fault.is_missing_schema() => 0,
        Err((fault, waited)) => return Err(fault.at(connections.place(), waited)),
    };
    if check_version(connections.place(), found)? {
        return Ok(());
    }
    let (schema, place) = (schema.to_owned(), connections.place().to_owned());
    connections.with_connection(|connection| upgrade(connection, schema, place)).await
}

/// Says whether a version is ours; one that is newer is an error.
fn check_version(place: &str, found: i32) -> Result<bool, StoreError> {
    match u32::try_from(found) {
        Ok(found) if found <= KNOWN => Ok(found == KNOWN),
        Ok(_) | Err(_) => Err(StoreError::Newer {
            place: place.to_owned(),
            what: "format",
            found: found.to_string(),
            known: KNOWN,
        }),
    }
}

fn check_encoding(place: &str, encoding: &str) -> Result<(), StoreError> {
    if encoding == ENCODING {
        return Ok(());
    }
    let why =
        format!("the database has the encoding {encoding}, which cannot hold every text; it needs UTF8");
    Err(StoreError::NotAStore { place: place.to_owned(), why })
}

fn other(place: &str, error: tokio_postgres::Error) -> StoreError {
    Fault::from(error).at(place, Duration::ZERO)
}

async fn upgrade(mut connection: Object, schema: String, place: String) -> Result<(), StoreError> {
    let failed = |error: tokio_postgres::Error| match error.code() {
        Some(&SqlState::DUPLICATE_TABLE | &SqlState::DUPLICATE_FUNCTION) => StoreError::NotAStore {
            place: place.clone(),
            why: format!("the schema {schema} holds tables of something else"),
        },
        _ => other(&place, error),
    };
    let transaction = connection.transaction().await.map_err(failed)?;
    let encoding = transaction
        .query_typed(
            "SELECT pg_advisory_xact_lock($1)::text, getdatabaseencoding()::text",
            &[(&LOCK, tokio_postgres::types::Type::INT8)],
        )
        .await
        .map_err(failed)?;
    if let Some(row) = encoding.first() {
        check_encoding(&place, row.try_get(1).map_err(failed)?)?;
    }
    let begin = in_schema(
        "CREATE SCHEMA IF NOT EXISTS @schema@;
         CREATE TABLE IF NOT EXISTS @schema@.format (version integer NOT NULL);",
        &schema,
    );
    transaction.batch_execute(&begin).await.map_err(failed)?;
    // Looked up under the lock: somebody else may have done it meanwhile.
    let look = in_schema("SELECT version FROM @schema@.format", &schema);
    let found = transaction.query_typed(&look, &[]).await.map_err(failed)?;
    let found: i32 = found.first().map_or(Ok(0), |row| row.try_get(0)).map_err(failed)?;
    if check_version(&place, found)? {
        return Ok(());
    }
    for version in VERSIONS.iter().skip(usize::try_from(found).unwrap_or_default()) {
        transaction.batch_execute(&in_schema(version, &schema)).await.map_err(failed)?;
    }
    if found == 1 {
        recount::recount(&transaction, &schema).await.map_err(failed)?;
    }
    let note = in_schema("DELETE FROM @schema@.format; INSERT INTO @schema@.format VALUES ", &schema);
    transaction.batch_execute(&format!("{note} ({KNOWN})")).await.map_err(failed)?;
    transaction.commit().await.map_err(failed)
}
