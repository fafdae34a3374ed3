//! The tables and functions of a store, and their upgrades.
//!
//! Each version is a file that is never changed once it is released. A client that finds an older version upgrades
//! it, under a lock and in one transaction: however many clients start at once, it is done exactly once, whole or not
//! at all.

use std::time::Duration;

use azureal_core::StoreError;
use deadpool_postgres::Object;
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tracing::{debug, info};

use super::connection::{Call, Connections};
use super::error::Fault;
use super::recount;

/// The migrations from each version to the next, beginning without tables.
const VERSIONS: [&str; 5] = [
    include_str!("schema/0001.sql"),
    include_str!("schema/0002.sql"),
    include_str!("schema/0003.sql"),
    include_str!("schema/0004.sql"),
    include_str!("schema/0005.sql"),
];
/// The version that this build writes.
const KNOWN: u32 = VERSIONS.len() as u32;
/// The key of the lock: the name of the project as a number.
const LOCK: i64 = i64::from_be_bytes(*b"azureal\0");
/// PostgreSQL's name of the encoding that can hold every text.
const ENCODING: &str = "UTF8";

/// Puts the name of the schema into a statement. It is one that needs no quotes.
pub(super) fn in_schema(sql: &str, schema: &str) -> String {
    sql.replace("@schema@", schema)
}

/// The facts about its project that opening a store finds.
pub(super) struct FoundSchema {
    /// The name under which the sessions are kept, if it is not the project's own.
    pub(super) kept_as: Option<String>,
    /// Whether there are sessions under the former name that no project has claimed, and none under the name.
    pub(super) has_former: bool,
}

/// Creates or upgrades the tables if needed, and finds the project.
pub(super) async fn prepare(
    connections: &Connections,
    schema: &str,
    project: &str,
    former: Option<&str>,
    retry_budget: Duration,
) -> Result<FoundSchema, StoreError> {
    let look = || {
        let sql = in_schema(
            "SELECT version, getdatabaseencoding()::text,
               (SELECT project FROM @schema@.project_names WHERE name = $1),
               EXISTS (SELECT 1 FROM @schema@.sessions WHERE project = $2)
                 AND NOT EXISTS (SELECT 1 FROM @schema@.project_names WHERE project = $2)
                 AND NOT EXISTS (SELECT 1 FROM @schema@.sessions WHERE project = $1)
             FROM @schema@.format",
            schema,
        );
        Call::new(sql).with(Type::TEXT, project.to_owned()).with(Type::TEXT, former.map(str::to_owned))
    };
    let place = connections.place();
    match connections.call_for(look(), retry_budget).await {
        Ok(rows) => {
            if let Some(found) = rows.first().map(|row| found(place, row)).transpose()?.flatten() {
                debug!(version = KNOWN, "the tables are of this version");
                return Ok(found);
            }
        }
        // An older version has no such names.
        Err((fault, _)) if fault.is_missing_schema() => {}
        Err((fault, waited)) => return Err(fault.at(place, waited)),
    }
    let (schema, at) = (schema.to_owned(), place.to_owned());
    connections.with_connection(|connection| upgrade(connection, schema, at)).await?;
    let rows = connections.call(look()).await?;
    let found = rows.first().map(|row| found(place, row)).transpose()?.flatten();
    found.ok_or_else(|| {
        Fault::Answer("the version of the tables is missing".to_owned()).at(place, Duration::ZERO)
    })
}

/// Reads the answer; `None` if the tables are of an older version.
fn found(place: &str, row: &Row) -> Result<Option<FoundSchema>, StoreError> {
    let failed = |error| other(place, error);
    check_encoding(place, row.try_get(1).map_err(failed)?)?;
    if !check_version(place, row.try_get(0).map_err(failed)?)? {
        return Ok(None);
    }
    let (kept_as, has_former) = (row.try_get(2).map_err(failed)?, row.try_get(3).map_err(failed)?);
    Ok(Some(FoundSchema { kept_as, has_former }))
}

/// Returns whether a version is ours; one that is newer is an error.
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
            &[(&LOCK, Type::INT8)],
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
    // Read under the lock: another client may have upgraded meanwhile.
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
    transaction.commit().await.map_err(failed)?;
    info!(from = found, to = KNOWN, "upgraded the tables");
    Ok(())
}
