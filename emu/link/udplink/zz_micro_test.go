//go:build linux

package udplink

import (
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/fabrictest/fabrictest/emu/link"
	"golang.org/x/sys/unix"
)

func rawSock(v6 bool, opts ...sockopt) int {
	fam := unix.AF_INET
	if v6 {
		fam = unix.AF_INET6
	}
	fd, err := unix.Socket(fam, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		panic(err)
	}
	for _, o := range opts {
		if err := unix.SetsockoptInt(fd, o.level, o.opt, o.value); err != nil {
			panic(err)
		}
	}
	return fd
}

type variant struct {
	name string
	f    func()
	t    []float64
}

func TestMicro(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		ip := netip.MustParseAddr("127.0.0.5")
		o4 := []sockopt{{unix.IPPROTO_IP, unix.IP_RECVTOS, 1, ""}, {unix.IPPROTO_IP, unix.IP_RECVTTL, 1, ""}}
		if v6 {
			ip = netip.MustParseAddr("::1")
			o4 = []sockopt{{unix.IPPROTO_IPV6, ipv6FlowInfo, 1, ""}, {unix.IPPROTO_IPV6, unix.IPV6_RECVHOPLIMIT, 1, ""}, {unix.IPPROTO_IPV6, unix.IPV6_AUTOFLOWLABEL, 0, ""}}
		}
		buf := make([]byte, 64)
		var vs []variant
		port := uint16(7000)
		bindp := func(fd int) (sa *sockaddr, n uint32) {
			port++
			if _, err := bind(fd, netip.AddrPortFrom(ip, port), 0); err != nil {
				panic(err)
			}
			sa = new(sockaddr)
			n = putSockaddr(sa, netip.AddrPortFrom(ip, port), 0, 0)
			return
		}
		{
			fd := rawSock(v6)
			sa, n := bindp(fd)
			vs = append(vs, variant{"recvfrom", func() {
				syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&buf[0])), 64, 0, uintptr(unsafe.Pointer(sa)), uintptr(n))
				syscall.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(&buf[0])), 64, 0, 0, 0)
			}, nil})
			vs = append(vs, variant{"recvfrom-empty", func() {
				syscall.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(&buf[0])), 64, 0, 0, 0)
			}, nil})
		}
		for i, opts := range [][]sockopt{nil, o4} {
			fd := rawSock(v6, opts...)
			sa, n := bindp(fd)
			iov := new(unix.Iovec)
			iov.Base, iov.Len = &buf[0], 64
			name := new(sockaddr)
			c := new(control)
			m := new(unix.Msghdr)
			vs = append(vs, variant{fmt.Sprint("recvmsg-", i), func() {
				syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&buf[0])), 64, 0, uintptr(unsafe.Pointer(sa)), uintptr(n))
				m.Name, m.Namelen, m.Iov, m.Iovlen, m.Control, m.Controllen = (*byte)(unsafe.Pointer(name)), 28, iov, 1, &c.b[0], 160
				syscall.RawSyscall6(unix.SYS_RECVMSG, uintptr(fd), uintptr(unsafe.Pointer(m)), 0, 0, 0, 0)
			}, nil})
		}
		port++
		dst := netip.AddrPortFrom(ip, port)
		l, err := Open(Config{Local: dst})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		in := make([]link.Datagram, 4)
		out := []link.Datagram{{Dst: dst, Payload: buf}}
		sa := new(sockaddr)
		n := putSockaddr(sa, dst, 0, 0)
		vs = append(vs, variant{"link-recv", func() {
			l.in.batch = 1
			syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(l.fd), uintptr(unsafe.Pointer(&buf[0])), 64, 0, uintptr(unsafe.Pointer(sa)), uintptr(n))
			l.Recv(0, in)
		}, nil})
		vs = append(vs, variant{"link", func() {
			l.in.batch = 1
			l.Send(0, out)
			l.Recv(0, in)
		}, nil})
		vs = append(vs, variant{"link-empty", func() { l.in.batch = 1; l.Recv(0, in) }, nil})
		for range 600 {
			for i := range vs {
				v := &vs[i]
				s := time.Now()
				for range 100 {
					v.f()
				}
				v.t = append(v.t, float64(time.Since(s).Nanoseconds())/100)
			}
		}
		for _, v := range vs {
			slices.Sort(v.t)
			fmt.Printf("v6=%v %-16s min %7.1f p10 %7.1f med %7.1f\n", v6, v.name, v.t[0], v.t[60], v.t[300])
		}
	}
}
