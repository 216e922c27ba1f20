//! Connection to one broker: TCP, TLS, SASL, and one request at a time.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use rsasl::{
    config::SASLConfig,
    prelude::{Mechname, SASLClient},
};
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};
use tokio_rustls::TlsConnector;

use super::{
    requests::{API_VERSIONS, Address, Api, SASL_AUTHENTICATE, SASL_HANDSHAKE, Versions, check},
    wire::{Decoder, Encoder, Malformed},
};
use crate::{
    broker::Stream,
    kafka::{KafkaError, Mechanism, Sasl},
};

/// Maximum time for the response to a request, beside the time that the request itself allows the broker.
pub(super) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(15);

/// Maximum size of a response, in bytes. A broker returns at least one batch, whose default limit is 1 MiB.
const MAX_RESPONSE_BYTES: usize = 128 * 1024 * 1024;

/// Size below which a response takes nothing of the budget, in bytes.
const FREE_BYTES: usize = 4096;

/// Maximum number of messages that a mechanism sends.
const MAX_SASL_STEPS: usize = 8;

/// Settings of the connections to all brokers of a cluster.
#[derive(Debug)]
pub(in crate::kafka) struct Access {
    /// Name that the log of the cluster shows.
    pub(in crate::kafka) client: String,
    pub(in crate::kafka) tls: Option<Arc<ClientConfig>>,
    pub(in crate::kafka) sasl: Option<Sasl>,
}

/// A request before its header is known.
pub(super) struct Call<'a> {
    pub(super) api: Api,
    /// Operation that the broker executes, as an infinitive.
    pub(super) operation: &'static str,
    /// Time that the request allows the broker.
    pub(super) wait: Duration,
    /// Budget in bytes that the response takes its size from, before it is read.
    pub(super) budget: Option<&'a Budget>,
}

/// Bytes that the responses of all partitions of a reader may have together.
pub(super) struct Budget {
    permits: Arc<Semaphore>,
    total: u32,
}

impl Budget {
    pub(super) fn new(bytes: usize) -> Self {
        let total = u32::try_from(bytes.min(Semaphore::MAX_PERMITS)).unwrap_or(u32::MAX);
        Self { permits: Arc::new(Semaphore::new(total as usize)), total }
    }

    /// Takes the size of a response from the budget, or all of the budget if the response is larger.
    async fn take(&self, length: usize) -> Result<OwnedSemaphorePermit, KafkaError> {
        let permits = u32::try_from(length).unwrap_or(u32::MAX).min(self.total);
        let closed = |_| KafkaError::ConnectionLost("the readers have ended".to_owned());
        Arc::clone(&self.permits).acquire_many_owned(permits).await.map_err(closed)
    }
}

impl Call<'_> {
    fn new(api: Api, operation: &'static str) -> Self {
        Self { api, operation, wait: Duration::ZERO, budget: None }
    }

    async fn within<T>(&self, part: impl Future<Output = std::io::Result<T>>) -> Result<T, KafkaError> {
        let after = self.wait + RESPONSE_TIMEOUT;
        match timeout(after, part).await {
            Ok(result) => result.map_err(|error| KafkaError::ConnectionLost(error.to_string())),
            Err(_) => Err(KafkaError::Timeout { operation: self.operation, after }),
        }
    }
}

/// A connection to a broker. After any error it is dropped.
pub(super) struct BrokerConnection {
    stream: Stream,
    client: String,
    versions: Versions,
    correlation: i32,
}

/// A response: the decoder of its body, the version of the request, and its share of the budget.
pub(super) type Response = (Decoder, i16, Option<OwnedSemaphorePermit>);

impl BrokerConnection {
    /// Connects to a broker and identifies the gateway. There is no timeout for the whole.
    pub(super) async fn open(address: &Address, access: &Access) -> Result<Self, KafkaError> {
        let Address { host, port } = address;
        let unreachable = |error: std::io::Error| KafkaError::Unreachable(format!("{host}:{port}: {error}"));
        let socket = TcpStream::connect((host.as_str(), *port)).await.map_err(unreachable)?;
        socket.set_nodelay(true).map_err(unreachable)?;
        let stream: Stream = match &access.tls {
            None => Box::new(socket),
            Some(config) => {
                let name = ServerName::try_from(host.clone()).map_err(|error| KafkaError::Tls(error.to_string()))?;
                let connecting = TlsConnector::from(Arc::clone(config)).connect(name, socket);
                Box::new(connecting.await.map_err(|error| KafkaError::Tls(error.to_string()))?)
            }
        };
        let client = access.client.clone();
        let mut connection = Self { stream, client, versions: Versions::default(), correlation: 0 };
        let call = Call::new(API_VERSIONS, "report its version");
        let (mut response, ..) = connection.exchange(&call, API_VERSIONS_VERSION, |_| {}).await?;
        connection.versions = Versions::decode(&mut response).map_err(malformed)?;
        if let Some(sasl) = &access.sasl {
            connection.identify(sasl).await?;
        }
        Ok(connection)
    }

    /// Sends a request and waits for its response.
    pub(super) async fn request(
        &mut self,
        call: &Call<'_>,
        write: impl FnOnce(&mut Encoder, i16),
    ) -> Result<Response, KafkaError> {
        let Some(version) = self.versions.common(call.api) else {
            let reason = "it supports no version of a request that the gateway knows; it needs version 0.11 or later";
            return Err(KafkaError::ConnectionLost(reason.to_owned()));
        };
        self.exchange(call, version, |request| write(request, version)).await
    }

    async fn exchange(
        &mut self,
        call: &Call<'_>,
        version: i16,
        write: impl FnOnce(&mut Encoder),
    ) -> Result<Response, KafkaError> {
        self.correlation = self.correlation.wrapping_add(1);
        let mut request = Encoder::request(call.api.key, version, self.correlation, &self.client);
        write(&mut request);
        let head = async {
            self.stream.write_all(&request.frame()).await?;
            self.stream.flush().await?;
            self.stream.read_u32().await
        };
        let length = usize::try_from(call.within(head).await?).unwrap_or(usize::MAX);
        if length > MAX_RESPONSE_BYTES {
            let reason = format!("a response has {length} bytes, and at most {MAX_RESPONSE_BYTES} are read");
            return Err(KafkaError::ConnectionLost(reason));
        }
        // Other responses may have the budget, and are decoded meanwhile, so this wait has no timeout.
        let permit = match call.budget {
            Some(budget) if length > FREE_BYTES => Some(budget.take(length).await?),
            _ => None,
        };
        let mut body = Vec::with_capacity(length.min(1 << 20));
        let stream = &mut self.stream;
        let read = async { stream.take(length as u64).read_to_end(&mut body).await };
        if call.within(read).await? < length {
            return Err(KafkaError::ConnectionLost("the broker closed it in the middle of a response".to_owned()));
        }
        let mut response = Decoder(Bytes::from(body));
        match response.i32() {
            Ok(correlation) if correlation == self.correlation => Ok((response, version, permit)),
            _ => Err(malformed(Malformed)),
        }
    }

    async fn identify(&mut self, sasl: &Sasl) -> Result<(), KafkaError> {
        let mechanism = match sasl.mechanism {
            Mechanism::Plain => "PLAIN",
            Mechanism::ScramSha256 => "SCRAM-SHA-256",
            Mechanism::ScramSha512 => "SCRAM-SHA-512",
        };
        let refused = |error: KafkaError| match error {
            KafkaError::ConnectionLost(reason) => KafkaError::Refused(reason),
            other => other,
        };
        let call = Call::new(SASL_HANDSHAKE, "identify the gateway");
        let handshake = self.request(&call, |request, _| _ = request.string(mechanism)).await;
        let (mut response, ..) = handshake.map_err(refused)?;
        check(response.i16().map_err(malformed)?, mechanism)?;
        // The library's errors say what is wrong with a message, and have nothing of the password.
        let failed = |error: String| KafkaError::Refused(error);
        let password = String::from_utf8_lossy(sasl.password.expose()).into_owned();
        let config = SASLConfig::with_credentials(None, sasl.user.clone(), password);
        let client = SASLClient::new(config.map_err(|error| failed(error.to_string()))?);
        let name = Mechname::parse(mechanism.as_bytes()).map_err(|error| failed(error.to_string()))?;
        let mut session = client.start_suggested(&[name]).map_err(|error| failed(error.to_string()))?;
        let mut received: Option<Bytes> = None;
        for _ in 0..MAX_SASL_STEPS {
            let mut message = Vec::new();
            let state = session.step(received.as_deref(), &mut message).map_err(|error| failed(error.to_string()))?;
            if state.has_sent_message() {
                let call = Call::new(SASL_AUTHENTICATE, "identify the gateway");
                let answer = self.request(&call, |request, _| _ = request.bytes(&message)).await;
                let (mut response, ..) = answer.map_err(refused)?;
                check(response.i16().map_err(malformed)?, mechanism)?;
                response.string().map_err(malformed)?;
                received = Some(response.bytes().map_err(malformed)?);
            }
            if state.is_finished() {
                return Ok(());
            }
        }
        Err(failed("the exchange does not end".to_owned()))
    }
}

/// Version of the request for the versions, which every broker answers.
const API_VERSIONS_VERSION: i16 = 0;

pub(super) fn malformed(error: Malformed) -> KafkaError {
    KafkaError::ConnectionLost(error.to_string())
}
