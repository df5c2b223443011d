package p2p

import (
	"github.com/fabrictest/fabrictest/explore"
	"github.com/fabrictest/fabrictest/mpi/wire"
)

// Fingerprint implements explore.Machine. Ids, addresses and the time are omitted or replaced by
// act numbers.
func (m *machine) Fingerprint() [16]byte {
	b := appendInts(m.scratch[:0], m.dead)
	for rank, n := range m.w.ranks {
		b = appendInts(b, '|', m.pc[rank], bit(m.dead >= 0 && m.noticed(rank)), len(m.arrivedFrom[rank]))
		b = appendInts(b, m.arrivedFrom[rank]...)
		for i, q := range m.reqs[rank] {
			b = m.appendRequest(b, q)
			if msg := m.mprobed[rank][i]; msg != nil && msg.unexpected != nil { // not received
				b = m.appendHeader(append(b, 'm'), msg.unexpected.peer, rank, &msg.unexpected.header)
				b = append(appendInts(b, msg.unexpected.peer, bit(msg.unexpected.rtsAcked)), msg.unexpected.data...)
			}
		}
		for peer := range m.w.ranks {
			for tag := range int32(maxTag) {
				b = m.appendEnvelope(b, rank, Envelope{Source: int32(peer), Tag: tag})
				for q := n.e.advertised.Match(Envelope{Source: int32(peer), Tag: tag}); q != nil; q = q.next() {
					b = m.appendHeader(append(b, 'a'), peer, rank, &q.Value.header)
				}
			}
			for _, l := range n.outgoing[peer] {
				b = m.appendHeader(append(b, 'w'), rank, peer, &l.h)
				b = append(b, l.data...)
			}
		}
		// Transfers in the order of their acts.
		for i, q := range m.reqs[rank] {
			for k := range n.transfers {
				if j := &n.transfers[k]; q != nil && j.owner == q {
					b = appendInts(b, 'j', i, j.peer, bit(j.read), j.n)
					b = m.appendHeader(b, rank, j.peer, &j.then)
				}
			}
		}
	}
	m.scratch = b
	return explore.Hash(b)
}

const maxTag = 9

// appendInts appends 16-bit numbers.
func appendInts(b []byte, ns ...int) []byte {
	for _, n := range ns {
		b = append(b, byte(n), byte(n>>8))
	}
	return b
}

func bit(is bool) int {
	if is {
		return 1
	}
	return 0
}

// appendRequest appends the state of a request.
func (m *machine) appendRequest(b []byte, q *Request) []byte {
	if q == nil {
		return append(b, '-')
	}
	b = appendInts(b, int(q.state), bit(q.sentRTR), bit(q.revokingRTR), bit(q.recvKnown), bit(q.sentStopRTR), bit(q.noRTSAck), int(q.doneFlags), bit(q.syncAcked),
		bit(q.Err != nil), bit(q.deferredErr != nil), bit(q.cancelErr != nil), bit(q.Cancelled), q.Source, int(q.MatchedTag), q.Size, bit(q.region != nil))
	if q.isRecv {
		b = append(b, q.Buf...)
		if q.state == stateTransferring {
			b = appendInts(b, m.actOf(q.Source, q.sendID))
		}
	}
	return b
}

// appendEnvelope appends a rank's sender and receiver state of an envelope.
func (m *machine) appendEnvelope(b []byte, rank int, key Envelope) []byte {
	e := m.w.ranks[rank].e
	if s := e.senders[key]; s != nil {
		u := &s.usage
		b = appendInts(b, 's', int(key.Source), int(key.Tag), bit(s.eagerSent), bit(s.stopped), bit(s.stopUnconfirmed), s.withoutRTSAck, u.received, u.used, bit(u.tooFewRTRsUsed), u.sends, u.wouldHaveUsedRTR)
		for q := s.firstUnmatched; q != nil; q = q.nextUnmatched {
			b = appendInts(b, 'u', m.actOf(rank, q.id))
		}
		for _, h := range s.rtrs.pending() {
			b = appendInts(b, 'r', m.actOf(int(key.Source), h.Recv))
		}
	}
	if h := e.receiverStates[key]; h != nil {
		b = appendInts(b, 'h', int(key.Source), int(key.Tag), bit(h.rtrStopped), h.mispredicted)
	}
	return b
}

// actOf returns the act whose request has an id; -1 if it has completed.
func (m *machine) actOf(rank int, id uint32) int {
	for i, q := range m.reqs[rank] {
		if q != nil && id != 0 && q.id == id {
			return i
		}
	}
	return -1
}

// appendHeader appends a header, with acts in place of request ids.
func (m *machine) appendHeader(b []byte, from, to int, h *wire.Header) []byte {
	send, recv := from, to // the owners of the ids
	switch h.Kind {
	case wire.SyncAck, wire.CTS, wire.RTSAck, wire.Done:
		send = to
	}
	switch h.Kind {
	case wire.RTR, wire.CTS, wire.Revoke:
		recv = from
	}
	return appendInts(b, int(h.Kind), int(h.Flags), int(h.Tag), int(h.Size), m.actOf(send, h.Send), m.actOf(recv, h.Recv))
}
