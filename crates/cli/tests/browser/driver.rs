//! A real browser, told what to do by the WebDriver protocol: JSON over HTTP on loopback.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// What names an element in the protocol.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";
/// Nothing takes longer on a machine that is not out of order.
const PATIENCE: Duration = Duration::from_secs(30);

/// A browser with one window; it ends with this.
pub(crate) struct Browser {
    driver: Child,
    port: u16,
    session: String,
}

impl Drop for Browser {
    fn drop(&mut self) {
        request(self.port, "DELETE", &format!("/session/{}", self.session), None);
        self.driver.kill().ok();
        self.driver.wait().ok();
    }
}

impl Browser {
    /// Starts one that is dark or light, with the log of its console and of everything that it asks for.
    pub(crate) fn start(dark: bool) -> Self {
        let program = std::env::var("ONCEBOX_TEST_CHROMEDRIVER").expect("cargo xtask test names a driver");
        let mut driver = Command::new(program)
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        let port = lines.find_map(|line| {
            let line = line.unwrap();
            line.split("successfully on port ").nth(1)?.trim_end_matches('.').parse().ok()
        });
        std::thread::spawn(move || lines.for_each(drop));
        let port = port.expect("the driver says its port");
        let mut arguments =
            vec!["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"];
        arguments.extend([
            "--hide-scrollbars",
            "--force-device-scale-factor=1",
            "--disable-background-networking",
        ]);
        if dark {
            arguments.push("--blink-settings=preferredColorScheme=0");
        }
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "goog:chromeOptions": { "args": arguments },
            "goog:loggingPrefs": { "browser": "ALL", "performance": "ALL" },
        } } });
        let deadline = Instant::now() + PATIENCE;
        let session = loop {
            if let Some(answer) = request(port, "POST", "/session", Some(&wanted)) {
                break answer["value"]["sessionId"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned();
            }
            assert!(Instant::now() < deadline, "the driver does not answer");
            std::thread::sleep(Duration::from_millis(100));
        };
        Self { driver, port, session }
    }

    fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        let answer = request(self.port, method, &format!("/session/{}{path}", self.session), body);
        let answer = answer.unwrap_or_else(|| panic!("{method} {path}: no answer"));
        assert!(answer["value"]["error"].is_null(), "{method} {path}: {}", answer["value"]);
        answer["value"].clone()
    }

    pub(crate) fn open(&self, url: &str) {
        self.ask("POST", "/url", Some(&json!({ "url": url })));
    }

    pub(crate) fn size(&self, width: u32, height: u32) {
        self.ask("POST", "/window/rect", Some(&json!({ "width": width, "height": height })));
    }

    /// What a script returns.
    pub(crate) fn run(&self, script: &str) -> Value {
        self.ask("POST", "/execute/sync", Some(&json!({ "script": script, "args": [] })))
    }

    /// What a script hands to `done`, sooner or later.
    pub(crate) fn run_to_its_end(&self, script: &str) -> Value {
        let script = format!("const done = arguments[arguments.length - 1];\n{script}");
        self.ask("POST", "/execute/async", Some(&json!({ "script": script, "args": [] })))
    }

    /// The text that a reader sees.
    pub(crate) fn text(&self) -> String {
        self.run("return document.body.innerText").as_str().unwrap_or_default().to_owned()
    }

    fn element(&self, selector: &str) -> String {
        let how = json!({ "using": "css selector", "value": selector });
        let found = self.ask("POST", "/element", Some(&how));
        found[ELEMENT].as_str().unwrap_or_else(|| panic!("{selector}: {found}")).to_owned()
    }

    pub(crate) fn click(&self, selector: &str) {
        self.ask("POST", &format!("/element/{}/click", self.element(selector)), Some(&json!({})));
    }

    pub(crate) fn fill(&self, selector: &str, text: &str) {
        let element = self.element(selector);
        self.ask("POST", &format!("/element/{element}/clear"), Some(&json!({})));
        self.ask("POST", &format!("/element/{element}/value"), Some(&json!({ "text": text })));
    }

    pub(crate) fn eventually_shows(&self, words: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.text().contains(words) {
            assert!(Instant::now() < deadline, "never shown: {words}\n{}", self.text());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// A picture of the whole page.
    pub(crate) fn picture(&self, file: &Path, width: u32) {
        self.size(width, 900);
        let height = self.run("return document.documentElement.scrollHeight").as_u64().unwrap_or(900);
        self.size(width, u32::try_from(height).unwrap_or(900).clamp(600, 4_000) + 150);
        let picture = self.ask("GET", "/screenshot", None);
        let bytes = STANDARD.decode(picture.as_str().unwrap()).unwrap();
        std::fs::write(file, bytes).unwrap();
    }

    /// What the console said since the last time.
    pub(crate) fn console(&self) -> Vec<String> {
        self.log("browser")
            .iter()
            .map(|line| line["message"].as_str().unwrap_or_default().to_owned())
            .collect()
    }

    /// The URLs that were asked for since the last time.
    pub(crate) fn asked_for(&self) -> Vec<String> {
        let sent = |line: &Value| {
            let message: Value = serde_json::from_str(line["message"].as_str()?).ok()?;
            let message = &message["message"];
            (message["method"] == "Network.requestWillBeSent")
                .then(|| message["params"]["request"]["url"].as_str().map(str::to_owned))?
        };
        self.log("performance").iter().filter_map(sent).collect()
    }

    fn log(&self, kind: &str) -> Vec<Value> {
        let lines = self.ask("POST", "/se/log", Some(&json!({ "type": kind })));
        lines.as_array().cloned().unwrap_or_default()
    }
}

/// `None` if nobody listens.
fn request(port: u16, method: &str, path: &str, body: Option<&Value>) -> Option<Value> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(120))).ok()?;
    let body = body.map(Value::to_string).unwrap_or_default();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(body.as_bytes()).ok()?;
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().ok()?;
        }
    }
    let mut text = vec![0; length];
    reader.read_exact(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}
