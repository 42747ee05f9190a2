/* Call the kernel directly: no symbol of libc that this library replaces is used inside it, and errno stays untouched.
 *
 * Results are those of the kernel: a negative error number, or the value. */
#ifndef RAW_CALLS_H
#define RAW_CALLS_H

#include <errno.h>
#include <stdint.h>
#include <sys/syscall.h>

static inline long raw_call(long number, long a, long b, long c, long d, long e, long f)
{
#if defined(__x86_64__)
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory", "cc");
    return x0;
#else
#error "only x86_64 and aarch64 are supported"
#endif
}

#define RAW_PADDED(number, a, b, c, d, e, f, ...) \
    raw_call((number), (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))
#define raw(...) RAW_PADDED(__VA_ARGS__, 0, 0, 0, 0, 0, 0, 0)

/* Return `result` as libc does: -1 and errno for an error. */
static inline long as_libc(long result)
{
    if (result < 0 && result > -4096) {
        errno = (int)-result;
        return -1;
    }
    return result;
}

#endif
