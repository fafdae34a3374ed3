//! The authorities that vouch for a server.

use std::fmt::Display;
use std::fs::File;
use std::io::{BufReader, Read};

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

/// The bytes of a certificate file that are read.
pub(crate) const LARGEST_CERTIFICATES: u64 = 16 << 20;

/// Reads the certificates to trust: those of a file, or the system's.
pub(crate) fn roots(file: Option<&str>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    match file {
        None => {
            // Some of a system's certificates may be unreadable; what counts is whether there are any.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        Some(path) => {
            let unusable = |error: &dyn Display| {
                format!("the root certificates `{path}` (sslrootcert) cannot be read: {error}")
            };
            let file = File::open(path).map_err(|error| unusable(&error))?;
            let mut reader = BufReader::new(file.take(LARGEST_CERTIFICATES));
            for certificate in CertificateDer::pem_reader_iter(&mut reader) {
                let certificate = certificate.map_err(|error| unusable(&error))?;
                roots.add(certificate).map_err(|error| unusable(&error))?;
            }
        }
    }
    if roots.is_empty() {
        return Err(format!("there is no root certificate in `{}` (sslrootcert)", file.unwrap_or("system")));
    }
    Ok(roots)
}
