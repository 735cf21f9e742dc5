//! Text that is not UTF-8, made harmless before the client sees it.
//!
//! The names of headers, the properties of a message and its routing key should be UTF-8, and no broker checks that. The client ends the
//! connection at one that is not, again and again, since the broker delivers the message again. So what comes from the broker is looked
//! through first: of such a text every byte is replaced, by one that does not occur in texts, and whoever reads the message leaves it out.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::io::poll_read_buf;

/// Stands for every byte of a text that is not UTF-8: SUBSTITUTE, which ASCII has for that.
const SUBSTITUTE: u8 = 0x1a;
/// How much is read at once.
const READ_BYTES: usize = 64 * 1024;
/// A frame that is larger is nothing that a broker sends: it is passed on as it is.
const MAX_LOOKED_THROUGH: usize = 4 * 1024 * 1024;
/// Tables and lists may be in each other so often: the client reads them by calling itself, and a sender could end the process.
const MAX_DEPTH: usize = 16;
/// Type, channel and size before the content, and a mark behind it.
const FRAME_HEAD: usize = 7;
const FRAME_END: usize = 1;

/// Whether this stands for a text that was not UTF-8.
pub(crate) fn is_illegible(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte == SUBSTITUTE)
}

/// A connection whose incoming frames are looked through.
pub(crate) struct Legible<W> {
    wire: W,
    buffer: BytesMut,
    /// So much of the buffer is looked through.
    done: usize,
    /// So much of what comes next need not be.
    passing: usize,
    ended: bool,
}

impl<W> Legible<W> {
    pub(crate) fn new(wire: W) -> Self {
        Self { wire, buffer: BytesMut::new(), done: 0, passing: 0, ended: false }
    }

    /// Looks through what has arrived, as far as frames are complete.
    fn look_through(&mut self) {
        loop {
            let rest = self.buffer.len() - self.done;
            let passed = self.passing.min(rest);
            (self.done, self.passing) = (self.done + passed, self.passing - passed);
            let frame = &mut self.buffer[self.done..];
            let Some(head) = frame.first_chunk::<FRAME_HEAD>() else { return };
            let (kind, size) = (head[0], u32::from_be_bytes([head[3], head[4], head[5], head[6]]) as usize);
            let whole = size.saturating_add(FRAME_HEAD + FRAME_END);
            if !matches!(kind, 1 | 2) || size > MAX_LOOKED_THROUGH {
                self.passing = whole;
                continue;
            }
            if frame.len() < whole {
                return;
            }
            let mut content = Content { bytes: &mut frame[FRAME_HEAD..FRAME_HEAD + size], at: 0, depth: 0 };
            // What is not as it should be is the client's to complain about.
            if kind == 1 {
                content.method()
            } else {
                content.header()
            };
            self.done += whole;
        }
    }
}

impl<W: AsyncRead + Unpin> AsyncRead for Legible<W> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.done == 0 && !self.ended {
            let this = &mut *self;
            this.buffer.reserve(READ_BYTES);
            let read = ready!(poll_read_buf(Pin::new(&mut this.wire), cx, &mut this.buffer))?;
            if read == 0 {
                this.ended = true;
                this.done = this.buffer.len();
            }
            this.look_through();
        }
        let given = self.done.min(into.remaining());
        into.put_slice(&self.buffer[..given]);
        self.buffer.advance(given);
        self.done -= given;
        Poll::Ready(Ok(()))
    }
}

impl<W: AsyncWrite + Unpin> AsyncWrite for Legible<W> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.wire).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.wire).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.wire).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.wire).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.wire.is_write_vectored()
    }
}

/// The content of a frame, read from its beginning. Everything is `None` once it is not as AMQP has it.
struct Content<'f> {
    bytes: &'f mut [u8],
    at: usize,
    /// How many tables and lists we are in.
    depth: usize,
}

impl Content<'_> {
    /// A method: only deliveries and returned messages hold texts of senders.
    fn method(&mut self) -> Option<()> {
        match (self.number(2)?, self.number(2)?) {
            // basic.deliver: consumer, number, flag, exchange, routing key
            (60, 60) => {
                self.text()?;
                self.skip(9)?;
                self.text()?;
                self.text()
            }
            // basic.return: code, reason, exchange, routing key
            (60, 50) => {
                self.skip(2)?;
                self.text()?;
                self.text()?;
                self.text()
            }
            _ => Some(()),
        }
    }

    /// The head of a message: class, weight, size, then the properties that its flags name.
    fn header(&mut self) -> Option<()> {
        self.skip(12)?;
        let flags = self.number(2)?;
        for bit in (2..16).rev().filter(|bit| flags & (1 << bit) != 0) {
            match bit {
                13 => self.table()?,
                // The delivery mode and the priority.
                11 | 12 => self.skip(1)?,
                // The timestamp.
                6 => self.skip(8)?,
                _ => self.text()?,
            }
        }
        Some(())
    }

    fn table(&mut self) -> Option<()> {
        let end = self.length()?;
        while self.at < end {
            self.text()?;
            self.value()?;
        }
        Some(())
    }

    fn value(&mut self) -> Option<()> {
        let kind = self.bytes.get_mut(self.at)?;
        if self.depth == MAX_DEPTH && matches!(kind, b'F' | b'A') {
            // Bytes are written in the same way, and nobody looks into them.
            *kind = b'x';
        }
        self.depth += 1;
        let value = self.value_within();
        self.depth -= 1;
        value
    }

    fn value_within(&mut self) -> Option<()> {
        match u8::try_from(self.number(1)?).ok()? {
            b'V' => Some(()),
            b't' | b'b' | b'B' => self.skip(1),
            b'U' | b'u' | b's' => self.skip(2),
            b'I' | b'i' | b'f' => self.skip(4),
            b'D' => self.skip(5),
            b'L' | b'l' | b'd' | b'T' => self.skip(8),
            b'S' | b'x' => {
                self.at = self.length()?;
                Some(())
            }
            b'F' => self.table(),
            b'A' => {
                let end = self.length()?;
                while self.at < end {
                    self.value()?;
                }
                Some(())
            }
            _ => None,
        }
    }

    /// A short text, with its length before it.
    fn text(&mut self) -> Option<()> {
        let length = usize::try_from(self.number(1)?).ok()?;
        let text = self.bytes.get_mut(self.at..self.at + length)?;
        if std::str::from_utf8(text).is_err() {
            text.fill(SUBSTITUTE);
        }
        self.skip(length)
    }

    /// Where something ends that has its length before it.
    fn length(&mut self) -> Option<usize> {
        let length = usize::try_from(self.number(4)?).ok()?;
        self.at.checked_add(length).filter(|end| *end <= self.bytes.len())
    }

    fn number(&mut self, bytes: usize) -> Option<u32> {
        let number = self.bytes.get(self.at..self.at + bytes)?;
        let number = number.iter().fold(0, |number, byte| number << 8 | u32::from(*byte));
        self.skip(bytes)?;
        Some(number)
    }

    fn skip(&mut self, bytes: usize) -> Option<()> {
        self.at = self.at.checked_add(bytes).filter(|at| *at <= self.bytes.len())?;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::io::AsyncReadExt;

    use super::*;

    fn frame(kind: u8, content: &[u8]) -> Vec<u8> {
        let size = u32::try_from(content.len()).expect("a small frame").to_be_bytes();
        [&[kind, 0, 1][..], &size, content, &[0xce]].concat()
    }

    fn short(text: &[u8]) -> Vec<u8> {
        [&[u8::try_from(text.len()).expect("a short text")][..], text].concat()
    }

    fn long(bytes: &[u8]) -> Vec<u8> {
        [&u32::try_from(bytes.len()).expect("few bytes").to_be_bytes()[..], bytes].concat()
    }

    /// The frames of one delivery, whose texts are these.
    fn delivery(routing_key: &[u8], header: &[u8], nested: &[u8], message_id: &[u8], body: &[u8]) -> Vec<u8> {
        let method =
            [&[0, 60, 0, 60][..], &short(b"tag"), &[0; 9], &short(b"exchange"), &short(routing_key)].concat();
        let inner = long(&[short(nested), b"I1234".to_vec()].concat());
        let list = [&b"A"[..], &long(&[&b"F"[..], &inner].concat())].concat();
        let table = [short(header), b"S".to_vec(), long(&[0xff, 0xfe]), short(b"list"), list].concat();
        let flags = (1_u16 << 13 | 1 << 12 | 1 << 7 | 1 << 6).to_be_bytes();
        let size = (body.len() as u64).to_be_bytes();
        let properties = [long(&table), vec![2], short(message_id), vec![0; 8]].concat();
        let head = [&[0, 60, 0, 0][..], &size, &flags, &properties].concat();
        [frame(1, &method), frame(2, &head), frame(3, body)].concat()
    }

    /// Reads in pieces of these sizes.
    async fn read(bytes: &[u8], pieces: &[usize]) -> Vec<u8> {
        let (mut far, near) = tokio::io::duplex(1 << 20);
        tokio::io::AsyncWriteExt::write_all(&mut far, bytes).await.expect("room");
        drop(far);
        let (mut legible, mut all) = (Legible::new(near), Vec::new());
        for size in pieces.iter().copied().cycle() {
            let mut piece = vec![0; size];
            match legible.read(&mut piece).await.expect("bytes") {
                0 => break,
                read => all.extend_from_slice(&piece[..read]),
            }
        }
        all
    }

    #[tokio::test]
    async fn what_is_not_utf8_is_replaced_and_nothing_else() {
        let bad = delivery(b"k\xe4y", b"n\xe4me", b"\xff\xff", b"id-\xfc", b"b\xf6dy");
        let mended =
            delivery(b"\x1a\x1a\x1a", b"\x1a\x1a\x1a\x1a", b"\x1a\x1a", b"\x1a\x1a\x1a\x1a", b"b\xf6dy");
        assert_eq!(read(&bad, &[1_000]).await, mended);
        let good = delivery("käy".as_bytes(), b"name", b"x", b"id", b"b\xf6dy");
        assert_eq!(read(&good, &[1_000]).await, good);
    }

    #[tokio::test]
    async fn lists_in_lists_in_lists_end_somewhere() {
        let mut value = b"V".to_vec();
        for _ in 0..20_000 {
            value = [&b"A"[..], &long(&value)].concat();
        }
        let table = [short(b"deep"), value].concat();
        let head = [&[0, 60, 0, 0][..], &[0; 8], &(1_u16 << 13).to_be_bytes(), &long(&table)].concat();
        let read = read(&frame(2, &head), &[100_000]).await;
        let lists = FRAME_HEAD + head.len() - table.len() + 5;
        let kinds: Vec<u8> = (0..=MAX_DEPTH).map(|depth| read[lists + depth * 5]).collect();
        assert_eq!(kinds, [&[b'A'; MAX_DEPTH][..], b"x"].concat());
    }

    #[test]
    fn what_was_replaced_is_recognised() {
        assert!(is_illegible("\u{1a}\u{1a}") && !is_illegible("") && !is_illegible("a\u{1a}"));
    }

    proptest! {
        #[test]
        fn any_bytes_pass_without_a_panic_and_keep_their_number(
            bytes in prop::collection::vec(any::<u8>(), 0..2_000),
            pieces in prop::collection::vec(1_usize..300, 1..10),
            prefix in any::<bool>(),
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            // Half of them begin as a frame does.
            let bytes = if prefix { frame(2, &bytes) } else { bytes };
            prop_assert_eq!(runtime.block_on(read(&bytes, &pieces)).len(), bytes.len());
        }

        #[test]
        fn deliveries_pass_in_pieces_of_any_size(
            pieces in prop::collection::vec(1_usize..50, 1..10),
            id in "[a-z]{0,20}",
            body in prop::collection::vec(any::<u8>(), 0..500),
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            let one = delivery(b"key", b"name", b"x", id.as_bytes(), &body);
            let bytes = [&one[..], &one, &frame(8, b"")].concat();
            prop_assert_eq!(runtime.block_on(read(&bytes, &pieces)), bytes);
        }
    }
}
