//! One line of patterns, as git reads it, written so that the matcher reads it in the same way.
//!
//! The matcher knows alternatives in braces, lets a class match a slash, takes a class that is not closed for text and removes
//! every kind of blank at the end; git does none of this.

use std::iter::Peekable;
use std::str::Chars;

/// The line as the matcher is to get it, none for a comment or an empty line, or why the line has no clear meaning.
pub(super) fn normalized(line: &str) -> Result<Option<String>, &'static str> {
    if line.contains(['\n', '\r', '\0']) {
        return Err("has a line break or a NUL");
    }
    if line.starts_with('#') {
        return Ok(None);
    }
    let line = without_trailing_spaces(line);
    if line.is_empty() {
        return Ok(None);
    }
    if line.ends_with(|last: char| last.is_whitespace() && last != ' ') {
        return Err("ends with a blank that is not a space");
    }
    let (sign, body) = match line.strip_prefix('!') {
        Some(rest) => ("!", rest),
        None => ("", line),
    };
    let (anchor, body) = match body.strip_prefix('/') {
        Some(rest) => ("/", rest),
        None => ("", body),
    };
    let (body, directory) = match body.strip_suffix('/') {
        Some(rest) => (rest, "/"),
        None => (body, ""),
    };
    let mut components: Vec<String> = Vec::new();
    for component in body.split('/') {
        let component = normalized_component(component)?;
        // Two in a row mean what one does.
        if component != "**" || components.last().is_none_or(|last| last != "**") {
            components.push(component);
        }
    }
    // One component without an anchor is meant at every depth. The matcher would look for a slash, and find that of a class.
    let depth = match components.as_slice() {
        [only] if anchor.is_empty() && only != "**" => "**/",
        _ => "",
    };
    Ok(Some(format!("{sign}{anchor}{depth}{}{directory}", components.join("/"))))
}

/// Spaces at the end do not count, unless the last of them is escaped.
fn without_trailing_spaces(line: &str) -> &str {
    let bare = line.trim_end_matches(' ');
    let backslashes = bare.len() - bare.trim_end_matches('\\').len();
    match backslashes % 2 {
        1 if bare.len() < line.len() => line.get(..=bare.len()).unwrap_or(line),
        _ => bare,
    }
}

fn normalized_component(component: &str) -> Result<String, &'static str> {
    match component {
        "" => return Err("has an empty component"),
        "." | ".." => return Err("has the component \".\" or \"..\", which no path has"),
        stars if stars.len() > 1 && stars.bytes().all(|byte| byte == b'*') => return Ok("**".to_owned()),
        _ => {}
    }
    let mut text = String::new();
    let mut chars = component.chars().peekable();
    while let Some(next) = chars.next() {
        match next {
            // One star by git's manual, and two by its code if only plain text is before them.
            '*' if chars.peek() == Some(&'*') => {
                return Err("has two stars in a component with something else");
            }
            '*' | '?' => text.push(next),
            '[' => class(&mut chars, &mut text)?,
            '\\' => literal(chars.next().ok_or("ends with a backslash")?, &mut text),
            other => literal(other, &mut text),
        }
    }
    Ok(text)
}

fn literal(character: char, text: &mut String) {
    if character.is_ascii() && !character.is_ascii_alphanumeric() {
        text.push('\\');
    }
    text.push(character);
}

/// Reads a class behind its bracket and writes it so that it never matches a slash.
fn class(chars: &mut Peekable<Chars<'_>>, text: &mut String) -> Result<(), &'static str> {
    let negated = chars.next_if(|next| matches!(next, '!' | '^')).is_some();
    let mut singles = String::new();
    let mut ranges = String::new();
    let mut first = true;
    loop {
        let next = chars.next().ok_or("has a class that is not closed")?;
        match next {
            ']' if !first => break,
            '\\' => return Err("has a backslash in a class"),
            '[' if matches!(chars.peek(), Some(':' | '.' | '=')) => return Err("has a named class"),
            '/' => return Err("has a slash in a class"),
            other if !other.is_ascii() || other.is_ascii_control() => {
                return Err("has a class with something else than printable ASCII");
            }
            start => match range_end(chars) {
                Some(end) if start.is_ascii_alphanumeric() && end.is_ascii_alphanumeric() && start <= end => {
                    ranges.extend([start, '-', end]);
                }
                Some(_) => return Err("has a range of something else than letters or digits upwards"),
                None => singles.push(start),
            },
        }
        first = false;
    }
    if negated {
        singles.push('/');
    }
    write_class(negated, &ranges, &singles, text)
}

/// The end of a range, if the class goes on with one. A hyphen before the bracket is a hyphen.
fn range_end(chars: &mut Peekable<Chars<'_>>) -> Option<char> {
    let mut ahead = chars.clone();
    let end = match (ahead.next(), ahead.next()) {
        (Some('-'), Some(end)) if end != ']' => end,
        _ => return None,
    };
    *chars = ahead;
    Some(end)
}

/// The matcher knows no escapes in a class, so what has a meaning there goes where it has none.
fn write_class(negated: bool, ranges: &str, singles: &str, text: &mut String) -> Result<(), &'static str> {
    let has = |wanted: char| singles.contains(wanted);
    let plain: String = singles.chars().filter(|single| !matches!(single, ']' | '-' | '!' | '^')).collect();
    let signs: String = ['^', '!'].into_iter().filter(|sign| has(*sign)).collect();
    let begins_with_sign = !negated && plain.is_empty() && ranges.is_empty() && !has(']');
    match (begins_with_sign, signs.as_str(), has('-')) {
        // A hyphen is itself as the first of all.
        (true, signs, true) => text.push_str(&format!("[-{signs}]")),
        (true, "!", false) => literal('!', text),
        (true, "^", false) => literal('^', text),
        (true, _, false) => return Err("has a class of nothing but \"!\" and \"^\""),
        (false, signs, hyphen) => {
            let negation = if negated { "!" } else { "" };
            let bracket = if has(']') { "]" } else { "" };
            let hyphen = if hyphen { "-" } else { "" };
            text.push_str(&format!("[{negation}{bracket}{ranges}{plain}{signs}{hyphen}]"));
        }
    }
    Ok(())
}
