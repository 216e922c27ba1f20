//! Xesam PMH: a target on D-Bus, with crawlers that are not ours on a private bus. `docs/xesam.md` lists the rules with
//! their tests.

mod administration;
mod blocking;
mod clients;
mod filters;
mod hostile;
mod install;
mod nodes;
mod order;
mod restarts;
mod system_bus;
