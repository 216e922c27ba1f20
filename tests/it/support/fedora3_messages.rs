//! Messages as Fedora 3 sends them, written by the rules of ATOM-APIM-1.0.

use std::fmt::Write;

/// Base URL of the repository in its messages.
pub(crate) const BASE: &str = "http://localhost:8080/fedora";

/// Call of API-M, with its message.
pub(crate) struct Call<'a> {
    /// Number that makes the message's identifier unique.
    pub(crate) number: u64,
    /// API-M method.
    pub(crate) method: &'a str,
    /// PID of the object.
    pub(crate) pid: &'a str,
    /// Parameters besides the pid.
    pub(crate) parameters: &'a [(&'a str, &'a str)],
    /// Return value of the call; `None` for its date.
    pub(crate) returned: Option<&'a str>,
}

/// Returns the date of a call.
pub(crate) fn date(number: u64) -> String {
    format!("2026-03-01T10:{:02}:{:02}.125Z", number / 60 % 60, number % 60)
}

impl Call<'_> {
    /// Returns the Atom entry.
    pub(crate) fn message(&self) -> String {
        let date = date(self.number);
        let returned = self.returned.unwrap_or(&date);
        let (id, method, pid) = (self.id(), self.method, self.pid);
        let mut categories = String::new();
        for (name, value) in [("pid", pid)].iter().chain(self.parameters) {
            let _ = write!(categories, r#"<category term="{value}" scheme="fedora-types:{name}" label="xsd:string"/>"#);
        }
        format!(
            r#"<entry xmlns="http://www.w3.org/2005/Atom"><id>{id}</id><updated>{date}</updated>
<author><name>fedoraAdmin</name><uri>{BASE}</uri></author><title type="text">{method}</title>{categories}
<summary type="text">{pid}</summary><content type="text">{returned}</content>
<category term="3.8.1" scheme="info:fedora/fedora-system:def/view#version"/>
<category term="info:fedora/fedora-system:ATOM-APIM-1.0" scheme="http://www.fedora.info/definitions/1/0/types/formatURI"/></entry>"#
        )
    }

    /// Returns the identifier of the message.
    pub(crate) fn id(&self) -> String {
        format!("urn:uuid:00000000-0000-4000-8000-{:012x}", self.number)
    }
}
