//! Kinds of messages.

pub(in crate::mesh) const BEAT: u8 = 0;
pub(in crate::mesh) const PROGRAM: u8 = 1;
pub(in crate::mesh) const ACCEPTED: u8 = 2;
pub(in crate::mesh) const GIVE: u8 = 3;
pub(in crate::mesh) const ALL: u8 = 4;
pub(in crate::mesh) const DONE: u8 = 5;
pub(in crate::mesh) const OVER: u8 = 6;
pub(in crate::mesh) const GAVE_UP: u8 = 7;
pub(in crate::mesh) const LOST: u8 = 8;
pub(in crate::mesh) const PING: u8 = 9;
pub(in crate::mesh) const PONG: u8 = 10;
pub(in crate::mesh) const CLOCK: u8 = 11;
pub(in crate::mesh) const RUN: u8 = 12;
pub(in crate::mesh) const BYE: u8 = 13;
pub(in crate::mesh) const STOP: u8 = 14;
pub(in crate::mesh) const UNFIT: u8 = 15;
pub(in crate::mesh) const NEVER_BEGAN: u8 = 16;
pub(in crate::mesh) const SHARE: u8 = 17;
pub(in crate::mesh) const DIFFER: u8 = 18;

/// Longest message of a kind: the recorded history of a long run, what all of a large cluster know, what one of its nodes gives,
/// and the rest, none of which is long.
pub(in crate::mesh) const fn most(kind: u8) -> usize {
    match kind {
        SHARE | ALL => 2 << 30,
        GIVE => 64 << 20,
        _ => 1 << 20,
    }
}
