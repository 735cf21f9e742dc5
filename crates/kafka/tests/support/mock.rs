//! librdkafka's own mock of a cluster.

use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;

pub type Cluster = MockCluster<'static, DefaultProducerContext>;

/// One broker with the topic `t`, and its address. It lives as long as the cluster is held.
pub fn cluster(partitions: i32) -> (Cluster, String) {
    super::init_logs();
    let cluster = MockCluster::new(1).unwrap();
    cluster.create_topic("t", partitions, 1).unwrap();
    let brokers = cluster.bootstrap_servers();
    (cluster, brokers)
}
