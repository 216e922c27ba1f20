//! `[oai_pmh]`: the registry as a repository with OAI-PMH.

use crate::{
    config::own_feed::Label,
    settings::{Choice, Choose, TextType, Whole, settings},
    view::oai_pmh::{DeletedRecords, OaiPmhSettings},
};

settings! {
    /// `[oai_pmh]`: the registry as a repository with OAI-PMH 2.0 at `/oai`.
    #[derive(Clone, Debug)]
    pub struct OwnOaiPmhConfig {
        /// Name of the repository, up to 200 characters.
        pub repository_name: Label,
        /// E-mail address of the administrator, which each response to Identify contains. Without it there is no repository.
        pub admin_email: Option<EmailAddress>,
        /// Records on a page, 1 to 1000.
        pub page: Whole<usize, 1, 1000>,
        /// Support for deleted records: "persistent" or "transient".
        pub deleted: Choice<DeletedRecords>,
        /// Requests that are served at the same time, 1 to 1000.
        pub requests: Whole<usize, 1, 1000>,
    }
}

impl OwnOaiPmhConfig {
    /// Returns the settings of the repository; `None` if there is none.
    #[must_use]
    pub fn settings(&self) -> Option<OaiPmhSettings> {
        Some(OaiPmhSettings {
            repository_name: self.repository_name.clone(),
            admin_email: self.admin_email.clone()?,
            page: self.page,
            deleted: self.deleted,
            requests: self.requests,
        })
    }
}

impl Choose for DeletedRecords {
    const WHAT: &'static str = "support for deleted records";
}

/// E-mail address in the form that the schema of the protocol requires.
pub struct EmailAddress;

impl TextType for EmailAddress {
    type Value = String;

    fn parse(text: &str) -> Result<String, String> {
        let text = text.trim();
        let is_address = text.split_once('@').is_some_and(|(user, host)| {
            let is_label = |label: &str| !label.is_empty() && !label.contains('@');
            !user.is_empty() && host.contains('.') && host.split('.').all(is_label)
        });
        if !is_address || text.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err("it is not an e-mail address as in admin@repository.example.org".to_owned());
        }
        Ok(text.to_owned())
    }
}
