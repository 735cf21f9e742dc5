//! An endpoint that gives tokens (OAuth 2.0, client credentials), signed with a key of its own.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufStream};
use tokio::net::{TcpListener, TcpStream};

pub(crate) const CLIENT: &str = "oncebox";
pub(crate) const SECRET: &str = "canary-of-the-client";

/// Listens on this machine until the test ends.
pub(crate) struct Issuer {
    address: SocketAddr,
    state: Arc<State>,
}

struct State {
    key: EcdsaKeyPair,
    behaviour: Mutex<Behaviour>,
}

struct Behaviour {
    /// Instead of a token.
    status: Option<u16>,
    seconds: u64,
    audience: &'static str,
    issued: usize,
    bodies: Vec<String>,
}

impl Issuer {
    /// Its tokens live that long.
    pub(crate) async fn start(seconds: u64) -> Self {
        let random = SystemRandom::new();
        let made = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).expect("a key");
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, made.as_ref(), &random);
        let behaviour = Behaviour { status: None, seconds, audience: "kafka", issued: 0, bodies: Vec::new() };
        let state = Arc::new(State { key: key.expect("a key"), behaviour: Mutex::new(behaviour) });
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let served = Arc::clone(&state);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let state = Arc::clone(&served);
                // A client that goes away is no concern of ours.
                tokio::spawn(async move { state.serve(stream).await.ok() });
            }
        });
        Self { address, state }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/oauth2/token", self.address)
    }

    /// What the broker needs to know it by: a JWKS.
    pub(crate) fn keys(&self) -> String {
        // 4, and the two coordinates.
        let point = &self.state.key.public_key().as_ref()[1..];
        let [x, y] = [&point[..32], &point[32..]].map(|half| BASE64_URL_SAFE_NO_PAD.encode(half));
        let key =
            json!({"kty": "EC", "crv": "P-256", "kid": "one", "use": "sig", "alg": "ES256", "x": x, "y": y});
        json!({ "keys": [key] }).to_string()
    }

    /// From now on it answers with this status, or with tokens again.
    pub(crate) fn answer_with(&self, status: Option<u16>) {
        self.state.behaviour().status = status;
    }

    /// From now on its tokens are for this audience.
    pub(crate) fn sign_for(&self, audience: &'static str) {
        self.state.behaviour().audience = audience;
    }

    pub(crate) fn issued(&self) -> usize {
        self.state.behaviour().issued
    }

    /// What was asked last.
    pub(crate) fn last_body(&self) -> String {
        self.state.behaviour().bodies.last().cloned().unwrap_or_default()
    }
}

impl State {
    fn behaviour(&self) -> MutexGuard<'_, Behaviour> {
        self.behaviour.lock().expect("no panic")
    }

    async fn serve(&self, stream: TcpStream) -> std::io::Result<()> {
        let mut stream = BufStream::new(stream);
        let (mut length, mut known) = (0, false);
        let expected = format!("Basic {}", BASE64_STANDARD.encode(format!("{CLIENT}:{SECRET}")));
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).await?;
            let Some((name, value)) = line.trim_end().split_once(": ") else {
                if line.starts_with("POST") {
                    continue;
                }
                break;
            };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.parse().expect("a length"),
                "authorization" => known = value == expected,
                _ => {}
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await?;
        let (status, answer) = self.answer(known, String::from_utf8_lossy(&body).into_owned());
        let length = answer.len();
        let answer = format!(
            "HTTP/1.1 {status} Test\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{answer}"
        );
        stream.write_all(answer.as_bytes()).await?;
        stream.flush().await
    }

    fn answer(&self, known: bool, body: String) -> (u16, String) {
        let mut behaviour = self.behaviour();
        behaviour.bodies.push(body);
        if let Some(status) = behaviour.status {
            return (status, "{}".to_owned());
        }
        if !known {
            let said = json!({"error": "invalid_client", "error_description": "who are you?"});
            return (401, said.to_string());
        }
        behaviour.issued += 1;
        let token = self.token(behaviour.seconds, behaviour.audience);
        (
            200,
            json!({"access_token": token, "token_type": "Bearer", "expires_in": behaviour.seconds})
                .to_string(),
        )
    }

    fn token(&self, seconds: u64, audience: &str) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
        let head = json!({"alg": "ES256", "kid": "one", "typ": "JWT"});
        let claims =
            json!({"sub": CLIENT, "aud": audience, "iat": now, "exp": now + seconds, "scope": "kafka"});
        let signed = [head, claims].map(|part| BASE64_URL_SAFE_NO_PAD.encode(part.to_string())).join(".");
        let signature = self.key.sign(&SystemRandom::new(), signed.as_bytes()).expect("a signature");
        format!("{signed}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature))
    }
}
