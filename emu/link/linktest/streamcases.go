package linktest

import (
	"bytes"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// pattern returns n bytes of a sequence that repeats every 2048 bytes.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i * 131 >> 3)
	}
	return b
}

// addresses: both ends of a stream have the same two addresses, a plausible segment size and an ID.
func (s *streamTest) addresses() {
	l := s.listen(0)
	if l.Addr().Addr() != s.AddrB || l.Addr().Port() == 0 {
		s.Errorf("listening on %v, want a port of %v", l.Addr(), s.AddrB)
	}
	dialed, accepted := s.connect(l)
	switch {
	case dialed.RemoteAddr() != l.Addr() || accepted.LocalAddr() != l.Addr():
		s.Errorf("dialed %v, accepted at %v, want %v", dialed.RemoteAddr(), accepted.LocalAddr(), l.Addr())
	case dialed.LocalAddr() != accepted.RemoteAddr() || dialed.LocalAddr().Addr() != s.AddrA || dialed.LocalAddr().Port() == 0:
		s.Errorf("dialed from %v, accepted from %v, want a port of %v", dialed.LocalAddr(), accepted.RemoteAddr(), s.AddrA)
	case !accepted.Connected(s.now):
		s.Error("the accepted stream is not connected")
	case dialed.MSS() < 500 || dialed.MSS() > 1<<16 || accepted.MSS() < 500 || accepted.MSS() > 1<<16:
		s.Errorf("MSS %d and %d, want 500 to 64 Ki bytes", dialed.MSS(), accepted.MSS())
	case dialed.ID() == 0 || l.ID() == 0 || accepted.ID() == 0 || accepted.ID() == l.ID():
		s.Errorf("IDs: dialer %d, listener %d, accepted stream %d; want IDs other than 0, and different ones on a host", dialed.ID(), l.ID(), accepted.ID())
	}
}

// bothWays: bytes arrive whole and in order both ways. A read without bytes returns 0.
func (s *streamTest) bothWays() {
	dialed, accepted := s.pair()
	for _, w := range []struct{ from, to link.StreamLink }{{dialed, accepted}, {accepted, dialed}} {
		want := pattern(50_000)
		s.write(w.from, want)
		if got := s.read(w.to, len(want)); !bytes.Equal(got, want) {
			s.Error("the received bytes differ")
		}
		s.awaitArrival()
		if n, err := w.to.Read(s.now, make([]byte, 10)); n != 0 || err != nil {
			s.Errorf("Read while no bytes wait = %d, %v", n, err)
		}
		s.awaitArrival()
		if n, err := w.to.Read(s.now, nil); n != 0 || err != nil {
			s.Errorf("Read into an empty buffer = %d, %v", n, err)
		}
	}
}

// vectors: Writev writes many buffers, some of them empty, in order. After writes with more set,
// which the stream may hold back, an empty write without it sends them.
func (s *streamTest) vectors() {
	dialed, accepted := s.pair()
	want := pattern(30_000)
	bufs := make([][]byte, 0, 2000)
	for i, rest := 0, want; len(rest) > 0; i++ {
		n := min(len(rest), i%37) // some are empty
		bufs = append(bufs, rest[:n])
		rest = rest[n:]
	}
	for _, more := range []bool{false, true} {
		for rest := bufs; len(rest) > 0; {
			s.awaitArrival()
			n, err := dialed.Writev(s.now, rest, more)
			if err != nil {
				s.Fatalf("Writev: %v", err)
			}
			for len(rest) > 0 && n >= len(rest[0]) { // buffers that were written wholly
				n -= len(rest[0])
				rest = rest[1:]
			}
			if n > 0 { // the next was written in part
				s.write(dialed, rest[0][n:])
				rest = rest[1:]
			}
		}
		s.awaitArrival()
		if _, err := dialed.Writev(s.now, nil, false); err != nil {
			s.Fatalf("Writev of nothing: %v", err)
		}
		if got := s.read(accepted, len(want)); !bytes.Equal(got, want) {
			s.Errorf("more %v: the received bytes differ", more)
		}
	}
}

// writerBuffer: the writer may reuse its buffer.
func (s *streamTest) writerBuffer() {
	dialed, accepted := s.pair()
	buf := []byte("first")
	s.write(dialed, buf)
	copy(buf, "xxxxx")
	if got := s.read(accepted, 5); string(got) != "first" {
		s.Errorf("%q arrived", got)
	}
}

// smallReads: reads of any size return the bytes in order.
func (s *streamTest) smallReads() {
	dialed, accepted := s.pair()
	want := pattern(3000)
	s.write(dialed, want)
	var got []byte
	for i := 0; len(got) < len(want); i++ {
		got = append(got, s.read(accepted, min(1+i%70, len(want)-len(got)))...)
	}
	if !bytes.Equal(got, want) {
		s.Error("the received bytes differ")
	}
}

// full: a stream whose buffers are full takes less than it is given. It can be written again when
// Ready reports it as writable, and when the peer has read all bytes.
func (s *streamTest) full() {
	dialed, accepted := s.pair()
	chunk := pattern(1 << 20)
	sent := 0
	for {
		s.awaitArrival()
		n, err := dialed.Writev(s.now, [][]byte{chunk[:100], chunk[100:]}, false)
		if err != nil {
			s.Fatalf("Writev: %v", err)
		}
		if sent += n; n < len(chunk) {
			break
		}
		if sent > 1<<30 {
			s.Fatal("the stream took a gigabyte that was not read")
		}
	}
	for { // until buffers on both sides are full
		s.awaitArrival()
		n, err := dialed.Write(s.now, chunk)
		if err != nil {
			s.Fatalf("Write: %v", err)
		}
		if sent += n; n == 0 {
			break
		}
	}
	for s.A.Ready(s.ready[:]) == len(s.ready) { // drop old events
	}
	read := 0
	writable := false
	buf := make([]byte, 1<<16)
	s.waitUntil("the stream is writable again", func(now mono.Time) bool {
		for {
			n, err := accepted.Read(now, buf)
			if err != nil {
				s.Fatalf("Read: %v", err)
			}
			if read += n; n == 0 {
				break
			}
		}
		s.awaitArrival()
		for _, r := range s.ready[:s.A.Ready(s.ready[:])] {
			writable = writable || r.ID == dialed.ID() && r.Writable
		}
		return writable || read == sent // waitUntil may have dropped the event
	})
	s.awaitArrival()
	if n, err := dialed.Write(s.now, []byte("more")); n != 4 || err != nil {
		s.Errorf("Write to a writable stream = %d, %v", n, err)
	}
	s.read(accepted, sent-read+4)
}

// cork: bytes of a Writev with more set, which may wait for the next write, arrive in order.
func (s *streamTest) cork() {
	dialed, accepted := s.pair()
	for i := range 3 {
		more := i == 0
		s.awaitArrival()
		if n, err := dialed.Writev(s.now, [][]byte{[]byte("he"), []byte("llo")}, more); n != 5 || err != nil {
			s.Fatalf("Writev = %d, %v", n, err)
		}
	}
	if got := s.read(accepted, 15); string(got) != "hellohellohello" {
		s.Errorf("got %q", got)
	}
}
