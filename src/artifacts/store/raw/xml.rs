//! The XML of the clouds, read with bounds.
//!
//! Problem: it comes over the network and carries text that others chose.
//!
//! Defence: no document type, no entities but the predefined, no deep nesting, no text longer than a key can be.

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

/// Longest text of one element: 1024 bytes of key, each as `%XX`.
pub(super) const TEXT_MAX: usize = 4096;
const DEPTH_MAX: usize = 8;

/// Why an answer cannot be read.
pub(crate) type Malformed = &'static str;

/// Calls `element` at the end of each element, with the names from the root down to it and its text. Ends with the root.
pub(crate) fn read(
    xml: &[u8],
    mut element: impl FnMut(&[&str], String) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    read_with(xml, "", |names, text, _| element(names, text))
}

/// The same, also with the value that the element's attribute `wanted` has.
pub(crate) fn read_with(
    xml: &[u8],
    wanted: &str,
    mut element: impl FnMut(&[&str], String, Option<&str>) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    let text = std::str::from_utf8(xml).map_err(|_| "answer is not UTF-8")?;
    let mut reader = Reader::from_str(text);
    let mut path: Vec<String> = Vec::new();
    let (mut content, mut said) = (String::new(), None);
    loop {
        match reader.read_event().map_err(|_| "answer is not well-formed")? {
            Event::Start(start) => {
                let name = std::str::from_utf8(start.local_name().into_inner()).unwrap_or_default();
                if path.len() >= DEPTH_MAX {
                    return Err("answer is nested too deep");
                }
                path.push(name.to_owned());
                content.clear();
                said = match wanted {
                    "" => None,
                    wanted => attribute(&start, wanted)?,
                };
            }
            Event::Text(part) => append(&mut content, &part.decode().map_err(|_| "answer is not UTF-8")?)?,
            Event::CData(part) => append(&mut content, &part.decode().map_err(|_| "answer is not UTF-8")?)?,
            Event::GeneralRef(entity) => {
                let character = match entity.resolve_char_ref() {
                    Ok(Some(character)) => character,
                    Ok(None) => predefined(&entity).ok_or("answer has an unknown entity")?,
                    Err(_) => return Err("answer has an unknown entity"),
                };
                append(&mut content, character.encode_utf8(&mut [0; 4]))?;
            }
            Event::End(_) => {
                let names: Vec<&str> = path.iter().map(String::as_str).collect();
                element(&names, std::mem::take(&mut content), said.take().as_deref())?;
                path.pop();
                if path.is_empty() {
                    return Ok(());
                }
            }
            Event::DocType(_) => return Err("answer has a document type"),
            Event::Eof => return Err("answer is cut short"),
            Event::Empty(_) | Event::Comment(_) | Event::Decl(_) | Event::PI(_) => {}
        }
    }
}

fn attribute(start: &BytesStart<'_>, wanted: &str) -> Result<Option<String>, Malformed> {
    let found = start.try_get_attribute(wanted).map_err(|_| "answer is not well-formed")?;
    Ok(found.map(|attribute| String::from_utf8_lossy(&attribute.value).into_owned()))
}

fn append(content: &mut String, part: &str) -> Result<(), Malformed> {
    content.push_str(part);
    if content.len() > TEXT_MAX { Err("answer has an overlong text") } else { Ok(()) }
}

fn predefined(entity: &[u8]) -> Option<char> {
    Some(match entity {
        b"lt" => '<',
        b"gt" => '>',
        b"amp" => '&',
        b"quot" => '"',
        b"apos" => '\'',
        _ => return None,
    })
}
