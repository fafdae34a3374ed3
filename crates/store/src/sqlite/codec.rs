//! The encoding of an event in a row: one plain zstd frame over its JSON.

use azureal_core::{Damage, LARGEST_EVENT};
use rusqlite::types::ValueRef;
use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe::{self, CParameter, DParameter};

/// The window that frames up to [`LARGEST_EVENT`] need, as a power of two.
const WINDOW_LOG: u32 = 26;
const LEVEL: i32 = 3;
/// The first bytes of every zstd frame.
const MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];

/// Packs and unpacks events. Made once per connection: setting up a context costs more than using it.
pub(super) struct Codec {
    compressor: Compressor<'static>,
    decompressor: Decompressor<'static>,
}

impl Codec {
    pub(super) fn new() -> std::io::Result<Self> {
        let mut compressor = Compressor::new(LEVEL)?;
        // Four bytes, so that a flipped bit on a disk is found instead of believed.
        compressor.set_parameter(CParameter::ChecksumFlag(true))?;
        let mut decompressor = Decompressor::new()?;
        decompressor.set_parameter(DParameter::WindowLogMax(WINDOW_LOG))?;
        Ok(Self { compressor, decompressor })
    }

    pub(super) fn pack(&mut self, json: &str) -> std::io::Result<Vec<u8>> {
        self.compressor.compress(json.as_bytes())
    }

    /// Unpacks what stands in the `data` column, at most [`LARGEST_EVENT`] bytes of it.
    pub(super) fn unpack(&mut self, data: ValueRef<'_>) -> Result<String, Damage> {
        let bytes = match data {
            ValueRef::Blob(bytes) if bytes.starts_with(&MAGIC) => self.unpack_frame(bytes)?,
            // The first versions of the original program stored the JSON itself, and later ones do so where
            // compressing fails.
            ValueRef::Blob(bytes) | ValueRef::Text(bytes) => bytes.to_vec(),
            ValueRef::Null => return Err(Damage("its data is missing".to_owned())),
            // The size of data that was not loaded: see `events::DATA`.
            ValueRef::Integer(size) if size > LARGEST_EVENT as i64 => {
                return Err(Damage(format!("its data is larger than {} MiB", LARGEST_EVENT >> 20)));
            }
            ValueRef::Integer(_) | ValueRef::Real(_) => {
                return Err(Damage("its data is a number".to_owned()));
            }
        };
        String::from_utf8(bytes).map_err(|_| Damage("its text is not UTF-8".to_owned()))
    }

    fn unpack_frame(&mut self, frame: &[u8]) -> Result<Vec<u8>, Damage> {
        let size = match zstd_safe::get_frame_content_size(frame) {
            Ok(size) => size,
            Err(_) => return Err(Damage("its compressed data is broken".to_owned())),
        };
        match size {
            Some(size) if size > LARGEST_EVENT as u64 => Err(too_large()),
            // The size may be wrong, but not large.
            Some(size) => {
                let capacity = usize::try_from(size).map_err(|_| too_large())?;
                self.decompressor.decompress(frame, capacity).map_err(|error| broken(&error))
            }
            None => unpack_stream(frame),
        }
    }
}

/// Unpacks a frame that does not say how large it is, as the original program writes them.
fn unpack_stream(frame: &[u8]) -> Result<Vec<u8>, Damage> {
    use std::io::Read;

    let mut decoder = zstd::stream::read::Decoder::with_buffer(frame).map_err(|error| broken(&error))?;
    decoder.window_log_max(WINDOW_LOG).map_err(|error| broken(&error))?;
    let mut bytes = Vec::new();
    decoder.take(LARGEST_EVENT as u64 + 1).read_to_end(&mut bytes).map_err(|error| broken(&error))?;
    if bytes.len() > LARGEST_EVENT { Err(too_large()) } else { Ok(bytes) }
}

fn broken(error: &std::io::Error) -> Damage {
    Damage(format!("its compressed data is broken: {error}"))
}

fn too_large() -> Damage {
    Damage(format!("it would unpack to more than {} MiB", LARGEST_EVENT >> 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_is_unpacked_and_what_is_altered_is_found() {
        let mut codec = Codec::new().unwrap();
        let json = r#"{"UserMessage":{"content":"hello hello hello hello"}}"#;
        let packed = codec.pack(json).unwrap();
        assert_eq!(codec.unpack(ValueRef::Blob(&packed)).unwrap(), json);
        for at in 0..packed.len() {
            let mut altered = packed.clone();
            altered[at] ^= 1;
            let unpacked = codec.unpack(ValueRef::Blob(&altered));
            assert_ne!(unpacked.as_deref(), Ok(json), "bit {at}");
        }
    }

    #[test]
    fn frames_without_a_size_and_plain_json_are_read() {
        let mut codec = Codec::new().unwrap();
        let streamed = zstd::stream::encode_all(&b"\"Compacted\""[..], 3).unwrap();
        assert_eq!(codec.unpack(ValueRef::Blob(&streamed)).unwrap(), "\"Compacted\"");
        assert_eq!(codec.unpack(ValueRef::Blob(b"\"Compacted\"")).unwrap(), "\"Compacted\"");
        assert_eq!(codec.unpack(ValueRef::Text(b"\"Compacted\"")).unwrap(), "\"Compacted\"");
    }

    #[test]
    fn a_bomb_is_refused() {
        let mut codec = Codec::new().unwrap();
        let zeros = vec![0_u8; LARGEST_EVENT + 1];
        let sized = zstd::bulk::compress(&zeros, 3).unwrap();
        let streamed = zstd::stream::encode_all(&zeros[..], 3).unwrap();
        for bomb in [sized, streamed] {
            assert!(bomb.len() < 16 << 10);
            let damage = codec.unpack(ValueRef::Blob(&bomb)).unwrap_err();
            assert!(damage.0.contains("more than 64 MiB"), "{damage}");
        }
    }
}
