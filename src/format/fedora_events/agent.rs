//! Users of events, in the notations of all Fedora generations.

use crate::{
    format::json_ld::{Node, namespace_and_local},
    model::{Uri, User},
};

/// User according to an event's agents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Agents {
    /// A person.
    Person(User),
    /// Software, without a person.
    Software(User),
    /// No agent, or an anonymous person.
    Nobody,
}

impl Agents {
    /// Parses `actor` (ActivityStreams 2) or `wasAttributedTo` (PROV).
    pub(super) fn read(agents: Option<&Node<'_>>) -> Self {
        let agents: Vec<_> = agents.map(Node::each).unwrap_or_default();
        let (software, people): (Vec<_>, Vec<_>) = agents.iter().partition(|agent| is_software(agent));
        if let Some(user) = people.iter().find_map(|agent| read_agent(agent)) {
            return Self::Person(user);
        }
        let software = software.iter().find_map(|agent| read_agent(agent)).filter(|_| people.is_empty());
        software.map_or(Self::Nobody, Self::Software)
    }

    /// Returns the user, from the header if the body does not name a person.
    pub(super) fn or_header(self, header: Option<User>) -> User {
        match self {
            Self::Person(user) => user,
            Self::Software(user) => header.unwrap_or(user),
            Self::Nobody => header.unwrap_or_else(User::unknown),
        }
    }
}

/// Creates a user from identifier and name; `None` if neither has a value.
pub(super) fn user(id: Option<&str>, name: Option<&str>) -> Option<User> {
    let (id, name) = (meaningful(id), meaningful(name));
    let called = name.or_else(|| id.map(short_name))?;
    Some(User::new(called, id.and_then(|id| Uri::parse(id).ok())))
}

/// Returns text that names a user. Fedora 6 writes `null` for an anonymous user, and a serializer of Fedora 5
/// puts `#` before the name.
fn meaningful(text: Option<&str>) -> Option<&str> {
    text.map(|text| text.trim().trim_start_matches('#')).filter(|text| !text.is_empty() && *text != "null")
}

/// Shortens `info:fedora/local-user#bypassAdmin`, which Fedora makes of a plain user name, to `bypassAdmin`.
fn short_name(id: &str) -> &str {
    let path = id.strip_prefix("info:fedora/").map(|path| path.strip_prefix("local-user#").unwrap_or(path));
    path.filter(|path| !path.is_empty()).unwrap_or(id)
}

fn read_agent(agent: &Node<'_>) -> Option<User> {
    let (id, name) = (agent.id(), agent.member("name"));
    user(id.as_ref().and_then(Node::text), name.as_ref().and_then(Node::text))
}

fn is_software(agent: &Node<'_>) -> bool {
    let types = agent.types();
    types.iter().any(|name| ["Application", "Service", "SoftwareAgent"].contains(&namespace_and_local(name).1))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Agents, User};
    use crate::format::json_ld::Node;

    fn name(agents: &Value) -> String {
        Agents::read(Some(&Node::root(agents))).or_header(None).name().to_owned()
    }

    #[test]
    fn person_takes_precedence_over_software() {
        let software = json!({"type": ["Application"], "name": "curl/8"});
        for (agents, called) in [
            (json!("info:fedora/local-user#bypassAdmin"), "bypassAdmin"),
            (json!("#bypassAdmin"), "bypassAdmin"),
            (json!([software, "info:fedora/fedoraAdmin"]), "fedoraAdmin"),
            (json!([software, {"type": "Person", "id": "http://h/#i"}]), "http://h/#i"),
            (json!([software, {"type": ["Person"], "id": "urn:a", "name": "Ann"}]), "Ann"),
            (json!([software, {"type": "Person", "id": "null"}]), "unknown"),
            (json!({"type": "http://www.w3.org/ns/prov#SoftwareAgent", "name": "curl/8"}), "curl/8"),
            (json!([]), "unknown"),
            (json!(["info:fedora/"]), "info:fedora/"),
            (json!([7, {"type": "Person", "name": {"a": 1}}]), "unknown"),
        ] {
            assert_eq!(name(&agents), called, "{agents}");
        }
    }

    #[test]
    fn only_a_uri_identifies_the_user() {
        let agents = |id: &str| Agents::read(Some(&Node::root(&json!([{"id": id}])))).or_header(None);
        assert!(agents("urn:uuid:1").uri().is_some());
        assert!(agents("ann").uri().is_none());
    }

    #[test]
    fn header_names_the_user_if_the_body_does_not() {
        let header = || Some(User::new("header", None));
        let software = json!({"type": "Application", "name": "curl/8"});
        for (agents, called) in [(json!("null"), "header"), (software, "header"), (json!("ann"), "ann")] {
            assert_eq!(Agents::read(Some(&Node::root(&agents))).or_header(header()).name(), called);
        }
    }
}
