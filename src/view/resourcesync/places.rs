//! Places for the resource lists of different scopes, which stay in memory.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{resource_lists::ScopeLists, scope::Scope};

/// Maximum number of scopes with conditions on objects whose lists are kept.
const MAX_SCOPES: usize = 8;

/// Time after which an unfinished list that no request waits for gives its place up. Clients ask again after a second.
const ABANDONED_AFTER: Duration = Duration::from_secs(10);

/// Lists that all requests with the same scope share. One request at a time brings them up to date.
pub(super) type SharedLists = Arc<tokio::sync::Mutex<ScopeLists>>;

/// The scopes, the one that was used longest ago first. The list of all objects always has a place, one for each view of the
/// configuration. Requests with many different objects cannot evict it.
#[derive(Default)]
pub(super) struct Places(Vec<Place>);

struct Place {
    scope: Scope,
    lists: SharedLists,
    used: Instant,
    /// Whether no list of the scope is being made, and no request is going to make one.
    is_finished: bool,
}

impl Places {
    /// Returns the lists of a scope. `None` if there is no place for a further scope: one whose list is being made keeps its
    /// place, because otherwise none would ever be finished.
    pub(super) fn get(&mut self, scope: &Scope, now: Instant) -> Option<SharedLists> {
        let place = match self.position(scope) {
            Some(at) => Place { used: now, is_finished: false, ..self.0.remove(at) },
            None => {
                if scope.has_objects() {
                    self.make_room(now)?;
                }
                Place { scope: scope.clone(), lists: Arc::default(), used: now, is_finished: false }
            }
        };
        let lists = Arc::clone(&place.lists);
        self.0.push(place);
        Some(lists)
    }

    /// Notes whether no list is being made any more. The time in which a client must ask again begins now.
    pub(super) fn note(&mut self, lists: &SharedLists, is_finished: bool, now: Instant) {
        if let Some(place) = self.0.iter_mut().find(|place| Arc::ptr_eq(&place.lists, lists)) {
            (place.is_finished, place.used) = (is_finished, now);
        }
    }

    fn position(&self, scope: &Scope) -> Option<usize> {
        self.0.iter().position(|place| place.scope == *scope)
    }

    fn make_room(&mut self, now: Instant) -> Option<()> {
        let of_objects = self.0.iter().filter(|place| place.scope.has_objects());
        if of_objects.count() >= MAX_SCOPES {
            let is_abandoned = |place: &Place| {
                Arc::strong_count(&place.lists) == 1 && now.duration_since(place.used) >= ABANDONED_AFTER
            };
            let gives_up = |place: &Place| place.scope.has_objects() && (place.is_finished || is_abandoned(place));
            let at = self.0.iter().position(gives_up)?;
            self.0.remove(at);
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::{ABANDONED_AFTER, Arc, Duration, Instant, MAX_SCOPES, Places, Scope, SharedLists};
    use crate::web::ReadPermit;

    fn scope(name: &str) -> Scope {
        Scope::parse(&format!("object={name}"), &ReadPermit::whole()).unwrap()
    }

    #[test]
    fn unfinished_list_keeps_its_place_while_it_is_used() {
        let mut places = Places::default();
        let now = Instant::now();
        let get = |places: &mut Places, name: &str, seconds: u64| {
            places.get(&scope(name), now + Duration::from_secs(seconds)).is_some()
        };
        let at = |seconds: u64| now + Duration::from_secs(seconds);
        let whole = Scope::parse("", &ReadPermit::whole()).unwrap();
        let list_of_all = places.get(&whole, now).unwrap();
        places.note(&list_of_all, true, now);
        assert!((0..MAX_SCOPES).all(|number| get(&mut places, &number.to_string(), 0)));
        assert!(!get(&mut places, "other", 1), "all lists are being made");
        let same = |places: &mut Places| places.get(&scope("0"), at(2)).unwrap();
        assert!(Arc::ptr_eq(&same(&mut places), &same(&mut places)));
        let one = places.get(&scope("1"), at(2)).unwrap();
        places.note(&one, true, at(2));
        assert!(get(&mut places, "other", 3), "the list of 1 can be made again");
        places.note(&one, true, at(3));
        assert!(!get(&mut places, "1", 4), "the former list of 1 has no place");
        let abandoned = ABANDONED_AFTER.as_secs() + 1;
        let waiting = places.get(&scope("2"), now).unwrap();
        // The request about 3 has taken all this time.
        let three = places.get(&scope("3"), now).unwrap();
        places.note(&three, false, at(abandoned - 1));
        drop(three);
        assert!(get(&mut places, "1", abandoned), "nobody continues the list of 4");
        let is_same = |places: &mut Places, name: &str, lists: &SharedLists| {
            Arc::ptr_eq(lists, &places.get(&scope(name), at(abandoned)).unwrap())
        };
        assert!(is_same(&mut places, "2", &waiting), "a request waits for it");
        assert!(places.position(&scope("3")).is_some() && places.position(&scope("4")).is_none());
        assert_eq!(places.0.len(), MAX_SCOPES + 1);
        assert!(Arc::ptr_eq(&list_of_all, &places.get(&whole, now).unwrap()), "it keeps its place");
    }
}
