//! `[feed]`: the Atom feed of the gateway.

use crate::settings::{TextType, settings};

settings! {
    /// `[feed]`: title and author of the Atom feed.
    #[derive(Clone, Debug)]
    pub struct OwnFeedConfig {
        /// Title of the feed, up to 200 characters.
        pub title: Label,
        /// Name of the person or institution that publishes the feed, up to 200 characters.
        pub author: Option<Label>,
    }
}

/// Maximum length of a label, in characters.
const MAX_LABEL: usize = 200;

/// A text of one line for people.
pub struct Label;

impl TextType for Label {
    type Value = String;

    fn parse(text: &str) -> Result<String, String> {
        match text.trim() {
            "" => Err("it is empty; give a text, or leave it out".to_owned()),
            text if text.contains(char::is_control) => Err("it has control characters; give one line".to_owned()),
            text if text.chars().count() > MAX_LABEL => {
                Err(format!("it has {} characters; the maximum is {MAX_LABEL}", text.chars().count()))
            }
            text => Ok(text.to_owned()),
        }
    }
}
