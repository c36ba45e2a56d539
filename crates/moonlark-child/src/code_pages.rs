//! Pages of the program and its libraries that an idle process need not have mapped.
//!
//! Starting and loading run through much of the code once. The kernel keeps those pages in
//! its cache whether or not they are mapped here, but counts mapped ones as memory in use,
//! and takes them away last. Once they are let go, what is needed again is mapped again, a
//! few microseconds for each stretch of code.

#[cfg(all(target_os = "linux", target_env = "gnu"))]
use std::ffi::CStr;

/// Let go of code and constants. Nothing is lost: they are in their files.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(crate) fn release_code_pages() {
    // SAFETY: calls back before it returns, with a pointer that is valid for that long.
    unsafe { libc::dl_iterate_phdr(Some(release_constant_segments), std::ptr::null_mut()) };
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn release_code_pages() {}

/// Called for the program and for each library.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
unsafe extern "C" fn release_constant_segments(
    info: *mut libc::dl_phdr_info,
    _size: libc::size_t,
    _data: *mut libc::c_void,
) -> libc::c_int {
    // SAFETY: as the C library promises.
    let (name, base, segments) = unsafe {
        let info = &*info;
        let count = usize::from(info.dlpi_phnum);
        let segments = std::slice::from_raw_parts(info.dlpi_phdr, count);
        (CStr::from_ptr(info.dlpi_name), info.dlpi_addr, segments)
    };
    // What the kernel itself puts into every process is no file.
    if name.to_bytes().starts_with(b"linux-") {
        return 0;
    }
    // SAFETY: asks for a constant.
    let page = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
    for segment in segments {
        // What was ever writable may have been written to, by the dynamic linker at least.
        let is_constant = segment.p_type == libc::PT_LOAD && segment.p_flags & libc::PF_W == 0;
        if !is_constant {
            continue;
        }
        let begin = (base + segment.p_vaddr).next_multiple_of(page);
        let end = base + segment.p_vaddr + segment.p_memsz;
        let length = usize::try_from((end - end % page).saturating_sub(begin)).unwrap_or(0);
        if length > 0 {
            // SAFETY: whole pages of a mapping that is only read, and of whose file each is
            // read again when it is needed.
            unsafe { libc::madvise(begin as *mut _, length, libc::MADV_DONTNEED) };
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_goes_on_without_the_pages_it_had() {
        for _ in 0..3 {
            release_code_pages();
            assert_eq!(format!("{:?}", vec![1.5, 2.0]), "[1.5, 2.0]");
        }
    }
}
