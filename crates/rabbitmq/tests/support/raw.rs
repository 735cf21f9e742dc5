//! A client that sends whatever bytes it is given: no library lets one publish text that is not UTF-8.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

fn frame(kind: u8, channel: u16, content: &[u8]) -> Vec<u8> {
    let size = u32::try_from(content.len()).unwrap().to_be_bytes();
    [&[kind][..], &channel.to_be_bytes(), &size, content, &[0xce]].concat()
}

fn short(text: &[u8]) -> Vec<u8> {
    [&[u8::try_from(text.len()).unwrap()][..], text].concat()
}

fn long(bytes: &[u8]) -> Vec<u8> {
    [&u32::try_from(bytes.len()).unwrap().to_be_bytes()[..], bytes].concat()
}

async fn say(socket: &mut TcpStream, bytes: &[u8]) {
    socket.write_all(bytes).await.unwrap();
}

async fn listen(socket: &mut TcpStream) {
    let mut head = [0; 7];
    socket.read_exact(&mut head).await.unwrap();
    let size = u32::from_be_bytes(head[3..].try_into().unwrap()) as usize;
    socket.read_exact(&mut vec![0; size + 1]).await.unwrap();
}

/// Puts a message into a queue, with one header and the property `message_id`.
pub async fn put(url: &str, queue: &str, header: &[u8], message_id: &[u8], body: &[u8]) {
    let address = url.split('@').nth(1).unwrap().split('/').next().unwrap();
    let mut socket = TcpStream::connect(address).await.unwrap();
    let socket = &mut socket;
    say(socket, b"AMQP\0\0\x09\x01").await;
    listen(socket).await;
    let login =
        [&[0, 10, 0, 11][..], &long(b""), &short(b"PLAIN"), &long(b"\0guest\0guest"), &short(b"en_US")];
    say(socket, &frame(1, 0, &login.concat())).await;
    listen(socket).await;
    say(socket, &frame(1, 0, &[0, 10, 0, 31, 0, 10, 0, 2, 0, 0, 0, 0])).await;
    say(socket, &frame(1, 0, &[&[0, 10, 0, 40][..], &short(b"/"), &short(b""), &[0]].concat())).await;
    listen(socket).await;
    say(socket, &frame(1, 1, &[0, 20, 0, 10, 0])).await;
    listen(socket).await;
    // With confirmations, so that it is there when we return.
    say(socket, &frame(1, 1, &[0, 85, 0, 10, 0])).await;
    listen(socket).await;
    let publish = [&[0, 60, 0, 40, 0, 0][..], &short(b""), &short(queue.as_bytes()), &[0]].concat();
    let table = [short(header), b"S".to_vec(), long(b"value")].concat();
    let flags = (1_u16 << 13 | 1 << 7).to_be_bytes();
    let size = (body.len() as u64).to_be_bytes();
    let head = [&[0, 60, 0, 0][..], &size, &flags, &long(&table), &short(message_id)].concat();
    say(socket, &[frame(1, 1, &publish), frame(2, 1, &head), frame(3, 1, body)].concat()).await;
    listen(socket).await;
}
