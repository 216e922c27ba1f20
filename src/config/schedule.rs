//! Settings that several kinds of harvest have: the place, the schedule, and the size of a page.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use super::{
    certificate::ca_certificate,
    error::ConfigErrors,
    secret,
    value::{RunHours, Time},
};
use crate::{
    harvest::{Hours, Mode, Schedule},
    http_client::{OutboundPolicy, OutboundUrl},
    settings::{Choice, Choose, Setting, SettingErrors, Table, Whole, settings},
};

/// Maximum size of a page, in bytes, 1 MiB to 1 GiB.
pub(super) type PageBytes = Whole<usize, 1_048_576, 1_073_741_824>;

/// Share in percent of the records that one run may delete.
pub(super) type Percent = Whole<u64, 0, 100>;

/// Default of [`Percent`].
pub(super) const MAX_DELETED_PERCENT: u64 = 10;

impl Choose for Mode {
    const WHAT: &'static str = "mode";
}

settings! {
    /// When runs begin.
    pub(super) struct ScheduleTable {
        /// "periodic", or "once": one complete run, and more only on request. Default: "periodic".
        mode: Choice<Mode> = Mode::Periodic,
        /// Time from the start of a run to the start of the next one. Default: "1h".
        every: Time = Duration::from_secs(60 * 60),
        /// Largest random part that is added to `every`. Default: a tenth of `every`.
        jitter: Option<Time>,
        /// Hours in which runs begin, in UTC: "22:00-06:00", "mon-fri 20:00-24:00" or "sat,sun 00:00-24:00".
        /// Runs on request begin at once, and a run in progress continues. Default: all.
        hours: RunHours = Hours::default(),
        /// Time since the end of the last complete run after which the harvest is overdue, which `/readyz` and
        /// `tidings status` then show. Default: 48 hours more than `every`.
        overdue_after: Option<Time>,
    }
}

/// Reads the schedule from the table of a source.
pub(super) fn schedule(table: &Setting) -> Result<Schedule, SettingErrors> {
    let ScheduleTable { mode, every, jitter, hours, overdue_after } = ScheduleTable::read_part(table)?;
    let default = Schedule::new(mode, every, jitter.unwrap_or(every / 10));
    Ok(Schedule { hours, overdue_after: overdue_after.unwrap_or(default.overdue_after), ..default })
}

/// Place that is harvested.
pub(super) struct Place {
    pub(super) url: OutboundUrl,
    pub(super) ca: Option<PathBuf>,
}

/// Resolves `url` and `ca` of a source.
pub(super) fn place(
    url: &Setting,
    ca: Option<String>,
    table: &Setting,
    environment: &[(OsString, OsString)],
) -> Result<Place, ConfigErrors> {
    let text = secret::text(url, environment)?;
    // The URL comes from the operator's configuration, so it may point to an internal host.
    let parsed = OutboundUrl::parse(&text, &OutboundPolicy::unrestricted());
    let parsed = parsed.map_err(|error| url.invalid(error.to_string()))?;
    let ca = ca_certificate(ca, parsed.expose().scheme() == "https", "https", table)?;
    Ok(Place { url: parsed, ca })
}
