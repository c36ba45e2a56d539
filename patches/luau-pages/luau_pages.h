// Makes Luau take memory in pages of 2 and 4 KB instead of 16 and 32 KB.
//
// Luau has a page for each size of object. A VM that has just been made holds few objects of each of
// fifty sizes, so most of its pages are nearly empty. With small pages it takes 212 KB instead of 842,
// and is made in a tenth of the time, because the kernel has fewer pages to provide. Scripts that
// allocate much are as fast as before.
//
// The sizes are constants of VM/src/lmem.cpp, each reduced by another for the header of an allocator:
//
//     const size_t kExternalAllocatorMetaDataReduction = 24;
//     const size_t kSmallPageSize = 16 * 1024 - kExternalAllocatorMetaDataReduction;
//     const size_t kLargePageSize = 32 * 1024 - kExternalAllocatorMetaDataReduction;
//
// Here each mention of that name becomes a name of its own, and those of the second and third mention
// are defined below. If Luau writes this in another way one day, it does not compile, or the test
// `a_new_vm_takes_little_memory_because_luau_has_small_pages` fails. `.cargo/config.toml` makes the
// build script of Luau include this file first. Without it, everything works, in more memory.

#pragma once

#include <stddef.h>

#define MOONLARK_JOINED(name, number) name##number
#define MOONLARK_NUMBERED(name, number) MOONLARK_JOINED(name, number)
#define kExternalAllocatorMetaDataReduction MOONLARK_NUMBERED(kPageReduction, __COUNTER__)

static const size_t kPageReduction1 = 14 * 1024;
static const size_t kPageReduction2 = 28 * 1024;
