//! Encrypted connections: `sslmode` as PostgreSQL's own programs understand it.

use std::fs::File;
use std::io::{BufReader, Read};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::address::{PostgresAddress, TlsMode};

/// How much of a file of certificates is read.
const LARGEST_CERTIFICATES: u64 = 16 << 20;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Makes what encrypts the connections to an address.
pub(super) fn connector(address: &PostgresAddress) -> Result<MakeRustlsConnect, Failure> {
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
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

/// Returns what checks a server's certificate and name against the authorities that are trusted.
fn verifier(
    address: &PostgresAddress,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<WebPkiServerVerifier>, Failure> {
    let mut roots = RootCertStore::empty();
    match address.root_certificates.as_deref() {
        None | Some("system") => {
            // Some of a system's certificates may be unreadable; what counts is whether there are any.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        Some(path) => {
            let unusable = |error: &dyn std::fmt::Display| {
                format!("the root certificates `{path}` (sslrootcert) cannot be read: {error}")
            };
            let file = File::open(path).map_err(|error| unusable(&error))?;
            let mut reader = BufReader::new(file.take(LARGEST_CERTIFICATES));
            for certificate in CertificateDer::pem_reader_iter(&mut reader) {
                roots.add(certificate.map_err(|error| unusable(&error))?)?;
            }
        }
    }
    if roots.is_empty() {
        let place = address.root_certificates.as_deref().unwrap_or("system");
        return Err(format!("there is no root certificate in `{place}` (sslrootcert)").into());
    }
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

/// Takes a server that a trusted authority vouches for, under whatever name.
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
