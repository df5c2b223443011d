package drive_test

import (
	"net/netip"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// rawSocket is a bare TCP socket.
type rawSocket int

// rawSocketPair returns two connected sockets with the options of tcplink.
func rawSocketPair(b *testing.B, in [2]func(func() error) error, addrs [2]netip.AddrPort) (x, y rawSocket) {
	b.Helper()
	check := func(err error) {
		if err != nil {
			b.Helper()
			b.Fatal(err)
		}
	}
	family := unix.AF_INET6
	if addrs[0].Addr().Is4() {
		family = unix.AF_INET
	}
	sockaddr := func(a netip.AddrPort) unix.Sockaddr {
		if a.Addr().Is4() {
			return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
		}
		return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
	}
	var fds [2]int
	for i := range fds {
		check(in[i](func() (err error) {
			fds[i], err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			return err
		}))
	}
	check(unix.Bind(fds[1], sockaddr(addrs[1])))
	check(unix.Listen(fds[1], 1))
	bound, err := unix.Getsockname(fds[1])
	check(err)
	check(unix.Connect(fds[0], bound))
	accepted, _, err := unix.Accept(fds[1])
	check(err)
	for _, fd := range []int{fds[0], accepted} {
		check(unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1))
	}
	b.Cleanup(func() { unix.Close(fds[0]); unix.Close(fds[1]); unix.Close(accepted) })
	return rawSocket(fds[0]), rawSocket(accepted)
}

func (p rawSocket) send(msg []byte) {
	for len(msg) > 0 {
		msg = msg[send(int(p), msg):]
	}
}

func (p rawSocket) receive(buf []byte, n int, block bool) {
	flags := 0
	if !block {
		flags = unix.MSG_DONTWAIT
	}
	for n > 0 {
		k := recv(int(p), buf[:min(n, len(buf))], flags)
		n -= max(k, 0)
	}
}

// send is send(2). As in tcplink the runtime is not told of small ones.
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

// recv is recv(2). As in tcplink the runtime is not told of one that does not block.
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
