//! Memory of each parser of foreign documents. The tests have a program of their own, because its allocator counts what the
//! whole program allocates. So there is one test, which runs alone.

#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout)]

mod documents;
mod measure;
mod parsers;

#[test]
fn documents_take_bounded_memory() {
    for document in documents::all() {
        println!("{:?}", String::from_utf8_lossy(&document[..document.len().min(60)]));
        for parser in parsers::PARSERS {
            println!("{}", parser.name);
            (parser.check)(&document);
        }
    }
}
