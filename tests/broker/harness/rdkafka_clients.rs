//! librdkafka as it comes: a producer that remembers what was promised to it, a reader of whole topics.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseRecord, DeliveryResult, Producer, ProducerContext, ThreadedProducer};
use rdkafka::{ClientConfig, ClientContext, Message, Offset, TopicPartitionList};

const PATIENCE: Duration = Duration::from_secs(30);

/// What a producer was told.
#[derive(Default)]
pub struct Promises {
    told: Mutex<Told>,
    changed: Condvar,
}

#[derive(Default)]
struct Told {
    /// (partition, offset) → value.
    acknowledged: BTreeMap<(i32, i64), Vec<u8>>,
    problems: Vec<String>,
    reports: u64,
}

impl Promises {
    fn told(&self) -> MutexGuard<'_, Told> {
        // A test that fails while it holds this shall say why it failed, not that.
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `count` records were reported in total.
    pub fn wait_for(&self, count: u64) {
        let told = self.told();
        let waited = self.changed.wait_timeout_while(told, PATIENCE, |told| told.reports < count).unwrap();
        let (reports, timed_out) = (waited.0.reports, waited.1.timed_out());
        drop(waited);
        assert!(!timed_out, "{reports} of {count} records reported, then nothing for long");
    }

    pub fn reports(&self) -> u64 {
        self.told().reports
    }

    pub fn acknowledged(&self) -> BTreeMap<(i32, i64), Vec<u8>> {
        self.told().acknowledged.clone()
    }

    /// Forgets what was acknowledged at other places: it may be gone.
    pub fn keep(&self, is_kept: impl Fn(&(i32, i64)) -> bool) {
        self.told().acknowledged.retain(|place, _| is_kept(place));
    }

    pub fn problems(&self) -> Vec<String> {
        self.told().problems.clone()
    }
}

/// The callbacks of a producer.
#[derive(Clone, Default)]
pub struct Reports {
    promises: Arc<Promises>,
}

impl ClientContext for Reports {
    // That the broker is down now and then is what is tested.
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        if std::env::var_os("TEST_VERBOSE").is_some() {
            eprintln!("{level:?} {facility} {message}");
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        if error.rdkafka_error_code() == Some(RDKafkaErrorCode::Fatal) {
            self.promises.told().problems.push(format!("fatal: {error}: {reason}"));
        }
    }
}

impl ProducerContext for Reports {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        let mut told = self.promises.told();
        told.reports += 1;
        match result {
            Ok(message) => {
                let value = message.payload().unwrap().to_vec();
                let before = told.acknowledged.insert((message.partition(), message.offset()), value);
                if before.is_some() {
                    let place = format!("{}-{}", message.partition(), message.offset());
                    told.problems.push(format!("{place} was acknowledged twice"));
                }
            }
            Err((error, message)) => {
                let place = format!("{}: {error}", message.partition());
                told.problems.push(place);
            }
        }
        drop(told);
        self.promises.changed.notify_all();
    }
}

/// A clone is the same producer. An idempotent producer, 5 requests in flight, acks=all, that is patient with a broker that comes and goes.
#[derive(Clone)]
pub struct RdProducer {
    producer: Arc<ThreadedProducer<Reports>>,
    pub promises: Arc<Promises>,
}

impl RdProducer {
    pub fn new(bootstrap: &str, settings: &[(&str, &str)]) -> Self {
        let reports = Reports::default();
        let promises = Arc::clone(&reports.promises);
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", bootstrap)
            .set("enable.idempotence", "true")
            .set("acks", "all")
            .set("max.in.flight.requests.per.connection", "5")
            .set("message.timeout.ms", "120000")
            .set("linger.ms", "1")
            .set("batch.num.messages", "50")
            .set("queue.buffering.max.messages", "2000")
            .set("reconnect.backoff.ms", "5")
            .set("reconnect.backoff.max.ms", "20")
            .set("retry.backoff.ms", "5")
            .set("retry.backoff.max.ms", "50");
        for (key, value) in settings {
            config.set(*key, *value);
        }
        Self { producer: Arc::new(config.create_with_context(reports).unwrap()), promises }
    }

    /// Puts a record into the queue; waits for reports while that is full.
    pub fn send(&self, topic: &str, partition: i32, value: &[u8]) {
        self.send_keyed(topic, partition, None, value);
    }

    /// The same with a key.
    pub fn send_keyed(&self, topic: &str, partition: i32, key: Option<&[u8]>, value: &[u8]) {
        loop {
            let before = self.promises.reports();
            let record = BaseRecord::<[u8], [u8]>::to(topic).partition(partition).payload(value);
            match self.producer.send(match key {
                Some(key) => record.key(key),
                None => record,
            }) {
                Ok(()) => return,
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _)) => {
                    self.promises.wait_for(before + 1);
                }
                Err((error, _)) => panic!("the producer takes nothing more: {error}"),
            }
        }
    }

    /// Waits until everything was reported; then nothing may have gone wrong.
    pub fn finish(&self) {
        self.producer.flush(PATIENCE).unwrap();
        assert_eq!(self.producer.client().fatal_error(), None);
        assert_eq!(self.promises.problems(), Vec::<String>::new());
    }
}

/// Every record of a topic: (partition, offset) → value.
pub fn read_topic(bootstrap: &str, topic: &str) -> BTreeMap<(i32, i64), Vec<u8>> {
    read_topic_with(bootstrap, topic, &[("auto.offset.reset", "error"), ("isolation.level", "read_uncommitted")])
}

/// The same without what is not, or not yet, committed.
pub fn read_topic_committed(bootstrap: &str, topic: &str) -> BTreeMap<(i32, i64), Vec<u8>> {
    read_topic_with(bootstrap, topic, &[("auto.offset.reset", "error"), ("isolation.level", "read_committed")])
}

/// The same while the log start may move.
pub fn read_topic_while_it_shrinks(bootstrap: &str, topic: &str) -> BTreeMap<(i32, i64), Vec<u8>> {
    read_topic_with(bootstrap, topic, &[("auto.offset.reset", "earliest"), ("isolation.level", "read_uncommitted")])
}

fn read_topic_with(bootstrap: &str, topic: &str, settings: &[(&str, &str)]) -> BTreeMap<(i32, i64), Vec<u8>> {
    let mut config = ClientConfig::new();
    settings.iter().for_each(|(key, value)| {
        config.set(*key, *value);
    });
    let consumer: BaseConsumer = config
        .set("bootstrap.servers", bootstrap)
        // Must be given to assign partitions by hand; the group is never joined.
        .set("group.id", "reader")
        .set("enable.auto.commit", "false")
        .set("enable.partition.eof", "true")
        // That the end is reached is said when a fetch has found nothing.
        .set("fetch.wait.max.ms", "10")
        .set("check.crcs", "true")
        .create()
        .unwrap();
    let metadata = consumer.fetch_metadata(Some(topic), PATIENCE).unwrap();
    let mut list = TopicPartitionList::new();
    for partition in metadata.topics()[0].partitions() {
        list.add_partition_offset(topic, partition.id(), Offset::Beginning).unwrap();
    }
    consumer.assign(&list).unwrap();
    let mut open = list.count();
    let mut records = BTreeMap::new();
    while open > 0 {
        match consumer.poll(PATIENCE).expect("nothing comes any more") {
            Ok(message) => {
                let place = (message.partition(), message.offset());
                let twice = records.insert(place, message.payload().unwrap_or_default().to_vec());
                assert!(twice.is_none(), "{place:?} came twice");
            }
            Err(KafkaError::PartitionEOF(_)) => open -= 1,
            Err(error) => panic!("{error}"),
        }
    }
    records
}
