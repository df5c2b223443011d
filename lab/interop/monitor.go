package interop

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
)

// Side counts the frames that one end of the connections has sent.
type Side struct {
	FPDUs      int
	BadCRCs    int // with a wrong CRC although one was agreed on
	DirtyPads  int // with a pad that is not zeros
	Terminates int
	Mangled    int // Terminates whose bits are in a wrong order
}

// TapReport counts the connections that a Monitor has seen.
type TapReport struct {
	Connections  int // accepted
	WithCRC      int // accepted with a CRC
	Ours, Theirs Side
	// Unread are connections that could not be read to the end: segments were missing, or
	// the protocol was not iWARP.
	Unread int
}

// Monitor reads the iWARP connections to one TCP port and reports what is on the wire: whether
// a CRC was agreed on and is right, whether pads are zero, whether a Terminate has the layout
// of RFC 5040, whether a peer leaves the first frame unanswered. It shares no code with the
// emulated NICs. It is safe for concurrent use.
type Monitor struct {
	mu    sync.Mutex
	port  uint16
	conns map[[2]netip.AddrPort]*conn // by initiator and responder
}

// NewMonitor returns a Monitor of the connections to a TCP port. Frame must be called with their frames.
func NewMonitor(port uint16) *Monitor {
	return &Monitor{port: port, conns: make(map[[2]netip.AddrPort]*conn)}
}

// conn is a connection. The arrays have an element for each end.
type conn struct {
	streams  [2]stream
	deframer iwarp.ConnDeframer
	startup  [2]*iwarp.StartupFrame // nil until it has been read
	counts   [2]Side
	notMPA   bool
	changed  time.Time // when an end last sent or acknowledged data
}

// The ends of a connection.
const (
	initiator = iota
	responder
)

// Frame takes an Ethernet frame captured at now. It ignores frames of other ports.
func (m *Monitor) Frame(now time.Time, frame []byte) {
	s, ok := parseFrame(frame)
	if !ok || s.src.Port() != m.port && s.dst.Port() != m.port {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	from, key := initiator, [2]netip.AddrPort{s.src, s.dst}
	if s.dst.Port() != m.port {
		from, key = responder, [2]netip.AddrPort{s.dst, s.src}
	}
	c := m.conns[key]
	if c == nil {
		if s.flags&tcpSYN == 0 {
			return // the connection began before the capture
		}
		c = new(conn)
		m.conns[key] = c
	}
	c.add(now, from, &s)
}

// add takes a segment that one end, from, has sent. It sets changed if the segment has new octets
// or acknowledges some.
func (c *conn) add(now time.Time, from int, s *segment) {
	sender, other := &c.streams[from], &c.streams[1-from]
	before := sender.next
	sender.add(s)
	newAck := other.acked == 0 || int32(s.ack-other.acked) > 0 // the first, or a later sequence number
	if s.flags&tcpACK != 0 && other.begun && newAck {
		other.acked = s.ack
		c.changed = now
	}
	if sender.next != before {
		c.changed = now
		c.read(from)
	}
}

// read parses the octets that one end, from, has sent, and counts the complete FPDUs. It sets
// notMPA if the stream does not begin with the key of an MPA start-up frame.
func (c *conn) read(from int) {
	sent := c.streams[from].bytes
	c.streams[from].bytes = nil
	if c.notMPA {
		return
	}
	for _, f := range c.deframer.Feed(from, sent) {
		if f.Startup != nil {
			c.startup[f.Side] = f.Startup
		} else {
			c.counts[f.Side].countFPDU(f.FPDU, c.withCRC())
		}
	}
	key := []string{initiator: iwarp.KeyRequest, responder: iwarp.KeyReply}[from]
	if start := c.startup[from]; start != nil {
		c.notMPA = *start.Key != key
	} else {
		begin := c.deframer.Pending(from)
		n := min(len(begin), len(key))
		c.notMPA = string(begin[:n]) != key[:n]
	}
}

// withCRC reports whether an end asked for the CRC, which then both use.
func (c *conn) withCRC() bool { return *c.startup[initiator].C || *c.startup[responder].C }

// countFPDU counts a frame and its faults; crc says that the CRC was agreed on. A Terminate with
// its bits in the order of siw, which differs from RFC 5040, is mangled.
func (s *Side) countFPDU(f *iwarp.ReceivedFPDU, crc bool) {
	s.FPDUs++
	if crc && *f.MPA.CRCStatus != iwarp.CRCCorrect {
		s.BadCRCs++
	}
	if len(bytes.Trim(f.MPA.Pad, "\x00")) > 0 {
		s.DirtyPads++
	}
	if f.Terminate != nil {
		s.Terminates++
		const startupFinished = true
		if _, mangled := f.InSiwBitOrder(startupFinished); mangled {
			s.Mangled++
		}
	}
}

// accepted reports whether the responder accepted the connection.
func (c *conn) accepted() bool {
	return c.startup[initiator] != nil && c.startup[responder] != nil && !*c.startup[responder].R
}

// stalled reports whether the responder has sent no frame since its MPA reply, although its TCP has
// acknowledged all frames of the initiator, for longer than timeout.
func (c *conn) stalled(now time.Time, timeout time.Duration) bool {
	sent := &c.streams[initiator]
	received := !sent.lost && len(sent.early) == 0 && sent.acked == sent.next // by the responder's TCP, all of it
	return c.accepted() && !c.notMPA && c.counts[initiator].FPDUs > 0 && len(c.deframer.Pending(initiator)) == 0 &&
		received && c.counts[responder].FPDUs == 0 && now.Sub(c.changed) > timeout
}

// Stalled reports whether a connection hangs: its initiator has sent frames, the responder's TCP
// has acknowledged them, and no frame has come back, for longer than timeout.
func (m *Monitor) Stalled(now time.Time, timeout time.Duration) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.conns {
		if c.stalled(now, timeout) {
			return true
		}
	}
	return false
}

// Report returns the counts of all connections; Unread are those that could not be read to the end.
// Ours is the end with the address ours, Theirs the other.
func (m *Monitor) Report(ours netip.Addr) TapReport {
	m.mu.Lock()
	defer m.mu.Unlock()
	var r TapReport
	for key, c := range m.conns {
		if c.notMPA || slices.ContainsFunc(c.streams[:], func(s stream) bool { return s.lost || len(s.early) > 0 }) {
			r.Unread++
		}
		if !c.notMPA && c.accepted() {
			r.Connections++
			if c.withCRC() {
				r.WithCRC++
			}
		}
		for i, counts := range c.counts {
			if key[i].Addr() == ours {
				r.Ours.add(counts)
			} else {
				r.Theirs.add(counts)
			}
		}
	}
	return r
}

// add adds the counts of o.
func (s *Side) add(o Side) {
	s.FPDUs += o.FPDUs
	s.BadCRCs += o.BadCRCs
	s.DirtyPads += o.DirtyPads
	s.Terminates += o.Terminates
	s.Mangled += o.Mangled
}

// Faults counts the known faults of the guest's soft-iWARP. A case may pass in spite of them.
type Faults struct {
	// Stalls are connections whose first frames the guest acknowledged and did not read: it
	// sends the MPA reply before it is ready to receive. The case is then repeated.
	Stalls int
	Side       // frames of the guest
	Unread int // connections that could not be read to their end
}

// add adds the faults of o.
func (f *Faults) add(o Faults) {
	f.Stalls += o.Stalls
	f.Side.add(o.Side)
	f.Unread += o.Unread
}

// String lists the faults; it is empty if there are no faults.
func (f Faults) String() string {
	var list []string
	add := func(n int, format string, args ...any) {
		if n > 0 {
			list = append(list, fmt.Sprintf(format, args...))
		}
	}
	add(f.Stalls, "first frame left lying %d times", f.Stalls)
	add(f.DirtyPads, "pad not zero in %d of %d frames", f.DirtyPads, f.FPDUs)
	add(f.BadCRCs, "CRC wrong in %d of %d frames", f.BadCRCs, f.FPDUs)
	add(f.Mangled, "%d of %d Terminates mangled", f.Mangled, f.Terminates)
	add(f.Unread, "%d connections not watched to the end", f.Unread)
	return strings.Join(list, ", ")
}

// checkWire returns an error if our device sent a faulty frame or a Terminate, or if not all
// connections of the case were made, with a CRC or without as the case asks.
func checkWire(c Case, r TapReport) error {
	var errs []error
	expect := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("on the wire: "+format, args...))
		}
	}
	expect(r.Ours.BadCRCs == 0, "the CRC of %d of our %d frames is wrong", r.Ours.BadCRCs, r.Ours.FPDUs)
	expect(r.Ours.DirtyPads == 0, "the pad of %d of our %d frames is not zeros", r.Ours.DirtyPads, r.Ours.FPDUs)
	expect(r.Ours.Terminates == 0, "we sent %d Terminates", r.Ours.Terminates)
	if r.Unread > 0 {
		return errors.Join(errs...) // the rest cannot be known
	}
	expect(r.Connections == c.connections(), "%d connections were agreed on, want %d", r.Connections, c.connections())
	want := 0
	if c.Variant == withCRC {
		want = r.Connections
	}
	expect(r.WithCRC == want, "a CRC was agreed on in %d of %d connections, want %d", r.WithCRC, r.Connections, want)
	return errors.Join(errs...)
}
