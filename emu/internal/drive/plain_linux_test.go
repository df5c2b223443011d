package drive_test

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// send is send(2), of little not announced to the runtime, as in tcplink.
func send(fd int, b []byte) int {
	var n uintptr
	var errno syscall.Errno
	if len(b) <= 4096 {
		n, _, errno = syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), unix.MSG_NOSIGNAL, 0, 0)
	} else {
		n, _, errno = syscall.Syscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), unix.MSG_NOSIGNAL, 0, 0)
	}
	if errno != 0 {
		panic(errno)
	}
	return int(n)
}

// recv is recv(2), of which package unix offers no bare form. One that does not
// block is not announced to the runtime, as in tcplink.
func recv(fd int, b []byte, flags int) int {
	if flags&unix.MSG_DONTWAIT != 0 {
		n, _, errno := syscall.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), uintptr(flags), 0, 0)
		if errno != 0 {
			return 0
		}
		return int(n)
	}
	n, _, errno := syscall.Syscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), uintptr(flags), 0, 0)
	if errno != 0 {
		return 0
	}
	return int(n)
}
