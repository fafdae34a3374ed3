//! The tables and functions of a store, and their upgrades.
//!
//! Each version is a file that is never changed once it is released. A client that finds an older version upgrades
//! it, under a lock and in one transaction: however many clients start at once, it is done exactly once, whole or not
//! at all.

use std::time::Duration;

use azureal_core::{StoreError, Uuid};
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use tracing::debug;

use super::connection::{Call, Connections};
use super::error::Fault;
pub(super) use super::upgrade::Upgrade;

/// The migrations from each version to the next, beginning without tables.
pub(super) const VERSIONS: [&str; 6] = [
    include_str!("schema/0001.sql"),
    include_str!("schema/0002.sql"),
    include_str!("schema/0003.sql"),
    include_str!("schema/0004.sql"),
    include_str!("schema/0005.sql"),
    include_str!("schema/0006.sql"),
];
/// The version that this build writes.
pub(super) const KNOWN: u32 = VERSIONS.len() as u32;
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
    /// The id of the store under that name.
    pub(super) id: Uuid,
}

/// An expression for the id of a project's store, from its name. The tables have one id, and each of their projects is a store.
pub(super) const STORE_ID: &str = "md5((to_jsonb(format) ->> 'store') || ' ' || @name@)::uuid";

/// The names of a project.
pub(super) struct ProjectNames<'a> {
    pub(super) project: &'a str,
    pub(super) former: Option<&'a str>,
}

/// Creates or upgrades the tables if needed, and finds the project.
pub(super) async fn prepare(
    connections: &Connections,
    upgrade: Upgrade,
    names: ProjectNames<'_>,
    retry_budget: Duration,
) -> Result<FoundSchema, StoreError> {
    let schema = upgrade.schema.clone();
    let look = || {
        let kept_as = "(SELECT project FROM @schema@.project_names WHERE name = $1)";
        let id = STORE_ID.replace("@name@", &format!("coalesce({kept_as}, $1)"));
        let sql = format!(
            "SELECT version, getdatabaseencoding()::text, {kept_as},
               EXISTS (SELECT 1 FROM @schema@.sessions WHERE project = $2)
                 AND NOT EXISTS (SELECT 1 FROM @schema@.project_names WHERE project = $2)
                 AND NOT EXISTS (SELECT 1 FROM @schema@.sessions WHERE project = $1), {id}
             FROM @schema@.format"
        );
        let sql = in_schema(&sql, &schema);
        let former = names.former.map(str::to_owned);
        Call::new(sql).with(Type::TEXT, names.project.to_owned()).with(Type::TEXT, former)
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
    connections.with_connection(|connection| upgrade.run(connection)).await?;
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
    Ok(Some(FoundSchema { kept_as, has_former, id: row.try_get(4).map_err(failed)? }))
}

/// Returns whether a version is ours; one that is newer is an error.
pub(super) fn check_version(place: &str, found: i32) -> Result<bool, StoreError> {
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

pub(super) fn check_encoding(place: &str, encoding: &str) -> Result<(), StoreError> {
    if encoding == ENCODING {
        return Ok(());
    }
    let why =
        format!("the database has the encoding {encoding}, which cannot hold every text; it needs UTF8");
    Err(StoreError::NotAStore { place: place.to_owned(), why })
}

pub(super) fn other(place: &str, error: tokio_postgres::Error) -> StoreError {
    Fault::from(error).at(place, Duration::ZERO)
}
