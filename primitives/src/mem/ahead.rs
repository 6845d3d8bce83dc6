//! Memory asked for ahead of its use.

/// Asks for all cache lines of a value, and waits for none.
#[inline(always)]
#[allow(unsafe_code)]
pub fn ahead<T>(value: &T) {
    let at = std::ptr::from_ref(value).cast::<i8>();
    let mut line = 0;
    while line < size_of::<T>() {
        #[cfg(target_arch = "x86_64")]
        // Sound: a hint, which reads nothing and cannot fail whatever the address.
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.wrapping_add(line));
        }
        line += 64;
    }
}
