//! The list of transports, and which settings belong to which of them.

use utoipa::openapi::Schema;

use super::{amqp, download, feed, fileset, folder, gateway, http, oai_pmh, stomp, transport::TransportKind};
use crate::{
    settings::{Setting, SettingErrors, Text, ValueType, string_schema},
    suggestion::unknown_name,
};

/// All transports. A new transport needs a module with its settings, and an entry here.
pub(super) static TRANSPORTS: &[&TransportKind] = &[
    &http::HTTP,
    &amqp::AMQP,
    &stomp::STOMP,
    #[cfg(feature = "kafka")]
    &super::kafka::KAFKA,
    &oai_pmh::OAI_PMH,
    &feed::FEED,
    &folder::FOLDER,
    &download::DOWNLOAD,
    &gateway::GATEWAY,
    &fileset::FILESET,
];

/// The name of a transport.
pub(super) struct TransportName;

impl ValueType for TransportName {
    type Value = &'static TransportKind;

    fn read(setting: &Setting) -> Result<&'static TransportKind, SettingErrors> {
        let name = setting.read::<Text>()?;
        let known = || TRANSPORTS.iter().map(|kind| kind.name).collect::<Vec<_>>();
        let found = TRANSPORTS.iter().copied().find(|kind| kind.name == name);
        found.ok_or_else(|| setting.invalid(unknown_name("transport", &name, &known())).into())
    }

    fn schema() -> Schema {
        string_schema(&TRANSPORTS.iter().map(|kind| kind.name).collect::<Vec<_>>()).into()
    }
}

/// Refuses values of the wrong type and settings of other transports in the table of a source.
pub(super) fn check(own: &TransportKind, table: &Setting) -> Result<(), SettingErrors> {
    let mut errors = Vec::new();
    for (name, setting) in table.entries()?.into_iter().filter(|(_, setting)| setting.is_given()) {
        let others: Vec<_> = TRANSPORTS.iter().filter(|kind| kind.has(&name)).map(|kind| kind.name).collect();
        match own.keys().find(|key| key.name == name) {
            Some(key) => errors.extend((key.check)(&setting).err().into_iter().flat_map(|SettingErrors(wrong)| wrong)),
            None if others.is_empty() => {}
            None => {
                let (others, own) = (listed(&others), own.name);
                errors.push(setting.invalid(format!("it is a setting of {others}, but this source has {own:?}")));
            }
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(SettingErrors(errors)) }
}

/// Names transports in a sentence.
fn listed(names: &[&str]) -> String {
    let quoted: Vec<_> = names.iter().map(|name| format!("{name:?}")).collect();
    match quoted.split_last() {
        Some((last, [])) => format!("the transport {last}"),
        Some((last, others)) => format!("the transports {} and {last}", others.join(", ")),
        None => "another transport".to_owned(),
    }
}
