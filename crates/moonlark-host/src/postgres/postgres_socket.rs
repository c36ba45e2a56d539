//! A socket to a PostgreSQL server, encrypted as asked, whose messages have a limit.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, ready};

use moonlark_core::grant::AllowedServer;
use moonlark_core::{Problem, Result};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::connection_target::{PostgresTlsMode, display_server};
use crate::dns_lookup::{NoAddressError, lookup_reachable};

/// Both ways, whatever carries it.
pub(super) trait AsyncDuplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> AsyncDuplex for T {}

pub(super) type PostgresStream = Box<dyn AsyncDuplex>;

pub(super) async fn connect_to_server(
    server: &AllowedServer,
    tls: PostgresTlsMode,
) -> Result<PostgresStream> {
    if server.host().starts_with('/') {
        let path = format!("{}/.s.PGSQL.{}", server.host(), server.port());
        let socket = tokio::net::UnixStream::connect(&path).await;
        return Ok(Box::new(socket.map_err(|error| unreachable_problem(server, &error))?));
    }
    let addresses = lookup_reachable(server.host(), server.port(), server.reach()).await;
    let addresses = addresses.map_err(|why| no_address_problem(server, why))?;
    let socket = TcpStream::connect(&*addresses).await;
    let socket = socket.map_err(|error| unreachable_problem(server, &error))?;
    // Statements are short, and each waits for its answer.
    let _ = socket.set_nodelay(true);
    match tls {
        PostgresTlsMode::Never => Ok(Box::new(socket)),
        PostgresTlsMode::IfOffered | PostgresTlsMode::Always => {
            start_tls(server, tls, socket).await
        }
    }
}

/// Length and code of the message that asks for TLS.
const SSL_REQUEST_MESSAGE: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];

async fn start_tls(
    server: &AllowedServer,
    tls: PostgresTlsMode,
    mut socket: TcpStream,
) -> Result<PostgresStream> {
    let lost = |error: io::Error| unreachable_problem(server, &error);
    socket.write_all(&SSL_REQUEST_MESSAGE).await.map_err(lost)?;
    // One byte and no more: what follows is either encrypted or not trusted.
    if socket.read_u8().await.map_err(lost)? != b'S' {
        return match tls {
            PostgresTlsMode::Always => Err(Problem::unavailable(format!(
                "{} does not offer TLS, which the connection string requires",
                display_server(server)
            ))
            .with_retryable(false)
            .with_hint(
                "turn on TLS on the server, or write sslmode=disable if the way to it is safe",
            )),
            _ => Ok(Box::new(socket)),
        };
    }
    let config = match tls {
        PostgresTlsMode::Always => &*VERIFIED_TLS_CONFIG,
        _ => &*UNVERIFIED_TLS_CONFIG,
    };
    let config = config.as_ref().map_err(Clone::clone)?;
    let name = ServerName::try_from(server.host().to_owned()).map_err(|_| {
        Problem::bad_request(format!("{} is not a name that a certificate can have", server.host()))
    })?;
    let encrypted = TlsConnector::from(config.clone()).connect(name, socket).await;
    Ok(Box::new(encrypted.map_err(|error| untrusted_server_problem(server, &error))?))
}

fn no_address_problem(server: &AllowedServer, why: NoAddressError) -> Problem {
    let shown = display_server(server);
    match why {
        NoAddressError::Unknown(error) => unreachable_problem(server, &error),
        NoAddressError::Denied => Problem::denied(format!("{shown} may not be reached: {why}"))
            .with_hint(format!("add \"net:{shown}\" to allow for the script in moonlark.toml")),
        NoAddressError::Closed => Problem::denied(format!("{shown} may not be reached: {why}"))
            .with_hint("[network] in moonlark.toml closes it for all scripts"),
    }
}

fn unreachable_problem(server: &AllowedServer, error: &io::Error) -> Problem {
    let reason = match error.raw_os_error() {
        // Without the number that the system adds.
        Some(_) => error.kind().to_string(),
        None => error.to_string(),
    };
    Problem::unavailable(format!("cannot connect to {}: {reason}", display_server(server)))
}

fn untrusted_server_problem(server: &AllowedServer, error: &io::Error) -> Problem {
    let reason = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let certificate = matches!(
        reason,
        Some(rustls::Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::Other(_)
        ))
    );
    Problem::unavailable(format!("no secure connection to {}: {error}", display_server(server)))
        .with_retryable(false)
        .with_optional_hint(certificate.then(|| {
            "install the certificate's authority on this system, or name its file in SSL_CERT_FILE"
                .to_owned()
        }))
}

static VERIFIED_TLS_CONFIG: LazyLock<Result<Arc<ClientConfig>>> = LazyLock::new(|| {
    let provider = Arc::new(ring::default_provider());
    let verifier =
        rustls_platform_verifier::Verifier::new(provider.clone()).map_err(no_tls_problem)?;
    tls_client_config(provider, Arc::new(verifier))
});

static UNVERIFIED_TLS_CONFIG: LazyLock<Result<Arc<ClientConfig>>> = LazyLock::new(|| {
    let provider = Arc::new(ring::default_provider());
    tls_client_config(provider.clone(), Arc::new(AnyServerVerifier(provider)))
});

fn tls_client_config(
    provider: Arc<CryptoProvider>,
    verifier: Arc<dyn ServerCertVerifier>,
) -> Result<Arc<ClientConfig>> {
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().map_err(no_tls_problem)?;
    let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
    Ok(Arc::new(builder.with_no_client_auth()))
}

fn no_tls_problem(error: rustls::Error) -> Problem {
    Problem::unavailable(format!("secure connections cannot be made: {error}"))
        .with_retryable(false)
}

/// Takes any certificate: for encryption that is welcome but not demanded.
#[derive(Debug)]
struct AnyServerVerifier(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyServerVerifier {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// The largest message that a server may send. The client would hold it whole,
/// and a single value can have a gigabyte.
pub(super) struct MessageSizeLimit {
    limit: AtomicUsize,
    exceeded: AtomicBool,
}

impl MessageSizeLimit {
    pub(super) fn new(limit: usize) -> Arc<MessageSizeLimit> {
        Arc::new(MessageSizeLimit { limit: limit.into(), exceeded: false.into() })
    }

    pub(super) fn set_limit(&self, limit: usize) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    pub(super) fn is_exceeded(&self) -> bool {
        self.exceeded.load(Ordering::Relaxed)
    }
}

/// A stream of the server's messages that ends before one that is too large:
/// each begins with a byte for its kind and four for its length.
pub(super) struct SizeLimitedStream {
    stream: PostgresStream,
    bound: Arc<MessageSizeLimit>,
    header: [u8; 5],
    filled: usize,
    /// What is left of the message after its header.
    rest: usize,
}

impl SizeLimitedStream {
    pub(super) fn new(stream: PostgresStream, bound: Arc<MessageSizeLimit>) -> SizeLimitedStream {
        SizeLimitedStream { stream, bound, header: [0; 5], filled: 0, rest: 0 }
    }

    fn track_messages(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            if self.rest > 0 {
                let skipped = self.rest.min(bytes.len());
                self.rest -= skipped;
                bytes = &bytes[skipped..];
                continue;
            }
            self.header[self.filled] = bytes[0];
            self.filled += 1;
            bytes = &bytes[1..];
            if self.filled == self.header.len() {
                self.filled = 0;
                let [_, length @ ..] = self.header;
                // The length counts itself.
                self.rest = (u32::from_be_bytes(length) as usize).saturating_sub(4);
                if self.rest > self.bound.limit.load(Ordering::Relaxed) {
                    self.bound.exceeded.store(true, Ordering::Relaxed);
                    return Err(io::Error::new(
                        io::ErrorKind::InvalidData,
                        "the message is too large",
                    ));
                }
            }
        }
        Ok(())
    }
}

impl AsyncRead for SizeLimitedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        let followed = self.track_messages(&buf.filled()[before..]);
        if followed.is_err() {
            // An error comes without bytes.
            buf.set_filled(before);
        }
        Poll::Ready(followed)
    }
}

impl AsyncWrite for SizeLimitedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a stream of `bytes`, arriving in pieces of `piece` bytes, comes to.
    async fn read(bytes: &[u8], piece: usize, limit: usize) -> io::Result<usize> {
        let (ours, mut theirs) = tokio::io::duplex(piece);
        let bytes = bytes.to_vec();
        tokio::spawn(async move { theirs.write_all(&bytes).await });
        let mut all = Vec::new();
        SizeLimitedStream::new(Box::new(ours), MessageSizeLimit::new(limit))
            .read_to_end(&mut all)
            .await
    }

    #[tokio::test]
    async fn a_message_over_the_limit_ends_the_stream() {
        let message = |size: usize| {
            let mut bytes = vec![b'D'];
            bytes.extend((size as u32 + 4).to_be_bytes());
            bytes.extend(std::iter::repeat_n(0, size));
            bytes
        };
        let several = [message(100), message(0), message(99)].concat();
        for piece in [1, 3, 5, 64, 1024] {
            assert_eq!(read(&several, piece, 100).await.unwrap(), several.len());
            assert!(read(&several, piece, 99).await.is_err());
        }
        assert!(read(b"D\xff\xff\xff\xff", 64, 1 << 20).await.is_err());
    }
}
