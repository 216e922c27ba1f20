//! A handler that inserts rows like those of the gateway, and does nothing else: no parsing, no settling, no lookups.
//!
//! It is axum and tokio-postgres. One task takes all waiting messages, as the gateway's writer does, and writes them in
//! one transaction: it locks the head, and inserts changes, event keys, objects and items with one statement for each
//! table. The texts of the rows are copies of a sample that the gateway has written, with another object and event.

use axum::{
    Json, Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::post,
};
use bytes::Bytes;
use futures_util::future::{join, join5};
use tokio::{
    runtime::Runtime,
    sync::{mpsc, oneshot},
};
use tokio_postgres::{Client, NoTls, Statement};
use uuid::Uuid;

/// Maximum number of messages in a transaction, as in the gateway.
const BATCH: usize = 512;

/// The settings of the gateway's writing session.
const SETTINGS: &str = "SET search_path = tidings; SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off;
    SET enable_hashjoin = off; SET enable_mergejoin = off; SET jit = off";

const STATEMENTS: [&str; 6] = [
    "SELECT head FROM journal_head FOR UPDATE",
    "INSERT INTO changes (seq, id, received, checksum, json)
         SELECT * FROM unnest($1::bigint[], $2::uuid[], $3::bigint[], $4::bigint[], $5::text[])",
    "INSERT INTO event_keys (key, seq, received) SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::bigint[])",
    "INSERT INTO objects (uri, items, types) SELECT uri, 1, '[]' FROM unnest($1::text[]) AS n(uri)
         ON CONFLICT (uri) DO NOTHING",
    "INSERT INTO items (object, uri, existence, content, content_at, content_confirmed, unannounced)
         SELECT (SELECT object FROM objects WHERE objects.uri = n.owner), n.uri, true, n.content, n.at, n.at, false
         FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[]) AS n(owner, uri, content, at)
         ON CONFLICT (object, uri) DO UPDATE SET content = excluded.content, content_at = excluded.content_at,
             content_confirmed = excluded.content_confirmed",
    "UPDATE journal_head SET head = $1, received = $2",
];

/// Texts that the gateway has written for one message.
#[derive(Clone)]
pub(crate) struct Sample {
    /// Identifier of the event, and local name of the object, in the message and in the rows.
    pub(crate) event: &'static str,
    pub(crate) object: &'static str,
    /// JSON of the change, URIs of object and item, JSON of the item's content.
    pub(crate) texts: [String; 4],
}

/// A message, and its number and identifier as the reply.
struct Command {
    body: Bytes,
    reply: oneshot::Sender<(i64, Uuid)>,
}

/// Running handler in this process.
pub(crate) struct BareHandler {
    pub(crate) url: String,
    _runtime: Runtime,
}

impl BareHandler {
    /// Starts the handler over a database with the schema of the gateway.
    pub(crate) fn start(store: &str, sample: &Sample) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let (commands, waiting) = mpsc::channel(1024);
        let writer = runtime.block_on(Writer::connect(store, sample.clone()));
        runtime.spawn(writer.run(waiting));
        let router = Router::new().route("/hooks/{source}", post(receive)).with_state(commands);
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        runtime.spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, _runtime: runtime }
    }
}

async fn receive(State(commands): State<mpsc::Sender<Command>>, body: Bytes) -> Response {
    let (reply, written) = oneshot::channel();
    commands.send(Command { body, reply }).await.unwrap();
    let (seq, id) = written.await.unwrap();
    let receipt = serde_json::json!({ "outcome": "accepted", "seq": seq, "id": id });
    (StatusCode::CREATED, [(header::LOCATION, format!("/changes/{id}"))], Json(receipt)).into_response()
}

struct Writer {
    client: Client,
    statements: Vec<Statement>,
    sample: Sample,
}

/// Rows of a batch, one array per column.
#[derive(Default)]
struct Columns {
    seqs: Vec<i64>,
    ids: Vec<Uuid>,
    times: Vec<i64>,
    checksums: Vec<i64>,
    /// Columns of the texts of the sample.
    texts: [Vec<String>; 4],
    keys: Vec<Uuid>,
}

impl Writer {
    async fn connect(store: &str, sample: Sample) -> Self {
        let (client, connection) = tokio_postgres::connect(store, NoTls).await.unwrap();
        tokio::spawn(connection);
        client.batch_execute(SETTINGS).await.unwrap();
        let mut statements = Vec::new();
        for sql in STATEMENTS {
            statements.push(client.prepare(sql).await.unwrap());
        }
        Self { client, statements, sample }
    }

    async fn run(self, mut waiting: mpsc::Receiver<Command>) {
        let mut batch = Vec::with_capacity(BATCH);
        while waiting.recv_many(&mut batch, BATCH).await > 0 {
            let replies = self.write(&batch).await;
            for (command, reply) in batch.drain(..).zip(replies) {
                let _ = command.reply.send(reply);
            }
        }
    }

    async fn write(&self, batch: &[Command]) -> Vec<(i64, Uuid)> {
        let [lock, changes, keys, objects, items, head] = &self.statements[..] else { unreachable!() };
        let client = &self.client;
        let (begun, locked) = join(client.batch_execute("BEGIN"), client.query_one(lock, &[])).await;
        begun.unwrap();
        let columns = self.columns(locked.unwrap().get(0), batch);
        let Columns { seqs, ids, times, checksums, texts: [jsons, owners, uris, contents], keys: key } = &columns;
        let (last, received) = (seqs.last().unwrap(), times.last().unwrap());
        // Sent in this order, without waiting for each other.
        let written = join5(
            client.execute(head, &[last, received]),
            client.execute(changes, &[seqs, ids, times, checksums, jsons]),
            client.execute(keys, &[key, seqs, times]),
            client.execute(objects, &[owners]),
            client.execute(items, &[owners, uris, contents, times]),
        )
        .await;
        for count in [written.0, written.1, written.2, written.3, written.4] {
            count.unwrap();
        }
        client.batch_execute("COMMIT").await.unwrap();
        columns.seqs.into_iter().zip(columns.ids).collect()
    }

    fn columns(&self, head: i64, batch: &[Command]) -> Columns {
        let mut columns = Columns::default();
        let received = tidings::model::Timestamp::now().millis();
        for (seq, command) in (head + 1..).zip(batch) {
            let event = between(&command.body, b"<id>", b"</id>");
            let object = between(&command.body, b"<category term=\"", b"\"");
            columns.seqs.push(seq);
            columns.ids.push(Uuid::now_v7());
            columns.times.push(received);
            columns.checksums.push(seq);
            columns.keys.push(event.rsplit_once(':').unwrap().1.parse().unwrap());
            let Sample { event: sample_event, object: sample_object, texts } = &self.sample;
            for (column, text) in columns.texts.iter_mut().zip(texts) {
                column.push(text.replace(sample_object, object).replace(sample_event, event));
            }
        }
        columns
    }
}

/// Returns the text between two marks.
fn between<'b>(body: &'b [u8], before: &[u8], after: &[u8]) -> &'b str {
    let start = memchr::memmem::find(body, before).unwrap() + before.len();
    let length = memchr::memmem::find(&body[start..], after).unwrap();
    std::str::from_utf8(&body[start..start + length]).unwrap()
}
