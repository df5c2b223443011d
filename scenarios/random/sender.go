package random

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// sender posts the requests of a connection and checks their completions.
type sender struct {
	direction
	requestState
	sendBuffers

	image      []byte // expected memory of the peer after the posted requests; nil if requests do not access memory
	spareKey   verbs.RKey
	spareBound bool // the spare window is bound, according to completions
	pacer
}

// requestState is how far the requests of a connection have come.
type requestState struct {
	posted          int
	completedBefore int // requests before it have completed
	succeeded       int // completed with success
	bytes           int64
	failStatus      verbs.WCStatus // completion status that ended the connection
	qpFailed        bool           // no more requests are posted
	// flushing is set by the first completion with an error: all later ones must be flushed.
	// qpFailed may be set earlier, while the queue holds successful completions.
	flushing     bool
	drainPending bool // the drain marker has not completed
}

// sendBuffers is the memory of the requests of a connection, in slots, and of their lists.
type sendBuffers struct {
	mr      verbs.MR
	buf     []byte
	size    int      // of a slot
	wants   [][]byte // expected data of the read in each slot
	wrs     []verbs.SendWR
	sges    []verbs.SGE
	pieces  []piece
	scratch []byte
	inline  []byte
}

// open plans the requests and registers their memory.
func (s *sender) open(c *conn) (err error) {
	e, spec := c.end, c.spec
	s.direction = direction{c, newPlan(e.w, c.index, e.side), e.side}
	if spec.Service.Reliable() {
		s.image = initialTarget(e.w, c.index, e.side.Peer())
	}
	maxLen := max(spec.MaxBytes, 8) // an atomic has 8 bytes
	s.size = slotLen(maxLen, spec.MaxSGE)
	s.buf = make([]byte, spec.SendDepth*s.size)
	s.wants = make([][]byte, spec.SendDepth)
	s.scratch = make([]byte, maxLen)
	s.pacer = pacer{pacing: spec.SendPacing, rng: newRand(traffic.Derive(s.plan.key, keyPacing))}
	s.mr, err = e.PD.RegMR(verbs.MRInit{Buf: s.buf, Access: verbs.AccessLocalWrite})
	return err
}

// complete reports whether all requests that will ever be posted have completed.
func (s *sender) complete() bool {
	return s.completedBefore == s.posted && !s.drainPending && (s.qpFailed || s.posted == len(s.plan.ops))
}

// status describes the requests that have not completed; empty if there are none.
func (s *sender) status() string {
	if s.complete() {
		return ""
	}
	next := s.completedBefore
	if next == len(s.plan.ops) {
		return fmt.Sprintf("%d requests completed, the drain marker is not flushed", next)
	}
	return fmt.Sprintf("%d of %d requests posted, %d completed, next to complete %d (%v)",
		s.posted, len(s.plan.ops), s.completedBefore, next, &s.plan.ops[next])
}

// slot returns the number and the offset of the send buffer's slot for request n.
func (s *sender) slot(n int) (index, base int) {
	index = n % s.conn.spec.SendDepth
	return index, index * s.size
}

// space returns how many requests may be posted now; 0 after the queue pair has failed.
func (s *sender) space() int {
	if s.qpFailed {
		return 0
	}
	return min(len(s.plan.ops)-s.posted, s.conn.spec.SendDepth-(s.posted-s.completedBefore))
}

// post posts the next requests if the pacing permits, and reports whether it posted any.
func (s *sender) post(now time.Duration) (bool, error) {
	n := s.allowed(now, s.space())
	if n == 0 {
		return false, nil
	}
	s.wrs, s.sges, s.inline = s.wrs[:0], s.sges[:0], s.inline[:0]
	for range n {
		s.wrs = append(s.wrs, s.prepare(s.posted))
		s.posted++
	}
	if got, err := s.conn.QP.PostSend(s.wrs); err != nil {
		return false, fmt.Errorf("%s: %w", s.describe(s.posted-n+got), err)
	}
	// The caller may reuse inline data: changing it detects a device that reads it later.
	poisonSlot(s.inline)
	return true, nil
}

// prepare returns work request n, and applies it to image, the expected memory of the peer.
func (s *sender) prepare(n int) verbs.SendWR {
	o := &s.plan.ops[n]
	c := s.conn
	wr := verbs.SendWR{WRID: uint64(c.index)<<connShift | uint64(n), Opcode: o.code, Flags: o.flags, Imm: o.imm}
	c.end.trace("connection %d posts %d: %v", c.index, n, o)
	switch {
	case o.returnsData():
		s.prepareFetch(n, &wr)
	case o.local():
		s.prepareLocal(&wr)
	default:
		s.prepareData(n, &wr)
	}
	switch {
	case o.shared:
		wr.Remote = c.end.peer.Words.atOffset(8 * o.at)
		if o.code == verbs.OpAtomicCmpAndSwp { // it succeeds if no other connection was faster
			o.operand = c.end.words.last[o.at]
		}
	case o.window != noWindow && o.code != verbs.OpSendInv:
		start, _ := windowExtent(c.spec, int(o.window))
		wr.Remote = s.peer().Windows[o.window].atOffset(o.at - start)
	case !o.takesReceive() || o.code == verbs.OpRDMAWriteImm: // local requests ignore Remote
		wr.Remote = s.peer().Target.atOffset(o.at)
	case o.code == verbs.OpSendInv:
		wr.InvalidateRKey = s.peer().Windows[o.window].RKey
	}
	wr.Atomic = verbs.Atomic{CompareAdd: o.operand, Swap: o.swap}
	switch c.spec.Service {
	case UD, RD:
		wr.UD = verbs.UD{AH: c.AH, QPN: s.peer().QPN, QKey: c.qkey}
	case XRC:
		wr.XRC.SRQN = s.peer().SRQNs[o.queue]
	}
	if s.image != nil {
		s.plan.apply(n, s.image)
	}
	return wr
}

// peer returns what the peer has told about its end of the connection.
func (s *sender) peer() *connInfo { return &s.conn.end.peer.Conns[s.conn.index] }

// prepareData puts the payload into a slot or, for a random half of the payloads that fit, inline.
// A FLUSH has no payload, only the length of its range.
func (s *sender) prepareData(n int, wr *verbs.SendWR) {
	o := &s.plan.ops[n]
	if o.code == verbs.OpFlush {
		wr.Flush = verbs.Flush{Length: uint32(o.size), Type: verbs.FlushGlobal, Level: verbs.FlushRange}
		return
	}
	msg := s.scratch[:o.size]
	s.plan.fillPayload(n, msg)
	if !s.conn.spec.Service.Reliable() && (o.code == verbs.OpSend || o.code == verbs.OpSendImm) {
		stamp(msg, s.plan.key, n)
	}
	seed := traffic.Derive(s.plan.key, keyPieces, uint64(n))
	if len(msg) <= s.conn.spec.MaxInline && seed&1 == 0 {
		from := len(s.inline)
		s.inline = append(s.inline, msg...)
		wr.Flags |= verbs.SendInline
		wr.Inline = s.inline[from:len(s.inline):len(s.inline)]
		return
	}
	_, base := s.slot(n)
	s.pieces = split(s.pieces[:0], seed, len(msg), s.conn.spec.MaxSGE)
	scatter(s.buf[base:base+s.size], msg, s.pieces)
	s.setSGL(wr, base)
}

// setSGL sets the scatter/gather list of wr to the current pieces of the slot at offset base.
func (s *sender) setSGL(wr *verbs.SendWR, base int) {
	from := len(s.sges)
	s.sges = sgl(s.sges, s.mr, base, s.pieces)
	wr.SGL = s.sges[from:len(s.sges):len(s.sges)]
}

// prepareFetch prepares the slot of a read or atomic, and its expected result. Other connections
// change a shared word (o.shared), so that its result cannot be predicted.
func (s *sender) prepareFetch(n int, wr *verbs.SendWR) {
	o := &s.plan.ops[n]
	index, base := s.slot(n)
	poisonSlot(s.buf[base : base+s.size])
	want := s.wants[index][:0]
	switch {
	case o.code == verbs.OpRDMARead:
		want = append(want, s.image[o.at:o.at+o.size]...)
	case !o.shared:
		want = append(want, s.image[o.at:o.at+8]...)
	}
	s.wants[index] = want
	s.pieces = s.fetchPieces(n)
	s.setSGL(wr, base)
}

// fetchPieces returns the pieces for the result of a read, or the only piece for that of an atomic.
func (s *sender) fetchPieces(n int) []piece {
	o, maxPieces := &s.plan.ops[n], s.conn.spec.MaxSGE
	if o.atomic() {
		maxPieces = 1
	}
	return split(s.pieces[:0], traffic.Derive(s.plan.key, keyPieces, uint64(n)), o.size, maxPieces)
}

// prepareLocal sets wr to bind or invalidate the spare window, by its opcode.
func (s *sender) prepareLocal(wr *verbs.SendWR) {
	c := s.conn
	if wr.Opcode == verbs.OpLocalInv {
		wr.InvalidateRKey = s.spareKey
		return
	}
	s.spareKey = verbs.NextRKey(s.spareKey)
	wr.Bind = verbs.Bind{MW: c.spareWindow, RKey: s.spareKey, Info: verbs.BindInfo{
		MR: c.memory, Addr: c.memory.Addr(), Length: uint64(c.memory.Len()), Access: verbs.AccessRemoteRead,
	}}
}
