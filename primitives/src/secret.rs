//! Shared secrets: message authentication codes, keys derived for one purpose, nonces.
//!
//! HMAC-SHA256 (RFC 2104) of the `hmac` and `sha2` crates; verification takes the same time wherever two codes differ.
//! Nothing here encrypts: what travels between nodes can be read by who sees the wire, as RDMA traffic can, but not
//! forged.

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

/// Bytes of an authentication code.
pub const TAG_BYTES: usize = 32;

/// An authentication code.
pub type Tag = [u8; TAG_BYTES];

/// A secret of 256 bits. Its `Debug` form does not show it.
#[derive(Clone)]
pub struct Secret([u8; 32]);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl Secret {
    /// A secret from bytes of any length, which should hold at least 128 bits that nobody can guess.
    pub fn from_bytes(bytes: &[u8]) -> Secret {
        Secret(digest(&[b"doorbell cluster key", bytes]))
    }

    /// A drawn secret.
    pub fn random() -> Secret {
        Secret(nonce())
    }

    fn start(&self, purpose: &str) -> Hmac<Sha256> {
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&self.0) else {
            unreachable!("HMAC takes keys of any length")
        };
        part(&mut |bytes| mac.update(bytes), purpose.as_bytes());
        mac
    }

    /// The code of `parts` for one purpose. Each part's length is bound in, so that no two lists have the same code.
    pub fn tag(&self, purpose: &str, parts: &[&[u8]]) -> Tag {
        let mut mac = self.start(purpose);
        for bytes in parts {
            part(&mut |bytes| mac.update(bytes), bytes);
        }
        mac.finalize().into_bytes().into()
    }

    /// Whether `tag` is the code of `parts` for that purpose, in constant time.
    pub fn verify(&self, purpose: &str, parts: &[&[u8]], tag: &[u8]) -> bool {
        let mut mac = self.start(purpose);
        for bytes in parts {
            part(&mut |bytes| mac.update(bytes), bytes);
        }
        mac.verify_slice(tag).is_ok()
    }

    /// A secret of its own for one purpose and context.
    pub fn derive(&self, purpose: &str, parts: &[&[u8]]) -> Secret {
        Secret(self.tag(purpose, parts))
    }
}

fn part(update: &mut impl FnMut(&[u8]), bytes: &[u8]) {
    update(&(bytes.len() as u64).to_le_bytes());
    update(bytes);
}

/// SHA-256 over a list of byte strings, each with its length.
pub fn digest(parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for bytes in parts {
        part(&mut |bytes| hash.update(bytes), bytes);
    }
    hash.finalize().into()
}

/// Bytes that were never used before and that nobody can guess.
///
/// # Panics
/// If the operating system has no random numbers: nothing that needs a nonce could be safe then.
pub fn nonce() -> [u8; 32] {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).expect("the operating system gives random numbers");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_bind_key_purpose_parts_and_their_borders() {
        let key = Secret::from_bytes(b"0123456789abcdef");
        let tag = key.tag("a", &[b"one", b"two"]);
        assert!(key.verify("a", &[b"one", b"two"], &tag));
        assert!(!key.verify("b", &[b"one", b"two"], &tag));
        assert!(!key.verify("a", &[b"onet", b"wo"], &tag));
        assert!(!key.verify("a", &[b"one", b"two"], &tag[..31]));
        assert!(!Secret::from_bytes(b"0123456789abcdeF").verify("a", &[b"one", b"two"], &tag));
        assert_ne!(key.derive("x", &[]).tag("a", &[]), key.derive("y", &[]).tag("a", &[]));
        assert!(!format!("{key:?}").contains(|c: char| c.is_ascii_digit()));
        assert_ne!(nonce(), nonce());
    }
}
