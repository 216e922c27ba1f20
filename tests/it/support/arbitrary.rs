//! Proptest strategies for values of the model. They produce every kind of value that the model allows, and
//! values that a format may get wrong more often than chance would.

use proptest::{
    collection::vec,
    option,
    prelude::{BoxedStrategy, Just, Strategy, any},
    prop_oneof,
    sample::{select, subsequence},
};
use tidings::model::{
    Aspect, AspectSet, Change, ChangeId, ContentItemModification, ContentLocation, ContentObjectModification, Digest,
    DigestAlgorithm, EventId, ItemChange, ItemId, ItemNotes, LookupMark, MediaType, NonEmpty, Origin, OriginalContent,
    Seq, Settlement, SourceName, State, Text, Timestamp, Uri, User, VisibilityDates,
};
use uuid::Uuid;

/// Text with characters that XML, JSON and their parsers treat specially.
pub(crate) fn text() -> impl Strategy<Value = Text> {
    let nasty = select(vec![
        "&",
        "&amp;",
        "<",
        "</title>",
        ">",
        "]]>",
        "<![CDATA[",
        "<!--",
        "\"",
        "'",
        "\\",
        "\\u0000",
        "\n",
        "\r\n",
        "\r",
        "\t",
        "  ",
        "\u{85}",
        "\u{2028}",
        "\u{FEFF}",
        "\u{1F600}",
        "\u{10FFFF}",
        "é",
        "e\u{301}",
        "%",
        "{",
        "}",
        "null",
    ]);
    let piece = prop_oneof![3 => nasty.prop_map(str::to_owned), 1 => "[a-zA-Z0-9 ]{1,8}", 1 => any::<char>().prop_map(String::from)];
    vec(piece, 0..10).prop_map(|pieces| Text::new(&pieces.concat()))
}

/// URIs and IRIs with characters that are markup in other syntaxes.
pub(crate) fn uri() -> impl Strategy<Value = Uri> {
    let start = select(vec![
        "http://localhost:8080/fedora/objects/",
        "https://[::1]/",
        "info:fedora/",
        "urn:x:",
        "HTTP://é.example/?",
    ]);
    let nasty =
        select(vec!["&", "'", "%20", "%zz", "#", "?a=b", ";", "straße", "\u{1F600}", "[", "]", "demo:1", "//", "@"]);
    let piece = prop_oneof![3 => nasty.prop_map(str::to_owned), 1 => "[a-z0-9/]{1,8}", 1 => any::<char>().prop_map(String::from)];
    (start, vec(piece, 0..8))
        .prop_filter_map("not a URI", |(start, pieces)| Uri::parse(&format!("{start}{}", pieces.concat())).ok())
}

/// Any point in time that RFC 3339 can represent.
pub(crate) fn time() -> impl Strategy<Value = Timestamp> {
    let year_0_to_9999 = -62_167_219_200_000_i64..=253_402_300_799_999;
    prop_oneof![year_0_to_9999, 1_000_000_000_000_i64..2_000_000_000_000, Just(0)]
        .prop_map(|millis| Timestamp::from_millis(millis).unwrap())
}

/// Known states and arbitrary tokens.
pub(crate) fn state() -> impl Strategy<Value = State> {
    let known_state = select(vec![State::ACTIVE, State::INACTIVE, State::DELETED]);
    prop_oneof![known_state, "[A-Z][A-Z_]{0,63}".prop_map(|token| State::parse(&token).unwrap())]
}

pub(crate) fn media_type() -> impl Strategy<Value = MediaType> {
    "[a-zA-Z0-9]{1,4}/[a-z0-9.+-]{0,8}[a-z]( ?;[ -~]{0,12})?"
        .prop_filter_map("not a media type", |raw| MediaType::parse(&raw).ok())
}

pub(crate) fn digest() -> impl Strategy<Value = Digest> {
    select(DigestAlgorithm::ALL.to_vec()).prop_flat_map(|algorithm| {
        vec(select("0123456789abcdef".chars().collect::<Vec<_>>()), algorithm.hex_len())
            .prop_map(move |digits| Digest::parse(algorithm, &String::from_iter(digits)).unwrap())
    })
}

pub(crate) fn content() -> impl Strategy<Value = ContentLocation> {
    let properties = (uri(), option::of(media_type()), option::of(any::<u64>()), option::of(digest()));
    (properties, option::of(uri()), option::of(original())).prop_map(|(properties, generated_by, original)| {
        let (url, media_type, size, digest) = properties;
        ContentLocation { url, media_type, size, digest, generated_by, original: original.map(Box::new) }
    })
}

/// Without a digest, because Atom has no place for it.
fn original() -> impl Strategy<Value = OriginalContent> {
    let properties = (uri(), option::of(media_type()), option::of(any::<u64>()));
    properties.prop_map(|(url, media_type, size)| OriginalContent { url, media_type, size, digest: None })
}

/// Every variant, with and without each of its optional parts.
pub(crate) fn item_change() -> impl Strategy<Value = ItemChange> {
    let some_state = || option::of(state());
    prop_oneof![
        (option::of(content()), some_state()).prop_map(|(content, after)| ItemChange::Add { content, after }),
        (option::of(content()), some_state(), some_state()).prop_map(|(content, before, after)| ItemChange::Update {
            content,
            before,
            after
        }),
        (some_state(), some_state()).prop_map(|(before, after)| ItemChange::Delete { before, after }),
        (some_state(), state()).prop_map(|(before, after)| ItemChange::State { before, after }),
    ]
}

pub(crate) fn item() -> impl Strategy<Value = ContentItemModification> {
    (uuid(), uri(), item_change()).prop_map(|(id, uri, change)| ContentItemModification {
        id: ItemId::from(id),
        uri,
        change,
    })
}

pub(crate) fn user() -> impl Strategy<Value = User> {
    (text(), option::of(uri())).prop_map(|(name, uri)| User::new(name.as_str(), uri))
}

pub(crate) fn event_id() -> impl Strategy<Value = EventId> {
    prop_oneof![Just("urn:uuid:1 of \"2\" & <3>".to_owned()), "\\PC{1,20}"]
        .prop_filter_map("not an event id", |raw| EventId::parse(&raw))
}

pub(crate) fn origin() -> impl Strategy<Value = Origin> {
    ("[a-z0-9][a-z0-9_-]{0,63}", option::of(event_id()), option::of(text())).prop_map(
        |(source, event_id, software_version)| Origin {
            source: SourceName::parse(&source).unwrap(),
            event_id,
            software_version,
        },
    )
}

pub(crate) fn modification() -> impl Strategy<Value = ContentObjectModification> {
    let about = (uuid(), user(), time(), text(), origin());
    let object = (uri(), option::of(uri()), vec(uri(), 0..3));
    (about, object, vec(item(), 1..5)).prop_map(
        |((id, user, time, description, origin), (object, parent, types), items)| ContentObjectModification {
            id: ChangeId::from(id),
            user,
            time,
            object,
            parent,
            types,
            description,
            report: None,
            origin,
            items: NonEmpty::try_from(items).unwrap(),
        },
    )
}

pub(crate) fn change() -> impl Strategy<Value = Change> {
    (any::<u64>(), time(), modification()).prop_flat_map(|(seq, received, modification)| {
        let notes = vec(item_notes(), 0..=modification.items.len());
        let lookup = option::of(select(LookupMark::ALL.to_vec()));
        (aspects(), aspects(), any::<bool>(), option::of(time()), lookup, any::<bool>(), notes).prop_map(
            move |(filled, late, purge, as_of, lookup, due, mut items)| {
                // Empty notes at the end of the list are omitted.
                while items.last() == Some(&ItemNotes::default()) {
                    items.pop();
                }
                let settlement = Settlement { filled, late, purge, as_of, lookup, due, items };
                Change { seq: Seq(seq), received, modification: modification.clone(), settlement }
            },
        )
    })
}

fn item_notes() -> impl Strategy<Value = ItemNotes> {
    let announced = (option::of(time()), option::of(time()), option::of(time()), option::of(time()));
    (aspects(), any::<bool>(), option::of(state()), announced).prop_map(
        |(late, inferred, initial_state, (from, until, denies, came))| ItemNotes {
            late,
            inferred,
            initial_state,
            dates: VisibilityDates::new(from, until).unwrap_or_default(),
            denies,
            came,
        },
    )
}

fn aspects() -> BoxedStrategy<AspectSet> {
    let all = vec![Aspect::Existence, Aspect::Content, Aspect::State, Aspect::Parent, Aspect::Types];
    prop_oneof![Just(AspectSet::EMPTY), subsequence(all, 0..=5).prop_map(AspectSet::from_iter)].boxed()
}

fn uuid() -> impl Strategy<Value = Uuid> {
    any::<u128>().prop_map(Uuid::from_u128)
}
