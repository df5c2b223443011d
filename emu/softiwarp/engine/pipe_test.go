package engine

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/iwarp"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/internal/must"
)

// pipe is the TCP stream between two connections, or between a connection and a script, with the
// octets in flight.
type pipe struct {
	t        testing.TB
	rnd      *rand.Rand
	now      mono.Time
	end      [2]*Conn // nil: a script
	inFlight [2][]byte
	fin      [2]bool // the end has closed its direction
	reset    [2]bool // the end was reset
	eof      [2]bool // the other end got EOF
	vecs     [][]byte
	// maxWrite limits the octets of a write; 0 is no limit. If rnd is set, random limits apply.
	maxWrite int
	// acceptedAfter is how long after a write TCP has accepted it.
	acceptedAfter time.Duration
	log           [2][]byte // all octets that an end has written
}

var (
	addrA = netip.MustParseAddrPort("10.0.0.1:40000")
	addrB = netip.MustParseAddrPort("10.0.0.2:7174")
)

const testMSS = 1448

func newPipe(t testing.TB, a, b *Conn) *pipe {
	p := &pipe{t: t, end: [2]*Conn{a, b}, vecs: make([][]byte, 0, 256)}
	for i, c := range p.end {
		if c == nil {
			continue
		}
		local, remote := addrA, addrB
		if i == 1 {
			local, remote = addrB, addrA
		}
		c.Connected(p.now, local, remote, testMSS)
	}
	return p
}

// write moves the output of end i into the stream.
func (p *pipe) write(i int) (moved bool) {
	c := p.end[i]
	if c == nil || p.reset[i] {
		return false
	}
	for {
		bufs, then := c.Output(p.vecs)
		if cap(bufs) != cap(p.vecs) {
			p.t.Fatal("Output has grown the slice that it was given")
		}
		if then == link.StreamAbort {
			p.resetFrom(i)
			return true
		}
		total := 0
		for _, b := range bufs {
			total += len(b)
		}
		if p.fin[i] {
			if total > 0 {
				p.t.Fatalf("%d octets to write after the direction was closed", total)
			}
			return false
		}
		if total == 0 {
			if then == link.StreamClose {
				p.fin[i] = true
				return true
			}
			return moved
		}
		n := total
		if p.maxWrite > 0 {
			n = min(n, p.maxWrite)
		}
		if p.rnd != nil {
			n = 1 + p.rnd.IntN(n)
		}
		left := n
		for _, b := range bufs {
			k := min(left, len(b))
			p.inFlight[i] = append(p.inFlight[i], b[:k]...)
			p.log[i] = append(p.log[i], b[:k]...)
			left -= k
		}
		c.Sent(p.now, n, p.now.Add(p.acceptedAfter))
		moved = true
		if n < total {
			return true
		}
	}
}

// resetFrom resets the stream from end i.
func (p *pipe) resetFrom(i int) {
	p.reset[i], p.reset[1-i] = true, true
	p.inFlight[i] = nil
	if o := p.end[1-i]; o != nil {
		o.Failed(p.now, link.ErrReset)
	}
}

// read delivers the octets in flight from end i to the other end.
func (p *pipe) read(i int) (moved bool) {
	o := p.end[1-i]
	if o == nil || p.reset[1-i] {
		return false
	}
	if n := len(p.inFlight[i]); n > 0 {
		if p.rnd != nil {
			n = 1 + p.rnd.IntN(n)
		}
		b := slices.Clone(p.inFlight[i][:n])
		p.inFlight[i] = p.inFlight[i][n:]
		o.Input(p.now, b)
		for k := range b {
			b[k] = 0xcc // the driver may reuse its buffer
		}
		return true
	}
	if p.fin[i] && !p.eof[i] {
		p.eof[i] = true
		o.InputEOF(p.now)
		return true
	}
	return false
}

// run moves octets until none are in flight.
func (p *pipe) run() {
	p.t.Helper()
	for range 1_000_000 {
		moved := false
		for i := range 2 {
			if p.write(i) {
				moved = true
			}
			if p.read(i) {
				moved = true
			}
		}
		if !moved {
			return
		}
	}
	p.t.Fatal("the streams never become idle")
}

// take returns the octets in flight from end i, for a script.
func (p *pipe) take(i int) []byte {
	p.write(i)
	b := p.inFlight[i]
	p.inFlight[i] = nil
	return b
}

// give delivers octets of a script to end i.
func (p *pipe) give(i int, b []byte) {
	p.end[i].Input(p.now, slices.Clone(b))
}

// later advances the time.
func (p *pipe) later(d time.Duration, nics ...*NIC) {
	p.now = p.now.Add(d)
	for _, n := range nics {
		n.Tick(p.now)
	}
}

// pair is two hosts with a connection.
type pair struct {
	*pipe
	a, b   *host
	ca, cb *Conn
}

// connect connects two hosts with default depths.
func connect(t testing.TB, a, b *host) *pair {
	t.Helper()
	return connectWith(t, a, b, ConnParam{IRD: 4, ORD: 4}, ConnParam{IRD: 4, ORD: 4})
}

func connectWith(t testing.TB, a, b *host, pa, pb ConnParam) *pair {
	t.Helper()
	p := offer(t, a, b, pa)
	if p.cb.State() != Requested {
		t.Fatalf("the responder is %v: %v", p.cb.State(), p.cb.Err())
	}
	must.Do(t, p.cb.Accept(p.now, b.qp, pb))
	p.run()
	if p.ca.State() != Established {
		t.Fatalf("the initiator is %v: %v", p.ca.State(), p.ca.Err())
	}
	return p
}

// offer connects up to the Request.
func offer(t testing.TB, a, b *host, pa ConnParam) *pair {
	t.Helper()
	ca := must.Get(a.nic.Connect(a.qp, pa))(t)
	cb := b.nic.Incoming()
	p := &pair{pipe: newPipe(t, ca, cb), a: a, b: b, ca: ca, cb: cb}
	p.run()
	return p
}

// peerToPeer makes initiators request the peer-to-peer model.
func peerToPeer(c *Config, _ *iwarp.QueueConfig) { c.MPA.PeerToPeer = true }

func noCRC(c *Config, _ *iwarp.QueueConfig) { c.MPA.NoCRC = true }
