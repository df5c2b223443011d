package linktest

import (
	"errors"
	"io"
	"net/netip"
	"testing"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
)

// StreamBench is two hosts under test.
type StreamBench struct {
	// A dials and B listens.
	A, B link.StreamNet
	// AddrA and AddrB are theirs.
	AddrA, AddrB netip.Addr
	// Settle waits until what was done has had its effect, and returns the time. It
	// may take several calls.
	Settle func() mono.Time
}

// TestStreamNet checks two hosts, made new by each call of open, against what
// link.StreamNet promises.
func TestStreamNet(t *testing.T, open func(t *testing.T) StreamBench) {
	for _, c := range []struct {
		name string
		run  func(*streamTest)
	}{
		{"a stream has its addresses and a segment size", (*streamTest).addresses},
		{"bytes arrive whole and in order both ways", (*streamTest).bothWays},
		{"buffers are written one behind the other", (*streamTest).vectors},
		{"the writer's buffer is its own again", (*streamTest).writerBuffer},
		{"what arrived is read in pieces of any size", (*streamTest).smallReads},
		{"a full stream takes fewer and has room again", (*streamTest).full},
		{"what was written more of goes when no more comes", (*streamTest).cork},
		{"nobody there is a refusal", (*streamTest).refused},
		{"an end leaves the other way open", (*streamTest).halfClose},
		{"an end comes behind the bytes", (*streamTest).endBehindBytes},
		{"both ends, and the stream holds nothing", (*streamTest).bothEnd},
		{"an abort is a reset at the other end", (*streamTest).abort},
		{"bytes before a reset are read before it", (*streamTest).bytesBeforeReset},
		{"a stream given up before it is connected", (*streamTest).abortEarly},
		{"an end before the stream is connected comes after", (*streamTest).closeEarly},
		{"a listener on any port and any address", (*streamTest).anyAddress},
		{"two cannot listen in one place", (*streamTest).inUse},
		{"a closed listener refuses and keeps what it accepted", (*streamTest).closedListener},
		{"what nobody accepted is reset by a closed listener", (*streamTest).neverAccepted},
		{"many streams are told apart", (*streamTest).many},
		{"a closed net aborts, and keeps what was closed in order", (*streamTest).closedNet},
		{"mistakes are named", (*streamTest).invalidArguments},
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

// streams is a contract test under way.
type streamTest struct {
	*testing.T
	StreamBench
	now    mono.Time
	ready  [8]link.StreamReady
	closed bool // A is, by the test
}

func (s *streamTest) settle() mono.Time {
	s.now = s.Settle()
	return s.now
}

// until settles until done says so.
func (s *streamTest) waitUntil(what string, done func(now mono.Time) bool) {
	s.Helper()
	for range 2000 {
		now := s.settle()
		// Whoever looks asks first, as a driver does.
		s.A.Ready(s.ready[:])
		s.B.Ready(s.ready[:])
		if done(now) {
			return
		}
	}
	s.Fatalf("in vain waited until %s", what)
}

func (s *streamTest) listen(port uint16) link.StreamListener {
	s.Helper()
	l, err := s.B.Listen(netip.AddrPortFrom(s.AddrB, port), 16)
	if err != nil {
		s.Fatal(err)
	}
	return l
}

func (s *streamTest) dial(to netip.AddrPort) link.StreamLink {
	s.Helper()
	d, err := s.A.Dial(s.now, netip.AddrPortFrom(s.AddrA, 0), to)
	if err != nil {
		s.Fatal(err)
	}
	return d
}

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

// pair is a connected stream, dialed and accepted.
func (s *streamTest) pair() (dialed, accepted link.StreamLink) {
	s.Helper()
	l := s.listen(0)
	dialed = s.dial(l.Addr())
	accepted = s.accept(l)
	s.waitUntil("the dialer is connected", func(mono.Time) bool { return dialed.Connected(s.now) })
	return dialed, accepted
}

func (s *streamTest) write(to link.StreamLink, b []byte) {
	s.Helper()
	s.waitUntil("all is written", func(now mono.Time) bool {
		n, err := to.Write(now, b)
		if err != nil {
			s.Fatalf("Write: %v", err)
		}
		b = b[n:]
		return len(b) == 0
	})
}

// read reads n bytes.
func (s *streamTest) read(from link.StreamLink, n int) []byte {
	s.Helper()
	got, buf := make([]byte, 0, n), make([]byte, 10_000)
	s.waitUntil("all has arrived", func(now mono.Time) bool {
		k, err := from.Read(now, buf[:min(len(buf), n-len(got))])
		if err != nil {
			s.Fatalf("Read after %d of %d bytes: %v", len(got), n, err)
		}
		got = append(got, buf[:k]...)
		return len(got) == n
	})
	return got
}

// failure reads until there is an error, and returns what came before.
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

// ends checks that a stream comes to its end with want, and keeps to it.
func (s *streamTest) expectEnd(from link.StreamLink, want error) {
	s.Helper()
	got, err := s.readToError(from)
	_, again := from.Read(s.settle(), make([]byte, 1))
	if len(got) != 0 || !errors.Is(err, want) || !errors.Is(again, want) {
		s.Errorf("%d bytes, then %v, then %v; want %v", len(got), err, again, want)
	}
}

func (s *streamTest) expectEOF(from link.StreamLink) { s.Helper(); s.expectEnd(from, io.EOF) }
