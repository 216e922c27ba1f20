//! Record batches of a Kafka topic.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| tidings_fuzz::check_parser("kafka_batches", input));
