//! InitProducerId, and what ApiVersions says about it all.

use std::collections::BTreeSet;

use kafka_protocol::messages::{
    ApiVersionsRequest, InitProducerIdRequest, InitProducerIdResponse, ProducerId, TransactionalId,
};

use super::harness::Client;
use super::harness::client::text;
use super::world::World;

fn init(
    world: &mut World,
    version: i16,
    transactional_id: Option<&str>,
    id: i64,
    epoch: i16,
) -> InitProducerIdResponse {
    let request = InitProducerIdRequest::default()
        .with_transactional_id(transactional_id.map(|id| TransactionalId(text(id))))
        .with_transaction_timeout_ms(60_000)
        .with_producer_id(ProducerId(id))
        .with_producer_epoch(epoch);
    world.client.ask(version, &request)
}

fn short(answer: &InitProducerIdResponse) -> (i16, i64, i16) {
    (answer.error_code, answer.producer_id.0, answer.producer_epoch)
}

#[test]
fn eos_a01_two_calls_two_ids() {
    let mut world = World::new("a01");
    for version in 0..=5 {
        let first = init(&mut world, version, None, -1, -1);
        let second = init(&mut world, version, None, -1, -1);
        assert_eq!((first.error_code, first.producer_epoch, second.error_code), (0, 0, 0));
        assert!(first.producer_id.0 >= 0 && first.producer_id != second.producer_id);
    }
}

#[test]
fn eos_a02_ten_thousand_ids_from_eight_connections_are_distinct() {
    let world = World::new("a02");
    let address = world.broker.address;
    let callers: Vec<_> = (0..8)
        .map(|_| {
            std::thread::spawn(move || {
                let mut client = Client::connect(address);
                (0..1250).map(|_| client.init_producer_id()).collect::<Vec<_>>()
            })
        })
        .collect();
    let ids: Vec<_> = callers.into_iter().flat_map(|caller| caller.join().unwrap()).collect();
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), 10_000);
}

#[test]
fn eos_a04_one_of_id_and_epoch_alone_is_refused() {
    let mut world = World::new("a04");
    assert_eq!(short(&init(&mut world, 3, None, 7, -1)), (42, -1, -1));
    assert_eq!(short(&init(&mut world, 5, None, -1, 3)), (42, -1, -1));
}

#[test]
fn eos_a05_a_given_id_is_not_taken_over_without_a_transactional_id() {
    let mut world = World::new("a05");
    let known = world.client.init_producer_id();
    let answer = init(&mut world, 4, None, known, 0);
    assert_eq!((answer.error_code, answer.producer_epoch), (0, 0));
    assert!(answer.producer_id.0 >= 0 && answer.producer_id.0 != known);
}

#[test]
fn eos_a06_an_empty_transactional_id_is_refused() {
    let mut world = World::new("a06");
    for version in 0..=5 {
        assert_eq!(short(&init(&mut world, version, Some(""), -1, -1)), (42, -1, -1));
    }
}

#[test]
fn eos_e14_produce_is_advertised_from_zero_and_the_newer_protocol_of_transactions_is_final() {
    let mut world = World::new("e14");
    for version in [3, 4] {
        let request = ApiVersionsRequest::default().with_client_software_name(text("test"));
        let answer = world.client.ask(version, &request.with_client_software_version(text("1")));
        let produce = answer.api_keys.iter().find(|api| api.api_key == 0).unwrap();
        assert_eq!((produce.min_version, produce.max_version), (0, 13));
        assert!(answer.finalized_features_epoch >= 0);
        let levels = answer.finalized_features.iter().find(|feature| &feature.name[..] == "transaction.version");
        let levels = levels.map(|feature| (feature.min_version_level, feature.max_version_level));
        assert_eq!(levels, Some((2, 2)));
        // Where the minimum is 0, older clients refuse to see it.
        let supported = answer.supported_features.iter().find(|feature| &feature.name[..] == "transaction.version");
        let supported = supported.map(|feature| (feature.min_version, feature.max_version));
        assert_eq!(supported, (version >= 4).then_some((0, 2)));
    }
}
