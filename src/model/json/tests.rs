//! JSON of changes and drafts.

use super::{Change, Draft, DraftChange, DraftItems, DroppedPart};
use crate::model::DraftTime;

const CHANGE: &str = r#"{"seq":7,"id":"urn:uuid:c4bf3a5c-69e7-4a1a-941b-dfd328bb4a48","source":"fedora3","sourceEventId":"urn:uuid:e","sourceVersion":"3.8.1","received":"2026-01-02T03:04:05.006Z","time":"2026-01-02T03:04:05.000Z","user":{"name":"fedoraAdmin"},"object":"http://h/objects/a:1","parent":"http://h/objects/a:0","types":["info:fedora/a:M"],"description":"purgeObject","purge":true,"filled":["parent"],"asOf":"2026-01-02T03:04:04.000Z","lookup":"newer","items":[{"id":"urn:uuid:296f93e1-7f22-430a-99f6-256cf13d1fa3","uri":"http://h/objects/a:1/datastreams/DC/content","change":"UPDATE","content":{"url":"http://h/c","mediaType":"text/xml","size":3,"digest":{"algorithm":"md5","value":"d41d8cd98f00b204e9800998ecf8427e"},"generatedBy":"http://h/a"},"stateBefore":"ACTIVE","stateAfter":"INACTIVE","late":["state"],"inferred":true,"beginsIn":"ACTIVE"}]}"#;

#[test]
fn the_shape_is_stable() {
    let change: Change = serde_json::from_str(CHANGE).unwrap();
    assert_eq!(serde_json::to_string(&change).unwrap(), CHANGE);
}

#[test]
fn members_that_the_gateway_adds_are_optional() {
    let draft: Draft = serde_json::from_str(
        r#"{"object":"http://h/1","colour":"red","items":[{"uri":"http://h/1","change":"DELETE"}]}"#,
    )
    .unwrap();
    assert!(draft.id.is_none() && draft.time == DraftTime::Arrival);
    assert_eq!(draft.user.name(), "unknown");
}

#[test]
fn a_purge_may_replace_the_items() {
    let draft: Draft = serde_json::from_str(r#"{"object":"http://h/1","purge":true}"#).unwrap();
    assert_eq!(draft.items, DraftItems::Purge);
    assert!(serde_json::from_str::<Draft>(r#"{"object":"http://h/1"}"#).is_err());
}

#[test]
fn refuses_an_item_whose_parts_contradict_each_other() {
    let error = serde_json::from_str::<Draft>(
        r#"{"object":"http://h/1","items":[{"uri":"http://h/1","change":"DELETE","content":{"url":"http://h/c"}}]}"#,
    )
    .unwrap_err();
    assert!(error.to_string().contains("ADD and UPDATE only"), "{error}");
}

#[test]
fn content_without_change_type_is_an_add_or_an_update() {
    let read = |more: &str| {
        let item = format!(r#"{{"uri":"http://h/1","content":{{"url":"http://h/1"}}{more}}}"#);
        serde_json::from_str::<Draft>(&format!(r#"{{"object":"http://h/1","items":[{item}]}}"#))
    };
    let draft = read("").unwrap();
    assert!(matches!(draft.items.listed()[0].change, DraftChange::AddOrUpdate { content: Some(_), .. }));
    assert!(read(r#","stateAfter":"ACTIVE""#).unwrap_err().to_string().contains("ADD and UPDATE only"));
}

#[test]
fn null_means_that_a_member_is_missing() {
    let item = r#"{"id":null,"uri":"http://h/1","change":"ADD","stateBefore":null,"stateAfter":null,"late":null,
        "inferred":null,"beginsIn":null,"content":{"url":"http://h/1","mediaType":null,"size":null,"digest":null,
        "generatedBy":null,"original":null}}"#;
    let nulls = format!(
        r#"{{"seq":null,"id":null,"source":null,"sourceEventId":null,"sourceVersion":null,"received":null,"time":null,
        "user":null,"object":"http://h/1","parent":null,"types":null,"description":null,"report":null,"purge":null,
        "filled":null,"late":null,"asOf":null,"lookup":null,"items":[{item}]}}"#
    );
    let plain =
        r#"{"object":"http://h/1","items":[{"uri":"http://h/1","change":"ADD","content":{"url":"http://h/1"}}]}"#;
    let read = |json: &str| serde_json::from_str::<Draft>(json).unwrap();
    assert_eq!(read(&nulls), read(plain));
    assert_eq!(read(&nulls).time, DraftTime::Arrival);
    assert_eq!(read(r#"{"object":"http://h/1","items":null,"purge":true}"#).items, DraftItems::Purge);
    let user = read(&plain.replacen('{', r#"{"user":{"name":null,"uri":null},"#, 1)).user;
    assert_eq!(user.name(), "unknown");
}

#[test]
fn time_that_cannot_be_read_costs_only_itself() {
    let draft: Draft = serde_json::from_str(r#"{"object":"http://h/1","purge":true,"time":"in the morning"}"#).unwrap();
    assert_eq!((draft.time, draft.reading.dropped), (DraftTime::Arrival, vec![DroppedPart::Time]));
}

#[test]
fn errors_name_what_was_expected() {
    for (member, expected) in [
        (r#""user":"jane""#, "expected a user, an object with a name and perhaps a uri"),
        (r#""items":[7]"#, "expected an object with the URI of the item"),
        (
            r#""items":[{"uri":"http://h/1","change":"INSERT"}]"#,
            "\"INSERT\" is not a change type; give ADD, UPDATE or DELETE",
        ),
        (
            r#""items":[{"uri":"http://h/1","change":"ADD","content":"http://h/1"}]"#,
            "expected the location of content, an object with a url",
        ),
        (
            r#""items":[{"uri":"http://h/1","change":"ADD","content":{"url":"http://h/1","digest":"00"}}]"#,
            "expected a digest, an object with algorithm and value",
        ),
    ] {
        let error = serde_json::from_str::<Draft>(&format!(r#"{{"object":"http://h/1",{member}}}"#)).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
}
