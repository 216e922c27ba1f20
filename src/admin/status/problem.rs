//! A problem of the gateway: its code, its level, and what people read about it. `docs/status.md` has the list; a test
//! compares the two.

use std::fmt;

use serde::Serialize;
use utoipa::ToSchema;

use crate::model::Timestamp;

named_values! {
    /// Code of a problem.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
    #[serde(rename_all = "kebab-case")]
    #[schema(as = StatusProblemCode)]
    pub enum ProblemKind {
        /// The journal cannot be read or written.
        JournalUnavailable = "journal-unavailable",
        /// The disk of the journal, or of the file store, has little room.
        DiskNearlyFull = "disk-nearly-full",
        /// A source does not read its broker.
        SourceNotRead = "source-not-read",
        /// A source has made no change for longer than usual, or than configured.
        SourceSilent = "source-silent",
        /// A source reads its broker, with a warning, for example because it may lose messages.
        SourceWarning = "source-warning",
        /// A repository fails during a harvest, or the last run has failed.
        HarvestFails = "harvest-fails",
        /// No run of a harvest has been complete for too long.
        HarvestOverdue = "harvest-overdue",
        /// A repository announces another number of records than the journal has.
        CountDiffers = "count-differs",
        /// An audit has found differences between a repository and the registry.
        AuditDiffers = "audit-differs",
        /// A source has denied that an announced date had come.
        DueDenied = "due-denied",
        /// Datasets of a source cannot be archived, for a reason that a later attempt would meet too.
        DatasetFails = "dataset-fails",
        /// The repository of a source does not answer lookups.
        LookupUnanswered = "lookup-unanswered",
        /// Changes of a source lack facts that the repository has not told.
        LookupIncomplete = "lookup-incomplete",
        /// All objects of a source are outside of the repository that is asked.
        LookupForeign = "lookup-foreign",
        /// Messages of a source are in the quarantine.
        Quarantine = "quarantine",
        /// The quarantine is full, and has deleted messages.
        QuarantineFull = "quarantine-full",
        /// A subscription does not deliver.
        SubscriptionFails = "subscription-fails",
        /// A subscription was stopped by its receiver, or because the receiver failed for too long.
        SubscriptionEnded = "subscription-ended",
        /// A subscription is no longer defined.
        SubscriptionOrphaned = "subscription-orphaned",
        /// A receiver has refused messages for good.
        DeadLetters = "dead-letters",
        /// The published copy cannot be brought up to date.
        PublicationFails = "publication-fails",
        /// The published copy can still show what its view does not show any more.
        PublicationExposes = "publication-exposes",
        /// No node does something that one of them must do.
        DutyWithoutNode = "duty-without-node",
        /// A node has gone without leaving.
        NodeLost = "node-lost",
        /// A node does not know many changes yet.
        NodeLate = "node-late",
        /// The target on D-Bus has no connection.
        DbusDisconnected = "dbus-disconnected",
        /// The certificate of the gateway has expired.
        CertificateExpired = "certificate-expired",
        /// The certificate of the gateway expires soon.
        CertificateExpires = "certificate-expires",
        /// A token has expired.
        TokenExpired = "token-expired",
        /// A token expires soon.
        TokenExpires = "token-expires",
    }
}

named_values! {
    /// Level of a problem.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema)]
    #[serde(rename_all = "lowercase")]
    #[schema(as = StatusProblemLevel)]
    pub enum Level {
        /// Something does not work. The gateway is degraded.
        Error = "error",
        /// Somebody should look, before something does not work or because something was left aside.
        Warning = "warning",
    }
}

/// Thing that has a problem.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Thing {
    /// The gateway itself.
    Gateway,
    /// A source.
    Source(String),
    /// A subscription.
    Subscription(String),
    /// A token.
    Token(String),
    /// A node.
    Node(String),
    /// A duty, such as `source/sfm`.
    Duty(String),
}

/// A present problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusProblem {
    /// Code.
    pub kind: ProblemKind,
    /// The thing that has it.
    pub thing: Thing,
    /// Details, such as the error of a broker. They follow the text after a colon.
    pub facts: String,
    /// Time at which this node has noticed it.
    pub since: Timestamp,
}

impl ProblemKind {
    /// Returns the level.
    #[must_use]
    pub fn level(self) -> Level {
        match self {
            Self::JournalUnavailable
            | Self::SourceNotRead
            | Self::HarvestFails
            | Self::HarvestOverdue
            | Self::LookupUnanswered
            | Self::QuarantineFull
            | Self::SubscriptionFails
            | Self::PublicationFails
            | Self::PublicationExposes
            | Self::DutyWithoutNode
            | Self::DbusDisconnected
            | Self::CertificateExpired => Level::Error,
            Self::DiskNearlyFull
            | Self::SourceSilent
            | Self::SourceWarning
            | Self::CountDiffers
            | Self::AuditDiffers
            | Self::DueDenied
            | Self::DatasetFails
            | Self::LookupIncomplete
            | Self::LookupForeign
            | Self::Quarantine
            | Self::SubscriptionEnded
            | Self::SubscriptionOrphaned
            | Self::DeadLetters
            | Self::NodeLost
            | Self::NodeLate
            | Self::CertificateExpires
            | Self::TokenExpired
            | Self::TokenExpires => Level::Warning,
        }
    }

    /// Returns the description of the problem. The text continues the name of the thing.
    #[must_use]
    pub fn trouble(self) -> &'static str {
        match self {
            Self::JournalUnavailable => "cannot read or write the journal",
            Self::DiskNearlyFull => "has little room on a disk",
            Self::SourceNotRead => "is not read",
            Self::SourceSilent => "has made no change for longer than usual",
            Self::SourceWarning => "is read with a warning",
            Self::HarvestFails => "cannot be harvested",
            Self::HarvestOverdue => "has not been harvested completely for too long",
            Self::CountDiffers => "announces another number of records than the journal has",
            Self::AuditDiffers => "differs from its repository",
            Self::DueDenied => "says another date for items whose announced date had come",
            Self::DatasetFails => "has datasets that cannot be archived",
            Self::LookupUnanswered => "gets no answers from its repository",
            Self::LookupIncomplete => "has changes that lack facts from its repository",
            Self::LookupForeign => "looks nothing up, because no object is in the repository that is asked",
            Self::Quarantine => "has messages in the quarantine",
            Self::QuarantineFull => "has deleted messages that nobody has read, because the quarantine is full",
            Self::SubscriptionFails => "does not deliver",
            Self::SubscriptionEnded => "has ended",
            Self::SubscriptionOrphaned => "is no longer in the configuration",
            Self::DeadLetters => "has messages that its receiver refuses",
            Self::PublicationFails => "cannot bring its published copy up to date",
            Self::PublicationExposes => {
                "cannot write its published copy, which may still show more than publish.view allows"
            }
            Self::DutyWithoutNode => "is done by no node",
            Self::NodeLost => "has gone without leaving",
            Self::NodeLate => "is far behind the journal",
            Self::DbusDisconnected => "has no connection to the message bus",
            Self::CertificateExpired => "has a certificate that has expired",
            Self::CertificateExpires => "has a certificate that expires soon",
            Self::TokenExpired => "has expired",
            Self::TokenExpires => "expires soon",
        }
    }

    /// Returns the remedy, as a sentence without its full stop. NAME stands for the name of the thing.
    #[must_use]
    pub fn action(self) -> &'static str {
        match self {
            Self::JournalUnavailable => {
                "make room on the disk, or bring the database back; the gateway continues by itself"
            }
            Self::DiskNearlyFull => {
                "make room; journal.keep_days and journal.keep_changes limit the journal, and `tidings files gc` removes files that no item has"
            }
            Self::SourceNotRead => {
                "start the broker, or correct the settings of the source; the gateway tries again by itself"
            }
            Self::SourceSilent => {
                "see whether the sender still runs and sends to this gateway; silent_after of the source says when it is silent"
            }
            Self::SourceWarning => "change the broker or the settings of the source as the warning says",
            Self::HarvestFails => {
                "ask the repository by its URL with curl; `tidings harvests history NAME` has the runs"
            }
            Self::HarvestOverdue => "see why the last runs failed with `tidings harvests history NAME`",
            Self::CountDiffers => {
                "compare with `tidings harvests history NAME`, and list all records with `tidings harvests run NAME --full`"
            }
            Self::AuditDiffers => {
                "see the differences with `tidings audit --source NAME`, and correct the registry with `tidings audit --source NAME --repair`"
            }
            Self::DueDenied => {
                "the items were public for a time, so tell readers if that matters; let the source announce another date before the first one comes"
            }
            Self::DatasetFails => {
                "read the reasons in GET /filesets?state=failed and ?state=blocked, and try a dataset with `tidings ingest`; then request it again, or cancel its job with DELETE /filesets/ID"
            }
            Self::LookupUnanswered => {
                "start the repository, or correct repository.url of the source; what is missing is added later"
            }
            Self::LookupIncomplete => {
                "see why the repository does not answer about these objects; the gateway asks again by itself"
            }
            Self::LookupForeign => "add the URL that the messages use to repository.public_urls of the source",
            Self::Quarantine => {
                "read the reasons with `tidings quarantine list --source NAME`, correct the sender or the settings, and give `tidings quarantine retry --source NAME`"
            }
            Self::QuarantineFull => {
                "correct the senders or the settings, and give `tidings quarantine retry` or `tidings quarantine drop`; limits.quarantine_entries and limits.quarantine_bytes limit it"
            }
            Self::SubscriptionFails => "mend the receiver, or change the subscription; no change is lost meanwhile",
            Self::SubscriptionEnded => "delete the subscription, or resume it when the receiver wants messages again",
            Self::SubscriptionOrphaned => {
                "delete it with `tidings subscriptions delete NAME`, or put it into the configuration again"
            }
            Self::DeadLetters => "read the reasons in GET /subscriptions/NAME/dead-letters, and replay or delete them",
            Self::PublicationFails => {
                "mend the cause, and see the result with `tidings publish`; readers find the former state meanwhile"
            }
            Self::PublicationExposes => {
                "stop serving the folder or the bucket until the gateway can write it; then `tidings publish` removes the former documents first"
            }
            Self::DutyWithoutNode => {
                "give the node whose turn it is what it lacks, such as an environment variable, or stop it; its own status and log say more"
            }
            Self::NodeLost => "start it again, or see why it does not reach the database; the other nodes do its work",
            Self::NodeLate => "see whether its machine or its connection to the database is too slow",
            Self::DbusDisconnected => "start the message bus, or correct dbus.bus; the gateway tries again by itself",
            Self::CertificateExpired | Self::CertificateExpires => {
                "replace the files of server.tls, and send SIGHUP to the gateway"
            }
            Self::TokenExpired | Self::TokenExpires => "make a new one with `tidings token`, or remove it",
        }
    }
}

impl fmt::Display for Thing {
    /// Writes the thing as an address of the interface has it, such as `source/sfm`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gateway => f.write_str("gateway"),
            Self::Source(name) => write!(f, "source/{name}"),
            Self::Subscription(name) => write!(f, "subscription/{name}"),
            Self::Token(name) => write!(f, "token/{name}"),
            Self::Node(name) => write!(f, "node/{name}"),
            Self::Duty(name) => write!(f, "duty/{name}"),
        }
    }
}

impl Thing {
    /// Returns the name; empty for the gateway.
    fn name(&self) -> &str {
        match self {
            Self::Gateway => "",
            Self::Source(name) | Self::Subscription(name) | Self::Token(name) | Self::Node(name) | Self::Duty(name) => {
                name
            }
        }
    }

    /// Returns the thing as the subject of a sentence.
    fn subject(&self) -> String {
        match self {
            Self::Gateway => "the gateway".to_owned(),
            Self::Source(name) => format!("the source {name}"),
            Self::Subscription(name) => format!("the subscription {name}"),
            Self::Token(name) => format!("the token {name}"),
            Self::Node(name) => format!("the node {name}"),
            Self::Duty(name) => format!("the duty {name}"),
        }
    }
}

impl StatusProblem {
    /// Returns what mends the problem, as a sentence without its full stop.
    #[must_use]
    pub fn action(&self) -> String {
        self.kind.action().replace("NAME", self.thing.name())
    }

    /// Returns the problem without facts, which can name hosts that only an administrator should know.
    #[must_use]
    pub fn without_facts(self) -> Self {
        Self { facts: String::new(), ..self }
    }

    /// Returns one sentence about the problem, without a full stop.
    #[must_use]
    pub fn text(&self) -> String {
        let (subject, trouble) = (self.thing.subject(), self.kind.trouble());
        if self.facts.is_empty() {
            format!("{subject} {trouble}")
        } else {
            format!("{subject} {trouble}: {}", self.facts)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ProblemKind, StatusProblem, Thing, Timestamp};

    #[test]
    fn documented_problems_match() {
        let page = include_str!("../../../docs/status.md");
        let documented: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
        let row = |kind: ProblemKind| {
            let (code, level) = (kind.name(), kind.level().name());
            format!("| `{code}` | {level} | {} | {} |", kind.trouble(), kind.action())
        };
        assert_eq!(documented, ProblemKind::ALL.map(row));
    }

    #[test]
    fn text_and_action_name_the_thing() {
        let problem = |kind, facts: &str| {
            let thing = Thing::Source("sfm".to_owned());
            StatusProblem { kind, thing, facts: facts.to_owned(), since: Timestamp::EPOCH }
        };
        let refused = problem(ProblemKind::SourceNotRead, "refused");
        assert_eq!(refused.text(), "the source sfm is not read: refused");
        assert_eq!(problem(ProblemKind::SourceNotRead, "").text(), "the source sfm is not read");
        let overdue = problem(ProblemKind::HarvestOverdue, "").action();
        assert_eq!(overdue, "see why the last runs failed with `tidings harvests history sfm`");
    }
}
