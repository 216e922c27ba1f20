//! What the gateway needs to send requests of its own over HTTP, and nothing of what they say: which addresses
//! they may go to ([`Guard`], [`Destination`]), and a client that goes nowhere else.
//!
//! An address is checked three times. When it is told, so that whoever tells it hears of a mistake. When a request
//! is sent, since one that has an IP address in it is never looked up. And when its name has been looked up:
//! the connection then goes to the addresses that were checked, and not to what a second look-up would say.

mod address;
mod allow;
mod client;
mod destination;
mod resolve;
mod status;
mod trust;

pub use allow::{AllowList, InvalidAllow};
pub use client::{Answer, Client, ClientError, Opened, Settings, trouble};
pub use destination::{Destination, Guard, InvalidDestination, NotAllowed};
pub use resolve::{Finding, Names, SystemNames};
pub use status::{is_transient, retry_after};
pub use trust::{UntrustedError, check_authority};
