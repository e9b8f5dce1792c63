//! The server's side of TLS: certificate and key from files, or a key of our own that desktops pin.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use yonder_transport::tls::ALPN_HTTP11;

pub use yonder_transport::tls::Pin;

use crate::config::TlsMode;
use crate::state_dir::{StateDir, StateDirError};

/// Years that a certificate of our own is valid: it is trusted by its key alone, which has no end.
const SELF_SIGNED_YEARS: (i32, i32) = (2024, 2124);

/// Names in a certificate of our own. Whoever pins the key does not look at them.
const SELF_SIGNED_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// What the listener needs to speak TLS, and what others need to trust it.
#[derive(Clone, Debug)]
pub struct ServerTls {
    /// For the handshakes.
    pub config: Arc<ServerConfig>,
    /// Of the key that is presented.
    pub pin: Pin,
}

/// Why TLS cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerTlsError {
    /// A file could not be read as PEM.
    #[error("cannot read {what} from {}: {problem}", path.display())]
    File {
        /// `the certificate chain` or `the private key`.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// Certificate and key do not serve, alone or together.
    #[error("the certificate {} and its key cannot be used: {problem}", path.display())]
    Unusable {
        /// The certificate's file.
        path: PathBuf,
        /// What rustls says.
        problem: rustls::Error,
    },
    /// A key of our own could not be made.
    #[error("cannot make a key for --tls-self-signed")]
    Generate(#[from] rcgen::Error),
    /// A key of our own could not be kept.
    #[error(transparent)]
    State(#[from] StateDirError),
}

impl ServerTls {
    /// What `mode` asks for; `None` without TLS. A key of our own is made once and kept in `state`.
    ///
    /// # Errors
    /// If files cannot be read or do not fit together.
    pub fn open(mode: &TlsMode, state: &StateDir) -> Result<Option<Self>, ServerTlsError> {
        match mode {
            TlsMode::Off => Ok(None),
            TlsMode::Files { certificate, key } => Self::load(certificate, key).map(Some),
            TlsMode::SelfSigned => {
                make_self_signed(state)?;
                Self::load(&state.certificate(), &state.private_key()).map(Some)
            }
        }
    }

    fn load(certificate: &Path, key: &Path) -> Result<Self, ServerTlsError> {
        let chain = read_chain(certificate)?;
        let private = PrivateKeyDer::from_pem_slice(&read(key, "the private key")?)
            .map_err(|error| pem_error("the private key", key, &error))?;
        let unusable = |problem| ServerTlsError::Unusable {
            path: certificate.to_owned(),
            problem,
        };
        let leaf = chain.first().ok_or_else(|| no_certificate(certificate))?;
        let pin = Pin::of(leaf).map_err(unusable)?;
        let mut config =
            ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
                .with_safe_default_protocol_versions()
                .map_err(unusable)?
                .with_no_client_auth()
                .with_single_cert(chain, private)
                .map_err(unusable)?;
        config.alpn_protocols = vec![ALPN_HTTP11.to_vec()];
        Ok(Self {
            config: Arc::new(config),
            pin,
        })
    }
}

/// The pin of the key in the first certificate of the file `certificate`.
///
/// # Errors
/// If the file cannot be read or holds no certificate.
pub fn pin_of_file(certificate: &Path) -> Result<Pin, ServerTlsError> {
    let chain = read_chain(certificate)?;
    let leaf = chain.first().ok_or_else(|| no_certificate(certificate))?;
    Pin::of(leaf).map_err(|problem| ServerTlsError::Unusable {
        path: certificate.to_owned(),
        problem,
    })
}

fn read_chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, ServerTlsError> {
    CertificateDer::pem_slice_iter(&read(path, "the certificate chain")?)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| pem_error("the certificate chain", path, &error))
}

fn read(path: &Path, what: &'static str) -> Result<Vec<u8>, ServerTlsError> {
    fs::read(path).map_err(|error| ServerTlsError::File {
        what,
        path: path.to_owned(),
        problem: error.to_string(),
    })
}

fn pem_error(
    what: &'static str,
    path: &Path,
    error: &rustls_pki_types::pem::Error,
) -> ServerTlsError {
    use rustls_pki_types::pem::Error;
    let problem = match error {
        Error::NoItemsFound => "the file holds none in PEM form".to_owned(),
        other => other.to_string(),
    };
    ServerTlsError::File {
        what,
        path: path.to_owned(),
        problem,
    }
}

fn no_certificate(path: &Path) -> ServerTlsError {
    ServerTlsError::File {
        what: "the certificate chain",
        path: path.to_owned(),
        problem: "the file holds no certificate in PEM form".to_owned(),
    }
}

/// Makes key and certificate in `state` unless both are there.
///
/// The caller holds the state directory's lock, so no other server does the same.
fn make_self_signed(state: &StateDir) -> Result<(), ServerTlsError> {
    let (certificate, key) = (state.certificate(), state.private_key());
    let pair = match fs::read_to_string(&key) {
        Ok(text) if certificate.exists() => {
            KeyPair::from_pem(&text)?;
            return Ok(());
        }
        // The key is what desktops trust: a lost certificate is made anew around it.
        Ok(text) => KeyPair::from_pem(&text)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let pair = KeyPair::generate()?;
            state.write(&key, pair.serialize_pem().as_bytes())?;
            pair
        }
        Err(error) => {
            return Err(ServerTlsError::File {
                what: "the private key",
                path: key,
                problem: error.to_string(),
            });
        }
    };
    let mut params = CertificateParams::new(SELF_SIGNED_NAMES.map(str::to_owned))?;
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, "tunnel-server");
    params.distinguished_name = name;
    params.not_before = rcgen::date_time_ymd(SELF_SIGNED_YEARS.0, 1, 1);
    params.not_after = rcgen::date_time_ymd(SELF_SIGNED_YEARS.1, 1, 1);
    let signed = params.self_signed(&pair)?;
    state.write(&certificate, signed.pem().as_bytes())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> (tempfile::TempDir, StateDir) {
        let base = tempfile::tempdir().unwrap();
        let state = StateDir::locate(Some(base.path().join("yonder"))).unwrap();
        (base, state)
    }

    #[test]
    fn a_key_of_our_own_survives_restarts_and_a_lost_certificate() {
        let (_base, state) = state();
        let open = || {
            ServerTls::open(&TlsMode::SelfSigned, &state)
                .unwrap()
                .unwrap()
                .pin
        };
        let pin = open();
        assert_eq!(open(), pin);
        fs::remove_file(state.certificate()).unwrap();
        assert_eq!(open(), pin);
        assert_eq!(pin_of_file(&state.certificate()).unwrap(), pin);
    }

    #[test]
    fn unusable_files_are_named() {
        let (base, state) = state();
        ServerTls::open(&TlsMode::SelfSigned, &state).unwrap();
        let empty = base.path().join("empty.pem");
        fs::write(&empty, "").unwrap();
        for (certificate, key, words) in [
            (empty.clone(), state.private_key(), "the certificate chain"),
            (state.certificate(), empty.clone(), "the private key"),
            (
                base.path().join("none"),
                state.private_key(),
                "No such file",
            ),
        ] {
            let mode = TlsMode::Files { certificate, key };
            let error = ServerTls::open(&mode, &state).unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
        }
    }

    #[test]
    fn certificate_and_key_must_belong_together() {
        let (_base, first) = state();
        let (_other_base, second) = state();
        ServerTls::open(&TlsMode::SelfSigned, &first).unwrap();
        ServerTls::open(&TlsMode::SelfSigned, &second).unwrap();
        let mode = TlsMode::Files {
            certificate: first.certificate(),
            key: second.private_key(),
        };
        let error = ServerTls::open(&mode, &first).unwrap_err();
        assert!(matches!(error, ServerTlsError::Unusable { .. }), "{error}");
    }
}
