//! The bodies of a session's messages.

use super::Blame;
use crate::verbs::NodeId;

/// Who gave up, why, and whose matter it is.
pub(super) fn told(node: NodeId, blame: Blame, why: &str) -> Vec<u8> {
    let [low, high] = node.0.to_le_bytes();
    let mut body = vec![low, high, blame as u8];
    body.extend_from_slice(why.as_bytes());
    body
}

/// The other way of [`told`]; `from` is named where the bytes name nobody.
pub(super) fn untold(body: &[u8], from: NodeId) -> (NodeId, Blame, String) {
    match body.split_first_chunk::<3>() {
        Some(([low, high, blame], why)) => {
            let node = NodeId(u16::from_le_bytes([*low, *high]));
            (node, Blame::of_byte(*blame), String::from_utf8_lossy(why).into_owned())
        }
        None => (from, Blame::Machine, "no reason given".to_owned()),
    }
}

/// A step's number, and a length before each entry.
pub(super) fn list(step: u32, all: &[Vec<u8>]) -> Vec<u8> {
    let mut body = step.to_le_bytes().to_vec();
    for entry in all {
        body.extend_from_slice(&(entry.len() as u64).to_le_bytes());
        body.extend_from_slice(entry);
    }
    body
}

/// The entries of a [`list`], its step taken off; nothing if the bytes do not hold exactly `count`.
pub(super) fn unlist(mut bytes: &[u8], count: usize) -> Option<Vec<Vec<u8>>> {
    let mut all = Vec::with_capacity(count);
    for _ in 0..count {
        let (len, rest) = bytes.split_first_chunk::<8>()?;
        let (entry, rest) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*len)).ok()?)?;
        all.push(entry.to_vec());
        bytes = rest;
    }
    bytes.is_empty().then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_comes_back_and_less_names_whoever_sent_it() {
        let body = told(NodeId(300), Blame::Input, "another MTU");
        assert_eq!(untold(&body, NodeId(1)), (NodeId(300), Blame::Input, "another MTU".to_owned()));
        assert_eq!(untold(&body[..2], NodeId(1)).0, NodeId(1));
    }

    #[test]
    fn lists_come_back_and_bent_ones_do_not() {
        let all = vec![vec![1, 2, 3], vec![], vec![9; 300]];
        let bytes = list(7, &all);
        assert_eq!(unlist(&bytes[4..], 3).as_ref(), Some(&all));
        for cut in 4..bytes.len() {
            assert_eq!(unlist(&bytes[4..cut], 3), None, "cut at {cut}");
        }
        assert_eq!(unlist(&bytes[4..], 2), None);
        assert_eq!(unlist(&[0xff; 40], 1), None);
    }
}
