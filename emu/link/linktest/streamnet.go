package linktest

import (
	"errors"
	"io"
	"net/netip"
	"testing"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/internal/must"
)

// StreamBench is a pair of hosts under test.
type StreamBench struct {
	// A dials and B listens.
	A, B link.StreamNet
	// AddrA and AddrB are the addresses of A and B.
	AddrA, AddrB netip.Addr
	// TimeAfterArrival waits until sent segments have arrived, and returns the time. It may take
	// several calls until all have.
	TimeAfterArrival func() mono.Time
}

// TestStreamNet tests two hosts against the documentation of link.StreamNet. open returns
// new hosts for each subtest.
func TestStreamNet(t *testing.T, open func(t *testing.T) StreamBench) {
	for _, c := range []struct {
		name string
		run  func(*streamTest)
	}{
		{"a stream has its addresses and a segment size", (*streamTest).addresses},
		{"bytes arrive whole and in order both ways", (*streamTest).bothWays},
		{"Writev writes the buffers in order", (*streamTest).vectors},
		{"the writer may reuse its buffer", (*streamTest).writerBuffer},
		{"reads of any size return the bytes in order", (*streamTest).smallReads},
		{"a full stream takes less and is writable again later", (*streamTest).full},
		{"a write with the flag more is held until the next write", (*streamTest).cork},
		{"a dial without listener is refused", (*streamTest).refused},
		{"CloseWrite leaves the other direction open", (*streamTest).halfClose},
		{"EOF follows the bytes", (*streamTest).eofAfterBytes},
		{"a stream that has ended frees its ID", (*streamTest).reusedIDs},
		{"Abort resets the stream at both ends", (*streamTest).abort},
		{"bytes before a reset can be read", (*streamTest).bytesBeforeReset},
		{"a stream can be aborted before it is connected", (*streamTest).abortEarly},
		{"CloseWrite before the stream is connected takes effect later", (*streamTest).closeEarly},
		{"a listener can have any port and any address", (*streamTest).anyAddress},
		{"two listeners cannot share an address", (*streamTest).inUse},
		{"a closed listener refuses, and its accepted streams stay open", (*streamTest).closedListener},
		{"closing a listener resets streams that were not accepted", (*streamTest).neverAccepted},
		{"Ready reports the right one of many streams", (*streamTest).many},
		{"closing a net aborts all streams but those after CloseWrite", (*streamTest).closedNet},
		{"invalid arguments are errors", (*streamTest).invalidArguments},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &streamTest{T: t, StreamBench: open(t)}
			c.run(s)
			if !s.closed {
				s.A.Close()
				s.B.Close()
			}
		})
	}
}

// streamTest is the state of one subtest.
type streamTest struct {
	*testing.T
	StreamBench
	now    mono.Time           // when segments had last arrived
	ready  [8]link.StreamReady // buffer for Ready
	closed bool                // the test has closed A
}

// awaitArrival waits long enough for sent segments to arrive, and sets s.now to the time.
func (s *streamTest) awaitArrival() { s.now = s.TimeAfterArrival() }

// waitUntil lets segments arrive until done returns true. The error names the condition.
func (s *streamTest) waitUntil(condition string, done func(now mono.Time) bool) {
	s.Helper()
	for range 2000 {
		s.awaitArrival()
		// Both nets are polled, as a driver would. The events are dropped: done asks the streams.
		s.A.Ready(s.ready[:])
		s.B.Ready(s.ready[:])
		if done(s.now) {
			return
		}
	}
	s.Fatalf("timed out waiting until %s", condition)
}

// listen listens on a port of B; 0 is any port.
func (s *streamTest) listen(port uint16) link.StreamListener {
	s.Helper()
	l := must.Get(s.B.Listen(netip.AddrPortFrom(s.AddrB, port), 16))(s)
	return l
}

// dial starts to connect a stream from A.
func (s *streamTest) dial(to netip.AddrPort) link.StreamLink {
	s.Helper()
	dialed := must.Get(s.A.Dial(s.now, netip.AddrPortFrom(s.AddrA, 0), to))(s)
	return dialed
}

// accept waits for the next stream of a listener.
func (s *streamTest) accept(l link.StreamListener) (got link.StreamLink) {
	s.Helper()
	s.waitUntil("a stream is accepted", func(now mono.Time) bool {
		var err error
		if got, err = l.Accept(now); err != nil {
			s.Fatalf("Accept: %v", err)
		}
		return got != nil
	})
	return got
}

// pair returns the two ends of a connected stream, with a new listener.
func (s *streamTest) pair() (dialed, accepted link.StreamLink) {
	s.Helper()
	return s.connect(s.listen(0))
}

// connect returns the two ends of a connected stream from A to a listener of B.
func (s *streamTest) connect(l link.StreamListener) (dialed, accepted link.StreamLink) {
	s.Helper()
	dialed = s.dial(l.Addr())
	accepted = s.accept(l)
	s.waitUntil("the dialer is connected", func(mono.Time) bool { return dialed.Connected(s.now) })
	return dialed, accepted
}

// write writes all of b, and waits while the stream is full.
func (s *streamTest) write(to link.StreamLink, b []byte) {
	s.Helper()
	s.waitUntil("all bytes are written", func(now mono.Time) bool {
		n, err := to.Write(now, b)
		if err != nil {
			s.Fatalf("Write: %v", err)
		}
		b = b[n:]
		return len(b) == 0
	})
}

// read waits for n bytes and returns them.
func (s *streamTest) read(from link.StreamLink, n int) []byte {
	s.Helper()
	got, buf := make([]byte, 0, n), make([]byte, 10_000)
	s.waitUntil("all bytes have arrived", func(now mono.Time) bool {
		k, err := from.Read(now, buf[:min(len(buf), n-len(got))])
		if err != nil {
			s.Fatalf("Read after %d of %d bytes: %v", len(got), n, err)
		}
		got = append(got, buf[:k]...)
		return len(got) == n
	})
	return got
}

// readToError reads until Read returns an error, and returns the bytes before it.
func (s *streamTest) readToError(from link.StreamLink) (got []byte, err error) {
	s.Helper()
	buf := make([]byte, 1000)
	s.waitUntil("the stream ends", func(now mono.Time) bool {
		var n int
		n, err = from.Read(now, buf)
		got = append(got, buf[:n]...)
		return err != nil
	})
	return got, err
}

// expectEnd checks that the next result of Read is the error want, without bytes before it, and
// that a further Read returns the same error.
func (s *streamTest) expectEnd(from link.StreamLink, want error) {
	s.Helper()
	got, err := s.readToError(from)
	s.awaitArrival()
	_, again := from.Read(s.now, make([]byte, 1))
	if len(got) != 0 || !errors.Is(err, want) || !errors.Is(again, want) {
		s.Errorf("Read returned %d bytes, then %v, then %v; want %v twice", len(got), err, again, want)
	}
}

// expectEOF checks that Read returns EOF, without bytes before it.
func (s *streamTest) expectEOF(from link.StreamLink) { s.Helper(); s.expectEnd(from, io.EOF) }
