//! Words in memory mapped for NICs: whole pages, huge ones where the system keeps some.
//!
//! A NIC translates addresses page by page, and its cache of translations is small (FaRM §3.1 puts a number on
//! that): a region on 2 MiB pages needs 512 times fewer entries. Huge pages are asked for and not insisted on;
//! what there is goes into the record of a run.
#![allow(unsafe_code)]

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

const HUGE: usize = 2 << 20;

/// What kind of pages large regions get on this machine now, for the record of a run.
pub fn pages_here() -> String {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    describe(free_huge_pages(&meminfo))
}

fn describe(free: u64) -> String {
    if free == 0 {
        return "no huge page is free, so regions lie on 4 KiB pages, transparent huge pages asked for"
            .to_owned();
    }
    format!(
        "{free} huge pages of 2 MiB are free for regions of at least that size, the rest lies on 4 KiB pages"
    )
}

fn free_huge_pages(meminfo: &str) -> u64 {
    let number = |name: &str| {
        let line = meminfo.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    };
    // `Hugepagesize` is that of the pool that the other lines count.
    if number("Hugepagesize:") == Some(2048) { number("HugePages_Free:").unwrap_or(0) } else { 0 }
}

/// A shared slice of words, zeroed at first.
#[derive(Clone)]
pub(super) struct Words {
    first: NonNull<AtomicU64>,
    len: usize,
    // Held for its drop.
    _mapping: Arc<Mapping>,
}

struct Mapping {
    start: *mut std::ffi::c_void,
    bytes: usize,
}

// SAFETY: a mapping belongs to the process, and any thread may unmap it.
unsafe impl Send for Mapping {}
// SAFETY: nothing is done through a shared mapping.
unsafe impl Sync for Mapping {}
// SAFETY: the words are atomics, which any thread may use, and live as long as the mapping that is held.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `Words::zeroed` with this length; whoever could refer to it held this mapping.
        let _ = unsafe { munmap(self.start, self.bytes) };
    }
}

fn map(bytes: usize, flags: MapFlags) -> rustix::io::Result<*mut std::ffi::c_void> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new private mapping at an address of the kernel's choice disturbs no other.
    unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, access, MapFlags::PRIVATE | flags) }
}

impl Words {
    /// `len` words of zero. Aborts the process if there is no memory, as every allocation does.
    pub(super) fn zeroed(len: usize) -> Words {
        let asked = (len * size_of::<AtomicU64>()).max(1);
        let whole = asked.next_multiple_of(HUGE);
        let huge = if asked >= HUGE { map(whole, MapFlags::HUGETLB | MapFlags::HUGE_2MB).ok() } else { None };
        let (start, bytes) = match huge {
            Some(start) => (start, whole),
            None => {
                let bytes = asked.next_multiple_of(4096);
                let Ok(start) = map(bytes, MapFlags::empty()) else {
                    std::alloc::handle_alloc_error(std::alloc::Layout::new::<[u8; 4096]>());
                };
                if asked >= HUGE {
                    // SAFETY: advice on a mapping just made; it changes no contents, and may be refused.
                    let _ = unsafe { madvise(start, bytes, Advice::LinuxHugepage) };
                }
                (start, bytes)
            }
        };
        let mapping = Arc::new(Mapping { start, bytes });
        let first = NonNull::new(start.cast()).expect("the kernel maps nothing at address zero");
        Words { first, len, _mapping: mapping }
    }
}

impl Deref for Words {
    type Target = [AtomicU64];

    #[inline]
    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is page-aligned, holds at least `len` words, is zeroed by the kernel, is never written but
        // through atomics (or by a device, word by word), and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn words_are_zero_shared_and_of_the_length_asked_for() {
        for len in [0, 1, 511, 513, (HUGE / 8) + 1] {
            let words = Words::zeroed(len);
            assert_eq!(words.len(), len);
            assert!(words.iter().all(|w| w.load(Ordering::Relaxed) == 0));
            let other = words.clone();
            if let Some(last) = words.last() {
                last.store(7, Ordering::Relaxed);
            }
            drop(words);
            assert_eq!(other.last().map(|w| w.load(Ordering::Relaxed)), (len > 0).then_some(7));
        }
    }

    #[test]
    fn what_pages_there_are_is_read_as_the_kernel_writes_it() {
        let meminfo = "HugePages_Total:      64\nHugePages_Free:       12\nHugepagesize:       2048 kB\n";
        assert_eq!(free_huge_pages(meminfo), 12);
        assert_eq!(
            free_huge_pages("HugePages_Free: 12\nHugepagesize: 1048576 kB\n"),
            0,
            "pages of another size"
        );
        assert_eq!(free_huge_pages(""), 0);
        assert!(describe(0).contains("4 KiB") && describe(12).starts_with("12 huge pages"));
    }
}
