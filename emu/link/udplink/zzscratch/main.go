package main

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

type side struct {
	fd   int
	buf  []byte
	peer unix.RawSockaddrInet4
	wait func()
	msg  unix.Msghdr
	iov  unix.Iovec
	ctl  [128]byte
	name [28]byte
}

func mk(ip byte, nonblock bool) *side {
	t := unix.SOCK_DGRAM
	if nonblock {
		t |= unix.SOCK_NONBLOCK
	}
	fd, err := unix.Socket(unix.AF_INET, t, 0)
	if err != nil {
		panic(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, ip}}); err != nil {
		panic(err)
	}
	return initSide(fd)
}

func initSide(fd int) *side {
	s := &side{fd: fd, buf: make([]byte, 64)}
	s.iov.Base = &s.buf[0]
	s.iov.Len = 64
	s.msg = unix.Msghdr{Name: &s.name[0], Iov: &s.iov, Iovlen: 1, Control: &s.ctl[0]}
	unix.SetsockoptInt(fd, 0, unix.IP_RECVTTL, 1)
	unix.SetsockoptInt(fd, 0, unix.IP_RECVTOS, 1)
	return s
}

func (s *side) setPeer(p *side) {
	sa, _ := unix.Getsockname(p.fd)
	a := sa.(*unix.SockaddrInet4)
	s.peer = unix.RawSockaddrInet4{Family: unix.AF_INET, Addr: a.Addr, Port: uint16(a.Port>>8) | uint16(a.Port&0xff)<<8}
}

func (s *side) send() {
	_, _, e := syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(s.fd), uintptr(unsafe.Pointer(&s.buf[0])), 64, 0, uintptr(unsafe.Pointer(&s.peer)), 16)
	if e != 0 {
		panic(e)
	}
}

func (s *side) try() bool {
	s.msg.Namelen = 28
	s.msg.Controllen = 128
	_, _, e := syscall.RawSyscall6(unix.SYS_RECVMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&s.msg)), unix.MSG_DONTWAIT, 0, 0, 0)
	if e == 0 {
		return true
	}
	if e != unix.EAGAIN {
		panic(e)
	}
	return false
}

func (s *side) recv() {
	if s.wait == nil {
		for {
			s.msg.Namelen = 28
			s.msg.Controllen = 128
			_, _, e := syscall.Syscall6(unix.SYS_RECVMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&s.msg)), 0, 0, 0, 0)
			if e == unix.EINTR {
				continue
			}
			if e != 0 {
				panic(e)
			}
			return
		}
	}
	for !s.try() {
		s.wait()
	}
}

func ppoller(s *side, extra bool, timeout bool) func() {
	fds := []unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLIN}}
	if extra {
		ev, _ := unix.Eventfd(0, unix.EFD_NONBLOCK)
		fds = append(fds, unix.PollFd{Fd: int32(ev), Events: unix.POLLIN})
	}
	var ts unix.Timespec
	return func() {
		var t *unix.Timespec
		if timeout {
			ts.Sec = 1
			ts.Nsec = 0
			t = &ts
		}
		syscall.Syscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&fds[0])), uintptr(len(fds)), uintptr(unsafe.Pointer(t)), 0, 0, 0)
	}
}

func epoller(s *side, timeout bool) func() {
	ep, _ := unix.EpollCreate1(0)
	ev, _ := unix.Eventfd(0, unix.EFD_NONBLOCK)
	unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, s.fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(s.fd)})
	unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, ev, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(ev)})
	evs := make([]unix.EpollEvent, 4)
	var ts unix.Timespec
	return func() {
		var t *unix.Timespec
		if timeout {
			ts.Sec = 1
			ts.Nsec = 0
			t = &ts
		}
		syscall.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(ep), uintptr(unsafe.Pointer(&evs[0])), 4, uintptr(unsafe.Pointer(t)), 0, 0)
	}
}

type variant struct {
	name string
	a, b *side
	t    []float64
}

func netside(ip byte) *side {
	fd, _ := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK, 0)
	unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, ip}})
	f := os.NewFile(uintptr(fd), "x")
	c, err := net.FilePacketConn(f)
	if err != nil {
		panic(err)
	}
	rc, _ := c.(*net.UDPConn).SyscallConn()
	var nfd int
	rc.Control(func(fd uintptr) { nfd = int(fd) })
	s := initSide(nfd)
	tries := 0
	fn := func(fd uintptr) bool {
		tries++
		if tries > 1 {
			return true
		}
		return false
	}
	s.wait = func() {
		tries = 0
		rc.Read(fn)
	}
	return s
}

func main() {
	fmt.Println("GOMAXPROCS", runtime.GOMAXPROCS(0))
	var vs []*variant
	add := func(name string, nb bool, f func(*side) func()) {
		a, b := mk(11, nb), mk(12, nb)
		a.setPeer(b)
		b.setPeer(a)
		if f != nil {
			a.wait, b.wait = f(a), f(b)
		}
		vs = append(vs, &variant{name: name, a: a, b: b})
	}
	add("blocking recvmsg", false, nil)
	add("ppoll 1", true, func(s *side) func() { return ppoller(s, false, false) })
	add("ppoll 2", true, func(s *side) func() { return ppoller(s, true, false) })
	add("ppoll 2 timeout", true, func(s *side) func() { return ppoller(s, true, true) })
	add("epoll", true, func(s *side) func() { return epoller(s, false) })
	add("epoll timeout", true, func(s *side) func() { return epoller(s, true) })
	{
		a, b := netside(13), netside(14)
		a.setPeer(b)
		b.setPeer(a)
		vs = append(vs, &variant{name: "netpoll", a: a, b: b})
	}
	for range 60 {
		for _, v := range vs {
			const n = 300
			done := make(chan bool)
			go func() {
				for range n {
					v.b.recv()
					v.b.send()
				}
				close(done)
			}()
			s := time.Now()
			for range n {
				v.a.send()
				v.a.recv()
			}
			v.t = append(v.t, float64(time.Since(s).Nanoseconds())/n/2)
			<-done
		}
	}
	for _, v := range vs {
		slices.Sort(v.t)
		fmt.Printf("%-20s p10 %7.0f med %7.0f p90 %7.0f ns half rtt\n", v.name, v.t[len(v.t)/10], v.t[len(v.t)/2], v.t[len(v.t)*9/10])
	}
}
