//! Documents of the simulated repository: records and their envelopes.

use chrono::{DateTime, SecondsFormat, Utc};

use super::repository::{Record, Row, SETS};

/// Databases of the repository, each at the same path with a query of its own.
pub(super) const DATABASES: [&str; 2] = ["maps", "prints"];

/// Number of forms of a record that mean the same.
pub(super) const FORMS: u32 = 4;

const NAMESPACES: &str = "xmlns:oai_dc=\"http://www.openarchives.org/OAI/2.0/oai_dc/\" \
                          xmlns:dc=\"http://purl.org/dc/elements/1.1/\"";

pub(super) fn identifier(record: u8) -> String {
    format!("oai:r.example.org:{record}")
}

pub(super) fn date(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Secs, true)
}

/// Way in which a response writes a record.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Form {
    /// Number of the database.
    pub(super) database: usize,
    /// Place of the namespaces and of `xsi:schemaLocation`, below [`FORMS`].
    pub(super) namespaces: u32,
}

/// Returns the header of a record.
pub(super) fn header(number: u8, record: &Record, row: &Row) -> String {
    let status = if row.is_live { "" } else { " status=\"deleted\"" };
    let sets: String = record
        .rows
        .iter()
        .filter(|(_, row)| row.is_live)
        .map(|(set, _)| format!("<setSpec>{}</setSpec>", SETS[*set]))
        .collect();
    format!(
        "<header{status}><identifier>{}</identifier><datestamp>{}</datestamp>{sets}</header>",
        identifier(number),
        date(row.date)
    )
}

/// Returns a record.
pub(super) fn xml(number: u8, record: &Record, row: &Row, form: Form) -> String {
    let metadata = match (row.is_live, row.is_double) {
        (false, _) => String::new(),
        (true, false) => metadata(number, record, form),
        (true, true) => metadata(number, record, form).replace("Straße", "Allee"),
    };
    format!("<record>{}{metadata}</record>", header(number, record, row))
}

fn metadata(number: u8, record: &Record, form: Form) -> String {
    let location = |scheme: &str| {
        format!(
            " xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\" xsi:schemaLocation=\"\
             http://www.openarchives.org/OAI/2.0/oai_dc/ {scheme}://www.openarchives.org/OAI/2.0/oai_dc.xsd\""
        )
    };
    let (outer, inner) = match form.namespaces {
        0 => (String::new(), NAMESPACES.to_owned()),
        1 => (format!(" {NAMESPACES}"), String::new()),
        2 => (String::new(), NAMESPACES.to_owned() + &location("http")),
        _ => (String::new(), NAMESPACES.to_owned() + &location("https")),
    };
    let second_root = if record.is_broken { "<more/>" } else { "" };
    format!(
        "<metadata{outer}><oai_dc:dc {inner}><dc:title>Straße {number}… {}</dc:title>\
         <dc:date>{}</dc:date></oai_dc:dc>{second_root}</metadata>",
        DATABASES[form.database], record.version
    )
}
