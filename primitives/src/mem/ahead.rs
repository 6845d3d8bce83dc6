//! Memory asked for ahead of its use.

/// Asks for the cache lines of a value, one for each 64 B from its start on, and waits for none. Changes nothing but what
/// the processor has near; on processors other than x86-64 not even that.
///
/// A load asks for a line too, but then waits for it in the way of all that comes after; and what is inside a future
/// nobody else may load.
#[inline(always)]
#[allow(unsafe_code)]
pub fn ahead<T>(value: &T) {
    for line in (0..size_of::<T>()).step_by(64) {
        let _at = std::ptr::from_ref(value).cast::<i8>().wrapping_add(line);
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a hint, which reads nothing and cannot fail whatever the address.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(_at);
        }
    }
}
