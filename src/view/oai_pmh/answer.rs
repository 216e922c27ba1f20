//! The response to a request.

use std::{io::Write, sync::Arc};

use axum::http::HeaderMap;
use flate2::{Compression, write::GzEncoder};
use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;

use super::{
    DeletedRecords, Repository,
    arguments::{Arguments, Verb},
    catalogue::{Catalogue, FormatDescription, MetadataFormat},
    document::{self, bad_token, datestamp, envelope, resumption_token},
    error::{ErrorCode, Failure, OaiError},
    list::{List, first_state},
    record::{Record, Unwritable},
    set::{ConfiguredSet, SetSpec},
    token::{Resumed, TokenKey},
};
use crate::{
    format::xml_writer::XmlWriter,
    journal::acceptance::{AcceptanceTime, AcceptedQuery},
    model::Uri,
    view::{block_on, journal_problem, registry_view::RegistryView, store_problem},
    web::{CachePolicy, Content, Problem, Representation, Spool, SpoolWriter, accepts_gzip, spool_problem},
};

/// Media type of all responses. The encoding is declared, because many harvesters assume another one otherwise.
const MEDIA_TYPE: &str = "text/xml; charset=utf-8";

/// Minimum size of a response that is compressed, in bytes.
const MIN_COMPRESSED_SIZE: usize = 1024;

/// A request of a reader.
pub(super) struct Request {
    pub(super) repository: Arc<Repository>,
    pub(super) sight: RegistryView,
    pub(super) arguments: Result<Arguments, Vec<OaiError>>,
}

/// A request without illegal arguments.
struct Legal {
    repository: Arc<Repository>,
    sight: RegistryView,
    arguments: Arguments,
    catalogue: Catalogue,
    /// Date of the response.
    date: AcceptanceTime,
    /// Time before which no datestamp is.
    floor: AcceptanceTime,
}

impl Request {
    /// Returns the response.
    ///
    /// # Errors
    /// Fails if the journal or the disk fails.
    pub(super) async fn answer(self, headers: &HeaderMap) -> Result<Representation, Problem> {
        let Self { repository, sight, arguments } = self;
        let (spool, base_url) = (repository.spool.clone(), repository.base_url.clone());
        // Before anything is read, so that a harvester can continue from this date.
        let date = repository.journal.acceptance_promise().await.map_err(journal_problem)?;
        let is_compressed = accepts_gzip(headers);
        let arguments = match arguments {
            Ok(arguments) => arguments,
            Err(errors) => {
                let response = document::errors(date, &base_url, None, &errors);
                return representation(&spool, &response, is_compressed);
            }
        };
        let floor = repository.journal.acceptance_floor();
        // Nobody waits for the response when this future is dropped.
        let ended = CancellationToken::new();
        let _guard = ended.clone().drop_guard();
        let catalogue = repository.catalogue();
        let request = Legal { repository, sight, arguments, catalogue, date, floor };
        // These wait for each other, and read the registry without a permit.
        let sets = request.sets().await;
        let permit = spool.list_permit().await;
        Spool::blocking(permit, move || {
            let response = match sets.and_then(|sets| request.write(sets, &ended)) {
                Ok(response) => response,
                Err(Failure::Oai(errors)) => {
                    document::errors(date, &request.repository.base_url, Some(&request.arguments), &errors)
                }
                Err(Failure::Http(problem)) => return Err(*problem),
            };
            representation(&spool, &response, is_compressed)
        })
        .await
    }
}

/// Result of `ListSets`: sets, and the token of the next page.
type SetsAndToken = (Vec<SetSpec>, Option<String>, bool);

impl Legal {
    async fn key(&self) -> Result<TokenKey, Failure> {
        let journal = &self.repository.journal;
        let key = self.repository.key.get_or_try_init(|| journal.token_key()).await.map_err(journal_problem)?;
        Ok(TokenKey::new(*key, journal.identity()))
    }

    /// Returns what the token of the request resumes.
    fn resumed(&self, key: &TokenKey) -> Result<Option<Resumed>, Failure> {
        let Some(token) = self.arguments.get("resumptionToken") else { return Ok(None) };
        let resumed = key.open(token).filter(|resumed| resumed.verb() == self.arguments.verb);
        resumed.map(Some).ok_or_else(|| bad_token().into())
    }

    /// Returns a page of sets, if they are requested.
    async fn sets(&self) -> Result<Option<SetsAndToken>, Failure> {
        if self.arguments.verb != Verb::ListSets {
            return Ok(None);
        }
        let key = self.key().await?;
        let after = match self.resumed(&key)? {
            Some(Resumed::Sets(after)) => Some(SetSpec::parse(&after).ok_or_else(bad_token)?),
            _ => None,
        };
        let is_first = after.is_none();
        let page = self.repository.sets.page(&self.repository.journal, &self.sight, &self.catalogue, after).await;
        let page = page.map_err(journal_problem)?;
        if page.sets.is_empty() {
            let error = OaiError::new(ErrorCode::NoSetHierarchy, "No record is in a set.");
            return Err(if is_first { error } else { bad_token() }.into());
        }
        let last = page.sets.last().filter(|_| page.has_more).map(ToString::to_string);
        let token = last.and_then(|last| key.seal(&Resumed::Sets(last)));
        Ok(Some((page.sets, token, is_first)))
    }

    /// Writes the response. The call blocks.
    fn write(&self, sets: Option<SetsAndToken>, ended: &CancellationToken) -> Result<Vec<u8>, Failure> {
        let mut xml = envelope(self.date, &self.repository.base_url, Some(&self.arguments));
        match self.arguments.verb {
            Verb::Identify => self.identify(&mut xml)?,
            Verb::ListMetadataFormats => self.formats(&mut xml)?,
            Verb::ListSets => write_sets(&mut xml, sets.unwrap_or_default(), &self.catalogue.sets),
            Verb::ListRecords => self.list(&mut xml, ended, true)?,
            Verb::ListIdentifiers => self.list(&mut xml, ended, false)?,
            Verb::GetRecord => self.record(&mut xml)?,
        }
        Ok(document::finish(xml))
    }

    fn identify(&self, xml: &mut XmlWriter) -> Result<(), Failure> {
        let Repository { journal, base_url, settings, .. } = &*self.repository;
        let query = AcceptedQuery { public: self.sight.is_public(), limit: 1, ..AcceptedQuery::default() };
        let first = block_on(journal.accepted(query)).map_err(journal_problem)?;
        // Records that are accepted later have later datestamps than this response.
        let earliest = first.objects.first().map_or(self.date, |first| first.position.time).max(self.floor);
        xml.open("Identify", &[]);
        xml.leaf("repositoryName", &[], &settings.repository_name);
        xml.leaf("baseURL", &[], base_url);
        xml.leaf("protocolVersion", &[], "2.0");
        xml.leaf("adminEmail", &[], &settings.admin_email);
        xml.leaf("earliestDatestamp", &[], &datestamp(earliest));
        xml.leaf("deletedRecord", &[], settings.deleted.name());
        xml.leaf("granularity", &[], "YYYY-MM-DDThh:mm:ssZ");
        xml.leaf("compression", &[], "gzip");
        xml.close("Identify");
        Ok(())
    }

    fn formats(&self, xml: &mut XmlWriter) -> Result<(), Failure> {
        let descriptions = match self.arguments.get("identifier") {
            Some(identifier) => self.formats_of(identifier)?,
            None => self.all_formats()?,
        };
        xml.open("ListMetadataFormats", &[]);
        for FormatDescription { prefix, schema, namespace } in descriptions {
            xml.open("metadataFormat", &[]);
            xml.leaf("metadataPrefix", &[], &prefix);
            xml.leaf("schema", &[], &schema);
            xml.leaf("metadataNamespace", &[], &namespace);
            xml.close("metadataFormat");
        }
        xml.close("ListMetadataFormats");
        Ok(())
    }

    /// Returns the formats that the gateway makes, and those of kept records of which there is one.
    fn all_formats(&self) -> Result<Vec<FormatDescription>, Failure> {
        let made = MetadataFormat::MADE.iter().filter_map(|format| format.description(&self.repository.base_url));
        let mut all: Vec<_> = made.collect();
        for prefix in self.catalogue.harvested_prefixes() {
            all.extend(self.repository.descriptions.of(&prefix, &self.repository.journal, &self.catalogue)?);
        }
        Ok(all)
    }

    /// Returns the formats of the record with an identifier. In several formats, these can be several records.
    fn formats_of(&self, identifier: &str) -> Result<Vec<FormatDescription>, Failure> {
        let (mut exists, mut found) = (false, Vec::new());
        for uri in self.catalogue.objects(identifier, None) {
            let of_record = self.find(&uri, |record| {
                let mut formats = MetadataFormat::MADE.to_vec();
                formats.extend(record.place_format().filter(|own| !formats.contains(own)));
                formats.retain(|format| !record.is_deleted_in(format) && record.identifier(format) == identifier);
                formats.iter().filter_map(|format| self.description(format, &record).transpose()).collect()
            })?;
            exists |= of_record.is_some();
            let of_record: Result<Vec<_>, Problem> = of_record.unwrap_or_else(|| Ok(Vec::new()));
            found.extend(of_record?);
        }
        match (exists, found.is_empty()) {
            (false, _) => Err(OaiError::unknown_identifier().into()),
            (true, true) => Err(OaiError::new(ErrorCode::NoMetadataFormats, "The record has no metadata.").into()),
            (true, false) => Ok(found),
        }
    }

    /// Returns the description of a format that a record has; `None` if its metadata cannot be read.
    fn description(&self, format: &MetadataFormat, record: &Record<'_>) -> Result<Option<FormatDescription>, Problem> {
        if let Some(made) = format.description(&self.repository.base_url) {
            return Ok(Some(made));
        }
        match record.kept_document(format) {
            Ok(kept) => Ok(kept.map(|kept| FormatDescription::of_kept(format, &kept))),
            Err(Unwritable::Missing) => Ok(None),
            Err(Unwritable::Failed(problem)) => Err(problem),
        }
    }

    fn record(&self, xml: &mut XmlWriter) -> Result<(), Failure> {
        let argument = |name: &str| self.arguments.get(name).unwrap_or_default();
        let (prefix, identifier) = (argument("metadataPrefix"), argument("identifier"));
        let format = self.catalogue.format(prefix);
        let (mut exists, mut is_written) = (false, false);
        xml.open("GetRecord", &[]);
        for uri in self.catalogue.objects(identifier, format.as_ref()) {
            let written = self.find(&uri, |record| {
                let format =
                    format.as_ref().filter(|format| record.has(format) && record.identifier(format) == identifier);
                let written = format.map(|format| record.write(xml, format, &self.repository.base_url));
                written.unwrap_or(Err(Unwritable::Missing))
            })?;
            exists |= written.is_some();
            match written {
                Some(Ok(())) => {
                    is_written = true;
                    break;
                }
                Some(Err(Unwritable::Failed(problem))) => return Err(problem.into()),
                Some(Err(Unwritable::Missing)) | None => {}
            }
        }
        xml.close("GetRecord");
        let mut errors = Vec::new();
        if !is_written && (exists || format.is_none()) {
            errors.push(OaiError::unknown_format(prefix));
        }
        if !exists {
            errors.push(OaiError::unknown_identifier());
        }
        if errors.is_empty() { Ok(()) } else { Err(Failure::Oai(errors)) }
    }

    /// Finds the record of an object; `None` if the reader sees none.
    fn find<T>(&self, uri: &Uri, result: impl FnOnce(Record<'_>) -> T) -> Result<Option<T>, Failure> {
        if !self.sight.covers(uri) {
            return Ok(None);
        }
        let journal = &self.repository.journal;
        // The time is read first: if the object changes meanwhile, a harvester finds it once more.
        let times = block_on(journal.object_times(uri.clone())).map_err(journal_problem)?;
        let time = times.and_then(|times| if self.sight.is_public() { times.published } else { Some(times.accepted) });
        let Some(time) = time else { return Ok(None) };
        let Some(state) = block_on(journal.object(uri.clone())).map_err(journal_problem)? else { return Ok(None) };
        let record = Record::of(uri, &state, time.max(self.floor), &self.sight, &self.catalogue);
        Ok(record.map_err(|error| store_problem(error.of_object(uri)))?.map(result))
    }

    fn list(&self, xml: &mut XmlWriter, ended: &CancellationToken, with_metadata: bool) -> Result<(), Failure> {
        let key = block_on(self.key())?;
        let now = block_on(self.repository.journal.acceptance_now()).map_err(journal_problem)?;
        let state = match self.resumed(&key)? {
            Some(Resumed::Records(state) | Resumed::Identifiers(state)) => state,
            _ => first_state(&self.arguments, self.floor, now)?,
        };
        let Repository { journal, base_url, settings, .. } = &*self.repository;
        let list = List {
            journal,
            sight: &self.sight,
            catalogue: &self.catalogue,
            base_url,
            floor: self.floor,
            now,
            page: settings.page,
            lists_deleted: settings.deleted == DeletedRecords::Persistent,
            key: &key,
            ended,
        };
        list.write(xml, state, with_metadata)
    }
}

fn write_sets(xml: &mut XmlWriter, (sets, token, is_first): SetsAndToken, filters: &[ConfiguredSet]) {
    xml.open("ListSets", &[]);
    for set in sets {
        xml.open("set", &[]);
        xml.leaf("setSpec", &[], &set.to_string());
        xml.leaf("setName", &[], &set.name(filters));
        xml.close("set");
    }
    match (token, is_first) {
        (Some(token), _) => resumption_token(xml, Some(&token), None),
        // The last one of several pages.
        (None, false) => xml.leaf("resumptionToken", &[], ""),
        (None, true) => {}
    }
    xml.close("ListSets");
}

/// Makes the response ready to be sent. Its tag is that of its content without the date.
fn representation(spool: &Spool, response: &[u8], is_compressed: bool) -> Result<Representation, Problem> {
    let written = |content: std::io::Result<Content>| content.map_err(spool_problem);
    let mut plain = spool.writer();
    plain.write_all(response).map_err(spool_problem)?;
    let gzip = if is_compressed && response.len() >= MIN_COMPRESSED_SIZE {
        let mut gzip = GzEncoder::new(spool.writer(), Compression::fast());
        gzip.write_all(response).map_err(spool_problem)?;
        Some(written(gzip.finish().and_then(SpoolWriter::finish))?)
    } else {
        None
    };
    let date_end = "</responseDate>";
    let at = response.windows(date_end.len()).position(|window| window == date_end.as_bytes()).unwrap_or_default();
    let digest: [u8; 32] = Sha256::digest(&response[at..]).into();
    let plain = written(plain.finish())?;
    let representation = Representation::from_compressed(MEDIA_TYPE, plain, gzip, digest, CachePolicy::Revalidate);
    Ok(representation.with_weak_tag(digest))
}
