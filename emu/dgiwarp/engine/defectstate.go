package engine

import (
	"net/netip"
	"slices"

	"github.com/fabrictest/fabrictest/emu/internal/iwarp"
	"github.com/fabrictest/fabrictest/emu/internal/queue"
	"github.com/fabrictest/fabrictest/emu/mono"
	ddp "github.com/fabrictest/fabrictest/emu/softiwarp/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// defects is what a NIC with defects remembers that a sound one does not need to.
type defects struct {
	held       map[*QP][]*request         // UDWaitsForPeer
	trusted    map[trust]struct{}         // FirstSegmentChecked
	reserved   []reservation              // ReceiveTakenWrong on UD
	early      map[*half][][]byte         // and on RD
	exchanges  []*exchange                // UDReads
	reads      queue.FIFO[readPacket]     // that are to leave
	turns      map[*QP]*turns             // PeersWait
	assembling map[*QP]*half              // SourcesMixed on RD
	lost       map[*half]*lostSends       // BusyAcknowledges
	origins    map[*peer]queue.FIFO[bool] // Flows.NoWindow
}

func newDefects() *defects {
	return &defects{
		held: map[*QP][]*request{}, trusted: map[trust]struct{}{}, early: map[*half][][]byte{}, turns: map[*QP]*turns{},
		assembling: map[*QP]*half{}, lost: map[*half]*lostSends{}, origins: map[*peer]queue.FIFO[bool]{},
	}
}

// forget drops what is known of a QP that begins anew.
func (f *defects) forget(q *QP) {
	delete(f.held, q)
	delete(f.turns, q)
	delete(f.assembling, q)
	f.exchanges = slices.DeleteFunc(f.exchanges, func(x *exchange) bool { return x.qp == q })
}

// begins drops what is known of a flow in the place of which another begins.
func (f *defects) begins(h *half) {
	delete(f.early, h)
	delete(f.lost, h)
}

// failed reports whether the QP is in Error, and behaves like that.
func (q *QP) failed() bool { return q.state == verbs.QPStateErr && !q.nic.cfg.Defects.ErrorQPGoesOn }

// sends reports whether requests may leave.
func (q *QP) sends() bool {
	return q.state == verbs.QPStateRTS || q.state == verbs.QPStateErr && q.nic.cfg.Defects.ErrorQPGoesOn
}

// tellSource fills an address area; with zeros by SourceLost.
func (n *NIC) tellSource(s *source, area *[verbs.GRHLen]byte, length int) {
	if n.cfg.Defects.SourceLost {
		*area = [verbs.GRHLen]byte{}
		return
	}
	s.fill(area, length)
}

// back is the way to where a packet came from: from the NIC's own address, if it
// came under that of a group (GroupAnswered).
func (n *NIC) back(s *source) path {
	p := s.back()
	if isGroup(p.src.Addr()) {
		p.src = netip.AddrPortFrom(n.sourceAddr(p.dst.Addr()), n.cfg.Port)
	}
	return p
}

// streamOptions is how many reads and atomics may be under way with a peer.
func (n *NIC) streamOptions() iwarp.Options {
	if n.cfg.Defects.ReadsUnlimited {
		return iwarp.Options{IRD: manyReads, ORD: manyReads}
	}
	return iwarp.Options{IRD: n.cfg.Reads, ORD: n.cfg.Reads}
}

// turns (PeersWait) is the order in which the requests of a QP were posted, and how
// those ended that may not say so yet.
type turns struct {
	order queue.FIFO[uint32]
	ended map[uint32]verbs.WCStatus
}

func (f *defects) posted(q *QP, place uint32) {
	if f.turns[q] == nil {
		f.turns[q] = &turns{ended: map[uint32]verbs.WCStatus{}}
	}
	f.turns[q].order.Push(place)
}

// completeInTurn is complete, but for what waits for earlier requests.
func (q *QP) completeInTurn(r *request, status verbs.WCStatus) {
	t := q.nic.defects.turns[q]
	t.ended[r.place] = status
	for t.order.Len() > 0 {
		place := *t.order.First()
		status, ok := t.ended[place]
		if !ok {
			return
		}
		t.order.Pop()
		delete(t.ended, place)
		q.tell(&q.work[place], status)
		q.free = append(q.free, place)
	}
}

// hold (UDWaitsForPeer) keeps a request that has left until its destination says
// something.
func (q *QP) hold(r *request) { q.nic.defects.held[q] = append(q.nic.defects.held[q], r) }

// heard completes what waits for a packet of src.
func (n *NIC) heard(src netip.AddrPort) {
	src = netip.AddrPortFrom(src.Addr().Unmap(), src.Port())
	for q := range n.QPs() {
		waiting := n.defects.held[q]
		n.defects.held[q] = nil
		for _, r := range waiting {
			if r.path.dst == src {
				q.complete(r, verbs.WCSuccess)
			} else {
				q.hold(r)
			}
		}
	}
}

// flushHeld fails what waits.
func (q *QP) flushHeld() {
	waiting := q.nic.defects.held[q]
	delete(q.nic.defects.held, q)
	for _, r := range waiting {
		q.complete(r, verbs.WCWRFlushErr)
	}
}

// blamed reports whether a request ended as one that the peer has found wrong.
func blamed(s verbs.WCStatus) bool {
	return s == verbs.WCRemAccessErr || s == verbs.WCRemInvReqErr || s == verbs.WCRemOpErr
}

// reservation (ReceiveTakenWrong) is a receive that a message took when it began.
// Which one it is makes no difference: as many as are reserved are not to be had.
type reservation struct {
	key   messageKey
	until mono.Time
}

// reserve takes a receive for a message that begins, if one is left.
func (n *NIC) reserve(m *message) {
	if !n.allTaken(m.key.qp) {
		n.defects.reserved = append(n.defects.reserved, reservation{m.key, m.until})
	}
}

func (f *defects) unreserve(m *message) {
	f.reserved = slices.DeleteFunc(f.reserved, func(r reservation) bool { return r.key == m.key })
}

// allTaken reports whether every receive of a QP is reserved.
func (n *NIC) allTaken(q *QP) bool {
	f, count := n.defects, 0
	f.reserved = slices.DeleteFunc(f.reserved, func(r reservation) bool { return r.until <= n.clock })
	for _, r := range f.reserved {
		if r.key.qp == q {
			count++
		}
	}
	return count >= q.receivesLeft()
}

// trust (FirstSegmentChecked) is an STag that a source has used well.
type trust struct {
	src   netip.AddrPort
	srcQP uint32
	stag  ddp.STag
}
