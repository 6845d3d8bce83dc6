//! Words in memory that begins with a cache line: mapped where there are many, on huge pages where the system has some.
//!
//! A NIC translates addresses page by page, and its cache of translations is small (FaRM §3.1 puts a number on
//! that): a region on 2 MiB pages needs 512 times fewer entries. So does a processor, to which a store's records, or the
//! receives of a simulated cluster, are memory far apart. Huge pages are asked for and not insisted on; what there is goes into
//! the record of a run on real NICs.
#![allow(unsafe_code)]

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

const HUGE: usize = 2 << 20;

/// From so many bytes on, memory is mapped. Mappings that follow each other have huge pages in common, so it need not be as
/// large as one.
const MAPPED_FROM: usize = 64 << 10;

/// What kind of pages large regions get on this machine now, for the record of a run.
#[cfg(feature = "verbs")]
pub fn pages_here() -> String {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    describe(free_huge_pages(&meminfo))
}

#[cfg(any(test, feature = "verbs"))]
fn describe(free: u64) -> String {
    if free == 0 {
        return "no huge page is free, so regions lie on 4 KiB pages, transparent huge pages asked for"
            .to_owned();
    }
    format!(
        "{free} huge pages of 2 MiB are free for regions of at least that size, the rest lies on 4 KiB pages"
    )
}

#[cfg(any(test, feature = "verbs"))]
fn free_huge_pages(meminfo: &str) -> u64 {
    let number = |name: &str| {
        let line = meminfo.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    };
    // `Hugepagesize` is that of the pool that the other lines count.
    if number("Hugepagesize:") == Some(2048) { number("HugePages_Free:").unwrap_or(0) } else { 0 }
}

/// A cache line of words.
#[repr(align(64))]
struct Line {
    _words: [AtomicU64; WORDS],
}

const WORDS: usize = 8;

/// A shared slice of words, zeroed at first.
#[derive(Clone)]
pub(super) struct Words {
    first: NonNull<AtomicU64>,
    len: usize,
    // Held for its drop.
    _memory: Arc<Memory>,
}

/// What words lie in.
enum Memory {
    Allocated { _lines: Vec<Line> },
    Mapped { start: *mut std::ffi::c_void, bytes: usize },
}

// SAFETY: a mapping belongs to the process, and any thread may unmap it.
unsafe impl Send for Memory {}
// SAFETY: nothing is done through shared memory of this type.
unsafe impl Sync for Memory {}
// SAFETY: the words are atomics, which any thread may use, and live as long as the memory that is held.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Memory::Mapped { start, bytes } = *self {
            // SAFETY: mapped by `mapped` with this length; whoever could refer to it held this memory.
            let _ = unsafe { munmap(start, bytes) };
        }
    }
}

fn map(bytes: usize, flags: MapFlags) -> rustix::io::Result<*mut std::ffi::c_void> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new private mapping at an address of the kernel's choice disturbs no other.
    unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, access, MapFlags::PRIVATE | flags) }
}

fn allocated(len: usize) -> (NonNull<AtomicU64>, Memory) {
    let line = || Line { _words: [const { AtomicU64::new(0) }; WORDS] };
    let mut lines: Vec<Line> = std::iter::repeat_with(line).take(len.div_ceil(WORDS)).collect();
    // A line is as long as its words, so words of lines that follow each other do so too.
    let first = NonNull::new(lines.as_mut_ptr().cast()).expect("a vector points somewhere");
    (first, Memory::Allocated { _lines: lines })
}

fn mapped(asked: usize) -> (NonNull<AtomicU64>, Memory) {
    let whole = asked.next_multiple_of(HUGE);
    let huge = if asked >= HUGE { map(whole, MapFlags::HUGETLB | MapFlags::HUGE_2MB).ok() } else { None };
    let (start, bytes) = match huge {
        Some(start) => (start, whole),
        None => {
            let bytes = asked.next_multiple_of(4096);
            let Ok(start) = map(bytes, MapFlags::empty()) else {
                let wanted = std::alloc::Layout::array::<u8>(bytes).expect("no region is larger than memory");
                std::alloc::handle_alloc_error(wanted);
            };
            // SAFETY: advice on a mapping just made; it changes no contents, and may be refused.
            let _ = unsafe { madvise(start, bytes, Advice::LinuxHugepage) };
            (start, bytes)
        }
    };
    let first = NonNull::new(start.cast()).expect("the kernel maps nothing at address zero");
    (first, Memory::Mapped { start, bytes })
}

impl Words {
    /// `len` words of zero. Aborts the process if there is no memory, as every allocation does.
    pub(super) fn zeroed(len: usize) -> Words {
        let asked = len * size_of::<AtomicU64>();
        let (first, memory) = if asked < MAPPED_FROM { allocated(len) } else { mapped(asked) };
        Words { first, len, _memory: Arc::new(memory) }
    }
}

impl Deref for Words {
    type Target = [AtomicU64];

    #[inline]
    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: the memory is aligned to a cache line at least, holds at least `len` words, is zeroed, is never written but
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
        for len in [0, 1, 511, 513, (MAPPED_FROM / 8) - 1, MAPPED_FROM / 8, (HUGE / 8) + 1] {
            let words = Words::zeroed(len);
            assert_eq!(words.len(), len);
            assert_eq!(words.as_ptr().align_offset(64), 0, "{len} words begin with a cache line");
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
