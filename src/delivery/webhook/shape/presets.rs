//! Shapes of requests that receivers of many libraries need, ready to use.

use super::table::Each;
use crate::settings::Choose;

named_values! {
    /// Name of a ready shape.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum Preset {
        /// The change in JSON, as the format `json` writes it.
        Json = "json",
        /// Commands of Solr's update handler.
        Solr = "solr",
        /// Bulk requests of Elasticsearch and OpenSearch.
        Elasticsearch = "elasticsearch",
        /// `PURGE` for each URI of a change: Varnish, and others that read this method.
        Purge = "purge",
        /// Fastly's purge by URL.
        Fastly = "fastly",
        /// Incoming webhooks of Slack, Mattermost and Rocket.Chat.
        Slack = "slack",
        /// Workflows of Microsoft Teams.
        Teams = "teams",
    }
}

impl Choose for Preset {
    const WHAT: &'static str = "preset";
}

/// The parts of a ready shape. A part that the configuration gives replaces it.
pub(super) struct PresetParts {
    pub(super) each: Each,
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    pub(super) content_type: &'static str,
    pub(super) headers: &'static [(&'static str, &'static str)],
    pub(super) body: &'static [&'static str],
    pub(super) retry_if: Option<&'static str>,
    pub(super) refuse_if: Option<&'static str>,
    pub(super) accepted_statuses: &'static [u16],
    /// Values that templates read, as JSON.
    pub(super) values: &'static [(&'static str, &'static str)],
}

const JSON: PresetParts = PresetParts {
    each: Each::Message,
    method: "POST",
    path: "",
    content_type: "application/json",
    headers: &[],
    body: &["{% if is_batch %}{\"changes\": {{ changes }}}{% else %}{{ change }}{% endif %}"],
    retry_if: None,
    refuse_if: None,
    accepted_statuses: &[],
    values: &[],
};

/// Words of a message for people, for the templates of chats.
const CHAT: &str = include_str!("presets/chat.jinja");

impl Preset {
    /// Returns the parts.
    pub(super) fn parts(self) -> PresetParts {
        match self {
            Self::Json => JSON,
            Self::Solr => PresetParts {
                path: "/update?commitWithin={{ values.commit_within }}",
                body: &[include_str!("presets/solr.json.jinja")],
                values: &[("commit_within", "10000")],
                ..JSON
            },
            // The response has a line for each document if it is not filtered. Every line succeeds or fails by itself;
            // a full queue passes, and a document that the index refuses does not.
            Self::Elasticsearch => PresetParts {
                path: "/_bulk?filter_path=errors,items.*.error.type,items.*.error.reason",
                content_type: "application/x-ndjson",
                body: &[include_str!("presets/elasticsearch.ndjson.jinja")],
                retry_if: Some("response.status == 200 and 'es_rejected_execution_exception' in response.text"),
                refuse_if: Some(
                    "response.status == 200 and '\"errors\":true' in response.text and \
                     'es_rejected_execution_exception' not in response.text",
                ),
                values: &[("index", "\"tidings\"")],
                ..JSON
            },
            // Squid and nginx respond with 404 if they have no copy.
            Self::Purge => PresetParts {
                each: Each::Uri,
                method: "PURGE",
                path: "{{ uri|path }}",
                headers: &[("host", "{{ uri|authority }}")],
                body: &[],
                accepted_statuses: &[404],
                ..JSON
            },
            Self::Fastly => {
                PresetParts { each: Each::Uri, path: "/purge/{{ uri|authority }}{{ uri|path }}", body: &[], ..JSON }
            }
            // Slack reads three characters as markup.
            Self::Slack => PresetParts {
                body: &[
                    CHAT,
                    "{\"text\": {{ ns.text|replace('&', '&amp;')|replace('<', '&lt;')|replace('>', '&gt;') }}}",
                ],
                ..JSON
            },
            Self::Teams => PresetParts {
                body: &[
                    CHAT,
                    "{\"type\": \"message\", \"attachments\": [{\"contentType\": \
                     \"application/vnd.microsoft.card.adaptive\", \"content\": {\"type\": \"AdaptiveCard\", \
                     \"version\": \"1.4\", \"body\": [{\"type\": \"TextBlock\", \"wrap\": true, \"text\": \
                     {{ ns.text|replace('\n', '\n\n') }}}]}}]}",
                ],
                ..JSON
            },
        }
    }
}
