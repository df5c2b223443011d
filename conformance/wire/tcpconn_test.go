package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// testConn is a connection that records the segments it sends.
type testConn struct {
	*tcpConn
	now time.Time
	log []segment
}

const peerISN = seqNum(1<<32 - 10) // the peer's first octet

// established returns a connection after the handshake, with first as our ISN.
func established(t testing.TB, first seqNum) *testConn {
	t.Helper()
	b := &testConn{now: time.Unix(1000, 0)}
	b.tcpConn = &tcpConn{local: tcpNear, remote: tcpFar, snd: sender{mss: 1}, rcv: receiver{mss: 1460}, transmit: func(s *segment) {
		s.payload = bytes.Clone(s.payload)
		b.log = append(b.log, *s)
	}}
	b.open(b.now, first)
	b.receiveSegment(&segment{flags: syn | ack, seq: peerISN - 1, ack: first + 1, window: 1000, mss: 100})
	if !b.tcpConn.established || len(b.log) != 2 || b.log[0].flags != syn || b.log[0].mss != 1460 || b.log[1].flags != ack || b.log[1].ack != peerISN {
		t.Fatalf("the handshake: %+v", b.log)
	}
	b.log = nil
	return b
}

func (b *testConn) receiveSegment(s *segment) { b.handle(b.now, s) }

// data returns the payloads sent since the last call, one per segment.
func (b *testConn) data() (all []string) {
	for _, s := range b.log {
		if len(s.payload) > 0 {
			all = append(all, string(s.payload))
		}
	}
	b.log = nil
	return all
}

// readAll returns all readable octets.
func (b *testConn) readAll() (all string) {
	for {
		octets, err := b.read()
		if octets == nil || err != nil {
			return all
		}
		all += string(octets)
	}
}

func (b *testConn) receiveData(text string, at int) {
	b.receiveSegment(&segment{flags: ack, seq: peerISN.add(at), ack: b.snd.una, window: 1000, payload: []byte(text)})
}

func expectSegments(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %q, want %q", what, got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("%s: %q, want %q", what, got, want)
		}
	}
}

// Late, duplicate and overlapping segments are reassembled across the sequence wrap.
func TestReceiveReassemblesSegments(t *testing.T) {
	t.Parallel()
	b := established(t, 7)
	for _, s := range []struct {
		text string
		at   int
	}{{"cdef", 2}, {"fghij", 5}, {"cd", 2}, {"xyz", 23}, {"ab", 0}, {"ab", 0}, {"bcdefghijk", 1}, {"lmnopqrstuvwx", 11}} {
		b.receiveData(s.text, s.at)
	}
	if got := b.readAll(); got != "abcdefghijklmnopqrstuvwxyz" {
		t.Errorf("%q", got)
	}
	if last := b.log[len(b.log)-1]; last.ack != peerISN.add(26) {
		t.Errorf("acknowledged up to %d", last.ack-peerISN)
	}
	// FIN takes effect when all octets before it have arrived.
	b.receiveSegment(&segment{flags: ack | fin, seq: peerISN.add(28), payload: []byte("3"), window: 1000, ack: b.snd.una})
	if _, err := b.read(); err != nil {
		t.Errorf("ended early: %v", err)
	}
	b.receiveData("12", 26)
	if got := b.readAll(); got != "123" {
		t.Errorf("%q", got)
	}
	if _, err := b.read(); !errors.Is(err, io.EOF) {
		t.Errorf("%v after the FIN", err)
	}
}

// The sender retransmits with backoff, and aborts after maxRetransmits.
func TestRetransmitsUntilLimit(t *testing.T) {
	t.Parallel()
	b := established(t, 1<<32-5) // the sequence numbers wrap
	b.write(b.now, []byte("one"))
	b.write(b.now, []byte("two"))
	expectSegments(t, "first", b.data(), "one", "two")
	b.tick(b.now.Add(initialRTO - 1))
	expectSegments(t, "too early", b.data())
	b.now = b.now.Add(initialRTO)
	b.tick(b.now)
	expectSegments(t, "first timeout", b.data(), "one")
	b.receiveSegment(&segment{flags: ack, seq: peerISN, ack: b.snd.una + 4, window: 1000}) // "one", and half of "two"
	expectSegments(t, "partial ACK", b.data(), "wo")
	b.now = b.now.Add(initialRTO)
	b.tick(b.now)
	expectSegments(t, "second timeout", b.data(), "wo")
	for range 3 {
		b.receiveSegment(&segment{flags: ack, seq: peerISN, ack: b.snd.una, window: 1000})
	}
	expectSegments(t, "three duplicate ACKs", b.data(), "wo")
	for range 2 * maxRetransmits {
		b.now = b.now.Add(maxRTO)
		b.tick(b.now)
	}
	if !errors.Is(b.err, errNoResponse) || b.log[len(b.log)-1].flags&rst == 0 {
		t.Errorf("%v, last segment %v", b.err, &b.log[len(b.log)-1])
	}
}

// The sender does not exceed the peer's window, and probes a closed window.
func TestSenderRespectsWindowAndProbes(t *testing.T) {
	t.Parallel()
	b := established(t, 7)
	b.receiveSegment(&segment{flags: ack, seq: peerISN, ack: b.snd.una, window: 3})
	b.write(b.now, []byte("hello"))
	expectSegments(t, "window of 3", b.data(), "hel")
	b.receiveSegment(&segment{flags: ack, seq: peerISN, ack: b.snd.una + 3, window: 0})
	expectSegments(t, "closed window", b.data())
	b.now = b.now.Add(initialRTO)
	b.tick(b.now)
	expectSegments(t, "window probe", b.data(), "l")
	b.receiveSegment(&segment{flags: ack, seq: peerISN, ack: b.snd.una, window: 100})
	expectSegments(t, "open window", b.data(), "lo")
}

func TestRSTOutsideWindowIsIgnored(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		seq    seqNum
		resets bool
	}{{peerISN, true}, {peerISN.add(100), true}, {peerISN - 1, false}, {peerISN.add(1 << 17), false}} {
		b := established(t, 7)
		b.receiveSegment(&segment{flags: rst, seq: c.seq})
		if errors.Is(b.err, conformance.ErrReset) != c.resets {
			t.Errorf("a RST at %d: %v", c.seq-peerISN, b.err)
		}
	}
}

// For any segments of the peer, the octets read are a prefix of its stream. The script
// lists segments: offset, length and flags.
func FuzzConn(f *testing.F) {
	f.Add([]byte{0, 0, 5, 0x10, 0, 5, 5, 0x10})
	f.Add([]byte{0, 9, 9, 0x11, 0, 0, 9, 0x10, 0, 1, 3, 0x14})
	tcpStream := make([]byte, 1<<16)
	for i := range tcpStream {
		tcpStream[i] = byte(i * 7 / 3)
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		b := established(t, 1<<32-40)
		b.write(b.now, bytes.Repeat([]byte("data"), 30))
		must.Do(t, b.queueManual([]byte("held back")))
		var got []byte
		for ; len(script) >= 4; script = script[4:] {
			at, n, fl := int(binary.BigEndian.Uint16(script)), int(script[2]), tcpFlags(script[3]&^byte(syn))
			s := &segment{seq: peerISN.add(at), ack: b.snd.una.add(n % 7), flags: fl | ack, window: uint16(n) * 3, payload: tcpStream[at:min(len(tcpStream), at+n)]}
			b.receiveSegment(s)
			_ = b.sendManualRange(b.now, n%9, 9, 0)
			b.now = b.now.Add(time.Duration(n) * time.Millisecond)
			b.tick(b.now)
			if octets, err := b.read(); err == nil {
				got = append(got, octets...)
			}
			b.log = b.log[:0]
		}
		for octets, err := b.read(); octets != nil && err == nil; octets, err = b.read() {
			got = append(got, octets...)
		}
		if !bytes.HasPrefix(tcpStream, got) {
			t.Fatalf("the %d octets read are no prefix of the stream", len(got))
		}
		if b.snd.una.sub(b.snd.nxt) > 0 || b.snd.nxt.sub(b.snd.end) > 0 {
			t.Fatalf("acknowledged %d, sent %d, queued %d", b.snd.una, b.snd.nxt, b.snd.end)
		}
	})
}

// Segments that arrive early are kept by sequence number, the longer of two first.
func TestEarlySegmentsAreSorted(t *testing.T) {
	var r receiver
	for _, p := range []chunk{{seq: 30, data: []byte("e")}, {seq: 10, data: []byte("a")}, {seq: 20, data: []byte("c")}, {seq: 10, data: []byte("ab")}} {
		r.storeOutOfOrder(p)
	}
	var got []string
	for _, p := range r.outOfOrder {
		got = append(got, string(p.data))
	}
	expectSegments(t, "in order", got, "ab", "a", "c", "e")
	r.outOfOrder = nil
	r.storeOutOfOrder(chunk{seq: 11, data: []byte("b")})
	r.storeOutOfOrder(chunk{seq: 10, data: []byte("a")})
	if r.outOfOrder[0].seq != 10 {
		t.Errorf("an octet is stored after the one that follows it: %+v", r.outOfOrder)
	}
}

// A SYN and ACK of another connection, and an ACK of an octet that was not sent, are ignored.
func TestOtherAcknowledgementsAreIgnored(t *testing.T) {
	b := established(t, 7)
	b.write(b.now, []byte("ab"))
	b.receiveSegment(&segment{flags: ack, seq: peerISN, ack: b.snd.nxt + 1, window: 1000})
	if b.snd.una != 8 {
		t.Errorf("octets up to %d count as acknowledged", b.snd.una)
	}
	c := &tcpConn{snd: sender{mss: 1}, transmit: func(*segment) {}}
	c.open(b.now, 7)
	for _, number := range []seqNum{7, 9, 8} { // the last acknowledges our SYN
		c.handle(b.now, &segment{flags: syn | ack, seq: 100, ack: number, window: 1000, mss: 100})
		if c.rcv.syn != (number == 8) || c.established != (number == 8) {
			t.Errorf("established %t after a SYN that acknowledges %d", c.established, number)
		}
	}
}

func TestLinkMSSLeavesRoomForHeaders(t *testing.T) {
	for addr, want := range map[string]int{"10.0.0.1": 1460, "fd00::1": 1440} {
		h := TCPHost{cfg: TCPConfig{Addr: netip.MustParseAddr(addr), MTU: 1500}}
		if got := h.linkMSS(); got != want {
			t.Errorf("MSS %d with address %s, want %d", got, addr, want)
		}
	}
}

// An acknowledgement of all data but not of the FIN leaves the FIN in the queue.
func TestFINStaysUntilAcknowledged(t *testing.T) {
	s := sender{una: 12, queue: []chunk{{seq: 10, data: []byte("ab"), flags: fin}}}
	s.removeAcked()
	if len(s.queue) != 1 || s.queue[0].seq != 12 || len(s.queue[0].data) != 0 {
		t.Errorf("%+v, want the FIN at 12", s.queue)
	}
	if s.una = 13; len(s.queue) == 1 {
		s.removeAcked()
	}
	if len(s.queue) != 0 {
		t.Errorf("%+v after all is acknowledged", s.queue)
	}
}

// Only a segment with the flag ACK acknowledges.
func TestSegmentWithoutACKAcknowledgesNothing(t *testing.T) {
	b := established(t, 7)
	b.write(b.now, []byte("y"))
	before := b.snd.una
	b.receiveSegment(&segment{seq: peerISN, ack: before + 1, window: 5, payload: []byte("x")})
	if b.snd.una != before || b.readAll() != "x" {
		t.Errorf("acknowledged up to %d, want %d", b.snd.una, before)
	}
}

// A window update is sent as soon as half of the window is free again.
func TestWindowUpdateAtHalfOfTheWindow(t *testing.T) {
	const half = maxWindow - maxWindow/2                                       // unread octets that leave half of the window
	for unread, want := range map[int]int{half + 1: 0, half: 1, half - 1: 1} { // after one octet is read
		b := established(t, 7)
		b.rcv.queue, b.rcv.unread, b.rcv.advertised = [][]byte{{1}}, unread+1, maxWindow/2-1
		must.Get(b.read())(t)
		if len(b.log) != want {
			t.Errorf("%d octets unread: %d segments, want %d", unread, len(b.log), want)
		}
	}
}

// A listener gets a free port, and aborts connections that were not accepted when it is closed.
func TestListenerGetsPortAndAbortsConnections(t *testing.T) {
	h := &TCPHost{listeners: map[uint16]*tcpListener{}, change: make(chan struct{})}
	l := must.Get(h.Listen(0))(t).(*tcpListener)
	if l.Addr().Port() < firstPort {
		t.Errorf("the listener has port %d", l.Addr().Port())
	}
	waiting := established(t, 7)
	l.ready = append(l.ready, waiting.tcpConn)
	must.Do(t, l.Close())
	if !errors.Is(waiting.err, net.ErrClosed) || len(waiting.log) != 1 || waiting.log[0].flags&rst == 0 {
		t.Errorf("the connection has the error %v and sends %+v", waiting.err, waiting.log)
	}
}

func TestPortsWrap(t *testing.T) {
	h := &TCPHost{lastPort: 65534, listeners: map[uint16]*tcpListener{firstPort: {}}}
	for _, want := range []uint16{65535, firstPort + 1} {
		if got := must.Get(h.freePort(tcpFar))(t); got != want {
			t.Errorf("port %d, want %d", got, want)
		}
	}
}

func TestSegmentsInWords(t *testing.T) {
	for _, tc := range []struct {
		s    segment
		want string
	}{
		{segment{flags: syn, seq: 1, mss: 1460, window: 1}, "SYN seq 1 mss 1460"},
		{segment{flags: fin | ack, seq: 2, ack: 3, window: 1, payload: []byte("ab")}, "FIN seq 2 ack 3"},
		{segment{flags: rst, seq: 2}, "RST seq 2"},
		{segment{flags: ack, seq: 2, ack: 3}, "seq 2 ack 3 no window"},
	} {
		tc.s.src, tc.s.dst = tcpNear, tcpFar
		if text, payload, ok := DescribeTCP(tc.s.packet()); text != tc.want || !ok || len(payload) != len(tc.s.payload) {
			t.Errorf("%q, %d octets, %v; want %q", text, len(payload), ok, tc.want)
		}
	}
	if _, _, ok := DescribeTCP([]byte{0x45}); ok {
		t.Error("one octet is a segment")
	}
}

// Held octets are retransmitted once all of them were sent.
func TestHeldOctetsAreRetransmitted(t *testing.T) {
	b := established(t, 7)
	must.Do(t, b.queueManual([]byte("hello")))
	must.Do(t, b.sendManualRange(b.now, 2, 5, 0))
	must.Do(t, b.sendManualRange(b.now, 0, 3, 0))
	expectSegments(t, "held", b.data(), "llo", "hel")
	b.now = b.now.Add(initialRTO)
	b.tick(b.now)
	expectSegments(t, "retransmitted", b.data(), "hello")
}

// A closed host refuses connections, and can be asked again.
func TestDialOnClosedHost(t *testing.T) {
	h := &TCPHost{err: io.ErrClosedPipe, lastPort: firstPort}
	if _, err := h.Dial(tcpFar, time.Second); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("%v, want the error of the host", err)
	}
	if !h.mu.TryLock() {
		t.Error("the host is still locked")
	}
}

// silentDevice is a wire whose device answers nothing: each connection gives up at its first
// segment.
type silentDevice struct {
	conformance.Wire
	h *TCPHost
}

func (w *silentDevice) Send([]byte) error {
	for _, ports := range w.h.conns {
		for _, c := range ports {
			c.err = errNoResponse
		}
	}
	return nil
}

func TestDialWithoutResponseTimesOut(t *testing.T) {
	h := &TCPHost{conns: map[netip.AddrPort]map[uint16]*tcpConn{}, change: make(chan struct{})}
	h.cfg = TCPConfig{Addr: tcpNear.Addr(), MTU: 1500, Wire: &silentDevice{h: h}, OnWait: func(string) func() { return func() {} }}
	if _, err := h.Dial(tcpFar, time.Second); !errors.Is(err, verbs.ErrTimeout) || !errors.Is(err, errNoResponse) {
		t.Errorf("%v, want a timeout because there was no response", err)
	}
}
