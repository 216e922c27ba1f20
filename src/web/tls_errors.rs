//! Errors of TLS in plain words. The library's own words fit for programmers, and name the time of the check, so that each
//! attempt would be another failure.

use std::{error::Error, io};

use chrono::DateTime;
use rustls::{CertificateError, InvalidMessage};

/// Returns an error of TLS in plain words; `None` if the error is another one, or its own words are plain.
#[must_use]
pub fn plain_tls_error(error: &(dyn Error + 'static)) -> Option<String> {
    let mut error = error;
    // Each layer of a client can put the error into one of the operating system.
    while let Some(inner) = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        error = inner;
    }
    let text = match error.downcast_ref::<rustls::Error>()? {
        rustls::Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. }) => {
            let end = i64::try_from(not_after.as_secs()).ok().and_then(|end| DateTime::from_timestamp(end, 0));
            match end {
                Some(end) => format!("its certificate expired on {}", end.format("%F")),
                None => "its certificate has expired".to_owned(),
            }
        }
        rustls::Error::InvalidCertificate(CertificateError::Expired) => "its certificate has expired".to_owned(),
        rustls::Error::InvalidCertificate(CertificateError::NotValidYetContext { not_before, .. }) => {
            let begin =
                i64::try_from(not_before.as_secs()).ok().and_then(|begin| DateTime::from_timestamp(begin, 0))?;
            format!("its certificate begins on {}; is the clock of this machine right?", begin.format("%F"))
        }
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "its certificate is not signed by a trusted authority".to_owned()
        }
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "the server does not speak TLS at this port".to_owned()
        }
        // The library has no value of its own for this one.
        rustls::Error::InvalidCertificate(other) if format!("{other:?}").contains("CaUsedAsEndEntity") => {
            // Not even as a trusted one.
            "its certificate is that of a CA; make one for the server: a self-signed one needs basicConstraints=CA:FALSE"
                .to_owned()
        }
        _ => return None,
    };
    Some(text)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustls::pki_types::UnixTime;

    use super::{CertificateError, InvalidMessage, io, plain_tls_error};

    fn plain(error: rustls::Error) -> Option<String> {
        let error = io::Error::new(io::ErrorKind::InvalidData, error);
        let text = plain_tls_error(&error);
        assert_eq!(plain_tls_error(&io::Error::other(error)), text, "an outer layer does not matter");
        text
    }

    #[test]
    fn same_failure_has_the_same_words_at_each_attempt() {
        let expired = |checked| {
            let at = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
            let (time, not_after) = (at(checked), at(1_580_428_800));
            plain(rustls::Error::InvalidCertificate(CertificateError::ExpiredContext { time, not_after }))
        };
        assert_eq!(expired(1_795_641_341).as_deref(), Some("its certificate expired on 2020-01-31"));
        assert_eq!(expired(1_795_641_341), expired(1_795_641_400));
    }

    #[test]
    fn other_errors_keep_their_words() {
        let no_tls = plain(rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType));
        assert_eq!(no_tls.as_deref(), Some("the server does not speak TLS at this port"));
        assert_eq!(plain(rustls::Error::HandshakeNotComplete), None);
        assert_eq!(plain_tls_error(&io::Error::other("reset")), None);
    }
}
