//! The unpacked records of one batch in one piece, for those who read what is stored: coordinators, compaction.
//!
//! Unpacking goes in steps through the window of the codec, into memory that grows with what comes out, up to a bound.

use bytes::Bytes;

use super::batch::{BatchHeader, HEADER_BYTES};
use super::records::WalkError;
use super::unpack::{Contexts, Moved, Stream, Unpacker, unpacked_limit};

/// A payload that is being unpacked, or was.
#[derive(Debug)]
pub(super) struct Unfold {
    payload: Bytes,
    packed: Option<Packed>,
}

#[derive(Debug)]
struct Packed {
    stream: Stream,
    contexts: Contexts,
    read: usize,
    unpacked: Vec<u8>,
    bytes_max: u64,
}

impl Unfold {
    /// Makes ready to unpack.
    ///
    /// Shapes: `batch` is one whole batch with `header`, as it is stored.
    ///
    /// # Errors
    /// `UnknownCodec`, and `Unpack` where there is no memory for the codec.
    pub(super) fn start(
        batch: &Bytes,
        header: &BatchHeader,
        bytes_max: u64,
        unpacker: &mut Unpacker,
    ) -> Result<Self, WalkError> {
        let codec = header.attributes.codec().ok_or(WalkError::UnknownCodec(header.attributes.0 & 7))?;
        let payload = batch.slice(HEADER_BYTES.min(batch.len())..);
        if header.records_count == 0 && payload.is_empty() {
            return Ok(Self { payload, packed: None }); // what compaction leaves of a batch without records
        }
        let mut contexts = unpacker.take();
        match Stream::start(codec, &payload, &mut contexts) {
            Ok(Some(stream)) => {
                let bytes_max = bytes_max.min(unpacked_limit(codec, &payload));
                let packed = Packed { stream, contexts, read: 0, unpacked: Vec::new(), bytes_max };
                Ok(Self { payload, packed: Some(packed) })
            }
            other => {
                unpacker.give_back(contexts);
                other?;
                Ok(Self { payload, packed: None })
            }
        }
    }

    /// Unpacks on, for up to about `bytes_max` bytes; gives the records when all are there.
    ///
    /// # Errors
    /// Where the payload cannot be unpacked, or unpacks to more than is allowed; it is over then.
    pub(super) fn step(&mut self, bytes_max: usize, unpacker: &mut Unpacker) -> Result<Option<Bytes>, WalkError> {
        let Some(packed) = &mut self.packed else { return Ok(Some(self.payload.clone())) };
        let stepped = packed.step(&self.payload, bytes_max);
        if let Ok(false) = stepped {
            return Ok(None);
        }
        let records = self.packed.take().map(|packed| {
            unpacker.give_back(packed.contexts);
            Bytes::from(packed.unpacked)
        });
        stepped?;
        self.payload = records.unwrap_or_default();
        Ok(Some(self.payload.clone()))
    }

    /// Does all of it at once.
    ///
    /// # Errors
    /// As [`Self::step`].
    pub(super) fn finish(mut self, unpacker: &mut Unpacker) -> Result<Bytes, WalkError> {
        loop {
            if let Some(records) = self.step(usize::MAX, unpacker)? {
                return Ok(records);
            }
        }
    }

    /// Gives the contexts back, whether it has ended or not.
    pub(super) fn recycle(self, unpacker: &mut Unpacker) {
        if let Some(packed) = self.packed {
            unpacker.give_back(packed.contexts);
        }
    }
}

impl Packed {
    /// True when everything is unpacked.
    fn step(&mut self, payload: &[u8], bytes_max: usize) -> Result<bool, WalkError> {
        let mut window = std::mem::take(&mut self.contexts.window);
        let result = self.fill(payload, bytes_max, &mut window);
        self.contexts.window = window;
        result
    }

    fn fill(&mut self, payload: &[u8], bytes_max: usize, window: &mut [u8]) -> Result<bool, WalkError> {
        let mut budget = bytes_max.div_ceil(self.stream.weight()).max(1);
        while budget > 0 {
            let input = payload.get(self.read..).unwrap_or_default();
            let end = window.len().min(budget);
            let moved = self.stream.run(&mut self.contexts, input, window.get_mut(..end).unwrap_or_default())?;
            if moved == Moved::default() {
                self.stream.may_end()?;
                return Ok(true);
            }
            self.read += moved.read;
            self.unpacked.extend_from_slice(window.get(..moved.wrote).unwrap_or_default());
            if self.unpacked.len() as u64 > self.bytes_max {
                return Err(WalkError::TooLarge(self.bytes_max));
            }
            budget = budget.saturating_sub(moved.read + moved.wrote);
        }
        Ok(false)
    }
}
