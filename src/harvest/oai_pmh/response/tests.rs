//! Responses, and their errors.

use super::{InvalidResponse, ListText, PageLimits, Response, size::MAX_RECORDS};
use crate::{format::oai_pmh::NAMESPACE, transfer::Cancelled};

/// Limit on all records of a page.
const ALL_BYTES: usize = 8 << 20;

fn parse(text: &str, record_bytes: usize) -> Result<Response, InvalidResponse> {
    super::parse(text, PageLimits { record_bytes, all_bytes: ALL_BYTES }, &["a".to_owned()], &Cancelled::default())
}

/// Returns the records as XML.
fn pieces(text: &str, record_bytes: usize) -> Vec<String> {
    let list = parse(text, record_bytes).unwrap().list.unwrap();
    let whole = ListText::of(text);
    list.records.iter().map(|record| record.xml(&whole, &list.namespaces, record_bytes)).collect()
}

fn list(records: &str) -> String {
    format!(
        "<?xml version='1.0'?>\n<OAI-PMH xmlns='{NAMESPACE}' xmlns:x='urn:x'><responseDate> 2020-01-02T03:04:05Z\
         </responseDate><request verb='ListRecords'>http://h</request><ListRecords xmlns:y='urn:&quot;y'>{records}\
         </ListRecords></OAI-PMH>"
    )
}

fn record(identifier: &str, metadata: &str) -> String {
    format!(
        "<record><header><identifier>{identifier}</identifier><datestamp>2020-01-01</datestamp></header>\
         <metadata>{metadata}</metadata></record>"
    )
}

fn read(text: &str) -> Response {
    parse(text, 10_000).unwrap()
}

fn identifiers(response: &Response) -> Vec<&str> {
    response.list.as_ref().unwrap().records.iter().map(|record| record.identifier.as_str()).collect()
}

#[test]
fn records_carry_the_namespaces_around_them() {
    let text = list(&format!("\n <!-- <record> --> {}", record("a", "<x:m/>")));
    assert_eq!(read(&text).date.as_deref(), Some("2020-01-02T03:04:05Z"));
    let records = pieces(&text, 10_000);
    let start = format!("<record xmlns=\"{NAMESPACE}\" xmlns:x=\"urn:x\" xmlns:y=\"urn:&quot;y\"><header>");
    assert!(records[0].starts_with(&start), "{}", records[0]);
    assert!(records[0].ends_with("<x:m/></metadata></record>"));
}

#[test]
fn token_is_collected_from_all_its_parts() {
    let token = "<resumptionToken completeListSize=' 7 ' cursor='0'>\n a&amp;b<![CDATA[&]]>&#43; </resumptionToken>";
    let list = read(&list(&format!("{}{token}", record("a", "<m/>")))).list.unwrap();
    assert_eq!((list.token.as_deref(), list.complete_list_size, list.cursor), (Some("a&b&+"), Some(7), Some(0)));
    let list = read(&super::tests::list("<resumptionToken/>")).list.unwrap();
    assert_eq!((list.token, list.records.len()), (None, 0));
}

#[test]
fn truncated_response_is_an_error_wherever_it_ends() {
    let whole = list(&format!("{}{}<resumptionToken>t</resumptionToken>", record("a", "<m/>"), record("b", "<m/>")));
    let root = whole.find("><responseDate").unwrap() + 1;
    for end in root..whole.len() - 1 {
        let result = parse(&whole[..end], 10_000);
        assert!(matches!(result, Err(InvalidResponse::Malformed(_))), "{end}: {result:?}");
    }
}

#[test]
fn other_documents_are_foreign() {
    for text in [
        "",
        "broken xml",
        "<!DOCTYPE html><html><body>Log in</body></html>",
        "<OAI-PMH/>",
        "<OAI-PMH xmlns='http://www.openarchives.org/OAI/1.1/OAI_GetRecord'/>",
        "{\"error\":\"x\"}",
    ] {
        let result = parse(text, 10_000);
        assert!(matches!(result, Err(InvalidResponse::NotOaiPmh(_))), "{text}: {result:?}");
    }
}

#[test]
fn broken_record_does_not_break_its_neighbours() {
    // The dialect refuses an attribute without quotes.
    for (broken, is_recovered) in [("<m>a < b</m>", true), ("<m><n></m>", true), ("<m a=1/>", false), ("</n>", true)] {
        let body = format!("{}{}{}", record("a", "<record/>"), record("b", broken), record("c", "<m/>"));
        let response = read(&list(&format!("{body}<resumptionToken>t</resumptionToken>")));
        let list = response.list.as_ref().unwrap();
        assert_eq!((list.records.len(), list.token.as_deref()), (3, Some("t")), "{broken}");
        assert_eq!((identifiers(&response)[0], identifiers(&response)[2]), ("a", "c"), "{broken}");
        assert_eq!(response.is_recovered, is_recovered, "{broken}");
    }
}

#[test]
fn hostile_responses_take_linear_time_and_memory() {
    let began = std::time::Instant::now();
    let broken = list(&format!("<record>{}</n>", "<recordset ".repeat(200_000)));
    assert!(parse(&broken, 10_000).is_err());
    let namespaces = list(&record("a", "<m/>").repeat(1000)).replace("urn:x", &"u".repeat(1_000_000));
    assert!(parse(&namespaces, 10_000).is_err());
    let deep = list(&record("a", &"<m>".repeat(1_000_000)));
    assert!(parse(&deep, 10_000).unwrap().is_recovered && pieces(&deep, 10_000)[0].len() <= 10_000);
    // A namespace that is written with each record, records without content, and broken ones.
    let namespaces = list(&"<record/>".repeat(2000)).replace("urn:x", &"u".repeat(8000));
    assert!(matches!(parse(&namespaces, 10_000), Err(InvalidResponse::TooMuch(_))));
    for record in ["<record/>", "<record><x></record>"] {
        let many = list(&record.repeat(MAX_RECORDS + 1));
        assert!(matches!(parse(&many, 10_000), Err(InvalidResponse::TooMuch(_))), "{record}");
        let most = list(&record.repeat(MAX_RECORDS / 50));
        assert_eq!(parse(&most, 10_000).unwrap().list.unwrap().records.len(), MAX_RECORDS / 50, "{record}");
    }
    assert!(began.elapsed() < std::time::Duration::from_secs(20), "{:?}", began.elapsed());
}

#[test]
fn large_record_is_cut() {
    let text = list(&record("a", &"<m>é</m>".repeat(100)));
    let (size, cut) = (parse(&text, 200).unwrap().list.unwrap().records[0].size, pieces(&text, 200)[0].len());
    assert!(size > 800 && cut < 400, "{size} {cut}");
}

#[test]
fn namespaces_of_a_record_itself_count() {
    let text = list("<record xmlns:x = 'own>' a='b'><header/><metadata><x:m/></metadata></record><record/>");
    let records = pieces(&text, 10_000);
    let start = format!("<record xmlns=\"{NAMESPACE}\" xmlns:y=\"urn:&quot;y\" xmlns:x = 'own>' a='b'><header/>");
    assert!(records[0].starts_with(&start), "{}", records[0]);
    assert_eq!(records[1], format!("<record xmlns=\"{NAMESPACE}\" xmlns:x=\"urn:x\" xmlns:y=\"urn:&quot;y\"/>"));
}

#[test]
fn texts_around_the_records_have_a_limit() {
    let token = |length: usize| list(&format!("<resumptionToken>{}</resumptionToken>", "t".repeat(length)));
    assert_eq!(read(&token(4096)).list.unwrap().token.unwrap().len(), 4096);
    let refused = parse(&token(4097), 10_000);
    assert!(matches!(refused, Err(InvalidResponse::TooMuch(reason)) if reason.contains("the resumption token")));
    let long = "h".repeat(3_000_000);
    let identify = format!("<OAI-PMH xmlns='{NAMESPACE}'><Identify><baseURL>{long}</baseURL></Identify></OAI-PMH>");
    assert_eq!(read(&identify).identify.unwrap().base_url.len(), 4096);
    let error = format!("<OAI-PMH xmlns='{NAMESPACE}'>{}</OAI-PMH>", format!("<error code='{long}'/>").repeat(20));
    let errors = read(&error).errors;
    assert_eq!((errors.len(), errors[0].0.len()), (16, 4096));
}

#[test]
fn errors_and_facts_are_read() {
    let error = format!("<o:OAI-PMH xmlns:o='{NAMESPACE}'><o:error code=' noRecordsMatch'>none</o:error></o:OAI-PMH>");
    assert_eq!(read(&error).errors, [("noRecordsMatch".to_owned(), "none".to_owned())]);
    let identify = format!(
        "<OAI-PMH xmlns='{NAMESPACE}'><Identify><repositoryName>n</repositoryName><baseURL>http://h</baseURL>\
         <granularity>YYYY-MM-DD</granularity></Identify></OAI-PMH>"
    );
    let fields = read(&identify).identify.unwrap();
    assert_eq!((fields.base_url.as_str(), fields.granularity.as_str()), ("http://h", "YYYY-MM-DD"));
}

proptest::proptest! {
    /// Any text is read or refused.
    #[test]
    fn any_text_is_read_or_refused(parts in proptest::collection::vec(part(), 0..40)) {
        let _ = parse(&list(&parts.concat()), 50);
        let _ = parse(&parts.concat(), 50);
        let _ = crate::harvest::oai_pmh::count_records(parts.concat().as_bytes());
    }
}

fn part() -> impl proptest::strategy::Strategy<Value = String> {
    use proptest::strategy::{Just, Strategy};
    let fixed = [
        "<record>",
        "</record>",
        "<header>",
        "</header>",
        "<identifier>",
        "</identifier>",
        "<metadata>",
        "</metadata>",
        "<ListRecords>",
        "</ListRecords>",
        "<resumptionToken>",
        "</resumptionToken>",
        "<a",
        ">",
        "/>",
        "<![CDATA[",
        "]]>",
        "<!--",
        "-->",
        "&amp;",
        "&",
        "&#xfffe;",
        "é",
        "\u{0}",
        "<x:record>",
        "</x:record>",
        "xmlns='u'",
        " ",
    ];
    proptest::prop_oneof![
        proptest::sample::select(fixed.to_vec()).prop_map(str::to_owned),
        "\\PC{0,8}".prop_map(String::from),
        Just(record("a", "<m/>")),
    ]
}
