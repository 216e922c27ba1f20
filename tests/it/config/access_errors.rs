//! Errors about readers without a token and about views of tokens.

use crate::support::config_loader::load;

/// Returns a token with these scopes and further lines.
fn token(scopes: &str, more: &str) -> String {
    format!("[access.tokens.x]\nsha256 = \"{}\"\nscopes = [{scopes}]\n{more}\n", "0".repeat(64))
}

#[test]
fn public_access_that_cannot_be_right_is_refused() {
    let public = |lines: &str| format!("{}[access.public]\n{lines}\n", token("\"admin\"", ""));
    for (file, message) in [
        (
            public("surfaces = [\"hub\"]"),
            "there is no surface for readers without a token \"hub\"; there are feed, changes, stream, live, objects, snapshot, oai, iiif, ldes, resourcesync",
        ),
        (public("surfaces = []"), "access.public.surfaces in my.toml is wrong: it is empty; give a surface"),
        (public(""), "the setting access.public.surfaces is missing"),
        (
            "[access.public]\nsurfaces = [\"feed\"]\n".to_owned(),
            "the setting access.public in my.toml is wrong: without a token and a signature, everything else is open, too",
        ),
        (
            public("surfaces = [\"feed\", \"snapshot\"]\nsources = [\"fedora3\"]"),
            "access.public.sources in my.toml is wrong: the surface \"snapshot\" combines the facts of all sources",
        ),
        (public("surfaces = [\"feed\"]\nsources = [\"fedora9\"]"), "there is no source \"fedora9\"; did you mean"),
        (public("surfaces = [\"feed\"]\nobjects = [\"\"]"), "it is empty; leave it out to have every object"),
        (public("surfaces = [\"feed\"]\nvisibility = false"), "unknown setting access.public.visibility"),
    ] {
        let error = load(&file, &[]).map(drop).expect_err(&file);
        assert!(error.contains(message), "{file}\n{error}");
    }
    let config = load(&public("surfaces = [\"feed\"]"), &[]).unwrap();
    assert!(config.access.public().is_some_and(|public| public.view.public));
}

#[test]
fn only_a_reader_can_have_a_view() {
    for (file, message) in [
        (token("\"admin\"", "view = { public = true }"), "only a token with the scope \"read\" alone can have a view"),
        (token("\"read\", \"publish:*\"", "view = { public = true }"), "only a token with the scope \"read\" alone"),
        (token("\"read\"", "view = {}"), "access.tokens.x.view in my.toml is wrong: it has no condition"),
        (token("\"read\"", "view = { sources = [\"fedora9\"] }"), "there is no source \"fedora9\"; did you mean"),
        (token("\"read\"", "view = { changes = [\"ADD\"] }"), "unknown setting access.tokens.x.view.changes"),
    ] {
        let error = load(&file, &[]).unwrap_err();
        assert!(error.contains(message), "{file}\n{error}");
    }
    assert!(load(&token("\"read\"", "view = { objects = [\"http://h/\"] }"), &[]).is_ok());
}
