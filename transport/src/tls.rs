//! TLS of the link's client side: whom it trusts, and how it says why it does not.
//!
//! Three ways to trust, and no way to trust everybody: the system's authorities, further ones from a file (`--ca`), or
//! exact keys (`--pin`). The provider is aws-lc-rs, named explicitly so that no process-wide default is needed.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, OtherError, SignatureScheme};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use rustls_platform_verifier::Verifier;
use sha2::{Digest as _, Sha256};

use crate::carrier::ConnectError;

/// Buffer between TCP and TLS. Without it, records are read in pieces of 4 KiB, one system call each.
pub const READ_BUFFER_BYTES: usize = 256 * 1024;

/// Plaintext that TLS takes at once: a batch of the link, so that it leaves in one system call.
pub(crate) const WRITE_BUFFER_BYTES: usize = 512 * 1024;

/// The only protocol on the link's connections: an upgrade to WebSocket needs HTTP/1.1.
pub const ALPN_HTTP11: &[u8] = b"http/1.1";

/// What a pin begins with.
const PIN_PREFIX: &str = "sha256:";

/// The fingerprint of a public key: SHA-256 of the certificate's SubjectPublicKeyInfo in DER.
///
/// It survives the renewal of a certificate with the same key. It is written `sha256:` and 64 hexadecimal digits;
/// base64, as `openssl … | base64` and RFC 7469 write it, is read as well.
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
pub struct Pin([u8; 32]);

/// Why a text is no [`Pin`].
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("a pin is sha256: followed by 64 hexadecimal digits or by 32 bytes in base64")]
pub struct InvalidPin;

impl Pin {
    /// The pin of the key in `certificate`.
    ///
    /// # Errors
    /// The certificate cannot be parsed.
    pub fn of(certificate: &CertificateDer<'_>) -> Result<Self, rustls::Error> {
        let key = ParsedCertificate::try_from(certificate)?.subject_public_key_info();
        Ok(Self(Sha256::digest(&key).into()))
    }
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PIN_PREFIX)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pin({self})")
    }
}

impl FromStr for Pin {
    type Err = InvalidPin;

    fn from_str(text: &str) -> Result<Self, InvalidPin> {
        let value = text.trim().strip_prefix(PIN_PREFIX).ok_or(InvalidPin)?;
        let bytes = if value.len() == 64 {
            value
                .as_bytes()
                .chunks(2)
                .map(|pair| {
                    let pair = std::str::from_utf8(pair)
                        .ok()
                        .filter(|pair| !pair.starts_with('+'))?;
                    u8::from_str_radix(pair, 16).ok()
                })
                .collect::<Option<Vec<u8>>>()
                .ok_or(InvalidPin)?
        } else {
            STANDARD
                .decode(value)
                .or_else(|_| URL_SAFE_NO_PAD.decode(value.trim_end_matches('=')))
                .map_err(|_| InvalidPin)?
        };
        bytes.try_into().map(Self).map_err(|_| InvalidPin)
    }
}

/// Whom to trust.
#[derive(Clone, Debug, Default)]
pub struct TlsOptions {
    /// Certificates in PEM that count as authorities beside the system's.
    pub ca_file: Option<PathBuf>,
    /// When there are any: exactly these keys are trusted, whoever signed them, under whatever name and date.
    pub pins: Vec<Pin>,
}

impl TlsOptions {
    /// The client's settings. Reads certificates from disk.
    ///
    /// # Errors
    /// [`ConnectError::Configuration`] when the file cannot be read or holds no certificate.
    pub fn client_config(&self) -> Result<Arc<ClientConfig>, ConnectError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let trust = Trust {
            authorities: self.authorities(&provider)?,
            pins: self.pins.clone(),
            provider: Arc::clone(&provider),
        };
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| ConnectError::Configuration(format!("cannot set up TLS: {error}")))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(trust))
            .with_no_client_auth();
        config.alpn_protocols = vec![ALPN_HTTP11.to_vec()];
        Ok(Arc::new(config))
    }

    /// `None` when neither the system nor the person names any authority: then only a pin can make trust.
    fn authorities(
        &self,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Option<Verifier>, ConnectError> {
        let Some(path) = &self.ca_file else {
            return Ok(Verifier::new(Arc::clone(provider)).ok());
        };
        let unusable = |problem: &dyn fmt::Display| {
            ConnectError::Configuration(format!(
                "cannot use the authorities in {}: {problem}; --ca takes a file with certificates in PEM form",
                path.display()
            ))
        };
        let roots = CertificateDer::pem_file_iter(path)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| unusable(&error))?;
        if roots.is_empty() {
            return Err(unusable(&"it holds no certificate"));
        }
        Verifier::new_with_extra_roots(roots, Arc::clone(provider))
            .map(Some)
            .map_err(|error| unusable(&error))
    }
}

/// Why a certificate was not trusted, and whose it was. Travels inside the `rustls::Error` of the handshake.
#[derive(Debug)]
pub(crate) struct Distrust {
    pub(crate) problem: String,
    pub(crate) pin: Pin,
}

impl fmt::Display for Distrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem)
    }
}

impl std::error::Error for Distrust {}

/// Finds the [`Distrust`] in the error of a handshake.
pub(crate) fn distrust(error: &std::io::Error) -> Option<&Distrust> {
    match error.get_ref()?.downcast_ref::<rustls::Error>()? {
        rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(inner))) => {
            inner.downcast_ref()
        }
        _ => None,
    }
}

/// Judges the server's certificate.
#[derive(Debug)]
struct Trust {
    authorities: Option<Verifier>,
    pins: Vec<Pin>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Trust {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let pin = Pin::of(end_entity)?;
        let problem = if !self.pins.is_empty() {
            if self.pins.contains(&pin) {
                return Ok(ServerCertVerified::assertion());
            }
            "its key is not the pinned one".to_owned()
        } else if let Some(authorities) = &self.authorities {
            match authorities.verify_server_cert(
                end_entity,
                intermediates,
                server_name,
                ocsp_response,
                now,
            ) {
                Ok(verified) => return Ok(verified),
                Err(rustls::Error::InvalidCertificate(error)) => in_words(&error),
                Err(error) => return Err(error),
            }
        } else {
            "this system has no certificate authorities (Debian: apt install ca-certificates)"
                .to_owned()
        };
        let distrust = OtherError(Arc::new(Distrust { problem, pin }));
        Err(rustls::Error::InvalidCertificate(CertificateError::Other(
            distrust,
        )))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            cert,
            dss,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            cert,
            dss,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

/// The common reasons in words for a person; the library's own for the rest.
fn in_words(error: &CertificateError) -> String {
    match error {
        CertificateError::UnknownIssuer => {
            "its issuer is unknown (self-signed, or a private authority)".to_owned()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "it has expired, or this machine's clock is wrong".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "it is not valid yet, or this machine's clock is wrong".to_owned()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "it was issued for another name".to_owned()
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_pin_is_read_in_hexadecimal_and_base64_and_written_in_hexadecimal() {
        let hex = format!("sha256:{}", "0fa5".repeat(16));
        let pin: Pin = hex.parse().expect("hexadecimal");
        assert_eq!(pin.to_string(), hex);
        let base64 = format!("sha256:{}", STANDARD.encode(pin.0));
        assert_eq!(base64.parse(), Ok(pin));
        for bad in [
            "",
            "sha256:",
            "sha1:00",
            "sha256:zz",
            &hex[..70],
            &hex.replace("0f", "+f"),
        ] {
            assert_eq!(bad.parse::<Pin>(), Err(InvalidPin), "{bad}");
        }
    }

    #[test]
    fn a_pin_is_that_of_the_key_and_not_of_the_certificate() {
        let key = rcgen::KeyPair::generate().expect("a key");
        let certificates = ["one.example", "two.example"].map(|name| {
            rcgen::CertificateParams::new([name.to_owned()])
                .and_then(|params| params.self_signed(&key))
                .expect("a certificate")
        });
        let pins = certificates.map(|certificate| Pin::of(certificate.der()).expect("parses"));
        assert_eq!(pins[0], pins[1]);
    }

    #[test]
    fn a_file_without_certificates_is_named() {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        let options = TlsOptions {
            ca_file: Some(file.path().to_owned()),
            pins: Vec::new(),
        };
        let error = options.client_config().expect_err("empty");
        assert!(error.is_configuration());
        assert!(
            error.to_string().contains("holds no certificate"),
            "{error}"
        );
        writeln!(
            file,
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"
        )
        .expect("writes");
        assert!(
            options
                .client_config()
                .expect_err("garbage")
                .is_configuration()
        );
        let missing = TlsOptions {
            ca_file: Some("/nonexistent/ca.pem".into()),
            pins: Vec::new(),
        };
        assert!(
            missing
                .client_config()
                .expect_err("missing")
                .to_string()
                .contains("/nonexistent/ca.pem")
        );
    }
}
