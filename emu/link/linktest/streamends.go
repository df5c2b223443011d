package linktest

import (
	"bytes"
	"errors"
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// refused: a dial without listener is refused.
func (s *streamTest) refused() {
	l := s.listen(0)
	addr := l.Addr()
	if err := l.Close(); err != nil {
		s.Fatal(err)
	}
	d := s.dial(addr)
	s.waitUntil("Read returns an error", func(now mono.Time) bool {
		n, err := d.Read(now, make([]byte, 1))
		if n != 0 {
			s.Fatalf("Read = %d", n)
		}
		return err != nil
	})
	s.expectEnd(d, link.ErrRefused)
	if d.Connected(s.now) {
		s.Error("a refused stream is connected")
	}
	if _, err := d.Write(s.settle(), []byte("x")); !errors.Is(err, link.ErrRefused) {
		s.Errorf("Write: %v", err)
	}
}

// halfClose: CloseWrite leaves the other direction open.
func (s *streamTest) halfClose() {
	d, a := s.pair()
	if err := d.CloseWrite(s.now); err != nil {
		s.Fatal(err)
	}
	s.expectEOF(a)
	if _, err := d.Write(s.settle(), []byte("x")); !errors.Is(err, link.ErrWriteClosed) {
		s.Errorf("Write after CloseWrite: %v", err)
	}
	if err := d.CloseWrite(s.now); err != nil {
		s.Errorf("CloseWrite again: %v", err)
	}
	s.write(a, []byte("still here"))
	if got := s.read(d, 10); string(got) != "still here" {
		s.Errorf("got %q", got)
	}
}

// endBehindBytes: EOF follows the bytes.
func (s *streamTest) endBehindBytes() {
	d, a := s.pair()
	want := pattern(40_000)
	s.write(d, want)
	if err := d.CloseWrite(s.now); err != nil {
		s.Fatal(err)
	}
	if got := s.read(a, len(want)); !bytes.Equal(got, want) {
		s.Error("other bytes arrived")
	}
	s.expectEOF(a)
}

// bothEnd: a stream that has ended frees its ID.
func (s *streamTest) bothEnd() {
	l := s.listen(0)
	var first link.StreamID
	for i := range 20 { // IDs are reused
		d := s.dial(l.Addr())
		a := s.accept(l)
		s.waitUntil("the dialer is connected", func(mono.Time) bool { return d.Connected(s.now) })
		if i == 0 {
			first = d.ID()
		}
		if err := errors.Join(d.CloseWrite(s.now), a.CloseWrite(s.now)); err != nil {
			s.Fatal(err)
		}
		s.expectEOF(a)
		s.expectEOF(d)
		if d.ID() > first+4 {
			s.Fatalf("stream %d has ID %d: IDs are not reused", i, d.ID())
		}
	}
}

// abort: Abort resets the stream at both ends.
func (s *streamTest) abort() {
	for i := range 2 {
		d, a := s.pair()
		if i == 1 {
			d, a = a, d
		}
		if err := d.Abort(s.now); err != nil {
			s.Fatal(err)
		}
		s.expectEnd(a, link.ErrReset)
		s.expectEnd(d, link.ErrReset)
		for _, end := range []link.StreamLink{a, d} {
			_, werr := end.Write(s.settle(), []byte("x"))
			for _, err := range []error{werr, end.CloseWrite(s.now), end.Abort(s.now)} {
				if !errors.Is(err, link.ErrReset) {
					s.Errorf("after the reset: %v", err)
				}
			}
		}
	}
}

// bytesBeforeReset: bytes before a reset can be read.
func (s *streamTest) bytesBeforeReset() {
	d, a := s.pair()
	s.write(d, []byte("last bytes"))
	for range 3 {
		s.settle() // a reset discards bytes that are still to be sent
	}
	if err := d.Abort(s.now); err != nil {
		s.Fatal(err)
	}
	s.settle()
	if _, err := a.Write(s.settle(), []byte("x")); err != nil && !errors.Is(err, link.ErrReset) {
		s.Errorf("Write: %v", err)
	}
	if got, err := s.readToError(a); string(got) != "last bytes" || !errors.Is(err, link.ErrReset) {
		s.Errorf("%q, then %v", got, err)
	}
}

// abortEarly: a stream can be aborted before it is connected.
func (s *streamTest) abortEarly() {
	l := s.listen(0)
	d := s.dial(l.Addr())
	if err := d.Abort(s.now); err != nil {
		s.Fatal(err)
	}
	s.expectEnd(d, link.ErrReset)
	if d = s.dial(l.Addr()); d.ID() == 0 {
		s.Error("no ID")
	}
}

// closeEarly: CloseWrite before the stream is connected takes effect later.
func (s *streamTest) closeEarly() {
	l := s.listen(0)
	d := s.dial(l.Addr())
	if err := d.CloseWrite(s.now); err != nil {
		s.Fatal(err)
	}
	a := s.accept(l)
	s.waitUntil("the dialer is connected", func(mono.Time) bool { return d.Connected(s.now) })
	s.expectEOF(a)
	s.write(a, []byte("at once"))
	if got := s.read(d, 7); string(got) != "at once" {
		s.Errorf("got %q", got)
	}
}

// anyAddress: a listener can have any port and any address.
func (s *streamTest) anyAddress() {
	unspecified := netip.IPv6Unspecified()
	if s.AddrB.Is4() {
		unspecified = netip.IPv4Unspecified()
	}
	l, err := s.B.Listen(netip.AddrPortFrom(unspecified, 0), 5)
	if err != nil {
		s.Fatal(err)
	}
	d, err := s.A.Dial(s.now, netip.AddrPortFrom(unspecified, 0), netip.AddrPortFrom(s.AddrB, l.Addr().Port()))
	if err != nil {
		s.Fatal(err)
	}
	a := s.accept(l)
	if a.LocalAddr() != d.RemoteAddr() || a.RemoteAddr().Addr().IsUnspecified() {
		s.Errorf("accepted at %v from %v", a.LocalAddr(), a.RemoteAddr())
	}
	second := s.listen(0)
	if second.Addr().Port() == l.Addr().Port() {
		s.Errorf("port 0 gave port %d twice", l.Addr().Port())
	}
}

// inUse: two listeners cannot share an address.
func (s *streamTest) inUse() {
	l := s.listen(0)
	if _, err := s.B.Listen(l.Addr(), 1); !errors.Is(err, link.ErrAddrInUse) {
		s.Errorf("listening twice: %v", err)
	}
	if err := l.Close(); err != nil {
		s.Fatal(err)
	}
	s.listen(l.Addr().Port())
	if err := l.Close(); !errors.Is(err, link.ErrClosed) {
		s.Errorf("Close again: %v", err)
	}
	if _, err := l.Accept(s.settle()); !errors.Is(err, link.ErrClosed) {
		s.Errorf("Accept after Close: %v", err)
	}
}

// closedListener: a closed listener refuses, and its accepted streams stay open.
func (s *streamTest) closedListener() {
	l := s.listen(0)
	d := s.dial(l.Addr())
	a := s.accept(l)
	s.waitUntil("the dialer is connected", func(mono.Time) bool { return d.Connected(s.now) })
	if err := l.Close(); err != nil {
		s.Fatal(err)
	}
	s.write(d, []byte("hello"))
	if got := s.read(a, 5); string(got) != "hello" {
		s.Errorf("got %q", got)
	}
	s.expectEnd(s.dial(l.Addr()), link.ErrRefused)
}

// neverAccepted: closing a listener resets streams that were not accepted.
func (s *streamTest) neverAccepted() {
	l := s.listen(0)
	d := s.dial(l.Addr())
	s.waitUntil("the dialer is connected", func(mono.Time) bool { return d.Connected(s.now) })
	if err := l.Close(); err != nil {
		s.Fatal(err)
	}
	s.expectEnd(d, link.ErrReset)
}

// many: Ready reports the right one of many streams.
func (s *streamTest) many() {
	l := s.listen(0)
	const count = 12
	var dialed, accepted [count]link.StreamLink
	for i := range dialed {
		dialed[i] = s.dial(l.Addr())
		accepted[i] = s.accept(l)
	}
	ids := make(map[link.StreamID]int)
	for i, a := range accepted {
		ids[a.ID()] = i
	}
	if len(ids) != count {
		s.Fatalf("%d IDs for %d streams", len(ids), count)
	}
	s.waitUntil("all are connected", func(mono.Time) bool {
		for _, d := range dialed {
			if !d.Connected(s.now) {
				return false
			}
		}
		return true
	})
	for s.settle(); s.B.Ready(s.ready[:]) == len(s.ready); s.settle() { // drop old events
	}
	for _, i := range []int{7, 2, 9} {
		if n, err := dialed[i].Write(s.settle(), []byte{byte(i)}); n != 1 || err != nil {
			s.Fatalf("Write = %d, %v", n, err)
		}
		reported := false
		for range 1000 {
			s.settle()
			for _, r := range s.ready[:s.B.Ready(s.ready[:])] {
				reported = reported || r.Readable && ids[r.ID] == i && r.ID != l.ID()
			}
			if reported {
				break
			}
		}
		if !reported {
			s.Errorf("stream %d was not reported", i)
		}
		if got := s.read(accepted[i], 1); got[0] != byte(i) {
			s.Errorf("stream %d got %d", i, got[0])
		}
	}
}

// closedNet: closing a net aborts all streams but those after CloseWrite.
func (s *streamTest) closedNet() {
	l := s.listen(0)
	kept, broken := s.dial(l.Addr()), s.dial(l.Addr())
	a1, a2 := s.accept(l), s.accept(l)
	s.waitUntil("both are connected", func(mono.Time) bool { return kept.Connected(s.now) && broken.Connected(s.now) })
	if a1.RemoteAddr() != kept.LocalAddr() {
		a1, a2 = a2, a1
	}
	s.write(a1, []byte("unread"))
	s.write(kept, []byte("bye"))
	if err := kept.CloseWrite(s.now); err != nil {
		s.Fatal(err)
	}
	other, err := s.A.Listen(netip.AddrPortFrom(s.AddrA, 0), 1)
	if err != nil {
		s.Fatal(err)
	}
	s.settle()
	s.closed = true
	if err := s.A.Close(); err != nil {
		s.Fatalf("Close: %v", err)
	}
	if got, err := s.readToError(a1); string(got) != "bye" || err.Error() != "EOF" {
		s.Errorf("closed by CloseWrite: %q, then %v", got, err)
	}
	s.expectEnd(a2, link.ErrReset)
	_, dialErr := s.A.Dial(s.now, netip.AddrPortFrom(s.AddrA, 0), l.Addr())
	_, listenErr := s.A.Listen(netip.AddrPortFrom(s.AddrA, 0), 1)
	_, acceptErr := other.Accept(s.settle())
	for _, err := range []error{dialErr, listenErr, acceptErr, s.A.Close()} {
		if !errors.Is(err, link.ErrClosed) {
			s.Errorf("after Close: %v", err)
		}
	}
	s.B.Close()
}

// invalidArguments: invalid arguments are errors.
func (s *streamTest) invalidArguments() {
	if _, err := s.B.Listen(netip.AddrPortFrom(s.AddrB, 0), 0); err == nil {
		s.Error("listened with no backlog")
	}
	foreign := netip.MustParseAddr("2001:db8::77")
	if s.AddrB.Is4() {
		foreign = netip.MustParseAddr("192.0.2.77")
	}
	if _, err := s.B.Listen(netip.AddrPortFrom(foreign, 0), 1); !errors.Is(err, link.ErrUnreachable) {
		s.Errorf("listening on an address of another host: %v", err)
	}
	if _, err := s.A.Dial(s.now, netip.AddrPortFrom(foreign, 0), netip.AddrPortFrom(s.AddrB, 9)); !errors.Is(err, link.ErrUnreachable) {
		s.Errorf("dialing from an address of another host: %v", err)
	}
	l := s.listen(0)
	d := s.dial(l.Addr())
	s.accept(l)
	if _, err := s.A.Dial(s.now, d.LocalAddr(), l.Addr()); !errors.Is(err, link.ErrAddrInUse) {
		s.Errorf("dialing with the addresses of an open stream: %v", err)
	}
	other := netip.MustParseAddrPort("127.0.0.1:9")
	if s.AddrA.Is4() {
		other = netip.MustParseAddrPort("[::1]:9")
	}
	if _, err := s.A.Dial(s.now, netip.AddrPortFrom(s.AddrA, 0), other); err == nil {
		s.Error("dialed from one address family to the other")
	}
}
