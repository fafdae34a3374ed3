//! Certificates for servers that encrypt.

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

/// Returns an authority, with a certificate and a key for a server of this name.
pub(crate) fn certificates(name: &str) -> (String, String, String) {
    let mut authority = CertificateParams::new([]).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    // What has the name of its issuer is taken for its own issuer.
    authority.distinguished_name.push(DnType::CommonName, "authority");
    let authority_key = KeyPair::generate().unwrap();
    let authority_certificate = authority.self_signed(&authority_key).unwrap();
    let issuer = Issuer::new(authority, authority_key);
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new([name.to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
    (authority_certificate.pem(), certificate.pem(), key.serialize_pem())
}
