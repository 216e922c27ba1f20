//! The JSON-LD context of all documents. It is inline, because a client would fetch another one while it reads.

/// The context. Terms of our own are in the namespace of the facts that Atom has no elements for.
pub(super) const CONTEXT: &str = concat!(
    r#"{"as":"https://www.w3.org/ns/activitystreams#","ldes":"https://w3id.org/ldes#","#,
    r#""tidings":"urn:tidings:change:1:","tree":"https://w3id.org/tree#","xsd":"http://www.w3.org/2001/XMLSchema#","#,
    r#""id":"@id","type":"@type","title":"http://purl.org/dc/terms/title","#,
    r#""view":{"@id":"tree:view","@type":"@id"},"member":{"@id":"tree:member","@type":"@id"},"#,
    r#""relation":"tree:relation","node":{"@id":"tree:node","@type":"@id"},"#,
    r#""path":{"@id":"tree:path","@type":"@id"},"value":{"@id":"tree:value","@type":"xsd:dateTime"},"#,
    r#""timestampPath":{"@id":"ldes:timestampPath","@type":"@id"},"#,
    r#""sequencePath":{"@id":"ldes:sequencePath","@type":"@id"},"#,
    r#""versionOfPath":{"@id":"ldes:versionOfPath","@type":"@id"},"#,
    r#""versionTimestampPath":{"@id":"ldes:versionTimestampPath","@type":"@id"},"#,
    r#""versionSequencePath":{"@id":"ldes:versionSequencePath","@type":"@id"},"#,
    r#""versionCreateObject":{"@id":"ldes:versionCreateObject","@type":"@id"},"#,
    r#""versionUpdateObject":{"@id":"ldes:versionUpdateObject","@type":"@id"},"#,
    r#""versionDeleteObject":{"@id":"ldes:versionDeleteObject","@type":"@id"},"#,
    r#""transactionPath":{"@id":"ldes:transactionPath","@type":"@id"},"#,
    r#""transactionFinalizedPath":{"@id":"ldes:transactionFinalizedPath","@type":"@id"},"#,
    r#""pollingInterval":{"@id":"ldes:pollingInterval","@type":"xsd:integer"},"immutable":"ldes:immutable","#,
    r#""retentionPolicy":{"@id":"ldes:retentionPolicy","@type":"@id"},"#,
    r#""startingFrom":{"@id":"ldes:startingFrom","@type":"xsd:dateTime"},"#,
    r#""object":{"@id":"as:object","@type":"@id"},"published":{"@id":"as:published","@type":"xsd:dateTime"},"#,
    r#""endTime":{"@id":"as:endTime","@type":"xsd:dateTime"},"url":{"@id":"as:url","@type":"@id"},"#,
    r#""order":{"@id":"tidings:order","@type":"xsd:dateTime"},"#,
    r#""version":{"@id":"tidings:version","@type":"xsd:dateTime"},"seq":"tidings:seq","#,
    r#""source":"tidings:source","late":"tidings:late","purge":"tidings:purge","#,
    r#""transaction":"tidings:transaction","final":"tidings:final"}"#,
);

#[cfg(test)]
mod tests {
    use super::CONTEXT;

    #[test]
    fn context_is_json_without_lists() {
        let context: serde_json::Value = serde_json::from_str(CONTEXT).unwrap();
        assert!(context.is_object() && !CONTEXT.contains("@list"));
    }
}
