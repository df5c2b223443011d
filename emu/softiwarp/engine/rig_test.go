package engine

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/internal/core"
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softiwarp/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

const allAccess = verbs.AccessLocalWrite | verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic | verbs.AccessMWBind

// host is a NIC with a queue pair and its queues.
type host struct {
	t      testing.TB
	nic    *NIC
	pd     core.PD
	sendCQ *nic.CQ
	recvCQ *nic.CQ
	qp     *QP
}

type hostOption func(*Config, *QPConfig)

func newHost(t testing.TB, opts ...hostOption) *host {
	t.Helper()
	h := &host{t: t}
	var cfg Config
	q := QPConfig{
		Type: verbs.QPTypeRC, SignalAll: true,
		Caps: verbs.QPCaps{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInline: 64},
	}
	for _, o := range opts {
		o(&cfg, &q)
	}
	var err error
	if h.nic, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	h.pd, _ = h.nic.AllocPD()
	h.sendCQ = h.cq(256)
	h.recvCQ = h.cq(256)
	if q.SendCQ == nil {
		q.SendCQ, q.RecvCQ = h.sendCQ, h.recvCQ
	}
	q.PD = h.pd
	h.qp = h.newQP(q)
	return h
}

func (h *host) cq(depth int) *nic.CQ {
	h.t.Helper()
	cq, err := h.nic.CreateCQ(depth)
	if err != nil {
		h.t.Fatal(err)
	}
	return cq
}

func (h *host) newQP(q QPConfig) *QP {
	h.t.Helper()
	qp, err := h.nic.CreateQP(q)
	if err != nil {
		h.t.Fatal(err)
	}
	return qp
}

func (h *host) region(n int, access verbs.Access) (*core.Region, core.Bytes) {
	return h.regionAt(n, 0, access)
}

func (h *host) regionAt(n int, addr uint64, access verbs.Access) (*core.Region, core.Bytes) {
	h.t.Helper()
	mem := make(core.Bytes, n)
	r, err := h.nic.RegMR(h.pd, mem, addr, access)
	if err != nil {
		h.t.Fatal(err)
	}
	return r, mem
}

func sge(r *core.Region, off, n int) verbs.SGE {
	return verbs.SGE{Addr: r.Addr + uint64(off), Length: uint32(n), LKey: verbs.LKey(r.Key)}
}

// send posts a request, which must be taken.
func (h *host) send(wr verbs.SendWR) {
	h.t.Helper()
	if err := h.qp.PostSend(&wr, &Refs{}); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) recv(id uint64, sgl ...verbs.SGE) {
	h.t.Helper()
	if err := h.qp.PostRecv(&verbs.RecvWR{WRID: id, SGL: sgl}); err != nil {
		h.t.Fatal(err)
	}
}

// poll returns what a queue has, as text: id and status, of receives the length.
func poll(cq *nic.CQ) (got []string) {
	var wc [16]verbs.WC
	for {
		n, err := cq.Poll(wc[:])
		if err != nil {
			return append(got, err.Error())
		}
		for _, c := range wc[:n] {
			s := fmt.Sprint(c.WRID)
			switch {
			case c.Status != verbs.WCSuccess:
				s += " " + strings.TrimPrefix(c.Status.String(), "IBV_WC_")
			case c.Opcode >= verbs.WCOpRecv:
				s += fmt.Sprintf(":%d", c.ByteLen)
			}
			got = append(got, s)
		}
		if n < len(wc) {
			return got
		}
	}
}

func (h *host) wantSends(want ...string) {
	h.t.Helper()
	if got := poll(h.sendCQ); !slices.Equal(got, want) {
		h.t.Errorf("sends %q, want %q", got, want)
	}
}

func (h *host) wantRecvs(want ...string) {
	h.t.Helper()
	if got := poll(h.recvCQ); !slices.Equal(got, want) {
		h.t.Errorf("receives %q, want %q", got, want)
	}
}

func (h *host) wantState(want verbs.QPState) {
	h.t.Helper()
	if h.qp.State() != want {
		h.t.Errorf("state %v, want %v", h.qp.State(), want)
	}
}

// events returns the asynchronous events that wait.
func (h *host) events() (got []verbs.AsyncEventType) {
	for {
		e, ok := h.nic.NextEvent()
		if !ok {
			return got
		}
		got = append(got, e.Type)
	}
}

func (h *host) wantEvents(want ...verbs.AsyncEventType) {
	h.t.Helper()
	if got := h.events(); !slices.Equal(got, want) {
		h.t.Errorf("events %v, want %v", got, want)
	}
}

// pipe is the stream between two connections, or between one and a script: it
// holds what is under way in each direction.
type pipe struct {
	t    testing.TB
	rnd  *rand.Rand
	now  mono.Time
	end  [2]*Conn // nil: a script
	way  [2][]byte
	fin  [2]bool // that end has closed its direction
	gone [2]bool // that end is broken
	eof  [2]bool // and the other was told
	vecs [][]byte
	// most is how many octets a write may take; 0 is all. Some are left out, with a
	// cut anywhere, if rnd is set.
	most int
	log  [2][]byte // all that an end has written
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

// write moves what end i has to write to its way.
func (p *pipe) write(i int) (moved bool) {
	c := p.end[i]
	if c == nil || p.gone[i] {
		return false
	}
	for {
		bufs, then := c.Output(p.vecs)
		if cap(bufs) != cap(p.vecs) {
			p.t.Fatal("Output has grown the slice that it was given")
		}
		if then == link.StreamAbort {
			p.breakOff(i)
			return true
		}
		if p.fin[i] {
			return false
		}
		total := 0
		for _, b := range bufs {
			total += len(b)
		}
		if total == 0 {
			if then == link.StreamClose {
				p.fin[i] = true
				return true
			}
			return moved
		}
		n := total
		if p.most > 0 {
			n = min(n, p.most)
		}
		if p.rnd != nil {
			n = 1 + p.rnd.IntN(n)
		}
		left := n
		for _, b := range bufs {
			k := min(left, len(b))
			p.way[i] = append(p.way[i], b[:k]...)
			p.log[i] = append(p.log[i], b[:k]...)
			left -= k
		}
		c.Sent(p.now, n)
		moved = true
		if n < total {
			return true
		}
	}
}

// breakOff is a reset by end i.
func (p *pipe) breakOff(i int) {
	p.gone[i], p.gone[1-i] = true, true
	p.way[i] = nil
	if o := p.end[1-i]; o != nil {
		o.Failed(p.now, link.ErrReset)
	}
}

// read gives the other end of way i what is on it.
func (p *pipe) read(i int) (moved bool) {
	o := p.end[1-i]
	if o == nil || p.gone[1-i] {
		return false
	}
	if n := len(p.way[i]); n > 0 {
		if p.rnd != nil {
			n = 1 + p.rnd.IntN(n)
		}
		b := slices.Clone(p.way[i][:n])
		p.way[i] = p.way[i][n:]
		o.Input(p.now, b)
		for k := range b {
			b[k] = 0xcc // it is the driver's again
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

// run moves everything until nothing moves.
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
	p.t.Fatal("the streams never come to rest")
}

// take returns what end i has written and nobody has read, for a script.
func (p *pipe) take(i int) []byte {
	p.write(i)
	b := p.way[i]
	p.way[i] = nil
	return b
}

// give has a script say b to end i.
func (p *pipe) give(i int, b []byte) {
	p.end[i].Input(p.now, slices.Clone(b))
}

// later lets time pass.
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

// connect joins two hosts. Depths are those of all the tests that do not care.
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
	if err := p.cb.Accept(p.now, b.qp, pb); err != nil {
		t.Fatal(err)
	}
	p.run()
	if p.ca.State() != Established {
		t.Fatalf("the initiator is %v: %v", p.ca.State(), p.ca.Err())
	}
	return p
}

// offer goes as far as the Request.
func offer(t testing.TB, a, b *host, pa ConnParam) *pair {
	t.Helper()
	ca, err := a.nic.Connect(a.qp, pa)
	if err != nil {
		t.Fatal(err)
	}
	cb := b.nic.Incoming()
	p := &pair{pipe: newPipe(t, ca, cb), a: a, b: b, ca: ca, cb: cb}
	p.run()
	return p
}

// peerToPeer has initiators ask for the model with an RTR.
func peerToPeer(c *Config, _ *QPConfig) { c.MPA.PeerToPeer = true }

func noCRC(c *Config, _ *QPConfig) { c.MPA.NoCRC = true }

// tester is a script that talks to a NIC octet by octet: the NIC is end 0.
type tester struct {
	*pipe
	*host
	c      *Conn
	framer wire.Framer
	parser *wire.Deframer
}

// unhex reads hex, which may have spaces.
func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

const (
	requestFrame = "4d504120494420526571204672616d65"
	replyFrame   = "4d504120494420526570204672616d65"
)

// asResponder connects a host that was asked by the tester. flags and tail are of
// the Request.
func asResponder(t testing.TB, h *host, request string, p ConnParam) *tester {
	t.Helper()
	c := h.nic.Incoming()
	k := &tester{pipe: newPipe(t, c, nil), host: h, c: c}
	k.give(0, unhex(t, requestFrame+request))
	if c.State() != Requested {
		t.Fatalf("the Request is not taken: %v %v", c.State(), c.Err())
	}
	if err := c.Accept(0, h.qp, p); err != nil {
		t.Fatal(err)
	}
	k.start(k.take(0))
	return k
}

// asInitiator connects a host to the tester, who answers with reply.
func asInitiator(t testing.TB, h *host, p ConnParam, reply string) *tester {
	t.Helper()
	c, err := h.nic.Connect(h.qp, p)
	if err != nil {
		t.Fatal(err)
	}
	k := &tester{pipe: newPipe(t, c, nil), host: h, c: c}
	if got := string(k.take(0)); !strings.HasPrefix(got, wire.RequestKey) {
		t.Fatalf("no Request: %x", got)
	}
	b := unhex(t, replyFrame+reply)
	k.give(0, b)
	k.start(b)
	return k
}

// start learns from a Reply how FPDUs are framed.
func (k *tester) start(reply []byte) {
	f := wire.Framing{CRC: reply[16]&0x40 != 0}
	k.framer, k.parser = wire.NewFramer(f), wire.NewDeframer(f)
}

// say sends the NIC a segment.
func (k *tester) say(g wire.Segment) { k.give(0, k.framer.Append(nil, g.Append(nil))) }

// hear returns the segments that the NIC has sent since.
func (k *tester) hear() (segs []wire.Segment) {
	k.pipe.t.Helper()
	b := k.take(0)
	for len(b) > 0 {
		f, rest, ok := k.parser.Next(b)
		b = rest
		if !ok {
			break
		}
		if f.Check == wire.CheckBad {
			k.pipe.t.Errorf("an FPDU has a wrong CRC: %x", f.ULPDU)
		}
		var g wire.Segment
		if err := g.Parse(slices.Clone(f.ULPDU)); err != nil {
			k.pipe.t.Fatalf("%x: %v", f.ULPDU, err)
		}
		segs = append(segs, g)
	}
	return segs
}

// hearOne returns the only segment that the NIC has sent.
func (k *tester) hearOne() wire.Segment {
	k.pipe.t.Helper()
	segs := k.hear()
	if len(segs) != 1 {
		k.pipe.t.Fatalf("%d segments, want 1: %+v", len(segs), segs)
	}
	return segs[0]
}

func segment(op wire.Opcode, msn wire.MSN, payload []byte) (g wire.Segment) {
	g.Control = wire.NewControl(op, true)
	info, _ := op.Info()
	g.Untagged = wire.Untagged{QN: info.Queue, MSN: msn}
	g.Payload = payload
	return g
}

func write(stag uint32, to uint64, payload []byte) (g wire.Segment) {
	g.Control = wire.NewControl(wire.OpWrite, true)
	g.Tagged = wire.Tagged{STag: wire.STag(stag), TO: to}
	g.Payload = payload
	return g
}
