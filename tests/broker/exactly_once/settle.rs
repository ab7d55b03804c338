//! librdkafka's rules for what to do after an error of a transaction's call.

use std::sync::Mutex;
use std::time::Instant;

use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::producer::{BaseRecord, DeliveryResult, Producer, ProducerContext, ThreadedProducer};
use rdkafka::{ClientConfig, ClientContext};

use super::{CALL, patience};

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    Done,
    /// The transaction must be aborted.
    WantsAbort,
    /// The producer is of no use any more.
    Fatal,
}

/// Calls again as long as that is what is to be done.
pub fn settle(what: &str, call: impl Fn() -> KafkaResult<()>) -> Settled {
    let begun = Instant::now();
    loop {
        let error = match call() {
            Ok(()) => return Settled::Done,
            Err(KafkaError::Transaction(error)) => error,
            // What was sent is waited for first, no longer than the call may take.
            Err(KafkaError::Flush(RDKafkaErrorCode::OperationTimedOut)) => {
                assert!(begun.elapsed() < patience(), "{what}: what was sent is not acknowledged");
                continue;
            }
            Err(error) => panic!("{what}: {error}"),
        };
        if std::env::var_os("TEST_VERBOSE").is_some() {
            eprintln!("{what}: {error} retriable {} abort {}", error.is_retriable(), error.txn_requires_abort());
        }
        if error.txn_requires_abort() {
            return Settled::WantsAbort;
        }
        if !error.is_retriable() {
            return Settled::Fatal;
        }
        assert!(begun.elapsed() < patience(), "{what} is tried again for ever: {error}");
    }
}

/// Deliveries are told by the outcome of the transaction.
#[derive(Default)]
pub struct Quiet {
    /// The last reason that was given for a fatal error.
    pub fatal: Mutex<Option<String>>,
}

impl ClientContext for Quiet {
    // That the broker is down now and then is what is tested.
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        if std::env::var_os("TEST_VERBOSE").is_some() {
            eprintln!("{level:?} {facility} {message}");
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        if error.rdkafka_error_code() == Some(RDKafkaErrorCode::Fatal) {
            *self.fatal.lock().unwrap() = Some(reason.to_owned());
        }
    }
}

impl ProducerContext for Quiet {
    type DeliveryOpaque = ();

    fn delivery(&self, _: &DeliveryResult<'_>, (): ()) {}
}

pub type TxnProducer = ThreadedProducer<Quiet>;

/// A new instance for a transactional id; what an earlier one had open is aborted when this returns.
pub fn take_over(bootstrap: &str, transactional_id: &str) -> TxnProducer {
    let begun = Instant::now();
    loop {
        let producer: TxnProducer = ClientConfig::new()
            .set("bootstrap.servers", bootstrap)
            .set("transactional.id", transactional_id)
            .set("linger.ms", "1")
            .set("batch.num.messages", "5")
            .set("message.timeout.ms", "60000")
            .set("transaction.timeout.ms", "60000")
            .set("reconnect.backoff.ms", "5")
            .set("reconnect.backoff.max.ms", "20")
            .set("retry.backoff.ms", "5")
            .set("retry.backoff.max.ms", "50")
            .create_with_context(Quiet::default())
            .unwrap();
        if settle("init_transactions", || producer.init_transactions(CALL)) == Settled::Done {
            return producer;
        }
        assert!(begun.elapsed() < patience(), "{transactional_id} cannot be taken over");
    }
}

/// Puts a record into the queue; false when the producer takes none any more.
pub fn send(producer: &TxnProducer, topic: &str, partition: i32, value: &str) -> bool {
    let record = BaseRecord::<[u8], str>::to(topic).partition(partition).payload(value);
    match producer.send(record) {
        Ok(()) => true,
        Err((KafkaError::MessageProduction(code), _)) => {
            let is_expected = matches!(code, RDKafkaErrorCode::Fatal | RDKafkaErrorCode::State);
            assert!(is_expected || producer.client().fatal_error().is_some(), "a record is refused: {code}");
            false
        }
        Err((error, _)) => panic!("a record is refused: {error}"),
    }
}
