//! An original on the server: compressed, in pieces of 1 MiB.

use std::fs::File;
use std::io::{self, Cursor, Read};
use std::sync::Arc;
use std::time::Duration;

use azureal_core::{ORIGINAL_PIECE, Original, SessionId, StoreError};
use futures_executor::block_on;
use tokio_postgres::types::Type;

use super::connection::{Call, Connections, within};
use super::dial::Object;
use super::error::Fault;
use super::rows;
use super::schema::in_schema;
use crate::server::ANSWER_TIMEOUT;

/// The originals of a project, for work that outlives a call of the store.
#[derive(Clone)]
pub(super) struct Pieces {
    pub(super) connections: Arc<Connections>,
    pub(super) schema: String,
    pub(super) project: String,
}

/// The outcome of an upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Uploaded {
    Done,
    /// It was there.
    Known,
    /// There is no such session.
    Absent,
}

impl Pieces {
    fn call(&self, sql: &str, session: SessionId, run: &str) -> Call {
        Call::new(in_schema(sql, &self.schema))
            .with(Type::TEXT, self.project.clone())
            .with(Type::INT4, rows::number(session))
            .with(Type::TEXT, run.to_owned())
    }

    /// Returns the size of an original on the server.
    pub(super) async fn size(&self, session: SessionId, run: &str) -> Result<Option<i64>, StoreError> {
        let sql = "SELECT bytes FROM @schema@.originals WHERE project = $1 AND session = $2 AND run = $3"
            .to_owned();
        let found = self.connections.call(self.call(&sql, session, run)).await?;
        let size = found.first().map(|row| row.try_get(0)).transpose();
        size.map_err(|error| Fault::from(error).at(self.connections.place(), Duration::ZERO))
    }

    /// Uploads an original in one transaction: it is there whole or not at all, and once.
    pub(super) async fn upload(
        &self,
        session: SessionId,
        original: &Original,
        packed: File,
    ) -> Result<Uploaded, StoreError> {
        if self.size(session, &original.run).await?.is_some() {
            // An earlier upload, whose answer did not arrive.
            return Ok(Uploaded::Known);
        }
        let (pieces, original) = (self.clone(), original.clone());
        let place = self.connections.place().to_owned();
        self.connections
            .with_connection(move |mut connection| async move {
                let uploaded = pieces.upload_on(&mut connection, session, &original, packed).await;
                if uploaded.is_err() {
                    // Its transaction may still be open.
                    drop(Object::take(connection));
                }
                uploaded.map_err(|fault| fault.at(&place, Duration::ZERO))
            })
            .await
    }

    async fn upload_on(
        &self,
        connection: &mut Object,
        session: SessionId,
        original: &Original,
        mut packed: File,
    ) -> Result<Uploaded, Fault> {
        let transaction = within(ANSWER_TIMEOUT, connection.transaction()).await?;
        let insert = "INSERT INTO @schema@.original_pieces (project, session, run, piece, data)
                      VALUES ($1, $2, $3, $4, $5)";
        for number in 0_i32.. {
            let mut piece = Vec::new();
            let read = packed.by_ref().take(ORIGINAL_PIECE as u64).read_to_end(&mut piece);
            read.map_err(|error| Fault::Answer(format!("the original cannot be read: {error}")))?;
            if piece.is_empty() {
                break;
            }
            let call = self.call(insert, session, &original.run).sending(piece.len());
            call.with(Type::INT4, number).with(Type::BYTEA, piece).run_on(transaction.client()).await?;
        }
        let store = self
            .call("SELECT @schema@.store_original($1, $2, $3, $4, $5, $6)", session, &original.run)
            .with(Type::INT8, rows::integer(original.first))
            .with(Type::INT8, rows::integer(original.last))
            .with(Type::INT8, rows::signed(original.bytes));
        let answer = store.run_on(transaction.client()).await?;
        let outcome: &str = match answer.first() {
            Some(row) => row.try_get(0)?,
            None => "",
        };
        let uploaded = match outcome {
            "done" => Uploaded::Done,
            "known" => Uploaded::Known,
            "absent" => Uploaded::Absent,
            other => return Err(Fault::Answer(format!("the database answered {other:?}"))),
        };
        if uploaded == Uploaded::Done {
            within(ANSWER_TIMEOUT, transaction.commit()).await?;
        } else {
            within(ANSWER_TIMEOUT, transaction.rollback()).await?;
        }
        Ok(uploaded)
    }

    /// Returns a reader of an original of this size. It blocks, and has one piece in memory.
    pub(super) fn reader(self, session: SessionId, run: String, bytes: u64) -> PieceReader {
        PieceReader { pieces: self, session, run, next: 0, left: bytes, piece: Cursor::default() }
    }
}

/// Reads the pieces of an original, one at a time.
pub(super) struct PieceReader {
    pieces: Pieces,
    session: SessionId,
    run: String,
    /// The number of the next piece.
    next: i32,
    /// The bytes that are still to come.
    left: u64,
    piece: Cursor<Vec<u8>>,
}

impl Read for PieceReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.piece.read(buffer)?;
            if read > 0 || buffer.is_empty() || self.left == 0 {
                return Ok(read);
            }
            let piece = block_on(self.fetch()).map_err(io::Error::other)?;
            self.left -= piece.len() as u64;
            self.next += 1;
            self.piece = Cursor::new(piece);
        }
    }
}

impl PieceReader {
    /// Fetches the next piece, which has exactly the size that is expected.
    async fn fetch(&self) -> Result<Vec<u8>, StoreError> {
        let sql = "SELECT data FROM @schema@.original_pieces
                   WHERE project = $1 AND session = $2 AND run = $3 AND piece = $4";
        let call = self.pieces.call(sql, self.session, &self.run).with(Type::INT4, self.next);
        let connections = &self.pieces.connections;
        let found = connections.call(call.sending(ORIGINAL_PIECE)).await?;
        let piece: Result<Option<&[u8]>, _> = found.first().map(|row| row.try_get(0)).transpose();
        let piece = piece.map_err(|error| Fault::from(error).at(connections.place(), Duration::ZERO))?;
        let expected = self.left.min(ORIGINAL_PIECE as u64);
        match piece {
            Some(piece) if piece.len() as u64 == expected => Ok(piece.to_vec()),
            Some(_) => Err(self.broken("has the wrong size")),
            None => Err(self.broken("is missing")),
        }
    }

    fn broken(&self, what: &str) -> StoreError {
        let why = format!("piece {} of the original {} {what}", self.next, self.run);
        Fault::Answer(why).at(self.pieces.connections.place(), Duration::ZERO)
    }
}
