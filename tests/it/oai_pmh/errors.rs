//! Arguments and errors, over GET and POST.

use reqwest::StatusCode;

use crate::support::{
    gateway::Gateway,
    oai_pmh_fixture::{Repository, object},
};

/// Requests with the codes of their errors.
const ERRORS: [(&str, &[&str]); 27] = [
    ("", &["badVerb"]),
    ("junk", &["badVerb"]),
    ("verb=junk", &["badVerb"]),
    ("verb=Identify&verb=Identify", &["badVerb"]),
    ("verb=Identify&metadataPrefix=oai_dc", &["badArgument"]),
    ("verb=Identify&a=1&b=2", &["badArgument", "badArgument"]),
    ("verb=ListMetadataFormats&identifier=invalid%22id", &["idDoesNotExist"]),
    ("verb=ListMetadataFormats&identifier=http%3A%2F%2Fh%2Fx%00", &["idDoesNotExist"]),
    ("verb=ListSets&set=a", &["badArgument"]),
    ("verb=ListSets&resumptionToken=junk", &["badResumptionToken"]),
    ("verb=GetRecord", &["badArgument", "badArgument"]),
    ("verb=GetRecord&metadataPrefix=oai_dc", &["badArgument"]),
    ("verb=GetRecord&identifier=http%3A%2F%2Fh%2Fobjects%2F1", &["badArgument"]),
    ("verb=GetRecord&metadataPrefix=oai_dc&identifier=http%3A%2F%2Fh%2Fno", &["idDoesNotExist"]),
    ("verb=GetRecord&metadataPrefix=marc&identifier=http%3A%2F%2Fh%2Fobjects%2F1", &["cannotDisseminateFormat"]),
    ("verb=GetRecord&metadataPrefix=marc&identifier=urn:no", &["cannotDisseminateFormat", "idDoesNotExist"]),
    ("verb=ListRecords", &["badArgument"]),
    ("verb=ListRecords&metadataPrefix=marc", &["cannotDisseminateFormat"]),
    ("verb=ListRecords&metadataPrefix=oai_dc&from=junk&until=junk", &["badArgument", "badArgument"]),
    ("verb=ListRecords&metadataPrefix=oai_dc&from=2002-02-05&until=2002-02-06T05:35:00Z", &["badArgument"]),
    ("verb=ListRecords&metadataPrefix=oai_dc&from=2002-02-06&until=2002-02-05", &["badArgument"]),
    ("verb=ListRecords&metadataPrefix=oai_dc&until=2002-02-05", &["noRecordsMatch"]),
    ("verb=ListRecords&metadataPrefix=oai_dc&from=9998-01-01", &["noRecordsMatch"]),
    ("verb=ListIdentifiers&metadataPrefix=oai_dc&set=no.such", &["noRecordsMatch"]),
    ("verb=ListIdentifiers&metadataPrefix=oai_dc&set=a%20b", &["badArgument"]),
    ("verb=ListRecords&resumptionToken=junk", &["badResumptionToken"]),
    ("verb=ListRecords&resumptionToken=junk&metadataPrefix=oai_dc", &["badArgument"]),
];

#[tokio::test]
async fn errors_of_the_protocol_are_responses() {
    let repository = Repository::start("");
    repository.add(1).await;
    for (query, expected) in ERRORS {
        let response = repository.get(query).await;
        assert_eq!(response.errors(), expected, "{query}");
        // With an illegal verb or argument, the request has no attributes; otherwise those that it had.
        let is_illegal = expected.iter().any(|code| code.starts_with("badV") || code.starts_with("badA"));
        let shows_arguments = response.body.contains("<request verb=");
        assert_eq!(shows_arguments, !is_illegal && !query.contains("%00"), "{query}: {}", response.body);
        assert_eq!(response.text("request"), repository.url());
        let form = repository.gateway.http.post(repository.url());
        let form = form.header("content-type", "application/x-www-form-urlencoded").body(query);
        assert_eq!(repository.send(form).await.errors(), expected, "POST {query}");
    }
}

#[tokio::test]
async fn get_and_post_have_the_same_response() {
    let repository = Repository::start("");
    repository.add(1).await;
    let record = format!("verb=GetRecord&metadataPrefix=oai_dc&identifier={}", object(1));
    for query in ["verb=Identify", "verb=ListMetadataFormats", "verb=ListSets", &*record] {
        let undated = |body: &str| body.split_once("</responseDate>").unwrap().1.to_owned();
        let by_get = repository.get(query).await;
        let form = || repository.gateway.http.post(repository.url()).body(query.to_owned());
        let typed = form().header("content-type", "application/x-www-form-urlencoded; charset=utf-8");
        let by_post = repository.send(typed).await;
        assert_eq!(undated(&by_get.body), undated(&by_post.body));
        assert_eq!(by_get.errors(), Vec::<String>::new(), "{}", by_get.body);
        assert_eq!(repository.send(form()).await.errors(), ["badArgument"], "without its media type");
        let both = repository.gateway.http.post(format!("{}?verb=Identify", repository.url())).body(query.to_owned());
        let both = both.header("content-type", "application/x-www-form-urlencoded");
        assert_eq!(repository.send(both).await.errors(), ["badArgument"], "arguments in the query of a POST");
    }
}

#[tokio::test]
async fn repository_without_an_address_does_not_exist() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(folder.path());
    let response = gateway.http.get(format!("{}/oai?verb=Identify", gateway.url)).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::NOT_FOUND);
    assert!(response.text().await.unwrap().contains("oai_pmh.admin_email"));
}
