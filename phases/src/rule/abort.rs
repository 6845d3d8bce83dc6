//! Why transactions give up.

use primitives::rpc::Malformed;

/// Why a transaction gave up: expected outcomes, counted by cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Abort {
    /// A record to be written is locked by another transaction.
    #[error("a record to be written is locked by another transaction")]
    LockConflict,
    /// A record to be written has changed since it was read.
    #[error("a record to be written has changed since it was read")]
    WriteChanged,
    /// A record that was read is locked by another transaction at validation.
    #[error("a record that was read is locked by another transaction at validation")]
    ReadLocked,
    /// A record that was read has changed at validation.
    #[error("a record that was read has changed at validation")]
    ReadChanged,
    /// No record has that key.
    #[error("no record has that key")]
    NotFound,
    /// A record kept changing while it was read.
    #[error("a record kept changing while it was read")]
    Unstable,
    /// The application rolled back.
    #[error("the application rolled back")]
    Requested,
    /// Wait-die: an older transaction holds the lock.
    #[error("an older transaction holds the lock")]
    Died,
    /// A lease cannot be extended as far as the transaction needs it.
    #[error("a lease cannot be extended as far as the transaction needs it")]
    LeaseOverflow,
    /// A later transaction has read or written the record.
    #[error("a later transaction has read or written the record")]
    TooLate,
    /// The version that the transaction should read is no longer kept.
    #[error("the version that the transaction should read is no longer kept")]
    NoVersion,
    /// Timestamps are used up.
    #[error("timestamps are used up")]
    TimestampWrap,
    /// A record to be inserted is there already.
    #[error("a record to be inserted is there already")]
    Exists,
    /// The owner has no room for another record of the table.
    #[error("the owner has no room for another record of the table")]
    TableFull,
}

impl Abort {
    /// All reasons, in the order of their counts.
    pub const ALL: [Abort; 14] = [
        Abort::LockConflict,
        Abort::WriteChanged,
        Abort::ReadLocked,
        Abort::ReadChanged,
        Abort::NotFound,
        Abort::Unstable,
        Abort::Requested,
        Abort::Died,
        Abort::LeaseOverflow,
        Abort::TooLate,
        Abort::NoVersion,
        Abort::TimestampWrap,
        Abort::Exists,
        Abort::TableFull,
    ];

    /// Place in [`Abort::ALL`].
    pub fn index(self) -> usize {
        self as usize
    }

    /// Whether trying again cannot help: what is used up stays so.
    pub fn is_final(self) -> bool {
        matches!(self, Abort::TableFull | Abort::TimestampWrap)
    }

    /// Whether it says that a record is there that should not be, or the other way round. That stays so, unless the transaction
    /// had been misled by what else it read.
    pub fn is_about_existence(self) -> bool {
        matches!(self, Abort::NotFound | Abort::Exists)
    }

    /// The name result files use.
    pub fn name(self) -> &'static str {
        match self {
            Abort::LockConflict => "lock-conflict",
            Abort::WriteChanged => "write-changed",
            Abort::ReadLocked => "read-locked",
            Abort::ReadChanged => "read-changed",
            Abort::NotFound => "not-found",
            Abort::Unstable => "unstable",
            Abort::Requested => "requested",
            Abort::Died => "died",
            Abort::LeaseOverflow => "lease-overflow",
            Abort::TooLate => "too-late",
            Abort::NoVersion => "no-version",
            Abort::TimestampWrap => "timestamp-wrap",
            Abort::Exists => "exists",
            Abort::TableFull => "table-full",
        }
    }

    /// The reason as it travels in a reply.
    pub fn encode(self) -> u64 {
        self as u64 + 1
    }

    /// The reason from a reply; `None` stands for "no reason, granted".
    ///
    /// # Errors
    /// If no reason has that number.
    pub fn decode(word: u64) -> Result<Option<Abort>, Malformed> {
        match word {
            0 => Ok(None),
            n => match Abort::ALL.get(n as usize - 1) {
                Some(&abort) => Ok(Some(abort)),
                None => Err(Malformed::Field { field: "abort reason", value: n }),
            },
        }
    }
}
