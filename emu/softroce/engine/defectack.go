package engine

import (
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// What requesters make of answers that they misunderstand.

// passFor gives an answer that is older than all that is outstanding the PSN that
// the oldest request of its kind waits for, and returns it
// (Defects.OldAnswerCompletes).
func (q *QP) passFor(p *wire.Packet) wire.PSN {
	op := p.BTH.Opcode.Operation()
	for i := q.sq.head; i != q.sq.tail; i++ {
		w := q.sq.at(i)
		switch {
		case w.state != wqeSent:
		case w.awaits(op):
			p.BTH.PSN = w.first.Add(w.answered)
			return p.BTH.PSN
		case op == wire.OpAcknowledge && !w.readLike() && q.sentWhole(w):
			p.BTH.PSN = w.last
			return p.BTH.PSN
		}
	}
	return p.BTH.PSN
}

// heedStale acts on a NAK for what was acknowledged as if it were for the oldest
// packet that was not (Defects.StaleNAKRepeats, StaleRNRWaits).
func (q *QP) heedStale(now mono.Time, s wire.Syndrome) {
	r := &q.req
	switch {
	case q.nic.q.StaleNAKRepeats && s == wire.Nak(wire.NakPSNSequence) && r.outstanding():
		q.resend(r.una)
	case q.nic.q.StaleRNRWaits && s.Kind() == wire.SyndromeRNR:
		q.rewind(r.una)
		r.rnrUntil = now.Add(q.rnrDelay(s.Value()))
	}
}

// toStart gives up what was acknowledged of the message that psn is inside of, and
// returns the PSN of its first packet (Defects.RNRInsideRestarts).
func (q *QP) toStart(psn wire.PSN) wire.PSN {
	w := q.find(psn)
	if w == nil || w.readLike() {
		return psn
	}
	if q.req.una.Sub(w.first) > 0 {
		q.req.una = w.first
	}
	return w.first
}

// sentWhole reports whether all of a request has left.
func (q *QP) sentWhole(w *sendWQE) bool { return q.req.flight(w.last) < q.req.flight(q.req.max) }

// takePlainAck completes what an ACK covers: all up to its PSN, on a sound NIC.
func (q *QP) takePlainAck(now mono.Time, psn wire.PSN) {
	switch {
	case q.nic.q.AckCoversOne:
		q.acknowledgeOne(now, psn)
		return
	case q.nic.q.AckInsideCompletes:
		if w := q.find(psn); w != nil && !w.readLike() && q.sentWhole(w) {
			psn = w.last
		}
	case q.nic.q.CompletionsOvertake:
		q.completeAhead(psn)
	}
	q.req.plainAck = q.nic.q.AckCompletesRead
	q.acknowledge(now, psn, false)
	q.req.plainAck = false
}

// exceeds reports whether an answer to a READ brings more than is left of it, which
// ends even what Defects.BadRespSucceeds believes: there is no memory to place it in.
func (q *QP) exceeds(w *sendWQE, p *wire.Packet, op wire.Operation) bool {
	if !q.nic.q.BadRespSucceeds || w.Op != verbs.OpRDMARead || op == wire.OpReadResponseMiddle {
		return false
	}
	return uint32(len(p.Payload)) > w.Length-uint32(w.answered)*uint32(q.mtu)
}

// acknowledgeOne takes an ACK for the one request that it names. What is named
// completes when those before it have been named too.
func (q *QP) acknowledgeOne(now mono.Time, psn wire.PSN) {
	named, oldest := q.find(psn), q.find(q.req.una)
	if named == nil || named.last != psn {
		if named == oldest {
			q.acknowledge(now, psn, false)
		}
		return
	}
	named.named = true
	for w := oldest; w != nil && w.named && q.acknowledge(now, w.last, false); {
		w = q.find(q.req.una)
	}
}

// completeAhead completes the SENDs and WRITEs that psn acknowledges though READs
// before them are unanswered.
func (q *QP) completeAhead(psn wire.PSN) {
	reads := false
	for i := q.sq.head; i != q.sq.tail; i++ {
		switch w := q.sq.at(i); {
		case w.state != wqeSent:
		case psn.Sub(w.last) < 0:
			return
		case w.readLike():
			reads = true
		case reads && !w.told:
			w.told = true
			if wc := w.Completion(verbs.WCSuccess, verbs.QPN(q.num)); w.Signaled() && !q.sendCQ.Push(&wc, false) {
				q.fail()
				return
			}
		}
	}
}

// takeRefusal ends the request that a fatal NAK is for, and on a sound NIC the QP.
func (q *QP) takeRefusal(now mono.Time, psn wire.PSN, status verbs.WCStatus) {
	w := q.find(psn)
	switch {
	case w == nil:
	case q.nic.q.NAKInReadSucceeds && w.Op == verbs.OpRDMARead && psn != w.first:
		q.believe(psn)
	case q.nic.q.NAKKeepsRTS && q.sentWhole(w):
		w.status = status
		q.acknowledge(now, w.last, true)
	default:
		q.refused(psn, status)
	}
}

// spill writes what a READ response has too much to the memory behind the READ's,
// as far as its region reaches (Defects.LongReadOverflows).
func (q *QP) spill(w *sendWQE, rest []byte) {
	if len(w.SGL) == 0 {
		return
	}
	s := &w.SGL[len(w.SGL)-1]
	for ; len(rest) > 0; rest = rest[:len(rest)-1] {
		mem, at, err := q.nic.Mem.Local(s.LKey, q.pd, s.Addr+uint64(s.Length), uint64(len(rest)), verbs.AccessLocalWrite)
		if err == nil {
			_ = mem.WriteAt(rest, at) // nobody waits for it
			return
		}
	}
}

// restartMessage begins the request that is to be sent again with its first packet
// at the PSN where the sound NIC would go on, and moves all behind it
// (Defects.RetryRestartsMessage).
func (q *QP) restartMessage() {
	r := &q.req
	shift := r.pkt
	r.pkt = 0
	for i := r.cur; i != q.sq.tail; i++ {
		if w := q.sq.at(i); w.state == wqeSent {
			w.first, w.last = w.first.Add(shift), w.last.Add(shift)
		}
	}
}
