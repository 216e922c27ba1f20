//! A walk through a repository: everything that is there, a part at a time, in an order of its own, so that a walk that
//! was cut off goes on after the last part that was taken.
//!
//! It holds a bounded number of names, however large the repository is: of a list that has no order the smallest names
//! are picked that come after the place ([`smallest::Smallest`]), and the list is read again for the next ones.

mod asking;
mod fedora3;
mod ldp;
mod smallest;
mod triples;

use serde::{Deserialize, Serialize};

use self::asking::Asking;
pub use self::asking::Pace;
use super::{LookupError, Repository};
use crate::{format::RepositoryApi, model::CrawledObject};

/// How many objects, about, a part of a walk has: their requests are under way at once.
const AT_ONCE: usize = 50;

/// A walk through a repository.
pub struct Walk(Way);

enum Way {
    Fedora3(Box<fedora3::Way>),
    Ldp(Box<ldp::Way>),
}

/// A part of a walk.
#[derive(Debug, Default)]
pub struct Part {
    /// What was found.
    pub found: Vec<CrawledObject>,
    /// Where the walk goes on after it.
    pub place: String,
    /// What was left out, and why.
    pub left_out: Vec<LeftOut>,
    /// Whether there is nothing after it.
    pub done: bool,
}

/// What a walk left out.
#[derive(Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// What the repository calls it.
    pub name: String,
    /// Why.
    pub why: String,
}

/// How a walk goes.
#[derive(Clone, Debug)]
pub struct Manner {
    /// What the names of objects begin with, where that is not what the repository's settings say.
    pub base_url: Option<String>,
    /// How fast it asks.
    pub pace: Pace,
    /// How often a request is tried again.
    pub retries: u32,
    /// Whether what the repository fails to answer for is left out. Otherwise the walk ends there.
    pub leave_out_failing: bool,
    /// How many names are held, about; in a tree of containers a hundredth of it for each level at the least.
    pub names: usize,
}

impl Default for Manner {
    /// As fast as the repository answers, with 100 000 names.
    fn default() -> Self {
        Self { base_url: None, pace: Pace::default(), retries: 0, leave_out_failing: false, names: 100_000 }
    }
}

/// Why a walk does not go on.
#[derive(Debug, thiserror::Error)]
pub enum WalkError {
    /// The repository does not tell of something.
    #[error("{error} (asked for {path})")]
    Asked {
        /// What was asked for, below the repository's address.
        path: String,
        /// What went wrong.
        error: LookupError,
    },
    /// There is nothing at the repository's address.
    #[error("there is no repository at {0}; check the url of [sources.NAME.repository]")]
    NoRepository(String),
    /// The list of objects broke off every time.
    #[error("the list of objects breaks off each time: {0}")]
    List(String),
    /// The repository names what is in it otherwise than the configuration does.
    #[error(
        "the repository names what it holds otherwise ({0}); add what that begins with to public_urls of \
         [sources.NAME.repository]"
    )]
    Foreign(String),
    /// The names of objects cannot begin so.
    #[error("the base URL of its messages is wrong: {0}")]
    BaseUrl(String),
    /// Containers are nested too deep.
    #[error("containers are nested deeper than {0} levels at {1}")]
    TooDeep(usize, String),
    /// The place is none that such a walk has given.
    #[error("the walk was begun by another version, or through another kind of repository; begin anew with --restart")]
    Place,
}

/// Where a walk goes on, as it is written down.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Place {
    /// Through a list of objects: after this one.
    After(String),
    /// Through containers: each with the last of what it holds that was walked through as a whole.
    Within(Vec<(String, Option<String>)>),
}

impl Walk {
    /// A walk through that repository, from the place on that an earlier part of it gave, or from the beginning.
    ///
    /// # Errors
    /// When the place is none, or the base URL of the names is wrong.
    pub fn new(repository: Repository, manner: Manner, place: Option<&str>) -> Result<Self, WalkError> {
        // A walk that was cut off within its first part has no place yet.
        let place = place.filter(|place| !place.is_empty());
        let place = place.map(|place| serde_json::from_str(place).map_err(|_| WalkError::Place)).transpose()?;
        let settings = repository.settings();
        let named = settings.public_urls.first().unwrap_or(&settings.url).as_str();
        let base_url = manner.base_url.clone().unwrap_or_else(|| named.to_owned());
        let base_url = base_url.trim_end_matches('/').to_owned();
        let api = settings.api;
        let asking = Asking::new(repository, manner);
        Ok(Self(match (api, place) {
            (RepositoryApi::Fedora3, None) => Way::Fedora3(Box::new(fedora3::Way::new(asking, &base_url, None)?)),
            (RepositoryApi::Fedora3, Some(Place::After(pid))) => {
                Way::Fedora3(Box::new(fedora3::Way::new(asking, &base_url, Some(pid))?))
            }
            (RepositoryApi::Ldp, None) => Way::Ldp(Box::new(ldp::Way::new(asking, base_url, Vec::new()))),
            (RepositoryApi::Ldp, Some(Place::Within(path))) => {
                Way::Ldp(Box::new(ldp::Way::new(asking, base_url, path)))
            }
            (RepositoryApi::Fedora3, Some(Place::Within(_))) | (RepositoryApi::Ldp, Some(Place::After(_))) => {
                return Err(WalkError::Place);
            }
        }))
    }

    /// The next part. After one that is the last there is none.
    ///
    /// # Errors
    /// When the repository does not answer, or with what cannot be used. The walk can be taken up again where the part
    /// before ended.
    pub async fn next(&mut self) -> Result<Part, WalkError> {
        match &mut self.0 {
            Way::Fedora3(way) => way.next().await,
            Way::Ldp(way) => way.next().await,
        }
    }
}

impl Place {
    fn written(&self) -> String {
        // Texts in lists have a JSON shape.
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl WalkError {
    /// Whether the same may go well later, without anybody mending anything.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Asked { error, .. } if error.is_transient())
    }
}
