//! Behaviours of real repositories that the simulated one can have, and the settings of its harvest.

use proptest::prelude::*;

/// Value of `deletedRecord`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeletedRecord {
    Persistent,
    Transient,
    No,
}

/// The first set in the settings, of which the operator has written the name in capitals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Capitals {
    /// The settings have the name as it is.
    None,
    /// The repository does not care.
    Ignored,
    /// The repository has no such set.
    Unknown,
}

/// Compression of the responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compressed {
    No,
    /// If the request accepts it.
    Gzip,
    /// Whatever the request accepts.
    Deflate,
}

/// Use of cookies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cookies {
    None,
    /// A request without the cookie is redirected to itself.
    Check,
    /// The place in a list; without the cookie it begins anew.
    Place,
}

/// Behaviour of this repository, and the settings of its harvest.
#[derive(Clone, Debug)]
pub(crate) struct Behaviour {
    pub(super) deleted: DeletedRecord,
    /// Numbers of the sets that are harvested, in the order of the settings; none for the whole repository.
    pub(super) sets: Vec<usize>,
    /// Every run lists all records. Otherwise only a repository whose deletions are persistent is true to itself.
    pub(super) lists_everything: bool,
    /// Runs list all records because `full_every` has passed, and not on request.
    pub(super) is_full_by_time: bool,
    /// `ListIdentifiers` and `GetRecord` instead of `ListRecords`.
    pub(super) lists_identifiers: bool,
    /// A record that leaves a set becomes a tombstone in that set.
    pub(super) tombstones_in_sets: bool,
    /// Characters before each document.
    pub(super) before_documents: &'static str,
    /// The base URL has a query.
    pub(super) query: bool,
    /// Another database is at the same path with another query, and has records with the same identifiers.
    pub(super) has_two_databases: bool,
    /// Records with an even number are listed twice, with another title and this older datestamp, in minutes.
    pub(super) doubles: Option<i64>,
    /// A tombstone that is so many minutes older follows each record with an odd number.
    pub(super) stale_tombstones: Option<i64>,
    /// Each response has other metadata.
    pub(super) nonces: bool,
    /// Pages after the first one have records of all sets.
    pub(super) forgets_sets: bool,
    /// Each datestamp is the time of the request, and each list has all records.
    pub(super) is_dated_now: bool,
    /// `GetRecord` does not know the record with the number [`Behaviour::UNDELIVERED`].
    pub(super) has_undelivered: bool,
    /// Charset that responses declare until the end, although they are UTF-8.
    pub(super) declared_charset: &'static str,
    /// Namespaces are declared at one element or another, and `xsi:schemaLocation` changes.
    pub(super) moves_namespaces: bool,
    pub(super) capitals: Capitals,
    pub(super) compressed: Compressed,
    pub(super) cookies: Cookies,
}

/// Returns this value seldom, and the other one otherwise.
fn seldom<T: Clone + std::fmt::Debug + 'static>(often: T, seldom: T) -> BoxedStrategy<T> {
    prop_oneof![5 => Just(often), 1 => Just(seldom)].boxed()
}

impl Behaviour {
    /// Number of a record that `GetRecord` may not know.
    pub(super) const UNDELIVERED: u8 = 3;

    /// Returns the numbers of the sets whose records the harvest gets; `None` for all.
    pub(super) fn followed(&self) -> Option<&[usize]> {
        match (self.sets.as_slice(), self.capitals) {
            ([], _) => None,
            ([_, others @ ..], Capitals::Unknown) => Some(others),
            (sets, _) => Some(sets),
        }
    }

    /// Returns the random behaviours.
    pub(super) fn any() -> BoxedStrategy<Self> {
        let deleted =
            prop_oneof![Just(DeletedRecord::Persistent), Just(DeletedRecord::Transient), Just(DeletedRecord::No)];
        let sets = prop_oneof![
            Just(Vec::new()),
            Just(vec![0]),
            Just(vec![0, 1]),
            Just(vec![1, 0]),
            Just(vec![0, 1, 2]),
            Just(vec![2, 0, 1])
        ];
        let before = prop_oneof![
            4 => Just(""),
            1 => Just("\u{feff}"),
            1 => Just("\r\n"),
            1 => Just("\u{feff}\u{feff}"),
            1 => Just("\r\n\u{feff}"),
        ];
        let doubles = prop_oneof![4 => Just(None), 1 => Just(Some(0)), 1 => Just(Some(30))];
        let stale = prop_oneof![4 => Just(None), 1 => Just(Some(0)), 1 => Just(Some(60))];
        let charset = prop_oneof![4 => Just("utf-8"), 1 => Just("iso-8859-1"), 1 => Just("windows-1252")];
        let capitals =
            prop_oneof![6 => Just(Capitals::None), 1 => Just(Capitals::Ignored), 1 => Just(Capitals::Unknown)];
        let compressed =
            prop_oneof![4 => Just(Compressed::No), 1 => Just(Compressed::Gzip), 1 => Just(Compressed::Deflate)];
        let cookies = prop_oneof![4 => Just(Cookies::None), 1 => Just(Cookies::Check), 1 => Just(Cookies::Place)];
        let seldom_switches: [BoxedStrategy<bool>; 7] = std::array::from_fn(|_| seldom(false, true));
        let lists = (deleted, sets, any::<[bool; 4]>(), capitals);
        let oddities = (doubles, stale, seldom_switches);
        let documents = (before, charset, compressed, cookies);
        (lists, oddities, documents)
            .prop_map(|(lists, oddities, documents)| {
                let (deleted, sets, [everything, lists_identifiers, tombstones, query], capitals) = lists;
                let (doubles, stale, switches) = oddities;
                let [nonces, forgets_sets, is_dated_now, undelivered, moves_namespaces, two, by_time] = switches;
                let (before_documents, declared_charset, compressed, cookies) = documents;
                let lists_everything = everything || deleted != DeletedRecord::Persistent;
                let forgets_sets = forgets_sets && lists_everything && !sets.is_empty();
                let is_dated_now = is_dated_now && !forgets_sets;
                // These would make the truth depend on the page or on the moment.
                let has_twins = !forgets_sets && !is_dated_now;
                let nonces = nonces && !is_dated_now;
                let two = two && !forgets_sets;
                Self {
                    deleted,
                    lists_everything,
                    is_full_by_time: by_time && !nonces,
                    lists_identifiers,
                    // A record that leaves its sets silently is found in a complete list alone.
                    tombstones_in_sets: tombstones || !everything,
                    capitals: if sets.is_empty() || forgets_sets { Capitals::None } else { capitals },
                    sets,
                    before_documents,
                    query: query || two,
                    has_two_databases: two,
                    doubles: doubles.filter(|_| has_twins),
                    stale_tombstones: stale.filter(|_| deleted != DeletedRecord::No && has_twins),
                    nonces,
                    forgets_sets,
                    is_dated_now,
                    has_undelivered: undelivered && (lists_everything || lists_identifiers),
                    declared_charset,
                    moves_namespaces,
                    compressed,
                    cookies,
                }
            })
            .boxed()
    }
}
