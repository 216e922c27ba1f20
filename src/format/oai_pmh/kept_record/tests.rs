//! Tests of kept records.

use super::{KeptDocument, KeptRecord, RecordOrigin, XmlWriter};
use crate::{
    format::Limits,
    model::{ContentLocation, Digest, DigestAlgorithm, OriginalContent, Timestamp, Uri},
};

const DUBLIN_CORE: &str = "<oai_dc:dc xmlns:oai_dc=\"http://www.openarchives.org/OAI/2.0/oai_dc/\" \
    xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\" xsi:schemaLocation=\"http://www.openarchives.org/OAI/2.0/oai_dc/ \
    http://www.openarchives.org/OAI/2.0/oai_dc.xsd\"><t>é</t></oai_dc:dc>";

fn origin(prefix: &str) -> RecordOrigin {
    let date = Timestamp::parse("2026-11-29T08:00:00.123Z").unwrap();
    RecordOrigin { base_url: "http://h/oai".to_owned(), prefix: prefix.to_owned(), date }
}

fn keep(record: &str) -> Option<KeptRecord> {
    let record = record.replacen("<record", "<record xmlns='http://www.openarchives.org/OAI/2.0/' xmlns:p='urn:p'", 1);
    KeptRecord::read(record.as_bytes(), &origin("oai_dc"), Limits::default()).unwrap()
}

fn parse(kept: &KeptRecord) -> KeptDocument {
    KeptDocument::parse(kept.document.as_bytes(), Limits::default()).unwrap()
}

fn record(datestamp: &str, rest: &str) -> String {
    format!(
        "<record><header><identifier>oai:h:1</identifier><datestamp>{datestamp}</datestamp><setSpec>a:b</setSpec></header>\
         <metadata>{DUBLIN_CORE}</metadata>{rest}</record>"
    )
}

#[test]
fn kept_record_has_its_parts_and_its_origin() {
    let about = "<about><p:rights>&amp;<!-- c --></p:rights></about>\
        <about><v:provenance xmlns:v='http://www.openarchives.org/OAI/2.0/provenance'><v:originDescription altered='true' harvestDate='2019-12-31'>\
        <v:baseURL>http://o/oai</v:baseURL><v:identifier>oai:o:1</v:identifier><v:datestamp>2019-12-30T10:00:00.5Z</v:datestamp>\
        <v:metadataNamespace>urn:o</v:metadataNamespace><v:originDescription harvestDate='soon' altered='no'/>\
        </v:originDescription></v:provenance></about><about><rights>in the namespace of the protocol</rights></about>";
    let kept = keep(&record("2026-11-01", about)).unwrap();
    assert_eq!(kept.address.as_str(), "http://h/oai?verb=GetRecord&metadataPrefix=oai_dc&identifier=oai%3Ah%3A1");
    let document = parse(&kept);
    assert!(document.is_of("http://h/oai", "oai_dc", "oai:h:1"));
    assert_eq!(document.origins[0].harvest_date, "2026-11-29T08:00:00Z");
    assert_eq!(document.origins[0].datestamp, "2026-11-01");
    assert_eq!(document.namespace(), "http://www.openarchives.org/OAI/2.0/oai_dc/");
    assert_eq!(document.schema(), Some("http://www.openarchives.org/OAI/2.0/oai_dc.xsd"));
    let metadata = DUBLIN_CORE.replacen(" xmlns:oai_dc", " xmlns:p=\"urn:p\" xmlns:oai_dc", 1);
    assert_eq!(document.metadata.xml, metadata);
    // The response declares this prefix, and a copy declares all.
    let xsi = " xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\"";
    assert_eq!(document.abouts, [format!("<p:rights{xsi} xmlns:p=\"urn:p\">&amp;</p:rights>")]);
    let mut xml = XmlWriter::document(0);
    document.write(&mut xml);
    let written = xml.into_text();
    assert_eq!(written.matches("<originDescription").count(), 2, "an origin without its parts is left out: {written}");
    let (own, origin) = written.split_once("<metadataNamespace>").unwrap();
    assert!(own.contains("altered=\"false\"") && origin.contains("altered=\"true\""), "{written}");
    assert!(origin.contains("<datestamp>2019-12-30T10:00:00Z</datestamp>"), "{written}");
}

#[test]
fn file_of_another_program_is_copied_before_it_is_shown() {
    let kept = keep(&record("2026-11-01", "")).unwrap();
    let parse = |file: &str| KeptDocument::parse(file.as_bytes(), Limits::default());
    // A response as a repository sends it, with the declarations around the record.
    let raw = kept.document.replacen("<OAI-PMH", "<OAI-PMH xmlns:o='urn:o'", 1).replacen(
        "<t>",
        "<?xml version='1.0'?><t>",
        1,
    );
    let document = parse(&raw).unwrap();
    assert!(document.metadata.xml.contains("xmlns:o=\"urn:o\"") && !document.metadata.xml.contains("<?"));
    assert!(parse(&raw.replacen("xmlns:o='urn:o'", "xmlns:o=''", 1)).is_err());
    let deep = format!("{}{}", "<d>".repeat(300), "</d>".repeat(300));
    assert!(parse(&raw.replacen("<t>é</t>", &deep, 1)).is_err());
}

#[test]
fn datestamp_has_a_form_of_the_protocol() {
    for (sent, expected) in [
        ("2026-11-01T10:00:00Z", "2026-11-01T10:00:00Z"),
        ("2026-11-01T10:00:00.5+01:00", "2026-11-01T09:00:00Z"),
        ("yesterday", "2026-11-29T08:00:00Z"),
    ] {
        let kept = keep(&record(sent, "")).unwrap();
        assert_eq!(parse(&kept).origins[0].datestamp, expected, "{sent}");
    }
}

#[test]
fn copy_of_the_same_metadata_is_known() {
    let kept = keep(&record("2026-11-01", "")).unwrap();
    let again = keep(&record("2026-11-02", "")).unwrap();
    let copy_of = |digest: &str| {
        let digest = Digest::parse(DigestAlgorithm::Sha256, digest).ok();
        let original = OriginalContent { url: kept.address.clone(), media_type: None, size: None, digest };
        ContentLocation {
            original: Some(Box::new(original)),
            ..ContentLocation::at(Uri::parse("http://g/files/1").unwrap())
        }
    };
    assert!(kept.digests.iter().all(|digest| again.is_kept_as(&copy_of(digest))));
    assert!(!kept.is_kept_as(&copy_of(&"0".repeat(64))));
    assert!(!kept.is_kept_as(&ContentLocation::at(kept.address.clone())), "the registry has no copy");
}

#[test]
fn deleted_records_and_those_of_gateways_are_not_kept() {
    assert_eq!(keep("<record><header status='deleted'><identifier>a</identifier></header></record>"), None);
    let record =
        record("2026-11-01", "").replacen("<record", "<record xmlns='http://www.openarchives.org/OAI/2.0/'", 1);
    assert_eq!(KeptRecord::read(record.as_bytes(), &origin("content-change"), Limits::default()), Ok(None));
    for file in ["<a/>", "", "<OAI-PMH xmlns='http://www.openarchives.org/OAI/2.0/'/>"] {
        assert!(KeptDocument::parse(file.as_bytes(), Limits::default()).is_err(), "{file}");
    }
}

#[test]
fn metadata_that_no_response_can_have_are_not_kept() {
    let read = |metadata: &str| {
        let record = format!(
            "<record xmlns='http://www.openarchives.org/OAI/2.0/'><header><identifier>a</identifier></header>\
             <metadata>{metadata}</metadata></record>"
        );
        KeptRecord::read(record.as_bytes(), &origin("oai_dc"), Limits::default())
    };
    assert!(matches!(read("<a xmlns='urn:a'/>"), Ok(Some(_))));
    for metadata in ["<a xmlns=''/>", "<a/>", "<a xmlns='urn:a' xmlns:b=''/>"] {
        assert!(read(metadata).is_err(), "{metadata}");
    }
    assert_eq!(read("<a"), Ok(None), "the dialect reports it");
}
