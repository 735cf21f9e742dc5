//! A fatal error on demand: for tests of who survives one.

use std::ffi::CString;

use rdkafka::bindings as ffi;
use rdkafka::client::{Client, ClientContext};
use rdkafka::types::RDKafkaRespErr;

/// Lets a client run into a fatal error, as if librdkafka had found it: from now on it does nothing but say so. False if it has one
/// already.
pub fn raise_fatal_error<C: ClientContext>(client: &Client<C>, code: RDKafkaRespErr, reason: &str) -> bool {
    let reason = CString::new(reason.replace('\0', " ")).unwrap_or_default();
    // SAFETY: the client is borrowed, so its pointer is valid; the text ends with a zero and is copied.
    let raised = unsafe { ffi::rd_kafka_test_fatal_error(client.native_ptr(), code, reason.as_ptr()) };
    raised == RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR
}
