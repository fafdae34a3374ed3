//! Counting again what version 1 of the tables did not count: the last prompt, the model of the last agent, system messages.
//!
//! It runs once, in the transaction that upgrades the tables. Only events that can change these counts are read, in pages.

use azureal_core::{Counts, Event, Seq, StoredEvent, Tally, rendered_chars};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Error, Row, Transaction};

use super::rows;
use super::schema::in_schema;
use super::text::{escaped, unescaped};

/// The size of a page, in bytes, and in events.
const PAGE_BYTES: i64 = 16 << 20;
const PAGE_EVENTS: i64 = 2000;

/// An event with the project and the number of its session.
struct Located {
    project: String,
    session: i32,
    event: StoredEvent,
}

/// New values of many sessions, one array for each column.
#[derive(Default)]
struct Recounted {
    projects: Vec<String>,
    sessions: Vec<i32>,
    agents: Vec<Option<String>>,
    models: Vec<Option<String>>,
    requested: Vec<Option<String>>,
    prompts: Vec<Option<String>>,
    answered: Vec<bool>,
    /// Sizes of system messages, which version 1 did not count.
    systems: Vec<i64>,
}

/// Counts the events of every session again.
pub(super) async fn recount(transaction: &Transaction<'_>, schema: &str) -> Result<(), Error> {
    let mut recounted = Recounted::default();
    let mut current: Option<(String, i32, Tally, u64)> = None;
    let mut after = (String::new(), 0_i32, 0_i64);
    loop {
        let page = page(transaction, schema, &after).await?;
        let Some(last) = page.last() else { break };
        after = (last.project.clone(), last.session, i64::try_from(last.event.seq.0).unwrap_or(i64::MAX));
        for Located { project, session, event } in page {
            let is_new = current.as_ref().is_none_or(|(of, number, ..)| (of, *number) != (&project, session));
            if is_new {
                recounted.take(current.replace((project, session, Tally::default(), 0)));
            }
            if let Some((_, _, tally, systems)) = &mut current {
                let event_itself = event.event().ok();
                tally.add(event.seq, event_itself.as_ref());
                if let Some(system @ Event::SystemMessage(_)) = &event_itself {
                    *systems += rendered_chars(system);
                }
            }
        }
    }
    recounted.take(current);
    recounted.store(transaction, schema).await
}

async fn page(
    transaction: &Transaction<'_>,
    schema: &str,
    (project, session, seq): &(String, i32, i64),
) -> Result<Vec<Located>, Error> {
    let sql = in_schema(
        "SELECT project, session, seq, kind, json FROM (
           SELECT *, sum(octet_length(json)) OVER (ORDER BY project, session, seq) - octet_length(json) AS before
           FROM (SELECT project, session, seq, kind, json FROM @schema@.events
                 WHERE (project, session, seq) > ($1, $2, $3)
                   AND kind IN ('Init', 'ModelSwitch', 'UserMessage', 'Message', 'SystemMessage')
                 ORDER BY project, session, seq LIMIT $4) AS next
         ) AS sized WHERE before <= $5 ORDER BY project, session, seq",
        schema,
    );
    let rows = transaction
        .query_typed(
            &sql,
            &[
                (project, Type::TEXT),
                (session, Type::INT4),
                (seq, Type::INT8),
                (&PAGE_EVENTS, Type::INT8),
                (&PAGE_BYTES, Type::INT8),
            ],
        )
        .await?;
    rows.iter().map(located).collect()
}

fn located(row: &Row) -> Result<Located, Error> {
    let seq: i64 = row.try_get(2)?;
    let kind = unescaped(row.try_get(3)?);
    let event = StoredEvent::new(Seq(seq.max(0).cast_unsigned()), kind, Ok(row.try_get(4)?));
    Ok(Located { project: row.try_get(0)?, session: row.try_get(1)?, event })
}

impl Recounted {
    fn take(&mut self, counted: Option<(String, i32, Tally, u64)>) {
        let Some((project, session, tally, systems)) = counted else { return };
        let Counts { agent, model, requested_model, last_prompt, answered, .. } = tally.counts;
        let text = |text: Option<String>| text.map(|text| escaped(&text).into_owned());
        self.projects.push(project);
        self.sessions.push(session);
        self.agents.push(text(agent));
        self.models.push(text(model));
        self.requested.push(text(requested_model));
        self.prompts.push(text(last_prompt));
        self.answered.push(answered);
        self.systems.push(rows::signed(systems));
    }

    async fn store(&self, transaction: &Transaction<'_>, schema: &str) -> Result<(), Error> {
        let sql = in_schema(
            "UPDATE @schema@.sessions SET agent = new.agent, model = new.model, requested_model = new.requested_model,
               last_prompt = new.last_prompt, answered = sessions.answered OR new.answered,
               told = @schema@.plus(told, new.system)
             FROM unnest($1, $2, $3, $4, $5, $6, $7, $8)
               AS new (project, session, agent, model, requested_model, last_prompt, answered, system)
             WHERE sessions.project = new.project AND sessions.session = new.session",
            schema,
        );
        transaction
            .query_typed(
                &sql,
                &[
                    (&self.projects, Type::TEXT_ARRAY),
                    (&self.sessions, Type::INT4_ARRAY),
                    (&self.agents, Type::TEXT_ARRAY),
                    (&self.models, Type::TEXT_ARRAY),
                    (&self.requested, Type::TEXT_ARRAY),
                    (&self.prompts, Type::TEXT_ARRAY),
                    (&self.answered, Type::BOOL_ARRAY),
                    (&self.systems, Type::INT8_ARRAY),
                ],
            )
            .await?;
        // A system message is the first event, so that every summary covers it.
        let sql = in_schema(
            "UPDATE @schema@.compactions SET covers = @schema@.plus(covers, new.system)
             FROM unnest($1, $2, $3) AS new (project, session, system)
             WHERE compactions.project = new.project AND compactions.session = new.session",
            schema,
        );
        let arrays: [(&(dyn ToSql + Sync), Type); 3] = [
            (&self.projects, Type::TEXT_ARRAY),
            (&self.sessions, Type::INT4_ARRAY),
            (&self.systems, Type::INT8_ARRAY),
        ];
        transaction.query_typed(&sql, &arrays).await?;
        Ok(())
    }
}
