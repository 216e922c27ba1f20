//! `GET /service`: the AtomPub service document (RFC 5023 section 8). Each hook is a collection that accepts the
//! media types of its dialect; the feed is a collection that accepts nothing.

use std::sync::Arc;

use axum::{
    extract::State,
    http::{HeaderMap, Method},
    response::Response,
};
use quick_xml::{
    Writer,
    events::{BytesDecl, BytesText, Event},
};

use crate::web::{CachePolicy, Problem, Representation, problems};

/// The media type of a service document (RFC 5023 section 16.2).
const MEDIA_TYPE: &str = "application/atomsvc+xml";

/// Content of the service document.
#[derive(Clone, Debug)]
pub struct Service {
    /// Public URL of the gateway without a trailing slash.
    pub public_url: Arc<str>,
    /// Title of the feed.
    pub feed_title: Arc<str>,
    /// The hooks.
    pub hooks: Arc<[Hook]>,
}

/// Hook, presented as a collection.
#[derive(Clone, Debug)]
pub struct Hook {
    /// Name of the source.
    pub source: String,
    /// Description of the senders whose messages the hook accepts.
    pub about: &'static str,
    /// Accepted media types.
    pub accepts: &'static [&'static str],
}

problems!(Problems:);

/// The service document.
///
/// # Errors
/// None that a client can cause.
#[utoipa::path(
    get,
    path = "/service",
    operation_id = "getServiceDocument",
    tag = "out",
    responses(
        (status = 200, description = "The document.", body = String, content_type = "application/atomsvc+xml"),
        (status = 304, description = "Not modified."),
        Problems,
    ),
)]
pub async fn document(State(service): State<Service>, method: Method, headers: HeaderMap) -> Result<Response, Problem> {
    let body = render(&service).map_err(Problem::internal)?;
    Ok(Representation::new(MEDIA_TYPE, body, CachePolicy::Revalidate).respond(&method, &headers))
}

fn render(service: &Service) -> std::io::Result<Vec<u8>> {
    let mut writer = Writer::new_with_indent(Vec::new(), b' ', 2);
    writer.write_event(Event::Decl(BytesDecl::new("1.0", Some("UTF-8"), None)))?;
    writer
        .create_element("service")
        .with_attribute(("xmlns", "http://www.w3.org/2007/app"))
        .with_attribute(("xmlns:atom", "http://www.w3.org/2005/Atom"))
        .write_inner_content(|writer| {
            writer.create_element("workspace").write_inner_content(|writer| {
                title(writer, "Tidings")?;
                for hook in service.hooks.iter() {
                    let href = format!("{}/hooks/{}", service.public_url, hook.source);
                    let about = format!("{}: {}", hook.source, hook.about);
                    collection(writer, &href, &about, hook.accepts)?;
                }
                collection(writer, &format!("{}/feed", service.public_url), &service.feed_title, &[])
            })?;
            Ok(())
        })?;
    Ok(writer.into_inner())
}

/// Writes a collection. A collection without `accept` would accept Atom entries (RFC 5023 section 8.3.4); an empty
/// `accept` means that it accepts nothing.
fn collection(writer: &mut Writer<Vec<u8>>, href: &str, about: &str, accepts: &[&str]) -> std::io::Result<()> {
    writer.create_element("collection").with_attribute(("href", href)).write_inner_content(|writer| {
        title(writer, about)?;
        for accept in accepts {
            writer.create_element("accept").write_text_content(BytesText::new(accept))?;
        }
        if accepts.is_empty() {
            writer.create_element("accept").write_empty()?;
        }
        Ok(())
    })?;
    Ok(())
}

fn title(writer: &mut Writer<Vec<u8>>, text: &str) -> std::io::Result<()> {
    writer.create_element("atom:title").write_text_content(BytesText::new(text))?;
    Ok(())
}
