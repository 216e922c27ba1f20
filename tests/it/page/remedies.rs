//! What the page shows of each problem: its sentence, its mark, and what mends it. The tests of `status` make each problem
//! by its real cause, and read it off the page until its cause ends.

use serde_json::json;
use tidings::{
    admin::status::problem::{Level, ProblemKind, StatusProblem, Thing},
    model::Timestamp,
};

use super::OpenPage;

/// Returns the names of the buttons and links that the page shows with a problem, in their order. NAME stands for the name of
/// the thing. `state` is that of the subscription, if the thing is one.
fn remedies(kind: ProblemKind, state: &str) -> &'static [&'static str] {
    match kind {
        ProblemKind::JournalUnavailable
        | ProblemKind::DiskNearlyFull
        | ProblemKind::PublicationFails
        | ProblemKind::PublicationExposes
        | ProblemKind::DbusDisconnected => &["Details of the gateway"],
        ProblemKind::CertificateExpired | ProblemKind::CertificateExpires => {
            &["Read the configuration again", "Details of the gateway"]
        }
        ProblemKind::TokenExpired | ProblemKind::TokenExpires => &["Read the configuration again", "Details of NAME"],
        ProblemKind::NodeLost
        | ProblemKind::NodeLate
        | ProblemKind::DutyWithoutNode
        | ProblemKind::SourceSilent
        | ProblemKind::SourceWarning
        | ProblemKind::AuditDiffers
        | ProblemKind::LookupUnanswered
        | ProblemKind::LookupIncomplete
        | ProblemKind::LookupForeign => &["Details of NAME"],
        ProblemKind::SourceNotRead => &["Connect now NAME", "Details of NAME"],
        ProblemKind::HarvestFails | ProblemKind::HarvestOverdue => &["Run now NAME", "Details of NAME"],
        ProblemKind::CountDiffers => &["List all records NAME", "Details of NAME"],
        ProblemKind::DueDenied | ProblemKind::DatasetFails => &["Look at NAME", "Details of NAME"],
        ProblemKind::Quarantine => &["Read all again NAME", "Look at NAME", "Details of NAME"],
        ProblemKind::QuarantineFull => &["Look at quarantine", "Details of the gateway"],
        ProblemKind::SubscriptionFails => match state {
            "failed" => &["Details of NAME"],
            "fell-behind" => &["Rewind to the beginning NAME", "Skip to now NAME", "Details of NAME"],
            _ => &["Try now NAME", "Pause NAME", "Details of NAME"],
        },
        ProblemKind::SubscriptionEnded => &["Resume NAME", "Details of NAME"],
        ProblemKind::SubscriptionOrphaned => &["Delete NAME", "Details of NAME"],
        ProblemKind::DeadLetters => &["Send all again NAME", "Details of NAME"],
    }
}

/// Returns a problem by its code and its thing, as the interface has them.
fn problem(code: &str, thing: &str) -> StatusProblem {
    let kind = ProblemKind::ALL.into_iter().find(|kind| kind.name() == code).unwrap();
    let (class, name) = thing.split_once('/').unwrap_or((thing, ""));
    let name = name.to_owned();
    let thing = match class {
        "gateway" => Thing::Gateway,
        "source" => Thing::Source(name),
        "subscription" => Thing::Subscription(name),
        "token" => Thing::Token(name),
        "node" => Thing::Node(name),
        "duty" => Thing::Duty(name),
        _ => panic!("{class} is unknown"),
    };
    StatusProblem { kind, thing, facts: String::new(), since: Timestamp::EPOCH }
}

/// Returns the JavaScript expression of the problem in the verdict.
fn item(problem: &StatusProblem) -> String {
    let text = problem.text();
    let sentence = format!("{}{}", text[..1].to_uppercase(), &text[1..]);
    format!(
        "[...document.querySelectorAll('.verdict li')].find(item => `${{item.querySelector('strong').textContent}}: `.startsWith({}))",
        json!(format!("{sentence}: "))
    )
}

impl OpenPage {
    /// Waits until the verdict has a problem, with its mark and with what mends it. `state` is that of the subscription, if the
    /// thing is one.
    pub(crate) fn until_problem(&mut self, code: &str, thing: &str, state: &str) {
        let problem = problem(code, thing);
        let mark = if problem.kind.level() == Level::Error { "✗" } else { "▲" };
        let name = thing.split_once('/').map_or("", |(_, name)| name);
        let names = remedies(problem.kind, state).iter().map(|label| label.replace("NAME", name));
        let expected: Vec<_> = std::iter::once(mark.to_owned()).chain(names).collect();
        let shown = format!(
            "(item => item && [item.textContent[0], ...[...item.querySelectorAll('[aria-label]')].map(one => one.ariaLabel)])({})",
            item(&problem)
        );
        self.browser.until(&shown, &json!(expected));
    }

    /// Waits until the verdict, which has the problems only in the overview, does not have this one.
    pub(crate) fn until_no_problem(&mut self, code: &str, thing: &str) {
        let gone = format!("!!document.querySelector('.verdict:not(.short)') && !{}", item(&problem(code, thing)));
        self.browser.until(&gone, &json!(true));
    }
}
