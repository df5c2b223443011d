package engine

import (
	"errors"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/rd"
	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	"github.com/fabrictest/fabrictest/emu/iwarp"
	ddp "github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/verbs"
)

// peer is the state of an RD QP for one remote QP. It has two streams, opened when needed:
// requester for requests of this side, responder for requests of the remote side. Requests and
// their responses travel in opposite flows, so that one flow can restart without disturbing
// the requests in the other direction.
type peer struct {
	qp        *QP
	rd        *rd.Peer
	requester *peerStream
	responder *peerStream

	// Requests to the peer, in order. Those before waiting are posted to the requester stream;
	// the others wait until it is usable again.
	first, waiting, last *request
	origin               origins
	path                 path
	queued               bool // in NIC.withOutput
}

// peerStream is one of the two streams of a peer.
type peerStream struct {
	stream iwarp.Stream
	peer   *peer
	epoch  wire.Epoch     // of the flow of the requester stream; 0 without one
	cause  verbs.WCStatus // error status of the first flushed request
	recv   iwarp.Receive  // receive of the current message (responder)
	from   source         // source of that message (responder)
	full   []verbs.SGE    // SGL of that receive, with the octets before the message
	first  source         // source of the first segment of that message
}

// origins is a FIFO of bits that records for each unacknowledged segment whether the responder
// stream sent it, or else the requester stream.
type origins struct {
	bits [wire.Window / 64]uint64
	head uint8 // wraps with the ring, of 256 bits
	tail uint8
}

// push records which stream a sent segment is from: the responder or the requester. The ring has a
// bit for each segment of the window, and the uint8 tail wraps at its end.
func (o *origins) push(byResponder bool) {
	mask := uint64(1) << (o.tail % 64)
	if byResponder {
		o.bits[o.tail/64] |= mask
	} else {
		o.bits[o.tail/64] &^= mask
	}
	o.tail++
}

// pop removes the oldest segment, and reports whether it is from the responder.
func (o *origins) pop() (byResponder bool) {
	byResponder = o.bits[o.head/64]>>(o.head%64)&1 != 0
	o.head++
	return byResponder
}

// peerOf returns the engine's state for a peer of the reliable layer, and creates it if necessary.
func (n *NIC) peerOf(r *rd.Peer) *peer {
	if p, ok := r.Owner.(*peer); ok {
		return p
	}
	q := n.qps.At(r.Key.LocalQP)
	p := &peer{qp: q, rd: r}
	r.Owner = p
	return p
}

// distribute passes the pending requests of an RD QP to their peers, and executes local requests.
func (q *QP) distribute(now mono.Time) {
	for q.maySend() {
		slot, ok := q.pending.Pop()
		if !ok {
			return
		}
		r := &q.work[slot]
		if r.Op == verbs.OpLocalInv || r.Op == verbs.OpBindMW {
			q.executeLocal(r)
			continue
		}
		key := rd.Key{RemoteAddr: r.path.dst, LocalQP: q.QPN, RemoteQP: r.qpn}
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

// post posts a request to the requester stream, or queues it until the stream can be opened again.
func (p *peer) post(now mono.Time, r *request) {
	if p.requester == nil {
		p.requester = &peerStream{peer: p}
	}
	ready := p.ready(now)
	if p.qp.state == verbs.QPStateErr {
		p.qp.complete(r, verbs.WCWRFlushErr) // ready failed older requests, and their completions overflowed the CQ
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

// popOldest removes and returns the oldest request.
func (p *peer) popOldest() *request {
	r := p.first
	if p.first = r.next; p.first == nil {
		p.last = nil
	}
	r.next = nil
	return r
}

// ready opens the requester stream if necessary, and reports whether it is usable. The stream
// cannot be reopened while the flow still carries segments of a stream that has ended. Each flow to
// the peer has an epoch; 0 means none.
func (p *peer) ready(now mono.Time) bool {
	h, q := p.requester, p.qp
	if h.epoch == p.rd.Epoch() && h.epoch != 0 {
		if h.stream.Live() {
			return true
		}
		if !h.stream.Idle() || p.responder != nil && !p.responder.stream.Idle() {
			return false
		}
		p.rd.End()
	}
	// The old flow is gone, and with it the missing responses.
	h.fail(verbs.WCRetryExcErr)
	if rp, err := q.nic.rd.Peer(now, p.rd.Key, q.attr.QKey, p.rd.TheirKey()); err != nil || rp != p.rd {
		panic("engine: a peer is not the one of its own key")
	}
	h.epoch = p.rd.Epoch()
	h.stream.Open(&q.Endpoint, h, q.nic.streamOptions())
	return true
}

// streamOptions returns the read depths of RD streams.
func (n *NIC) streamOptions() iwarp.Options {
	return iwarp.Options{IRD: n.cfg.Reads, ORD: n.cfg.Reads}
}

const noTerminate = false // argument of iwarp.Stream.Fail

// fail resets a stream whose flow is gone. The oldest request fails with status, which Completed
// takes from h.cause, and the later requests are flushed.
func (h *peerStream) fail(status verbs.WCStatus) {
	h.cause = status
	h.stream.Fail(ddp.TermMPAClosed, noTerminate)
	h.stream, h.epoch, h.cause = iwarp.Stream{}, 0, verbs.WCSuccess
}

// retry posts waiting requests to the requester stream while it is usable.
func (p *peer) retry(now mono.Time) {
	for p.waiting != nil && p.ready(now) {
		r := p.waiting
		if r == nil {
			return // flushed: ready failed older requests, whose completions overflowed the CQ; the QP failed
		}
		p.waiting = r.next
		p.requester.stream.Post(&r.Request)
		p.queueOutput()
	}
}

// queueOutput queues the peer for fillFlows.
func (p *peer) queueOutput() {
	if !p.queued {
		p.queued = true
		p.qp.nic.withOutput.Push(p)
	}
}

// failPeers ends the streams of an RD QP that enters ERR. Flows stay open, so that segments
// that were sent, in particular error messages, arrive.
func (n *NIC) failPeers(q *QP) {
	for _, r := range n.rd.PeersOf(q.QPN) {
		p, ok := r.Owner.(*peer)
		if !ok {
			continue
		}
		if p.requester != nil {
			p.requester.stream.Fail(ddp.TermRDMAPLocal, noTerminate)
		}
		p.flushWaiting()
		if p.responder != nil {
			p.responder.stream.Fail(ddp.TermRDMAPLocal, noTerminate)
		}
	}
}

// flushWaiting completes the requests that wait for the requester stream with WCWRFlushErr. The
// requests before them have been posted to the stream, whose Fail flushes them.
func (p *peer) flushWaiting() {
	waiting := p.waiting
	if waiting == nil {
		return
	}
	p.waiting = nil
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

// flowStatus returns the completion status for the error of a flow. ErrBusy: the peer had no
// receive for too long.
func flowStatus(err error) verbs.WCStatus {
	if errors.Is(err, rd.ErrBusy) {
		return verbs.WCRNRRetryExcErr
	}
	return verbs.WCRetryExcErr
}
