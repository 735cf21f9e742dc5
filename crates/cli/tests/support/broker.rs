//! A Kafka of a test's own that wants to know who is there: TLS, passwords, tokens. A listener for each.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

use super::command::read;
use super::{eventually, service};

/// Below the ports that the system hands out by itself.
const PORTS: std::ops::Range<u16> = 15_000..32_000;

pub(crate) const USER: &str = "erp";
/// For each mechanism another one, so that none works by chance.
pub(crate) const PASSWORDS: [(&str, &str); 3] = [
    ("PLAIN", "canary-of-plain"),
    ("SCRAM-SHA-256", "canary-of-scram-256"),
    ("SCRAM-SHA-512", "canary-of-scram-512"),
];

const PROPERTIES: &str = r#"process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{plain},TLS://127.0.0.1:{tls},PASSWORD://127.0.0.1:{password},TOKEN://127.0.0.1:{token},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{plain},TLS://localhost:{tls},PASSWORD://localhost:{password},TOKEN://localhost:{token},CONTROLLER://127.0.0.1:{controller}
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,TLS:SSL,PASSWORD:SASL_SSL,TOKEN:SASL_SSL
ssl.keystore.type=PEM
ssl.keystore.location={folder}/broker.pem
listener.name.password.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
listener.name.password.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_{user}="{plain_password}";
listener.name.password.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.password.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.token.sasl.enabled.mechanisms=OAUTHBEARER
listener.name.token.oauthbearer.sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;
listener.name.token.oauthbearer.sasl.server.callback.handler.class=org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler
# Whose token expires has to sign in again on the same connection.
listener.name.token.oauthbearer.connections.max.reauth.ms=3600000
sasl.oauthbearer.jwks.endpoint.url=file://{folder}/keys.json
sasl.oauthbearer.expected.audience=kafka
sasl.oauthbearer.clock.skew.seconds=0
log.dirs={folder}/data
auto.create.topics.enable=false
num.partitions=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
"#;

const LOGGING: &str = "status = warn
appender.stdout.type = Console
appender.stdout.name = STDOUT
appender.stdout.layout.type = PatternLayout
appender.stdout.layout.pattern = %d %p %c{1}: %m%n
rootLogger.level = info
rootLogger.appenderRef.stdout.ref = STDOUT
";

/// Dropping it kills it.
pub(crate) struct Broker {
    child: Child,
    ports: [u16; 4],
    folder: TempDir,
}

impl Broker {
    /// Takes tokens that are signed with one of these keys (a JWKS).
    pub(crate) async fn start(keys: &str) -> Self {
        let folder = tempfile::Builder::new().prefix("oncebox-broker-").tempdir().expect("a folder");
        certify(folder.path());
        fs::write(folder.path().join("keys.json"), keys).expect("the keys");
        fs::write(folder.path().join("log4j2.properties"), LOGGING).expect("a file");
        let [plain, tls, password, token, controller] = std::array::from_fn(|_| free_port());
        let place = folder.path().to_str().expect("UTF-8");
        let filled = [
            ("controller", controller.to_string()),
            ("plain", plain.to_string()),
            ("tls", tls.to_string()),
            ("password", password.to_string()),
            ("token", token.to_string()),
            ("folder", place.to_owned()),
            ("user", USER.to_owned()),
            ("plain_password", PASSWORDS[0].1.to_owned()),
        ];
        let text = filled
            .iter()
            .fold(PROPERTIES.to_owned(), |text, (name, value)| text.replace(&format!("{{{name}}}"), value));
        fs::write(folder.path().join("server.properties"), text).expect("the configuration");
        format(folder.path());

        let log = File::create(folder.path().join("broker.log")).expect("a log");
        let mut server = java(folder.path());
        server.args(["-Xms256m", "-Xmx512m"]);
        server.arg(format!("-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=file://{place}/keys.json"));
        server.arg(format!("-Dorg.apache.kafka.sasl.oauthbearer.allowed.files={place}/keys.json"));
        server.args(["kafka.Kafka", "server.properties"]);
        let child = server.stdout(log.try_clone().expect("the log")).stderr(log).spawn().expect("java runs");
        let mut broker = Self { child, ports: [plain, tls, password, token], folder };
        eventually("the broker has started", async || {
            let ended = broker.child.try_wait().expect("the process can be asked");
            assert!(ended.is_none(), "the broker ended: {}", broker.log());
            broker.log().contains("Kafka Server started")
        })
        .await;
        broker
    }

    fn log(&self) -> String {
        read(&self.folder.path().join("broker.log"))
    }

    /// For the test itself, which need not say who it is.
    pub(crate) fn open(&self) -> String {
        format!("127.0.0.1:{}", self.ports[0])
    }

    /// TLS, and everybody is welcome.
    pub(crate) fn tls(&self) -> String {
        format!("localhost:{}", self.ports[1])
    }

    /// TLS, and a password.
    pub(crate) fn password(&self) -> String {
        format!("localhost:{}", self.ports[2])
    }

    /// TLS, and a token.
    pub(crate) fn token(&self) -> String {
        format!("localhost:{}", self.ports[3])
    }

    /// Who has signed its certificate.
    pub(crate) fn authority(&self) -> PathBuf {
        self.folder.path().join("authority.pem")
    }

    /// Somebody who has not.
    pub(crate) fn stranger(&self) -> PathBuf {
        self.folder.path().join("stranger.pem")
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.child.kill().and_then(|()| self.child.wait()).ok();
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            eprintln!("---- the broker's log ----\n{}", lines[lines.len().saturating_sub(40)..].join("\n"));
        }
    }
}

fn java(folder: &Path) -> Command {
    let mut command = Command::new(service("ONCEBOX_TEST_JAVA"));
    command.current_dir(folder).stdin(Stdio::null());
    command.args([
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        "-Dlog4j2.configurationFile=log4j2.properties",
    ]);
    // Java itself expands the star.
    command.args(["-cp", &format!("{}/*", service("ONCEBOX_TEST_KAFKA_JARS"))]);
    command
}

/// Makes its storage, with the passwords of SCRAM in it.
fn format(folder: &Path) {
    let mut command = java(folder);
    let cluster: String = (0..21).map(|_| fastrand::alphanumeric()).chain(['A']).collect();
    command.args([
        "kafka.tools.StorageTool",
        "format",
        "--standalone",
        "-t",
        &cluster,
        "-c",
        "server.properties",
    ]);
    for (mechanism, password) in &PASSWORDS[1..] {
        command.args(["--add-scram", &format!("{mechanism}=[name={USER},password={password}]")]);
    }
    let output = command.output().expect("java runs");
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "formatting: {}", String::from_utf8_lossy(&said));
}

/// An authority, a certificate of the broker that it has signed, and another authority.
fn certify(folder: &Path) {
    let write = |name: &str, text: String| fs::write(folder.join(name), text).expect("a file");
    let authority = |name: &str| {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, format!("{name} of a test"));
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("a certificate").pem();
        write(&format!("{name}.pem"), pem);
        Issuer::new(params, key)
    };
    let issuer = authority("authority");
    authority("stranger");
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(["localhost".to_owned()]).expect("a name");
    let certificate = params.signed_by(&key, &issuer).expect("a certificate");
    write("broker.pem", format!("{}{}", key.serialize_pem(), certificate.pem()));
}

fn free_port() -> u16 {
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    let random = std::iter::repeat_with(|| fastrand::u16(PORTS));
    random.take(100).find(is_free).expect("a free port")
}
