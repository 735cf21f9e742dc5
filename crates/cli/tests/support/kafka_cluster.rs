//! A Kafka of one or two brokers that a test may kill and start again.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::topic_partition_list::TopicPartitionList;
use tempfile::TempDir;

use super::command::read;
use super::topic::config;
use super::{eventually, service};

/// Below the ports that the system hands out by itself: while a broker is down, nobody else gets its port.
const PORTS: std::ops::Range<u16> = 15_000..32_000;
/// Any sixteen bytes.
const CLUSTER_ID: &str = "oncebox0tests0clusterA";
const ANSWER: Duration = Duration::from_secs(5);
/// Everything to standard output.
const LOGGING: &str = include_str!("../../../../xtask/kafka/log4j2.properties");

/// What all brokers have in common. A broker that is gone is missed soon; it is the only one that has its partitions.
const COMMON: &str = "\
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
auto.create.topics.enable=false
default.replication.factor=1
min.insync.replicas=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
controlled.shutdown.enable=false
";

/// Ends its brokers when it is dropped.
pub(crate) struct KafkaCluster {
    // Dropped in this order: the brokers before their directories.
    pub(crate) brokers: Vec<Broker>,
    _folder: TempDir,
}

impl KafkaCluster {
    /// The first one is the controller too, and has the offsets of all groups: when the others go, groups stay.
    pub(crate) async fn start(brokers: u16) -> Self {
        let folder = tempfile::Builder::new().prefix("oncebox-kafka-").tempdir().expect("a temporary folder");
        let (controller, mut first) = (free_port(), Broker::new(folder.path(), 1));
        assert_ne!(first.port, controller, "two ports");
        first.configure(&format!("process.roles=broker,controller\n{}", roles(&first, controller, true)));
        first.format(&["--standalone"]);
        first.start().await;
        let mut cluster = Self { brokers: vec![first], _folder: folder };
        cluster.has_a_coordinator().await;
        for id in 2..=brokers {
            let mut broker = Broker::new(cluster._folder.path(), id);
            broker.configure(&format!("process.roles=broker\n{}", roles(&broker, controller, false)));
            broker.format(&[]);
            broker.start().await;
            cluster.brokers.push(broker);
        }
        cluster.knows_all().await;
        cluster
    }

    /// As it stands in `kafka.brokers`.
    pub(crate) fn addresses(&self) -> String {
        self.brokers.iter().map(Broker::address).collect::<Vec<_>>().join(",")
    }

    /// The offsets of groups are kept in a topic that is made when somebody asks: now, while there is only one place for it.
    async fn has_a_coordinator(&self) {
        let client: BaseConsumer =
            config(&self.addresses()).set("group.id", "first").create().expect("a client");
        let mut list = TopicPartitionList::new();
        list.add_partition("none", 0);
        eventually("groups have a coordinator", async || {
            client.committed_offsets(list.clone(), ANSWER).is_ok()
        })
        .await;
    }

    async fn knows_all(&self) {
        let client: BaseConsumer = config(&self.addresses()).create().expect("a client");
        eventually("the brokers know each other", async || {
            let found = client.fetch_metadata(None, ANSWER);
            found.is_ok_and(|found| found.brokers().len() == self.brokers.len())
        })
        .await;
    }
}

fn roles(broker: &Broker, controller: u16, is_controller: bool) -> String {
    let own = format!("PLAINTEXT://{}", broker.address());
    let listeners = if is_controller { format!("{own},CONTROLLER://127.0.0.1:{controller}") } else { own };
    format!("controller.quorum.bootstrap.servers=127.0.0.1:{controller}\nlisteners={listeners}\n")
}

/// One broker, which can be killed and started again with the data that it has.
pub(crate) struct Broker {
    id: u16,
    port: u16,
    folder: PathBuf,
    child: Option<Child>,
}

impl Broker {
    fn new(folder: &Path, id: u16) -> Self {
        let folder = folder.join(format!("broker-{id}"));
        fs::create_dir(&folder).expect("a folder");
        Self { id, port: free_port(), folder, child: None }
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn configure(&self, roles: &str) {
        let data = self.folder.join("data");
        let text = format!("node.id={}\nlog.dirs={}\n{roles}{COMMON}", self.id, data.display());
        fs::write(self.properties(), text).expect("the properties are written");
        fs::write(self.folder.join("log4j2.properties"), LOGGING).expect("the properties are written");
    }

    fn properties(&self) -> PathBuf {
        self.folder.join("server.properties")
    }

    fn log(&self) -> PathBuf {
        self.folder.join("broker.log")
    }

    /// Small, and quick to start.
    fn java(&self, log: &Path) -> Command {
        let file = File::create(log).expect("a log file");
        let mut command = Command::new(service("ONCEBOX_TEST_JAVA"));
        // Java itself expands the star.
        let jars = Path::new(&service("ONCEBOX_TEST_KAFKA_JARS")).join("*");
        command.args(["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]);
        command.args(["-Dlog4j2.configurationFile=log4j2.properties", "-cp"]).arg(jars);
        command.current_dir(&self.folder).stdin(Stdio::null());
        command.stdout(file.try_clone().expect("the log file")).stderr(file);
        command
    }

    fn format(&self, how: &[&str]) {
        let log = self.folder.join("format.log");
        let mut command = self.java(&log);
        command.args(["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c"]).arg(self.properties());
        let status = command.args(how).status().expect("Java can be run");
        assert!(status.success(), "formatting the storage of a broker: {}", read(&log));
    }

    /// Starts it with the data that it has.
    pub(crate) async fn start(&mut self) {
        assert!(self.child.is_none(), "{} runs already", self.address());
        let mut command = self.java(&self.log());
        let mut child = command.arg("kafka.Kafka").arg(self.properties()).spawn().expect("Java can be run");
        eventually(&format!("broker {} has started", self.id), async || {
            let ended = child.try_wait().expect("the process can be asked");
            assert!(ended.is_none(), "broker {} does not start: {}", self.id, read(&self.log()));
            read(&self.log()).contains("Kafka Server started")
        })
        .await;
        self.child = Some(child);
    }

    /// SIGKILL: no warning, no hand-over.
    pub(crate) fn kill(&mut self) {
        let mut child = self.child.take().expect("it runs");
        child.kill().expect("the broker can be killed");
        child.wait().expect("the broker ends");
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if self.child.is_some() {
            self.kill();
        }
        if std::thread::panicking() {
            let log = read(&self.log());
            let lines: Vec<&str> = log.lines().collect();
            let shown = lines[lines.len().saturating_sub(20)..].join("\n");
            eprintln!("---- the log of broker {} ----\n{shown}\n----", self.id);
        }
    }
}

fn free_port() -> u16 {
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    let random = std::iter::repeat_with(|| fastrand::u16(PORTS));
    random.take(100).find(is_free).expect("a free port")
}
