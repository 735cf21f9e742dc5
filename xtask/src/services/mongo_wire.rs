//! The little of MongoDB's protocol that makes a replica set: one command in one OP_MSG, one answer. The driver would be most of what
//! there is to build here.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

const OP_MSG: u32 = 2013;
const LIMIT: Duration = Duration::from_secs(10);
/// An answer of these commands has some hundred bytes; a server sends no more than 48 MB.
const LONGEST: usize = 1 << 20;
/// Four numbers in front of every message: length, request, answer to which, kind.
const HEADER: usize = 16;
/// Behind them, before the document: four bytes of flags, and the kind of the section.
const BEFORE_DOCUMENT: usize = HEADER + 5;

/// The kinds of values that are sent.
#[derive(Debug)]
pub(super) enum Value {
    Int(i32),
    Text(String),
    Document(Vec<(String, Self)>),
    Array(Vec<Self>),
}

impl Value {
    pub(super) fn document<const N: usize>(fields: [(&str, Self); N]) -> Self {
        Self::Document(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Text(_) => 0x02,
            Self::Document(_) => 0x03,
            Self::Array(_) => 0x04,
            Self::Int(_) => 0x10,
        }
    }

    fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Int(number) => number.to_le_bytes().to_vec(),
            Self::Text(text) => [&length(text.len() + 1)[..], text.as_bytes(), &[0]].concat(),
            Self::Document(fields) => fields_of(fields.iter().map(|(name, value)| (name.clone(), value))),
            // A document with numbers for names.
            Self::Array(values) => {
                fields_of(values.iter().enumerate().map(|(n, value)| (n.to_string(), value)))
            }
        }
    }
}

fn fields_of<'a>(fields: impl Iterator<Item = (String, &'a Value)>) -> Vec<u8> {
    let mut content = Vec::new();
    for (name, value) in fields {
        content.push(value.kind());
        content.extend(name.bytes());
        content.push(0);
        content.extend(value.bytes());
    }
    [&length(content.len() + 5)[..], &content, &[0]].concat()
}

fn length(bytes: usize) -> [u8; 4] {
    u32::try_from(bytes).unwrap_or(u32::MAX).to_le_bytes()
}

/// A document that a server answered with.
#[derive(Debug)]
pub(super) struct Answer(Vec<u8>);

impl Answer {
    /// Whether the field is there and true, or 1.
    pub(super) fn says(&self, field: &str) -> bool {
        match self.field(field) {
            Some((0x08, value)) => value == [1],
            Some((0x01, value)) => value == 1_f64.to_le_bytes(),
            _ => false,
        }
    }

    fn text(&self, field: &str) -> Option<String> {
        let (0x02, value) = self.field(field)? else { return None };
        Some(String::from_utf8_lossy(value.get(4..value.len() - 1)?).into_owned())
    }

    /// Kind and bytes of a field of the document itself.
    fn field(&self, wanted: &str) -> Option<(u8, &[u8])> {
        let mut rest = self.0.get(4..)?;
        // Every turn takes a field off the rest.
        loop {
            let (&kind, tail) = rest.split_first()?;
            if kind == 0 {
                return None;
            }
            let end = tail.iter().position(|byte| *byte == 0)?;
            let (name, tail) = (tail.get(..end)?, tail.get(end + 1..)?);
            let (value, tail) = tail.split_at_checked(size(kind, tail)?)?;
            if name == wanted.as_bytes() {
                return Some((kind, value));
            }
            rest = tail;
        }
    }
}

/// How many bytes the value at the beginning has.
fn size(kind: u8, bytes: &[u8]) -> Option<usize> {
    let counted = || usize::try_from(number(bytes)?).ok();
    Some(match kind {
        0x01 | 0x09 | 0x11 | 0x12 => 8,
        0x02 => 4 + counted()?,
        0x03 | 0x04 => counted()?,
        0x05 => 5 + counted()?,
        0x07 => 12,
        0x08 => 1,
        0x0A => 0,
        0x10 => 4,
        _ => return None,
    })
}

fn number(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.first_chunk()?.to_owned()))
}

/// Runs a command of the database `admin` on a server of this machine. One that failed is an error.
pub(super) fn run(port: u16, command: &str, argument: Value) -> Result<Answer> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, LIMIT)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;

    let document = Value::document([(command, argument), ("$db", Value::Text("admin".to_owned()))]).bytes();
    let mut message = length(BEFORE_DOCUMENT + document.len()).to_vec();
    message.extend([1, 0, OP_MSG].map(u32::to_le_bytes).concat());
    message.extend([0; 5]);
    message.extend(document);
    stream.write_all(&message)?;

    let mut header = [0; HEADER];
    stream.read_exact(&mut header)?;
    let whole = number(&header).and_then(|whole| usize::try_from(whole).ok());
    let rest = whole.filter(|whole| (BEFORE_DOCUMENT..=LONGEST).contains(whole)).map(|whole| whole - HEADER);
    let mut rest = vec![0; rest.with_context(|| format!("port {port} does not answer like a MongoDB"))?];
    stream.read_exact(&mut rest)?;
    let answer = Answer(rest.split_off(BEFORE_DOCUMENT - HEADER));
    if !answer.says("ok") {
        bail!(
            "{command}: {}",
            answer.text("errmsg").unwrap_or_else(|| "it failed and does not say why".to_owned())
        );
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_in_bytes() {
        // The example of the format's specification, and a number.
        let text = Value::document([("hello", Value::Text("world".to_owned()))]);
        assert_eq!(text.bytes(), b"\x16\0\0\0\x02hello\0\x06\0\0\0world\0\0");
        let array = Value::document([("a", Value::Array(vec![Value::Int(258)]))]);
        assert_eq!(array.bytes(), b"\x14\0\0\0\x04a\0\x0c\0\0\0\x100\0\x02\x01\0\0\0\0");
    }

    #[test]
    fn fields_of_an_answer() {
        let inner = b"\x0a\0\0\0\x08no\0\x01\0";
        let mut bytes = vec![0; 4];
        bytes.extend(b"\x03inner\0");
        bytes.extend(inner);
        bytes.extend(b"\x08yes\0\x01\x02errmsg\0\x03\0\0\0no\0");
        bytes.extend([b"\x01ok\0", &1_f64.to_le_bytes()[..], b"\0"].concat());
        let answer = Answer(bytes);
        assert!(answer.says("yes") && answer.says("ok") && !answer.says("no") && !answer.says("other"));
        assert_eq!(answer.text("errmsg").as_deref(), Some("no"));
    }

    #[test]
    fn an_answer_that_is_cut_off_says_nothing() {
        let whole = Value::document([("a", Value::Text("b".to_owned())), ("c", Value::Int(1))]).bytes();
        for end in 0..whole.len() {
            let answer = Answer(whole.get(..end).unwrap_or_default().to_vec());
            assert!(!answer.says("c") && answer.field("d").is_none());
        }
    }
}
