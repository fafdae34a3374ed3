//! Connections: encrypted by `sslmode`, as in PostgreSQL's own programs, and bounded.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio_postgres::config::{Host, SslMode, SslNegotiation};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect};
use tokio_postgres::{Config, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::address::{PostgresAddress, TlsMode};
use super::frames::Messages;
use crate::server::{self, Bounded, Overflow};

/// The request for encryption, before the first message: its length, and a number that stands for it.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];

type Failure = Box<dyn std::error::Error + Send + Sync>;
type Encrypted = <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream;

/// Opens the streams of connections.
///
/// The driver calls this only for encrypted connections. So that every connection is bounded, the driver is
/// configured as if all were encrypted from the first byte, and `sslmode` is handled here. A Unix socket has no
/// encryption: the driver uses it directly.
#[derive(Clone)]
pub(super) struct Connector {
    tls: MakeRustlsConnect,
    mode: TlsMode,
    /// Whether the driver leaves the request for encryption to us.
    negotiates: bool,
    overflow: Overflow,
}

/// The stream of a connection.
pub(super) type Stream = Bounded<MaybeEncrypted, Messages>;

pub(super) enum MaybeEncrypted {
    Plain(Socket),
    Encrypted(Box<Encrypted>),
}

impl Connector {
    /// Creates the connector of an address.
    pub(super) fn new(address: &PostgresAddress, overflow: Overflow) -> Result<Self, Failure> {
        let tls = MakeRustlsConnect::new(client_config(address)?);
        Ok(Self { tls, mode: address.tls, negotiates: true, overflow })
    }

    /// Returns the connector for one host, and configures the driver to use it.
    pub(super) fn for_host(&self, config: &mut Config) -> Self {
        let negotiates = config.get_hosts().iter().all(|host| matches!(host, Host::Tcp(_)));
        if negotiates {
            config.ssl_mode(SslMode::Require).ssl_negotiation(SslNegotiation::Direct);
        }
        Self { negotiates, ..self.clone() }
    }
}

impl MakeTlsConnect<Socket> for Connector {
    type Stream = Stream;
    type TlsConnect = Connecting;
    type Error = Failure;

    fn make_tls_connect(&mut self, host: &str) -> Result<Connecting, Failure> {
        let tls = <MakeRustlsConnect as MakeTlsConnect<Socket>>::make_tls_connect(&mut self.tls, host)?;
        Ok(Connecting { tls, mode: self.mode, negotiates: self.negotiates, overflow: self.overflow.clone() })
    }
}

/// A connection in the making.
pub(super) struct Connecting {
    tls: <MakeRustlsConnect as MakeTlsConnect<Socket>>::TlsConnect,
    mode: TlsMode,
    negotiates: bool,
    overflow: Overflow,
}

impl Connecting {
    async fn stream(self, mut socket: Socket) -> Result<Stream, Failure> {
        let is_encrypted = match self.mode {
            _ if !self.negotiates => true,
            TlsMode::Disable => false,
            TlsMode::Prefer | TlsMode::Require | TlsMode::VerifyCa | TlsMode::VerifyFull => {
                socket.write_all(&SSL_REQUEST).await?;
                // One byte: data that a server, or an attacker in between, sends before the handshake is not trusted.
                socket.read_u8().await? == b'S'
            }
        };
        if !is_encrypted && !matches!(self.mode, TlsMode::Disable | TlsMode::Prefer) {
            return Err("the server does not encrypt connections (sslmode)".into());
        }
        let stream = if is_encrypted {
            MaybeEncrypted::Encrypted(Box::new(self.tls.connect(socket).await?))
        } else {
            MaybeEncrypted::Plain(socket)
        };
        Ok(Bounded::new(stream, Messages::default(), self.overflow))
    }
}

impl TlsConnect<Socket> for Connecting {
    type Stream = Stream;
    type Error = Failure;
    type Future = Pin<Box<dyn Future<Output = Result<Stream, Failure>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        Box::pin(self.stream(socket))
    }
}

impl tokio_postgres::tls::TlsStream for Stream {
    fn channel_binding(&self) -> ChannelBinding {
        match &self.stream {
            MaybeEncrypted::Plain(_) => ChannelBinding::none(),
            MaybeEncrypted::Encrypted(stream) => stream.channel_binding(),
        }
    }
}

impl AsyncRead for MaybeEncrypted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Encrypted(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for MaybeEncrypted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Encrypted(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Encrypted(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Encrypted(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

fn client_config(address: &PostgresAddress) -> Result<ClientConfig, Failure> {
    let provider = Arc::new(ring::default_provider());
    let has_roots = address.root_certificates.is_some();
    let verifier: Arc<dyn ServerCertVerifier> = match address.tls {
        TlsMode::VerifyFull => verifier(address, &provider)?,
        TlsMode::VerifyCa => Arc::new(AnyName(verifier(address, &provider)?)),
        // As in libpq, root certificates make these modes verify.
        TlsMode::Prefer | TlsMode::Require if has_roots => Arc::new(AnyName(verifier(address, &provider)?)),
        // Encrypted against eavesdroppers; any server is accepted.
        TlsMode::Disable | TlsMode::Prefer | TlsMode::Require => Arc::new(AnyServer(Arc::clone(&provider))),
    };
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth())
}

/// Returns what checks a server's certificate and name against the authorities that are trusted.
fn verifier(
    address: &PostgresAddress,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<WebPkiServerVerifier>, Failure> {
    let roots = server::roots(address.root_certificates.as_deref().filter(|file| *file != "system"))?;
    Ok(WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider)).build()?)
}

/// Takes every server that holds the key to the certificate that it shows.
#[derive(Debug)]
struct AnyServer(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Accepts a server that a trusted authority vouches for, under any name.
#[derive(Debug)]
struct AnyName(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self.0.verify_server_cert(certificate, intermediates, name, ocsp, now) {
            // The name is looked at last: everything else was right.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
