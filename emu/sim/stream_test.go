package sim

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/internal/must"
)

// end is one end of a stream, with a driver that writes out and records the bytes that it reads.
type end struct {
	*Stream
	w      *World
	out    []byte // still to be written
	got    []byte
	chunks []int       // bytes returned by each Read
	times  []mono.Time // of each Read
	err    error       // of Read
	werr   error       // of Write
	fin    bool        // close after the last byte
	idle   bool        // do not read
}

// HandleEvent is the handler of OnReadable and OnWritable.
func (e *end) HandleEvent(now mono.Time, _ uint64) {
	e.write(now)
	for !e.idle && e.err == nil {
		var b [100_000]byte
		n, err := e.Read(now, b[:])
		e.err = err
		if n == 0 {
			return
		}
		e.got = append(e.got, b[:n]...)
		e.chunks = append(e.chunks, n)
		e.times = append(e.times, now)
	}
}

func (e *end) write(now mono.Time) {
	if e.werr != nil {
		return
	}
	n, err := e.Write(now, e.out)
	e.out, e.werr = e.out[n:], err
	if len(e.out) == 0 && e.fin && e.Connected(0) {
		_ = e.CloseWrite(0)
	}
}

func newEnd(w *World, s *Stream) *end {
	e := &end{Stream: s, w: w}
	s.OnReadable(e, 0)
	s.OnWritable(e, 0)
	return e
}

// streamBench is two hosts, a dialed stream, and its accepted end once accepted.
type streamBench struct {
	w        *World
	a, b     *host
	listener *Listener
	dialed   *end
	accepted *end
	onAccept func(*end)
}

func newStreams(t *testing.T, seed uint64, cfg NetConfig, l LinkConfig) *streamBench {
	t.Helper()
	w := New(Config{Seed: seed})
	n := newNet(t, w, cfg)
	s := &streamBench{w: w, a: attach(t, n, PortConfig{Link: l}), b: attach(t, n, PortConfig{Link: l})}
	s.listener = must.Get(n.ListenStream(s.b.addr))(t)
	s.listener.OnAccept(HandlerFunc(func(mono.Time, uint64) {
		stream, err := s.listener.Accept()
		if err != nil || stream == nil {
			t.Errorf("Accept = %v, %v", stream, err)
			return
		}
		s.accepted = newEnd(w, stream)
		if s.onAccept != nil {
			s.onAccept(s.accepted)
		}
	}), 0)
	s.dialed = s.dial(t)
	return s
}

func (s *streamBench) dial(t *testing.T) *end {
	t.Helper()
	stream := must.Get(s.a.Net().DialStream(netip.AddrPortFrom(s.a.addr.Addr(), 0), s.b.addr))(t)
	return newEnd(s.w, stream)
}

func text(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i * 131 >> 3)
	}
	return b
}

func TestStreamCarriesBytesBothWays(t *testing.T) {
	for name, cfg := range map[string]NetConfig{"switch": {}, "cable": {Cable: true}} {
		s := newStreams(t, 1, cfg, LinkConfig{RateBps: 10e9, Latency: 1000})
		s.dialed.out, s.dialed.fin = text(3_000_000), true
		s.onAccept = func(e *end) { e.out, e.fin = text(2_000_000)[7:], true; e.write(0) }
		mustRun(t, s.w)
		if !bytes.Equal(s.accepted.got, text(3_000_000)) || !bytes.Equal(s.dialed.got, text(2_000_000)[7:]) {
			t.Errorf("%s: %d and %d bytes arrived", name, len(s.accepted.got), len(s.dialed.got))
		}
		if s.accepted.err != io.EOF || s.dialed.err != io.EOF {
			t.Errorf("%s: ends %v, %v, want EOF", name, s.accepted.err, s.dialed.err)
		}
		if s.dialed.RemoteAddr() != s.b.addr || s.dialed.LocalAddr() != s.accepted.RemoteAddr() || s.accepted.LocalAddr() != s.b.addr {
			t.Errorf("%s: addresses %v, %v", name, s.dialed.LocalAddr(), s.accepted.RemoteAddr())
		}
		if len(s.a.streams)+len(s.b.streams) != 0 {
			t.Errorf("%s: the ports still have streams", name)
		}
		n := s.a.Net()
		if inUse := n.segments.made - len(n.segments.free); inUse != 0 {
			t.Errorf("%s: %d segments leaked", name, inUse)
		}
	}
}

func TestStreamConnectsInOneRoundTripAndKeepsRate(t *testing.T) {
	s := newStreams(t, 1, NetConfig{Cable: true, Stream: StreamConfig{BufferBytes: 1 << 24}}, LinkConfig{RateBps: 8e9, Latency: 10_000, MTU: 1052})
	var connected mono.Time
	s.dialed.OnWritable(HandlerFunc(func(now mono.Time, _ uint64) {
		if connected == 0 {
			connected = now
			s.dialed.out = text(1_000_000)
		}
		s.dialed.write(now)
	}), 0)
	if s.dialed.MSS() != 1000 || s.dialed.Connected(0) {
		t.Errorf("MSS %d, want 1000; connected %v", s.dialed.MSS(), s.dialed.Connected(0))
	}
	if n, err := s.dialed.Write(0, []byte("early")); n != 0 || err != nil {
		t.Errorf("Write before the connection = %d, %v", n, err)
	}
	mustRun(t, s.w)
	// Each handshake segment is 52 bytes on the wire; so is each header.
	if connected != 2*(10_000+52) {
		t.Errorf("connected at %d, want %d", connected, 2*(10_000+52))
	}
	if got, want := s.accepted.times[len(s.accepted.times)-1], connected+1000*1052+10_000; got != want {
		t.Errorf("last byte at %d, want %d", got, want)
	}
}

func TestStreamBlocksWriterUntilPeerReads(t *testing.T) {
	s := newStreams(t, 1, NetConfig{Stream: StreamConfig{BufferBytes: 10_000}}, LinkConfig{Latency: 100})
	s.onAccept = func(e *end) { e.idle = true }
	mustRun(t, s.w)
	if n, err := s.dialed.Write(0, text(50_000)); n != 10_000 || err != nil {
		t.Fatalf("Write = %d, %v, want the buffer's 10000", n, err)
	}
	mustRun(t, s.w)
	if n, _ := s.dialed.Write(0, []byte("x")); n != 0 {
		t.Fatal("window open although the peer has not read")
	}
	var at mono.Time
	s.dialed.OnWritable(HandlerFunc(func(now mono.Time, _ uint64) { at = now }), 0)
	read := s.w.Now()
	room := 0
	take := func(n int) {
		t.Helper()
		if k, _ := s.accepted.Read(0, make([]byte, n)); k != n {
			t.Fatalf("Read = %d of %d", k, n)
		}
		room += n
		mustRun(t, s.w)
	}
	take(700)
	if at != 0 {
		t.Error("writable with room for less than a segment")
	}
	take(s.dialed.MSS() - 700)
	if n, _ := s.dialed.Write(0, text(50_000)); n != room || at != read+400 {
		t.Errorf("room for %d at %v, want %d at %v: one latency after the read", n, at, room, read+400)
	}
}

func TestStreamCutsSegmentsWithoutLoss(t *testing.T) {
	run := func(seed uint64) []int {
		s := newStreams(t, seed, NetConfig{Stream: StreamConfig{CutPPM: 500_000, StallPPM: 50_000, StallFor: time.Millisecond}}, LinkConfig{RateBps: 10e9, MTU: 1552})
		s.dialed.out, s.dialed.fin = text(500_000), true
		mustRun(t, s.w)
		if !bytes.Equal(s.accepted.got, text(500_000)) || s.accepted.err != io.EOF {
			t.Fatalf("seed %d: %d bytes arrived, %v", seed, len(s.accepted.got), s.accepted.err)
		}
		return s.accepted.chunks
	}
	chunks := run(1)
	if !slices.Equal(chunks, run(1)) || slices.Equal(chunks, run(2)) {
		t.Error("the same seed gives other segments")
	}
	small, full := 0, 0
	for _, n := range chunks {
		switch {
		case n == 1500:
			full++
		case n < 100:
			small++
		}
	}
	if full < len(chunks)/3 || small < len(chunks)/50 {
		t.Errorf("of %d segments %d are full, %d tiny: want about half and a thirtieth", len(chunks), full, small)
	}
}

func TestStreamStallDelaysLaterSegments(t *testing.T) {
	s := newStreams(t, 1, NetConfig{Stream: StreamConfig{Events: []StreamEvent{
		{Conn: 1, Offset: 3000, Action: StreamStall, For: time.Millisecond},
	}}}, LinkConfig{MTU: 1052})
	s.dialed.out = text(10_000)
	mustRun(t, s.w)
	want := []mono.Time{0, 0, 0, 1e6, 1e6, 1e6, 1e6, 1e6, 1e6, 1e6}
	if !slices.Equal(s.accepted.times, want) || !bytes.Equal(s.accepted.got, text(10_000)) {
		t.Errorf("arrivals %v, want %v", s.accepted.times, want)
	}
}

func TestStreamEventsApplyAtExactOffset(t *testing.T) {
	cfg := NetConfig{Stream: StreamConfig{Events: []StreamEvent{
		{Offset: 700, Action: StreamCorrupt, Bit: 3},
		{Offset: 1500, Action: StreamCut},
		{Offset: 500, Action: StreamCut},
		{Conn: 2, Offset: 10, Action: StreamCut},
		{FromListener: true, Offset: 20, Action: StreamCut},
		{Offset: 2500, Action: StreamReset},
	}}}
	s := newStreams(t, 1, cfg, LinkConfig{MTU: 1052})
	s.dialed.out = text(5000)
	s.onAccept = func(e *end) { e.out = text(100); e.write(0) }
	mustRun(t, s.w)
	if want := []int{500, 1000, 1000}; !slices.Equal(s.accepted.chunks, want) {
		t.Errorf("segments %v, want %v", s.accepted.chunks, want)
	}
	want := text(2500)
	want[700] ^= 8
	if !bytes.Equal(s.accepted.got, want) {
		t.Error("want 2500 bytes with bit 3 of byte 700 inverted")
	}
	if !slices.Equal(s.dialed.chunks, []int{20, 80}) {
		t.Errorf("the other direction: segments %v, want 20 and 80", s.dialed.chunks)
	}
	for _, e := range []*end{s.accepted, s.dialed} {
		if !errors.Is(e.err, link.ErrReset) {
			t.Errorf("end %v: %v, want a reset", e.LocalAddr(), e.err)
		}
	}
}

func TestStreamResetsRandomly(t *testing.T) {
	broken := 0
	for seed := range uint64(50) {
		s := newStreams(t, seed, NetConfig{Stream: StreamConfig{ResetPPM: 100_000, CorruptPPM: 100_000}}, LinkConfig{MTU: 1052})
		s.dialed.out, s.dialed.fin = text(5000), true
		mustRun(t, s.w)
		if errors.Is(s.accepted.err, link.ErrReset) {
			broken++
			if !errors.Is(s.dialed.err, link.ErrReset) {
				t.Errorf("seed %d: the dialer sees %v", seed, s.dialed.err)
			}
		}
	}
	// 1 - 0.9^5 = 41 %
	if broken < 10 || broken > 32 {
		t.Errorf("%d of 50 streams broke, want about 20", broken)
	}
}

func TestAbortArrivesAfterWrittenBytes(t *testing.T) {
	s := newStreams(t, 1, NetConfig{}, LinkConfig{RateBps: 1e9, Latency: 1000})
	s.dialed.out = []byte("last data")
	s.onAccept = func(e *end) { e.out = text(100); e.write(0) }
	mustRun(t, s.w)
	s.dialed.out = []byte("!")
	s.dialed.write(0)
	must.Do(t, s.dialed.Abort(0))
	must.Fail(t, "Read after Abort", must.Err(s.dialed.Read(0, make([]byte, 1))), link.ErrReset)
	mustRun(t, s.w)
	if string(s.accepted.got) != "last data!" || !errors.Is(s.accepted.err, link.ErrReset) {
		t.Errorf("got %q, then %v", s.accepted.got, s.accepted.err)
	}
	_, werr := s.accepted.Write(0, []byte("x"))
	for _, err := range []error{werr, s.accepted.CloseWrite(0), s.accepted.Abort(0), s.dialed.CloseWrite(0), s.dialed.Abort(0)} {
		if !errors.Is(err, link.ErrReset) {
			t.Errorf("after the reset: %v", err)
		}
	}
}

func TestCloseWriteKeepsOtherDirectionOpen(t *testing.T) {
	s := newStreams(t, 1, NetConfig{}, LinkConfig{Latency: 10})
	if err := s.dialed.CloseWrite(0); err != nil { // before it is connected
		t.Fatal(err)
	}
	mustRun(t, s.w)
	if s.accepted.err != io.EOF {
		t.Fatalf("the peer sees %v, want EOF", s.accepted.err)
	}
	must.Fail(t, "Write after CloseWrite", must.Err(s.dialed.Write(0, []byte("x"))), link.ErrWriteClosed)
	if err := s.dialed.CloseWrite(0); err != nil {
		t.Errorf("a second CloseWrite: %v", err)
	}
	s.accepted.out = []byte("still here")
	s.accepted.write(0)
	mustRun(t, s.w)
	if string(s.dialed.got) != "still here" {
		t.Errorf("got %q", s.dialed.got)
	}
}

func TestDialWithoutListenerIsRefused(t *testing.T) {
	s := newStreams(t, 1, NetConfig{}, LinkConfig{Latency: 1000})
	must.Do(t, s.listener.Close())
	mustRun(t, s.w)
	if !errors.Is(s.dialed.err, link.ErrRefused) || s.w.Now() != 4000 {
		t.Errorf("%v at %v, want a refusal after a round trip", s.dialed.err, s.w.Now())
	}
	must.Fail(t, "Close again", s.listener.Close(), link.ErrClosed)
	must.Fail(t, "Accept after Close", must.Err(s.listener.Accept()), link.ErrClosed)
}

func TestListenerQueuesStreamsUntilAccept(t *testing.T) {
	s := newStreams(t, 1, NetConfig{}, LinkConfig{})
	s.listener.OnAccept(nil, 0)
	second := s.dial(t)
	mustRun(t, s.w)
	one, _ := s.listener.Accept()
	if one == nil || one.RemoteAddr() != s.dialed.LocalAddr() {
		t.Fatalf("first accepted %v", one)
	}
	must.Do(t, s.listener.Close())
	mustRun(t, s.w)
	if !errors.Is(second.err, link.ErrReset) || s.dialed.err != nil {
		t.Errorf("never accepted: %v; accepted: %v", second.err, s.dialed.err)
	}
}

func TestStreamSurvivesShortOutageAndResetsAfterRetries(t *testing.T) {
	cfg := NetConfig{Stream: StreamConfig{RetryDelay: time.Millisecond, Retries: 4}}
	for name, tc := range map[string]struct {
		fail, repair func(*streamBench)
		repairAt     mono.Time
		broken       bool
	}{
		"partition healed": {func(s *streamBench) { s.a.Net().Partition([]*Port{s.a.Port}) }, func(s *streamBench) { s.a.Net().Heal() }, 5e6, false},
		"partition stays":  {func(s *streamBench) { s.a.Net().Partition([]*Port{s.a.Port}) }, func(*streamBench) {}, 0, true},
		"link flaps":       {func(s *streamBench) { s.b.SetDown() }, func(s *streamBench) { s.b.SetUp() }, 5e6, false},
		"own link stays":   {func(s *streamBench) { s.a.SetDown() }, func(*streamBench) {}, 0, true},
	} {
		s := newStreams(t, 1, cfg, LinkConfig{RateBps: 8e9, Latency: 10_000})
		s.dialed.out, s.dialed.fin = text(200_000), true
		s.w.AtFunc(100_000, func() { tc.fail(s) }) // about a third has arrived
		s.w.AtFunc(tc.repairAt, func() {
			if s.w.Now() > 100_000 {
				tc.repair(s)
			}
		})
		mustRun(t, s.w)
		if tc.broken {
			if !errors.Is(s.dialed.err, link.ErrReset) || len(s.accepted.got) >= 200_000 {
				t.Errorf("%s: %v, %d bytes arrived", name, s.dialed.err, len(s.accepted.got))
			}
			// 1+2+4+8 ms of retries
			if now := s.w.Now(); now < 15e6 || now > 16e6 {
				t.Errorf("%s: gave up at %v", name, now)
			}
			continue
		}
		if !bytes.Equal(s.accepted.got, text(200_000)) || s.accepted.err != io.EOF {
			t.Errorf("%s: %d bytes arrived, %v", name, len(s.accepted.got), s.accepted.err)
		}
		if now := s.w.Now(); now < 7e6 || now > 8e6 { // the third retry
			t.Errorf("%s: done at %v", name, now)
		}
	}
}

// A link that goes down flushes its queue; a stream must retransmit in order.
func TestStreamKeepsOrderAcrossFlap(t *testing.T) {
	for name, cfg := range map[string]NetConfig{"switch": {}, "cable": {Cable: true}} {
		for _, receiver := range []bool{false, true} {
			s := newStreams(t, 1, cfg, LinkConfig{RateBps: 8e9, Latency: 1000})
			s.dialed.out = text(300_000)[:200_000]
			p := s.a
			if receiver { // let the queue be the switch's
				p = s.b
				p.downlink.pacer.RateBps /= 2
			}
			s.w.AtFunc(50_000, p.SetDown)
			s.w.AtFunc(50_010, p.SetUp)
			s.w.AtFunc(50_020, func() { s.dialed.out = text(300_000)[200_000:]; s.dialed.write(s.w.Now()) })
			mustRun(t, s.w)
			if !bytes.Equal(s.accepted.got, text(300_000)) {
				t.Errorf("%s, receiver %v: %d bytes arrived, or in another order", name, receiver, len(s.accepted.got))
			}
		}
	}
}

// The reset of the failed end cannot reach its peer; the peer is reset when it writes.
func TestPeerOfFailedStreamIsResetOnWrite(t *testing.T) {
	s := newStreams(t, 1, NetConfig{Stream: StreamConfig{RetryDelay: time.Millisecond, Retries: 2}}, LinkConfig{Latency: 10})
	mustRun(t, s.w)
	n := s.a.Net()
	n.Partition([]*Port{s.a.Port})
	s.dialed.out = text(10)
	s.dialed.write(0)
	mustRun(t, s.w)
	if !errors.Is(s.dialed.err, link.ErrReset) || s.accepted.err != nil {
		t.Fatalf("dialer %v, accepter %v", s.dialed.err, s.accepted.err)
	}
	n.Heal()
	s.accepted.out = text(10)
	s.accepted.write(0)
	mustRun(t, s.w)
	if !errors.Is(s.accepted.err, link.ErrReset) {
		t.Errorf("accepter %v, want a reset", s.accepted.err)
	}
}

func TestPortCloseAbortsStreams(t *testing.T) {
	s := newStreams(t, 1, NetConfig{}, LinkConfig{Latency: 10})
	mustRun(t, s.w)
	must.Do(t, s.b.Close())
	mustRun(t, s.w)
	if !errors.Is(s.dialed.err, link.ErrReset) || !errors.Is(s.accepted.err, link.ErrReset) {
		t.Errorf("dialer %v, accepter %v", s.dialed.err, s.accepted.err)
	}
	must.Fail(t, "Accept", must.Err(s.listener.Accept()), link.ErrClosed)
}

func TestStreamConfigErrors(t *testing.T) {
	w := New(Config{})
	n := newNet(t, w, NetConfig{})
	a := attach(t, n, PortConfig{Addrs: []netip.Addr{addrOf(0), netip.MustParseAddr("fd00::1")}})
	listen := func(s string) error { _, err := n.ListenStream(netip.MustParseAddrPort(s)); return err }
	dial := func(from, to string) error {
		_, err := n.DialStream(netip.MustParseAddrPort(from), netip.MustParseAddrPort(to))
		return err
	}
	must.Do(t, listen("10.0.0.1:1"))
	for _, tc := range []struct {
		err  error
		want string
	}{
		{listen("10.0.0.1:1"), "listen on 10.0.0.1:1: address in use"},
		{listen("[::ffff:10.0.0.1]:1"), "in use"},
		{listen("10.0.0.9:1"), "no port has the address"},
		{dial("10.0.0.9:0", "10.0.0.1:1"), "dial from 10.0.0.9:0: no port has the address"},
		{dial("10.0.0.1:0", "10.0.0.9:1"), "dial to 10.0.0.9:1: no port has the address"},
		{dial("[fd00::1]:0", "10.0.0.1:1"), "not the same IP version"},
	} {
		if tc.err == nil || !strings.Contains(tc.err.Error(), tc.want) {
			t.Errorf("%v, want %q", tc.err, tc.want)
		}
	}
	for _, tc := range []struct {
		cfg  StreamConfig
		want string
	}{
		{StreamConfig{CutPPM: 1_000_001}, "Stream.CutPPM 1000001"},
		{StreamConfig{BufferBytes: -1}, "negative"},
		{StreamConfig{StallPPM: 1}, "must be positive"},
		{StreamConfig{RetryDelay: time.Hour, RetryDelayMax: time.Second}, "RetryDelay <= RetryDelayMax"},
		{StreamConfig{Events: []StreamEvent{{}}}, `Stream.Events[0]: action "" is none of`},
		{StreamConfig{Events: []StreamEvent{{Action: StreamStall}}}, "must be positive"},
		{StreamConfig{Events: []StreamEvent{{Action: StreamCorrupt, Bit: 8}}}, "a byte has 0 to 7"},
		{StreamConfig{Events: []StreamEvent{{Action: StreamCut, Conn: -1}}}, "negative"},
	} {
		if _, err := NewNet(w, NetConfig{Name: "x", Stream: tc.cfg}); err == nil || !strings.Contains(err.Error(), tc.want) || !strings.HasPrefix(err.Error(), "net x: ") {
			t.Errorf("%+v: %v, want %q", tc.cfg, err, tc.want)
		}
	}
	_ = a
}

func TestEphemeralPortsDiffer(t *testing.T) {
	s := newStreams(t, 1, NetConfig{}, LinkConfig{})
	if other := s.dial(t); other.LocalAddr() == s.dialed.LocalAddr() || other.LocalAddr().Port() < firstEphemeral {
		t.Errorf("local addresses %v and %v", s.dialed.LocalAddr(), other.LocalAddr())
	}
}

// A stream does not allocate in steady state.
func TestStreamDoesNotAllocate(t *testing.T) {
	s := newStreams(t, 1, NetConfig{}, LinkConfig{RateBps: 10e9, Latency: 100})
	s.onAccept = func(e *end) { e.idle = true }
	mustRun(t, s.w)
	buf, in := text(5000), make([]byte, 5000)
	run := func() {
		if n, err := s.dialed.Write(0, buf); n != len(buf) || err != nil {
			t.Fatalf("Write = %d, %v", n, err)
		}
		mustRun(t, s.w)
		for {
			if n, _ := s.accepted.Read(0, in); n == 0 {
				break
			}
		}
		mustRun(t, s.w)
	}
	run()
	if n := testing.AllocsPerRun(20, run); n != 0 {
		t.Errorf("5000 bytes allocate %v times", n)
	}
}
