package iwarp

import (
	"fmt"
	"slices"
	"testing"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

const allAccess = verbs.AccessLocalWrite | verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic | verbs.AccessMWBind

// side is a stream with a minimal queue pair.
type side struct {
	t      testing.TB
	base   nic.Base
	layer  Layer
	ep     Endpoint
	stream Stream
	pd     nic.PD
	other  nic.PD

	recvs    []*Receive
	sends    []wc
	received []wc
	retired  []uint64
	ended    []End
	seg      Segment
	fullCQ   bool // the completion queue is full
}

// wc is a completion with its solicited flag.
type wc struct {
	verbs.WC
	solicited bool
}

func newSide(t testing.TB, o Options, policy Policy) *side {
	s := &side{t: t}
	s.base.Init(nic.Limits{}.OrDefault(), nic.Policy{})
	s.layer = Layer{NIC: &s.base, Policy: policy}
	s.pd, _ = s.base.AllocPD()
	s.other, _ = s.base.AllocPD()
	s.ep = Endpoint{Layer: &s.layer, PD: s.pd, QPN: 0x11, Access: RemoteAccess}
	s.stream.Open(&s.ep, s, o)
	return s
}

func (s *side) NextReceive() *Receive {
	if len(s.recvs) == 0 {
		return nil
	}
	r := s.recvs[0]
	s.recvs = s.recvs[1:]
	return r
}

func (s *side) Received(r *Receive, c verbs.WC, solicited bool) {
	c.WRID = r.WRID
	s.received = append(s.received, wc{c, solicited})
	if s.fullCQ {
		s.stream.Fail(wire.TermRDMAPLocal, true)
	}
}

func (s *side) Completed(r *Request, status verbs.WCStatus) {
	s.sends = append(s.sends, wc{WC: r.Completion(status, 0x11)})
	if s.fullCQ {
		s.stream.Fail(wire.TermRDMAPLocal, true)
	}
}

func (s *side) Retired(r *Request) { s.retired = append(s.retired, r.WRID) }
func (s *side) Ended(e End)        { s.ended = append(s.ended, e) }

// region registers n octets.
func (s *side) region(n int, access verbs.Access) (*nic.Region, nic.Bytes) {
	return s.regionOf(s.pd, n, access)
}

func (s *side) regionOf(pd nic.PD, n int, access verbs.Access) (*nic.Region, nic.Bytes) {
	s.t.Helper()
	mem := make(nic.Bytes, n)
	r := must.Get(s.base.RegMR(pd, mem, 0, access))(s.t)
	return r, mem
}

// sge is a piece of a region.
func sge(r *nic.Region, off, n int) verbs.SGE {
	return verbs.SGE{Addr: r.Addr + uint64(off), Length: uint32(n), LKey: verbs.LKey(r.Key)}
}

// recv posts a receive.
func (s *side) recv(id uint64, sgl ...verbs.SGE) {
	n := uint32(0)
	for _, e := range sgl {
		n += e.Length
	}
	s.recvs = append(s.recvs, &Receive{Receive: nic.Receive{WRID: id, SGL: sgl, Length: n}, PD: s.pd})
}

// post posts a request; opts change it.
func (s *side) post(id uint64, op verbs.WROpcode, sgl []verbs.SGE, opts ...func(*Request)) *Request {
	r := new(Request)
	r.WRID, r.Op, r.Flags, r.SGL = id, op, verbs.SendSignaled, sgl
	for _, e := range sgl {
		r.Length += e.Length
	}
	for _, o := range opts {
		o(r)
	}
	s.stream.Post(r)
	return r
}

func to(stag uint32, addr uint64) func(*Request) {
	return func(r *Request) { r.Remote = verbs.Remote{RKey: verbs.RKey(stag), Addr: addr} }
}

func flags(f verbs.SendFlags) func(*Request) { return func(r *Request) { r.Flags |= f } }

// out returns the next segment, or nil. The caller must call Accepted.
func (s *side) out(limit int) []byte {
	if !s.stream.Output(limit, &s.seg) {
		return nil
	}
	b := slices.Clone(s.seg.Header)
	for _, p := range s.seg.Payload {
		b = append(b, p...)
	}
	if len(b) != s.seg.Len() {
		s.t.Errorf("segment of %d octets has Len %d", len(b), s.seg.Len())
	}
	if len(b) > limit {
		s.t.Errorf("segment of %d octets, limit %d", len(b), limit)
	}
	return b
}

// all outputs, parses and accepts all segments.
func (s *side) all(limit int) (segs []wire.Segment) {
	for b := s.out(limit); b != nil; b = s.out(limit) {
		segs = append(segs, parse(s.t, b))
		s.stream.Accepted(1)
	}
	return segs
}

// one returns the only segment, or fails.
func (s *side) one() wire.Segment {
	s.t.Helper()
	segs := s.all(1442)
	if len(segs) != 1 {
		s.t.Fatalf("%d segments, want 1: %+v", len(segs), segs)
	}
	return segs[0]
}

func parse(t testing.TB, b []byte) (g wire.Segment) {
	t.Helper()
	if err := g.Parse(b); err != nil {
		t.Fatalf("%x: %v", b, err)
	}
	return g
}

// in passes a segment of the peer to the stream.
func (s *side) in(g wire.Segment) { s.stream.Input(g.Append(nil)) }

// Segments of the peer.

func tagged(op wire.Opcode, stag uint32, addr uint64, payload []byte, last bool) (g wire.Segment) {
	g.Control = wire.NewControl(op, last)
	g.Tagged = wire.Tagged{STag: wire.STag(stag), TO: addr}
	g.Payload = payload
	return g
}

func untagged(op wire.Opcode, msn wire.MSN, mo uint32, payload []byte, last bool) (g wire.Segment) {
	g.Control = wire.NewControl(op, last)
	info, _ := op.Info()
	g.Untagged = wire.Untagged{QN: info.Queue, MSN: msn, MO: mo}
	g.Payload = payload
	return g
}

// piece returns a segment of a message with any body.
func piece(op wire.Opcode, msn wire.MSN, mo uint32, body []byte, last bool) []byte {
	g := untagged(op, msn, mo, nil, last)
	return append(g.Header.Append(nil), body...)
}

func readRequest(msn wire.MSN, r wire.ReadRequest) wire.Segment {
	g := untagged(wire.OpReadRequest, msn, 0, nil, true)
	g.ReadRequest = r
	return g
}

func atomicRequest(msn wire.MSN, r wire.AtomicRequest) wire.Segment {
	g := untagged(wire.OpAtomicRequest, msn, 0, nil, true)
	g.AtomicRequest = r
	return g
}

// wantTerminate checks that the stream ends with a Terminate for the offending segment and
// outputs nothing after it.
func (s *side) wantTerminate(e wire.TermError, invalid *wire.Segment) wire.Terminate {
	s.t.Helper()
	segs := s.all(1442)
	if len(segs) == 0 || segs[len(segs)-1].Control.Opcode != wire.OpTerminate {
		s.t.Fatalf("no Terminate, want %v; stream ended: %+v", e, s.ended)
	}
	g := segs[len(segs)-1]
	t := g.Terminate
	if t.Error != e {
		s.t.Errorf("Terminate %v, want %v", t.Error, e)
	}
	if g.Untagged != (wire.Untagged{QN: wire.QueueTerminate, MSN: 1}) || !g.Control.Last || len(g.Payload) != 0 || t.Reserved != 0 {
		s.t.Errorf("Terminate %+v", g)
	}
	if len(s.ended) != 1 || s.ended[0].Error != e || !s.ended[0].Terminate {
		s.t.Errorf("Ended was called with %+v", s.ended)
	}
	if invalid == nil {
		if t.HasLength || t.HasDDP || t.HasRDMAP {
			s.t.Errorf("Terminate shows a header: %+v", t)
		}
		return t
	}
	if !t.HasLength || !t.HasDDP || int(t.SegmentLength) != len(invalid.Append(nil)) || t.DDP != invalid.Header {
		s.t.Errorf("Terminate shows %+v of %d octets,\nwant %+v of %d", t.DDP, t.SegmentLength, invalid.Header, len(invalid.Append(nil)))
	}
	return t
}

// wantAlive checks that the stream has not ended.
func (s *side) wantAlive() {
	s.t.Helper()
	if !s.stream.Live() || len(s.ended) > 0 {
		s.t.Fatalf("the stream ended: %+v", s.ended)
	}
}

// wantReceived checks the receive completions by id and length.
func (s *side) wantReceived(want ...string) {
	s.t.Helper()
	var got []string
	for _, c := range s.received {
		if c.Status != verbs.WCSuccess {
			got = append(got, fmt.Sprintf("%d %v", c.WRID, c.Status))
			continue
		}
		got = append(got, fmt.Sprintf("%d:%d", c.WRID, c.ByteLen))
	}
	if !slices.Equal(got, want) {
		s.t.Errorf("receives %q, want %q", got, want)
	}
}

// wantSends checks the send completions by id, those in error with their status.
func (s *side) wantSends(want ...string) {
	s.t.Helper()
	var got []string
	for _, c := range s.sends {
		if c.Status != verbs.WCSuccess {
			got = append(got, fmt.Sprintf("%d %v", c.WRID, c.Status))
			continue
		}
		got = append(got, fmt.Sprint(c.WRID))
	}
	if !slices.Equal(got, want) {
		s.t.Errorf("sends %q, want %q", got, want)
	}
}

// pattern fills b with octets that depend on their offset.
func pattern(b []byte, seed byte) []byte {
	for i := range b {
		b[i] = byte(i)*7 + byte(i>>8) + seed
	}
	return b
}

// depth are the options of most tests.
var depth = Options{IRD: 4, ORD: 4}
