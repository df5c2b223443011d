package engine

import (
	"errors"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/rd"
	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	"github.com/fabrictest/fabrictest/emu/internal/iwarp"
	"github.com/fabrictest/fabrictest/emu/mono"
	ddp "github.com/fabrictest/fabrictest/emu/softiwarp/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// peer is what an RD QP knows of another, above the flows between them. Two
// halves are made when they are needed: what this side asks of the other, and
// what the other asks of this one. Each is a stream of its own, whose requests
// travel in one flow and whose answers travel in the other. So a flow can begin
// anew without disturbing the requests in the opposite direction.
type peer struct {
	qp    *QP
	rd    *rd.Peer
	asks  *half
	serve *half

	// Requests to the peer, in order: those before waiting are in the stream of
	// asks, the others wait for that to be ready again.
	first, waiting, last *request
	origin               origins
	path                 path
	queued               bool // in NIC.speaking
}

// half is one of the two streams with a peer.
type half struct {
	stream iwarp.Stream
	peer   *peer
	flow   wire.Epoch         // that it was opened for (asks)
	cause  verbs.WCStatus     // what the first request that is flushed fails with
	held   iwarp.Receive      // what the message under way fills (serve)
	from   source             // where that comes from (serve)
	area   [verbs.GRHLen]byte // what its receive begins with: from, once filled
	filled bool
}

// origins remembers which half each segment on its way belongs to, in order: as
// many as a flow has under way.
type origins struct {
	bits [wire.Window / 64]uint64
	head uint8 // wraps with the ring
	tail uint8
}

func (o *origins) push(serve bool) {
	mask := uint64(1) << (o.tail % 64)
	if serve {
		o.bits[o.tail/64] |= mask
	} else {
		o.bits[o.tail/64] &^= mask
	}
	o.tail++
}

func (o *origins) pop() (serve bool) {
	serve = o.bits[o.head/64]>>(o.head%64)&1 != 0
	o.head++
	return serve
}

// peerOf returns the peer behind an rd.Peer.
func (n *NIC) peerOf(r *rd.Peer) *peer {
	if p, ok := r.Owner.(*peer); ok {
		return p
	}
	q := n.qps.At(r.Key.Local)
	p := &peer{qp: q, rd: r}
	r.Owner = p
	return p
}

// distribute hands the requests of an RD QP to the peers that they are for.
func (q *QP) distribute(now mono.Time) {
	for q.sends() {
		place, ok := q.pending.Pop()
		if !ok {
			return
		}
		r := &q.work[place]
		if r.Op == verbs.OpLocalInv || r.Op == verbs.OpBindMW {
			q.doLocally(r)
			continue
		}
		key := rd.Key{Remote: r.path.dst, Local: q.num, RemoteQP: r.qpn}
		rp, err := q.nic.rd.Peer(now, key, q.attr.QKey, r.qkey)
		if err != nil {
			// Too many peers: this one cannot be reached now.
			q.complete(r, verbs.WCRetryExcErr)
			continue
		}
		p := q.nic.peerOf(rp)
		p.path = r.path
		p.post(now, r)
	}
}

// post queues a request at the requester half of the peer, or holds it until that half can
// be opened again.
func (p *peer) post(now mono.Time, r *request) {
	if p.asks == nil {
		p.asks = &half{peer: p}
	}
	ready := p.ready(now)
	if p.qp.state == verbs.QPStateErr {
		p.qp.complete(r, verbs.WCWRFlushErr) // ready has failed requests, and the CQ was full
		return
	}
	if p.last == nil {
		p.first = r
	} else {
		p.last.next = r
	}
	p.last = r
	if p.waiting == nil {
		p.waiting = r
	}
	if ready { // earlier requests go first
		p.retry(now)
	}
}

// oldest takes the oldest request off the list.
func (p *peer) oldest() *request {
	r := p.first
	if p.first = r.next; p.first == nil {
		p.last = nil
	}
	r.next = nil
	return r
}

// ready makes the half that asks usable, if it can be now: not while something of
// a stream that has ended is on its way in the flow, which must end with it.
func (p *peer) ready(now mono.Time) bool {
	h, q := p.asks, p.qp
	if h.flow == p.rd.Epoch() && h.flow != 0 {
		if h.stream.Live() {
			return true
		}
		if !h.stream.Quiet() || p.serve != nil && !p.serve.stream.Quiet() {
			return false
		}
		p.rd.End()
	}
	// The flow that it was in is gone, and so are answers that had not come.
	h.fail(verbs.WCRetryExcErr)
	if rp, err := q.nic.rd.Peer(now, p.rd.Key, q.attr.QKey, p.rd.TheirKey()); err != nil || rp != p.rd {
		panic("engine: a peer is not the one of its own key")
	}
	h.flow = p.rd.Epoch()
	h.stream.Open(&q.endpoint, h, q.nic.streamOptions())
	return true
}

// streamOptions is how many reads and atomics may be under way with a peer.
func (n *NIC) streamOptions() iwarp.Options {
	return iwarp.Options{IRD: n.cfg.Reads, ORD: n.cfg.Reads}
}

// fail ends a half whose flow is gone. Its oldest request fails with status.
func (h *half) fail(status verbs.WCStatus) {
	h.cause = status
	h.stream.Fail(ddp.TermMPAClosed, false)
	h.stream, h.flow, h.cause = iwarp.Stream{}, 0, verbs.WCSuccess
}

// retry posts what waited, if that is possible now.
func (p *peer) retry(now mono.Time) {
	for p.waiting != nil && p.ready(now) {
		r := p.waiting
		if r == nil {
			return // ready has failed requests, the CQ was full, and the QP has failed
		}
		p.waiting = r.next
		p.asks.stream.Post(&r.Request)
		p.speak()
	}
}

// speak has feed look at the peer.
func (p *peer) speak() {
	if !p.queued {
		p.queued = true
		p.qp.nic.speaking.Push(p)
	}
}

// failPeers ends all that an RD QP has under way: it is in Error. Flows stay, so
// that what was sent, error messages above all, arrives.
func (n *NIC) failPeers(q *QP) {
	for _, r := range n.rd.PeersOf(q.num) {
		p, ok := r.Owner.(*peer)
		if !ok {
			continue
		}
		if p.asks != nil {
			p.asks.stream.Fail(ddp.TermRDMAPLocal, false)
		}
		p.flushWaiting()
		if p.serve != nil {
			p.serve.stream.Fail(ddp.TermRDMAPLocal, false)
		}
	}
}

// flushWaiting fails the requests that wait. Those before them stay: the stream may
// be in the middle of failing them.
func (p *peer) flushWaiting() {
	waiting := p.waiting
	if p.waiting = nil; waiting == nil {
		return
	}
	if p.first == waiting {
		p.first, p.last = nil, nil
	} else {
		for p.last = p.first; p.last.next != waiting; {
			p.last = p.last.next
		}
		p.last.next = nil
	}
	for r := waiting; r != nil; r = waiting {
		waiting, r.next = r.next, nil
		p.qp.complete(r, verbs.WCWRFlushErr)
	}
}

// failed is how requests end when a flow fails.
func failed(err error) verbs.WCStatus {
	if errors.Is(err, rd.ErrBusy) {
		return verbs.WCRNRRetryExcErr
	}
	return verbs.WCRetryExcErr
}
