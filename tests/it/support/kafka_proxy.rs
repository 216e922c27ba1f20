//! Proxy in front of Tansu that adds the parts which Tansu lacks: TLS, SASL for given accounts, and records that break on
//! their way.

use std::sync::Arc;

use base64::{Engine, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{PrivateKeyDer, pem::PemObject},
};
use sha2::{Digest, Sha256, Sha512};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy, split},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::TlsAcceptor;

/// User and password that the proxy accepts.
pub(crate) const USER: &str = "me";
pub(crate) const PASSWORD: &str = "hush-hush";

/// Additions of the proxy.
#[derive(Clone, Default)]
pub(crate) struct Additions {
    /// Whether clients connect over TLS.
    pub(crate) tls: bool,
    /// Whether clients must identify themselves with one of the three mechanisms.
    pub(crate) sasl: bool,
    /// Octets that the broker sends, and other octets of the same length that arrive instead.
    pub(crate) replaced: Option<(&'static [u8], &'static [u8])>,
}

/// Listening proxy. Its tasks end with the test.
pub(crate) struct KafkaProxy {
    /// Address of the proxy.
    pub(crate) address: String,
    /// Certificate of the proxy in PEM.
    pub(crate) certificate: String,
}

type AnyStream = Box<dyn Stream>;

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

impl KafkaProxy {
    /// Starts a proxy to the broker at `broker`.
    pub(crate) async fn start(broker: String, additions: Additions) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap();
        let config = config.with_single_cert(vec![certificate.der().clone()], key).unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (acceptor, broker, additions) = (acceptor.clone(), broker.clone(), additions.clone());
                tokio::spawn(async move {
                    let client: AnyStream = match additions.tls {
                        true => match acceptor.accept(client).await {
                            Ok(client) => Box::new(client),
                            Err(_) => return,
                        },
                        false => Box::new(client),
                    };
                    let Ok(broker) = TcpStream::connect(broker).await else { return };
                    // The peer may close the connection at any time.
                    let _ = serve(client, broker, &additions).await;
                });
            }
        });
        Self { address, certificate: certificate.pem() }
    }
}

async fn serve(mut client: AnyStream, mut broker: TcpStream, additions: &Additions) -> Option<()> {
    if additions.sasl {
        identify(&mut client, &mut broker).await?;
    }
    let (mut from_client, mut to_client) = split(client);
    let (mut from_broker, mut to_broker) = broker.split();
    let requests = async {
        let _ = copy(&mut from_client, &mut to_broker).await;
    };
    let responses = async {
        match additions.replaced {
            None => drop(copy(&mut from_broker, &mut to_client).await),
            Some((sent, arrived)) => {
                while let Some(mut frame) = read_frame(&mut from_broker).await {
                    for at in 0..frame.len().saturating_sub(sent.len()) {
                        if frame[at..].starts_with(sent) {
                            frame[at..at + sent.len()].copy_from_slice(arrived);
                        }
                    }
                    if write_frame(&mut to_client, &frame).await.is_none() {
                        return;
                    }
                }
            }
        }
    };
    tokio::select! {
        () = requests => {}
        () = responses => {}
    }
    Some(())
}

async fn read_frame(stream: &mut (impl AsyncRead + Unpin)) -> Option<Vec<u8>> {
    let length = stream.read_u32().await.ok()?;
    let mut frame = vec![0; length as usize];
    stream.read_exact(&mut frame).await.ok()?;
    Some(frame)
}

async fn write_frame(stream: &mut (impl AsyncWrite + Unpin), frame: &[u8]) -> Option<()> {
    stream.write_u32(frame.len().try_into().unwrap()).await.ok()?;
    stream.write_all(frame).await.ok()?;
    stream.flush().await.ok()
}

/// Forwards requests until the client has identified itself with SaslHandshake and SaslAuthenticate (versions 0 and 1).
async fn identify(client: &mut AnyStream, broker: &mut TcpStream) -> Option<()> {
    let mut exchange = None;
    loop {
        let request = read_frame(client).await?;
        let key = u16::from_be_bytes(request[..2].try_into().unwrap());
        let version = u16::from_be_bytes(request[2..4].try_into().unwrap());
        let name = usize::from(u16::from_be_bytes(request[8..10].try_into().unwrap()));
        let body = request.get(10 + name..).unwrap_or_default();
        let mut response = request[4..8].to_vec();
        match key {
            // ApiVersions
            18 => {
                write_frame(broker, &request).await?;
                response = read_frame(broker).await?;
            }
            // SaslHandshake
            17 => {
                let mechanism = String::from_utf8(body[2..].to_vec()).unwrap();
                let names = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"];
                exchange = Some(Exchange { mechanism, server_first: None });
                response.extend([0, 0, 0, 0, 0, 3]);
                for name in names {
                    response.extend(u16::try_from(name.len()).unwrap().to_be_bytes());
                    response.extend(name.as_bytes());
                }
            }
            // SaslAuthenticate
            36 => {
                // Version 2 has a tagged field in each header, and compact lengths.
                let is_compact = version >= 2;
                let message = if is_compact { compact(&body[1..]) } else { &body[4..] };
                let step = exchange.as_mut()?.step(message);
                let is_done = step.as_ref().is_none_or(|(_, is_done)| *is_done);
                let is_refused = step.is_none();
                let answer = step.map(|(answer, _)| answer).unwrap_or_default();
                response.extend(vec![0; usize::from(is_compact)]);
                // SASL_AUTHENTICATION_FAILED
                response.extend([0, if is_refused { 58 } else { 0 }]);
                response.extend(if is_compact { &[0][..] } else { &[0xff, 0xff] });
                if is_compact {
                    let length = answer.len() + 1;
                    assert!(length < 1 << 14);
                    response.push(u8::try_from(length & 0x7f).unwrap() | if length > 0x7f { 0x80 } else { 0 });
                    response.extend((length > 0x7f).then(|| u8::try_from(length >> 7).unwrap()));
                } else {
                    response.extend(u32::try_from(answer.len()).unwrap().to_be_bytes());
                }
                response.extend(answer);
                response.extend(vec![0; if version >= 1 { 8 } else { 0 } + usize::from(is_compact)]);
                if is_done {
                    write_frame(client, &response).await?;
                    return (!is_refused).then_some(());
                }
            }
            _ => return None,
        }
        write_frame(client, &response).await?;
    }
}

/// Returns the octets after a compact length.
fn compact(octets: &[u8]) -> &[u8] {
    let (first, rest) = octets.split_first().unwrap();
    let (length, rest) = match first {
        0..=0x7f => (usize::from(*first), rest),
        _ => (usize::from(first & 0x7f) | usize::from(rest[0]) << 7, &rest[1..]),
    };
    &rest[..length - 1]
}

/// Server side of a mechanism.
struct Exchange {
    mechanism: String,
    /// The messages of SCRAM up to the server's first one, and the nonce.
    server_first: Option<(String, String)>,
}

const SALT: &[u8] = b"salt of the tests";
const ITERATIONS: u32 = 4096;

impl Exchange {
    /// Returns the answer to a message and whether the client has proved its password; `None` if the client is refused.
    fn step(&mut self, message: &[u8]) -> Option<(Vec<u8>, bool)> {
        if self.mechanism == "PLAIN" {
            let expected = format!("\0{USER}\0{PASSWORD}");
            return (message == expected.as_bytes()).then(|| (Vec::new(), true));
        }
        let message = std::str::from_utf8(message).unwrap();
        let part = |text: &str, name: &str| {
            let found = text.split(',').find_map(|part| part.strip_prefix(name).map(str::to_owned));
            found.unwrap()
        };
        let Some((before, nonce)) = self.server_first.take() else {
            let bare = message.splitn(3, ',').nth(2).unwrap();
            if part(bare, "n=") != USER {
                return None;
            }
            let nonce = format!("{}server", part(bare, "r="));
            let first = format!("r={nonce},s={},i={ITERATIONS}", STANDARD.encode(SALT));
            self.server_first = Some((format!("{bare},{first}"), nonce));
            return Some((first.into_bytes(), false));
        };
        assert_eq!(part(message, "r="), nonce);
        let (without_proof, proof) = message.rsplit_once(",p=").unwrap();
        let auth_message = format!("{before},{without_proof}");
        let salted = self.salted_password();
        let client_key = self.hmac(&salted, b"Client Key");
        let signature = self.hmac(&self.hash(&client_key), auth_message.as_bytes());
        let expected: Vec<u8> = client_key.iter().zip(signature).map(|(key, signature)| key ^ signature).collect();
        if STANDARD.decode(proof).unwrap() != expected {
            return None;
        }
        let server = self.hmac(&self.hmac(&salted, b"Server Key"), auth_message.as_bytes());
        Some((format!("v={}", STANDARD.encode(server)).into_bytes(), true))
    }

    fn salted_password(&self) -> Vec<u8> {
        let mut last = self.hmac(PASSWORD.as_bytes(), &[SALT, &[0, 0, 0, 1]].concat());
        let mut salted = last.clone();
        for _ in 1..ITERATIONS {
            last = self.hmac(PASSWORD.as_bytes(), &last);
            salted.iter_mut().zip(&last).for_each(|(octet, other)| *octet ^= other);
        }
        salted
    }

    fn hmac(&self, key: &[u8], text: &[u8]) -> Vec<u8> {
        if self.mechanism.ends_with("256") {
            Hmac::<Sha256>::new_from_slice(key).unwrap().chain_update(text).finalize().into_bytes().to_vec()
        } else {
            Hmac::<Sha512>::new_from_slice(key).unwrap().chain_update(text).finalize().into_bytes().to_vec()
        }
    }

    fn hash(&self, text: &[u8]) -> Vec<u8> {
        if self.mechanism.ends_with("256") { Sha256::digest(text).to_vec() } else { Sha512::digest(text).to_vec() }
    }
}
