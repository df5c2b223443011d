package linktest

import (
	"bytes"
	"errors"
	"io"
	"net/netip"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/internal/must"
)

// refused: a dial to an address without a listener succeeds; the stream ends with ErrRefused.
func (s *streamTest) refused() {
	l := s.listen(0)
	addr := l.Addr()
	must.Do(s, l.Close())
	dialed := s.dial(addr)
	s.waitUntil("Read returns an error", func(now mono.Time) bool {
		n, err := dialed.Read(now, make([]byte, 1))
		if n != 0 {
			s.Fatalf("Read = %d", n)
		}
		return err != nil
	})
	s.expectEnd(dialed, link.ErrRefused)
	if dialed.Connected(s.now) {
		s.Error("a refused stream is connected")
	}
	s.awaitArrival()
	must.Fail(s, "Write", must.Err(dialed.Write(s.now, []byte("x"))), link.ErrRefused)
}

// halfClose: after CloseWrite the peer reads EOF, writes fail, and the other direction stays open.
func (s *streamTest) halfClose() {
	dialed, accepted := s.pair()
	must.Do(s, dialed.CloseWrite(s.now))
	s.expectEOF(accepted)
	s.awaitArrival()
	must.Fail(s, "Write after CloseWrite", must.Err(dialed.Write(s.now, []byte("x"))), link.ErrWriteClosed)
	if err := dialed.CloseWrite(s.now); err != nil {
		s.Errorf("CloseWrite again: %v", err)
	}
	s.write(accepted, []byte("still here"))
	if got := s.read(dialed, 10); string(got) != "still here" {
		s.Errorf("got %q", got)
	}
}

// eofAfterBytes: the peer reads all bytes before the EOF of CloseWrite.
func (s *streamTest) eofAfterBytes() {
	dialed, accepted := s.pair()
	want := pattern(40_000)
	s.write(dialed, want)
	must.Do(s, dialed.CloseWrite(s.now))
	if got := s.read(accepted, len(want)); !bytes.Equal(got, want) {
		s.Error("the received bytes differ")
	}
	s.expectEOF(accepted)
}

// reusedIDs: a stream that both ends have closed frees its ID for later streams.
func (s *streamTest) reusedIDs() {
	l := s.listen(0)
	var first link.StreamID
	for i := range 20 {
		dialed, accepted := s.connect(l)
		if i == 0 {
			first = dialed.ID()
		}
		must.Do(s, errors.Join(dialed.CloseWrite(s.now), accepted.CloseWrite(s.now)))
		s.expectEOF(accepted)
		s.expectEOF(dialed)
		if dialed.ID() > first+4 { // 4 is a margin: without reuse the IDs would grow by 20
			s.Fatalf("stream %d has ID %d: IDs are not reused", i, dialed.ID())
		}
	}
}

// abort: Abort by either end resets the stream at both ends, and later calls return ErrReset.
func (s *streamTest) abort() {
	for i := range 2 {
		aborter, peer := s.pair()
		if i == 1 {
			aborter, peer = peer, aborter
		}
		must.Do(s, aborter.Abort(s.now))
		s.expectEnd(peer, link.ErrReset)
		s.expectEnd(aborter, link.ErrReset)
		for _, end := range []link.StreamLink{peer, aborter} {
			s.awaitArrival()
			_, writeErr := end.Write(s.now, []byte("x"))
			for _, err := range []error{writeErr, end.CloseWrite(s.now), end.Abort(s.now)} {
				if !errors.Is(err, link.ErrReset) {
					s.Errorf("after the reset: %v", err)
				}
			}
		}
	}
}

// bytesBeforeReset: bytes that arrived before a reset can be read after the reset and a Write.
func (s *streamTest) bytesBeforeReset() {
	dialed, accepted := s.pair()
	s.write(dialed, []byte("last bytes"))
	for range 3 { // a reset discards bytes that are still to be sent, and they may need several waits
		s.awaitArrival()
	}
	must.Do(s, dialed.Abort(s.now))
	for range 2 { // the reset, which may need several waits too
		s.awaitArrival()
	}
	if _, err := accepted.Write(s.now, []byte("x")); err != nil && !errors.Is(err, link.ErrReset) {
		s.Errorf("Write: %v", err)
	}
	if got, err := s.readToError(accepted); string(got) != "last bytes" || !errors.Is(err, link.ErrReset) {
		s.Errorf("read %q, then %v; want \"last bytes\", then ErrReset", got, err)
	}
}

// abortEarly: a stream can be aborted before it is connected, and the address dialed again.
func (s *streamTest) abortEarly() {
	l := s.listen(0)
	dialed := s.dial(l.Addr())
	must.Do(s, dialed.Abort(s.now))
	s.expectEnd(dialed, link.ErrReset)
	if dialed = s.dial(l.Addr()); dialed.ID() == 0 {
		s.Error("a new stream has no ID")
	}
}

// closeEarly: CloseWrite before the stream is connected takes effect when it is.
func (s *streamTest) closeEarly() {
	l := s.listen(0)
	dialed := s.dial(l.Addr())
	must.Do(s, dialed.CloseWrite(s.now))
	accepted := s.accept(l)
	s.waitUntil("the dialer is connected", func(mono.Time) bool { return dialed.Connected(s.now) })
	s.expectEOF(accepted)
	s.write(accepted, []byte("at once"))
	if got := s.read(dialed, 7); string(got) != "at once" {
		s.Errorf("got %q", got)
	}
}

// anyAddress: a listener on the unspecified address and port 0 accepts streams to a concrete
// address, and a second listener on port 0 gets another port.
func (s *streamTest) anyAddress() {
	unspecified := netip.IPv6Unspecified()
	if s.AddrB.Is4() {
		unspecified = netip.IPv4Unspecified()
	}
	l := must.Get(s.B.Listen(netip.AddrPortFrom(unspecified, 0), 5))(s)
	dialed := must.Get(s.A.Dial(s.now, netip.AddrPortFrom(unspecified, 0), netip.AddrPortFrom(s.AddrB, l.Addr().Port())))(s)
	accepted := s.accept(l)
	if accepted.LocalAddr() != dialed.RemoteAddr() || accepted.RemoteAddr().Addr().IsUnspecified() {
		s.Errorf("accepted at %v from %v", accepted.LocalAddr(), accepted.RemoteAddr())
	}
	second := s.listen(0)
	if second.Addr().Port() == l.Addr().Port() {
		s.Errorf("port 0 gave port %d twice", l.Addr().Port())
	}
}

// inUse: a second listener can have the address of a listener only after Close of the first.
func (s *streamTest) inUse() {
	l := s.listen(0)
	must.Fail(s, "listening twice", must.Err(s.B.Listen(l.Addr(), 1)), link.ErrAddrInUse)
	must.Do(s, l.Close())
	s.listen(l.Addr().Port())
	must.Fail(s, "Close again", l.Close(), link.ErrClosed)
	s.awaitArrival()
	must.Fail(s, "Accept after Close", must.Err(l.Accept(s.now)), link.ErrClosed)
}

// closedListener: dials to a closed listener are refused, and its accepted streams stay open.
func (s *streamTest) closedListener() {
	l := s.listen(0)
	dialed, accepted := s.connect(l)
	must.Do(s, l.Close())
	s.write(dialed, []byte("hello"))
	if got := s.read(accepted, 5); string(got) != "hello" {
		s.Errorf("got %q", got)
	}
	s.expectEnd(s.dial(l.Addr()), link.ErrRefused)
}

// neverAccepted: closing a listener resets streams that were not accepted.
func (s *streamTest) neverAccepted() {
	l := s.listen(0)
	dialed := s.dial(l.Addr())
	s.waitUntil("the dialer is connected", func(mono.Time) bool { return dialed.Connected(s.now) })
	must.Do(s, l.Close())
	s.expectEnd(dialed, link.ErrReset)
}

// many: of many streams, Ready reports as readable the one that has received bytes.
func (s *streamTest) many() {
	l := s.listen(0)
	const count = 12
	var dialed, accepted [count]link.StreamLink
	for i := range dialed {
		dialed[i] = s.dial(l.Addr())
		accepted[i] = s.accept(l)
	}
	ids := make(map[link.StreamID]int) // indexes in accepted
	for i, stream := range accepted {
		ids[stream.ID()] = i
	}
	if len(ids) != count {
		s.Fatalf("%d IDs for %d streams", len(ids), count)
	}
	s.waitUntil("all are connected", func(mono.Time) bool {
		for _, stream := range dialed {
			if !stream.Connected(s.now) {
				return false
			}
		}
		return true
	})
	for s.awaitArrival(); s.B.Ready(s.ready[:]) == len(s.ready); s.awaitArrival() { // drop old events
	}
	for _, i := range []int{7, 2, 9} { // any but 0, which ids has for unknown IDs
		s.awaitArrival()
		if n, err := dialed[i].Write(s.now, []byte{byte(i)}); n != 1 || err != nil {
			s.Fatalf("Write = %d, %v", n, err)
		}
		reported := false
		for range 1000 {
			s.awaitArrival()
			for _, r := range s.ready[:s.B.Ready(s.ready[:])] {
				reported = reported || r.Readable && ids[r.ID] == i && r.ID != l.ID() // IDs must differ
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

// closedNet: closing a StreamNet aborts its streams, except those on which CloseWrite was called.
// The peer of such a stream reads all bytes and EOF, even if bytes that the peer sent are unread.
// Later calls of the StreamNet return ErrClosed.
func (s *streamTest) closedNet() {
	l := s.listen(0)
	kept, broken := s.dial(l.Addr()), s.dial(l.Addr())
	keptPeer, brokenPeer := s.accept(l), s.accept(l)
	s.waitUntil("both are connected", func(mono.Time) bool { return kept.Connected(s.now) && broken.Connected(s.now) })
	if keptPeer.RemoteAddr() != kept.LocalAddr() {
		keptPeer, brokenPeer = brokenPeer, keptPeer
	}
	s.write(keptPeer, []byte("unread"))
	s.write(kept, []byte("bye"))
	must.Do(s, kept.CloseWrite(s.now))
	listenerOfA := must.Get(s.A.Listen(netip.AddrPortFrom(s.AddrA, 0), 1))(s)
	s.awaitArrival()
	s.closed = true
	if err := s.A.Close(); err != nil {
		s.Fatalf("Close: %v", err)
	}
	if got, err := s.readToError(keptPeer); string(got) != "bye" || !errors.Is(err, io.EOF) {
		s.Errorf("peer of a stream after CloseWrite read %q, then %v; want \"bye\", then EOF", got, err)
	}
	s.expectEnd(brokenPeer, link.ErrReset)
	_, dialErr := s.A.Dial(s.now, netip.AddrPortFrom(s.AddrA, 0), l.Addr())
	_, listenErr := s.A.Listen(netip.AddrPortFrom(s.AddrA, 0), 1)
	s.awaitArrival()
	_, acceptErr := listenerOfA.Accept(s.now)
	for _, err := range []error{dialErr, listenErr, acceptErr, s.A.Close()} {
		if !errors.Is(err, link.ErrClosed) {
			s.Errorf("after Close: %v", err)
		}
	}
	s.B.Close()
}

// invalidArguments: Listen and Dial return errors for no backlog, addresses of other hosts,
// addresses in use, and addresses of two families.
func (s *streamTest) invalidArguments() {
	if _, err := s.B.Listen(netip.AddrPortFrom(s.AddrB, 0), 0); err == nil {
		s.Error("Listen with a backlog of 0 succeeded")
	}
	foreign := netip.MustParseAddr("2001:db8::77")
	if s.AddrB.Is4() {
		foreign = netip.MustParseAddr("192.0.2.77")
	}
	foreignPort := netip.AddrPortFrom(foreign, 0)
	must.Fail(s, "listening on an address of another host", must.Err(s.B.Listen(foreignPort, 1)), link.ErrUnreachable)
	_, err := s.A.Dial(s.now, foreignPort, netip.AddrPortFrom(s.AddrB, 9))
	must.Fail(s, "dialing from an address of another host", err, link.ErrUnreachable)
	l := s.listen(0)
	dialed := s.dial(l.Addr())
	s.accept(l)
	_, err = s.A.Dial(s.now, dialed.LocalAddr(), l.Addr())
	must.Fail(s, "dialing with the addresses of an open stream", err, link.ErrAddrInUse)
	otherFamily := netip.MustParseAddrPort("127.0.0.1:9")
	if s.AddrA.Is4() {
		otherFamily = netip.MustParseAddrPort("[::1]:9")
	}
	if _, err := s.A.Dial(s.now, netip.AddrPortFrom(s.AddrA, 0), otherFamily); err == nil {
		s.Error("Dial from one address family to the other succeeded")
	}
}
