//! Xesam PMH: a target on D-Bus, with crawlers that are not ours on a private bus. `docs/xesam.md` lists the rules with
//! their tests.

mod blocking;
mod install;
mod order;
