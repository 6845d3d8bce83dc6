//! Words in memory that begins with a cache line: mapped where there are many, on huge pages where the system has some.
//!
//! A NIC translates addresses page by page, and its cache of translations is small (FaRM §3.1 puts a number on
//! that): a region on 2 MiB pages needs 512 times fewer entries. So does a processor, to which a store's records, or the
//! receives of a simulated cluster, are memory far apart. Huge pages are asked for and not insisted on; what there is goes into
//! the record of a run on real NICs.
#![allow(unsafe_code)]

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const HUGE: usize = 2 << 20;

/// From so many bytes on, memory is mapped. Mappings that follow each other have huge pages in common, so it need not be as
/// large as one.
const MAPPED_FROM: usize = 64 << 10;

/// Bytes that large regions of this process were mapped with, on huge pages and on small ones.
static TAKEN: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// On which pages this process's regions of a huge page and more were mapped so far, for the record of a run on real NICs; none if there
/// was no such region.
pub(crate) fn pages_taken() -> Option<String> {
    let [huge, small] = [&TAKEN[0], &TAKEN[1]].map(|bytes| bytes.load(Ordering::Relaxed));
    (huge + small > 0).then(|| describe(huge, small))
}

fn describe(huge: u64, small: u64) -> String {
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    let (on_huge, on_small) = (mib(huge), mib(small));
    format!(
        "Of regions of 2 MiB and more this process mapped {on_huge} MiB on huge pages and {on_small} MiB on pages of 4 KiB, transparent huge \
         pages asked for."
    )
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

/// Huge pages for all of it, if they are there. The kernel sets them aside when it maps them, and may refuse them all the same when they are
/// touched first, by a signal that ends the process: a control group's limit (`hugetlb` of containers and batch systems), or a NUMA node
/// without any. So they are touched here, where a refusal is an answer.
fn map_huge(bytes: usize) -> Option<*mut std::ffi::c_void> {
    let start = map(bytes, MapFlags::HUGETLB | MapFlags::HUGE_2MB).ok()?;
    // SAFETY: advice on a mapping just made; it changes no contents.
    match unsafe { madvise(start, bytes, Advice::LinuxPopulateWrite) } {
        // A kernel before 5.14 knows no such advice, and has not been asked.
        Ok(()) | Err(Errno::INVAL) => Some(start),
        Err(_) => {
            // SAFETY: mapped above with this length, and nobody has it.
            let _ = unsafe { munmap(start, bytes) };
            None
        }
    }
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
    let huge = if asked >= HUGE { map_huge(whole) } else { None };
    if asked >= HUGE {
        let bytes = &TAKEN[usize::from(huge.is_none())];
        bytes.fetch_add(asked as u64, Ordering::Relaxed);
    }
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
        // through atomics (or by a device, or a device's library while this process's thread is in its calls), and lives as long as `self`.
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
    fn large_regions_are_counted_by_the_pages_they_lie_on() {
        let _large = Words::zeroed(HUGE / 8);
        let told = pages_taken().expect("there is one");
        assert!(told.starts_with("Of regions of 2 MiB and more this process mapped "), "{told}");
        assert!(describe(3 << 20, 1).contains(" 3 MiB on huge pages and 1 MiB on pages of 4 KiB"));
        // The machine that runs this may have huge pages or none; either way they are as many as were asked for.
        if let Some(start) = map_huge(HUGE) {
            // SAFETY: just mapped with this length, and used by nobody.
            assert_eq!(unsafe { munmap(start, HUGE) }, Ok(()));
        }
    }
}
