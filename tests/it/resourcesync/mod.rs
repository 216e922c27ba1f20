//! The source with ResourceSync: a destination that follows the standard always ends with the registry.

mod clients;
mod documents;
mod histories;
mod losses;
mod nodes;
mod notifications;
