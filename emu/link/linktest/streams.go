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
		run  func(*streams)
	}{
		{"a stream has its addresses and a segment size", (*streams).addresses},
		{"bytes arrive whole and in order both ways", (*streams).bothWays},
		{"buffers are written one behind the other", (*streams).vectors},
		{"the writer's buffer is its own again", (*streams).writerBuffer},
		{"what arrived is read in pieces of any size", (*streams).pieces},
		{"a full stream takes fewer and has room again", (*streams).full},
		{"what was written more of goes when no more comes", (*streams).cork},
		{"nobody there is a refusal", (*streams).refused},
		{"an end leaves the other way open", (*streams).halfClose},
		{"an end comes behind the bytes", (*streams).endBehindBytes},
		{"both ends, and the stream holds nothing", (*streams).bothEnd},
		{"an abort is a reset at the other end", (*streams).abort},
		{"bytes before a reset are read before it", (*streams).bytesBeforeReset},
		{"a stream given up before it is connected", (*streams).abortEarly},
		{"an end before the stream is connected comes after", (*streams).closeEarly},
		{"a listener on any port and any address", (*streams).anyAddress},
		{"two cannot listen in one place", (*streams).inUse},
		{"a closed listener refuses and keeps what it accepted", (*streams).closedListener},
		{"what nobody accepted is reset by a closed listener", (*streams).neverAccepted},
		{"many streams are told apart", (*streams).many},
		{"a closed net aborts, and keeps what was closed in order", (*streams).closedNet},
		{"mistakes are named", (*streams).mistakes},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &streams{T: t, StreamBench: open(t)}
			c.run(s)
			if !s.closed {
				s.A.Close()
				s.B.Close()
			}
		})
	}
}

// streams is a contract test under way.
type streams struct {
	*testing.T
	StreamBench
	now    mono.Time
	ready  [8]link.StreamReady
	closed bool // A is, by the test
}

func (s *streams) settle() mono.Time {
	s.now = s.Settle()
	return s.now
}

// until settles until done says so.
func (s *streams) until(what string, done func(now mono.Time) bool) {
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

func (s *streams) listen(port uint16) link.StreamListener {
	s.Helper()
	l, err := s.B.Listen(netip.AddrPortFrom(s.AddrB, port), 16)
	if err != nil {
		s.Fatal(err)
	}
	return l
}

func (s *streams) dial(to netip.AddrPort) link.StreamLink {
	s.Helper()
	d, err := s.A.Dial(s.now, netip.AddrPortFrom(s.AddrA, 0), to)
	if err != nil {
		s.Fatal(err)
	}
	return d
}

func (s *streams) accept(l link.StreamListener) (got link.StreamLink) {
	s.Helper()
	s.until("a stream is accepted", func(now mono.Time) bool {
		var err error
		if got, err = l.Accept(now); err != nil {
			s.Fatalf("Accept: %v", err)
		}
		return got != nil
	})
	return got
}

// pair is a connected stream, dialed and accepted.
func (s *streams) pair() (dialed, accepted link.StreamLink) {
	s.Helper()
	l := s.listen(0)
	dialed = s.dial(l.Addr())
	accepted = s.accept(l)
	s.until("the dialer is connected", func(mono.Time) bool { return dialed.Connected(s.now) })
	return dialed, accepted
}

func (s *streams) write(to link.StreamLink, b []byte) {
	s.Helper()
	s.until("all is written", func(now mono.Time) bool {
		n, err := to.Write(now, b)
		if err != nil {
			s.Fatalf("Write: %v", err)
		}
		b = b[n:]
		return len(b) == 0
	})
}

// read reads n bytes.
func (s *streams) read(from link.StreamLink, n int) []byte {
	s.Helper()
	got, buf := make([]byte, 0, n), make([]byte, 10_000)
	s.until("all has arrived", func(now mono.Time) bool {
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
func (s *streams) failure(from link.StreamLink) (got []byte, err error) {
	s.Helper()
	buf := make([]byte, 1000)
	s.until("the stream ends", func(now mono.Time) bool {
		var n int
		n, err = from.Read(now, buf)
		got = append(got, buf[:n]...)
		return err != nil
	})
	return got, err
}

// ends checks that a stream comes to its end with want, and keeps to it.
func (s *streams) ends(from link.StreamLink, want error) {
	s.Helper()
	got, err := s.failure(from)
	_, again := from.Read(s.settle(), make([]byte, 1))
	if len(got) != 0 || !errors.Is(err, want) || !errors.Is(again, want) {
		s.Errorf("%d bytes, then %v, then %v; want %v", len(got), err, again, want)
	}
}

func (s *streams) eof(from link.StreamLink) { s.Helper(); s.ends(from, io.EOF) }
