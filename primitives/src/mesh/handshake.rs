//! Who may join: mutual authentication by a shared key, before anything else is said.
//!
//! ```text
//! member → driver   hello       node, nonce of the member
//! driver → member   challenge   nonce of the driver
//! member → driver   proof       HMAC(key, "member proof", transcript)
//! driver → member   welcome     HMAC(key, "driver proof", transcript)
//! either            refusal     why not, in words
//!
//! message           "DBELMESH" | version:16 | kind:8 | 0:8 | bytes:32 | body
//! ```
//! The transcript is hello and challenge, byte by byte: both nonces, the member's number, the version. A proof is of one
//! role, so it cannot be played back as the other's; both nonces are fresh, so it cannot be played back later. Each
//! direction then gets a key of its own from key and transcript, under which every message is sealed
//! (`channel.rs`). The head of a message stays as it is in all versions, so that different versions can say so.
//!
//! Both sides are state machines without sockets or clocks: bytes in, bytes out.

use crate::secret::{Secret, TAG_BYTES, digest, nonce};
use crate::verbs::NodeId;

/// What a driver says to a member whose proof does not fit its key.
pub const KEYS_DIFFER: &str = "the keys differ";

/// The version spoken here.
pub const VERSION: u16 = 3;

const MAGIC: &[u8; 8] = b"DBELMESH";
/// Bytes of a message's head.
pub const HEAD_BYTES: usize = 16;
/// Longest body before authentication.
pub const MAX_BODY: usize = 512;

/// What a message before authentication is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A member introduces itself.
    Hello,
    /// The driver's nonce.
    Challenge,
    /// The member's proof.
    Proof,
    /// The driver's proof.
    Welcome,
    /// Why not.
    Refusal,
}

impl Kind {
    const ALL: [Kind; 5] = [Kind::Hello, Kind::Challenge, Kind::Proof, Kind::Welcome, Kind::Refusal];
}

/// Why a handshake failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// The bytes are not of this protocol.
    #[error("the peer does not speak doorbell's rendezvous protocol")]
    NotOurs,
    /// Another version of it.
    #[error(
        "this doorbell speaks rendezvous version {mine}, the peer version {theirs}: install the same on all hosts"
    )]
    Version {
        /// Ours.
        mine: u16,
        /// The peer's.
        theirs: u16,
    },
    /// A body longer than any.
    #[error("a rendezvous message of {0} B, none is longer than {MAX_BODY} B")]
    TooLong(u32),
    /// A message that does not belong here.
    #[error("a rendezvous message of kind {got} where {wanted:?} belongs")]
    Unexpected {
        /// The kind's number.
        got: u8,
        /// What belonged here.
        wanted: Kind,
    },
    /// A body of the wrong length.
    #[error("a {kind:?} message of {len} B")]
    Length {
        /// The message.
        kind: Kind,
        /// Bytes it had.
        len: usize,
    },
    /// The proof does not fit the key.
    #[error("the peer has another key")]
    WrongKey,
    /// The peer said no, before it was authenticated: anybody could have.
    #[error("the peer refused: {0}")]
    Refused(String),
}

/// A message before authentication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plain {
    /// The sender's version.
    pub version: u16,
    /// The kind's number.
    pub kind: u8,
    /// What it carries.
    pub body: Vec<u8>,
}

/// A message's bytes.
pub fn encode(version: u16, kind: Kind, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEAD_BYTES + body.len());
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&version.to_le_bytes());
    bytes.extend_from_slice(&[kind as u8, 0]);
    bytes.extend_from_slice(&(body.len() as u32).to_le_bytes());
    bytes.extend_from_slice(body);
    bytes
}

/// The message at the front of `bytes` and its length; `None` if more bytes are needed to tell.
///
/// # Errors
/// As soon as the bytes cannot become a message.
pub fn decode(bytes: &[u8]) -> Result<Option<(Plain, usize)>, HandshakeError> {
    let known = bytes.len().min(MAGIC.len());
    if bytes[..known] != MAGIC[..known] {
        return Err(HandshakeError::NotOurs);
    }
    if bytes.len() < HEAD_BYTES {
        return Ok(None);
    }
    let len = u32::from_le_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]);
    if len as usize > MAX_BODY {
        return Err(HandshakeError::TooLong(len));
    }
    let end = HEAD_BYTES + len as usize;
    if bytes.len() < end {
        return Ok(None);
    }
    let version = u16::from_le_bytes([bytes[8], bytes[9]]);
    Ok(Some((Plain { version, kind: bytes[10], body: bytes[HEAD_BYTES..end].to_vec() }, end)))
}

/// The keys of an authenticated connection.
#[derive(Clone, Debug)]
pub struct Keys {
    /// For what this side sends.
    pub send: Secret,
    /// For what it receives.
    pub receive: Secret,
}

/// A refusal's bytes.
pub fn refusal(version: u16, why: &str) -> Vec<u8> {
    let mut end = why.len().min(MAX_BODY);
    while !why.is_char_boundary(end) {
        end -= 1;
    }
    encode(version, Kind::Refusal, &why.as_bytes()[..end])
}

/// What the peer said, checked: version, refusals, kind, length.
fn expect(plain: &Plain, version: u16, wanted: Kind, len: usize) -> Result<(), HandshakeError> {
    if plain.version != version {
        return Err(HandshakeError::Version { mine: version, theirs: plain.version });
    }
    if plain.kind == Kind::Refusal as u8 && wanted != Kind::Hello {
        let words = String::from_utf8_lossy(&plain.body);
        // Words of somebody unknown end up on a terminal.
        let words = words.chars().filter(|c| !c.is_control()).collect();
        return Err(HandshakeError::Refused(words));
    }
    if plain.kind != wanted as u8 {
        return Err(HandshakeError::Unexpected { got: plain.kind, wanted });
    }
    if plain.body.len() != len {
        let kind = Kind::ALL.into_iter().find(|k| *k as u8 == plain.kind).unwrap_or(wanted);
        return Err(HandshakeError::Length { kind, len: plain.body.len() });
    }
    Ok(())
}

const MEMBER_PROOF: &str = "doorbell mesh member proof";
const DRIVER_PROOF: &str = "doorbell mesh driver proof";

fn keys(key: &Secret, transcript: &[u8; 32]) -> [Secret; 2] {
    ["doorbell mesh member to driver", "doorbell mesh driver to member"]
        .map(|purpose| key.derive(purpose, &[transcript]))
}

/// The joining side.
#[derive(Debug)]
pub struct Member {
    key: Secret,
    version: u16,
    hello: Vec<u8>,
    transcript: Option<[u8; 32]>,
}

/// What a member does next.
#[derive(Debug)]
pub enum MemberStep {
    /// Sends these bytes and goes on listening.
    Send(Vec<u8>),
    /// The driver has proven itself too.
    Joined(Keys),
}

impl Member {
    /// A member that speaks `version`, and the first bytes it sends.
    pub fn start(key: Secret, node: NodeId, version: u16) -> (Member, Vec<u8>) {
        let mut body = node.0.to_le_bytes().to_vec();
        body.extend_from_slice(&nonce());
        let hello = encode(version, Kind::Hello, &body);
        (Member { key, version, hello: hello.clone(), transcript: None }, hello)
    }

    /// Takes the driver's next message.
    ///
    /// # Errors
    /// If the driver refuses or does not prove itself; the connection is over then.
    pub fn receive(&mut self, plain: &Plain) -> Result<MemberStep, HandshakeError> {
        match self.transcript {
            None => {
                expect(plain, self.version, Kind::Challenge, 32)?;
                let challenge = encode(plain.version, Kind::Challenge, &plain.body);
                let transcript = digest(&[&self.hello, &challenge]);
                self.transcript = Some(transcript);
                let tag = self.key.tag(MEMBER_PROOF, &[&transcript]);
                Ok(MemberStep::Send(encode(self.version, Kind::Proof, &tag)))
            }
            Some(transcript) => {
                expect(plain, self.version, Kind::Welcome, TAG_BYTES)?;
                if !self.key.verify(DRIVER_PROOF, &[&transcript], &plain.body) {
                    return Err(HandshakeError::WrongKey);
                }
                let [send, receive] = keys(&self.key, &transcript);
                Ok(MemberStep::Joined(Keys { send, receive }))
            }
        }
    }
}

/// The side that is joined.
#[derive(Debug)]
pub struct Driver {
    key: Secret,
    version: u16,
    challenged: Option<(NodeId, [u8; 32])>,
}

/// What a driver does next. The bytes are to be sent in either case.
#[derive(Debug)]
pub enum DriverStep {
    /// Sends these bytes and goes on listening.
    Send(Vec<u8>),
    /// The member has proven itself; these bytes prove the driver.
    Joined(NodeId, Keys, Vec<u8>),
}

impl Driver {
    /// A driver that speaks `version`.
    pub fn new(key: Secret, version: u16) -> Driver {
        Driver { key, version, challenged: None }
    }

    /// Takes the member's next message.
    ///
    /// # Errors
    /// If it does not prove itself; then it may be told why ([`refusal`]), and the connection is over.
    pub fn receive(&mut self, plain: &Plain) -> Result<DriverStep, HandshakeError> {
        match self.challenged {
            None => {
                expect(plain, self.version, Kind::Hello, 34)?;
                let node = NodeId(u16::from_le_bytes([plain.body[0], plain.body[1]]));
                let challenge = encode(self.version, Kind::Challenge, &nonce());
                let hello = encode(plain.version, Kind::Hello, &plain.body);
                self.challenged = Some((node, digest(&[&hello, &challenge])));
                Ok(DriverStep::Send(challenge))
            }
            Some((node, transcript)) => {
                expect(plain, self.version, Kind::Proof, TAG_BYTES)?;
                if !self.key.verify(MEMBER_PROOF, &[&transcript], &plain.body) {
                    return Err(HandshakeError::WrongKey);
                }
                let tag = self.key.tag(DRIVER_PROOF, &[&transcript]);
                let [receive, send] = keys(&self.key, &transcript);
                let welcome = encode(self.version, Kind::Welcome, &tag);
                Ok(DriverStep::Joined(node, Keys { send, receive }, welcome))
            }
        }
    }
}
