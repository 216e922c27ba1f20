//! DataCite: the files of a DOI whose landing page gives none. A few platforms have registered the URLs of their files.

use futures_util::future::BoxFuture;
use serde::Deserialize;
use url::Url;

use super::{
    Dataset, DatasetMetadata, PlatformHelper, PlatformSettings, Recognition, below, domain, former_name, item_name,
    no_match, segments, signposting::linked_files,
};
use crate::{
    filesets::{
        IngestFailure, LandingPage, Link, PlatformClient,
        json::{self, List, Texts},
    },
    format::fileset::status::IngestStatus,
};

/// DataCite.
pub(super) struct DataCite;

const NAME: &str = "datacite";

/// Documents of the interface.
pub(super) const DOCUMENTS: &[json::Reads] = &[json::is::<Answer<Doi>>, json::is::<Answer<List<Media>>>];

#[derive(Deserialize)]
struct Answer<T> {
    data: T,
}

#[derive(Deserialize)]
struct Doi {
    attributes: Attributes,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Attributes {
    /// A URL, a list, or nothing.
    #[serde(default)]
    content_url: Texts,
    #[serde(default)]
    titles: List<Title>,
    #[serde(default)]
    creators: List<Creator>,
    #[serde(default)]
    publication_year: Option<u32>,
    #[serde(default)]
    version: Option<String>,
}

#[derive(Deserialize)]
struct Title {
    title: String,
}

#[derive(Deserialize)]
struct Creator {
    #[serde(default)]
    name: Option<String>,
}

#[derive(Deserialize)]
struct Media {
    attributes: MediaAttributes,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MediaAttributes {
    url: String,
    #[serde(default)]
    media_type: Option<String>,
}

impl PlatformHelper for DataCite {
    fn name(&self) -> &'static str {
        NAME
    }

    fn recognizes_by(&self) -> Recognition {
        Recognition::Identifier
    }

    fn matches(&self, page: &LandingPage, _: &PlatformSettings) -> bool {
        doi(page).is_some()
    }

    fn dataset<'a>(
        &'a self,
        page: &'a LandingPage,
        settings: &'a PlatformSettings,
        client: &'a PlatformClient,
    ) -> BoxFuture<'a, Result<Dataset, IngestFailure>> {
        Box::pin(async move {
            let Some(doi) = doi(page) else { return Err(no_match(page)) };
            let place = below(&settings.datacite, ["dois", &doi]);
            // Another agency may have registered the DOI.
            let unknown = |failure: IngestFailure| {
                if failure.status == IngestStatus::PLATFORM_404 { no_match(page) } else { failure }
            };
            let Answer { data: Doi { attributes } } =
                client.json::<Answer<Doi>>(&place, None).await.map_err(unknown)?;
            let content = attributes.content_url;
            let mut links = client.convert(content.0.len(), || content_links(content)).await;
            if links.is_empty() {
                let place = below(&settings.datacite, ["dois", &doi, "media"]);
                let media = client.json::<Answer<List<Media>>>(&place, None).await.map_err(unknown)?.data;
                let link = |Media { attributes: MediaAttributes { url, media_type } }: Media| {
                    Some(Link::new(Url::parse(&url).ok()?, media_type))
                };
                links = client.convert(media.len(), move || media.into_iter().filter_map(link).collect()).await;
            }
            if links.is_empty() {
                return Err(no_match(page));
            }
            let host = domain(&page.url);
            Ok(Dataset {
                platform_name: NAME,
                archiveorg_item_name: item_name(&host, &[&doi]),
                former_item_name: Some(former_name(&[&host, &doi])),
                told_bytes: None,
                platform_domain: host,
                base_url: None,
                bundle_url: None,
                files: client.convert(links.len(), || linked_files(links)).await,
                metadata: DatasetMetadata {
                    title: attributes.titles.into_iter().next().map(|title| title.title),
                    creators: attributes.creators.into_iter().filter_map(|creator| creator.name).collect(),
                    date: attributes.publication_year.map(|year| year.to_string()),
                    doi: Some(doi.clone()),
                    version: attributes.version,
                    ..DatasetMetadata::default()
                },
                platform_id: doi,
            })
        })
    }
}

/// Returns the DOI of the first URL on the way to a page that has one in its path.
fn doi(page: &LandingPage) -> Option<String> {
    page.hops.iter().find_map(|hop| {
        let path = segments(hop);
        let is_prefix = |part: &String| {
            part.strip_prefix("10.").is_some_and(|rest| rest.len() >= 4 && rest.bytes().all(|b| b.is_ascii_digit()))
        };
        let at = path.iter().position(is_prefix)?;
        path.get(at + 1)?;
        Some(path[at..].join("/").to_ascii_lowercase())
    })
}

fn content_links(content: Texts) -> Vec<Link> {
    let link = |url: String| Some(Link::new(Url::parse(&url).ok()?, None));
    content.0.into_iter().filter_map(link).collect()
}
