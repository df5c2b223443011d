package p2p

import (
	"hash/fnv"

	"github.com/fabrictest/fabrictest/mpi/match"
	"github.com/fabrictest/fabrictest/mpi/wire"
)

// state is a run's, in short: two runs with the same one cannot be told apart by
// anything that is yet to happen. Names, addresses and the time are left out, or put in
// terms of acts.
func (x *explorer) state() (sum [16]byte) {
	r, b := x.r, x.scratch[:0]
	for rank, n := range r.w.ranks {
		b = number(b, '|', r.pc[rank], len(r.came[rank]))
		b = number(b, r.came[rank]...)
		for i, q := range r.reqs[rank] {
			b = r.request(b, q)
			if m := r.took[rank][i]; m != nil && m.a != nil { // and not received
				b = r.word(append(b, 'm'), m.a.peer, rank, &m.a.header)
				b = append(number(b, m.a.peer, bit(m.a.recvKnown)), m.a.data...)
			}
		}
		for peer := range r.w.ranks {
			for tag := range int32(maxTag) {
				b = r.envelope(b, rank, match.Envelope{Source: int32(peer), Tag: tag})
			}
			for _, l := range n.to[peer] {
				b = r.word(append(b, 'w'), rank, peer, &l.h)
				b = append(b, l.data...)
			}
		}
		// Transfers, in the order of the acts that they are for.
		for i, q := range r.reqs[rank] {
			for k := range n.jobs {
				if j := &n.jobs[k]; q != nil && j.owner == q {
					b = number(b, 'j', i, j.peer, bit(j.read), j.n)
					b = r.word(b, rank, j.peer, &j.then)
				}
			}
		}
	}
	x.scratch = b
	h := fnv.New128a()
	h.Write(b)
	h.Sum(sum[:0])
	return sum
}

const maxTag = 9

// number appends small numbers.
func number(b []byte, ns ...int) []byte {
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

// request is what a request has come to.
func (r *exploredRun) request(b []byte, q *Request) []byte {
	if q == nil {
		return append(b, '-')
	}
	b = number(b, int(q.state), bit(q.sentRTR), bit(q.revokingRTR), bit(q.recvKnown), bit(q.sentStopRTR), bit(q.syncAcked),
		bit(q.Err != nil), bit(q.Cancelled), q.Source, int(q.MatchedTag), q.Size, bit(q.region != nil))
	if q.isRecv {
		b = append(b, q.Buf...)
		if q.state == stateTransferring {
			b = number(b, r.act(q.Source, q.sendID))
		}
	}
	return b
}

// envelope is what a rank knows of one.
func (r *exploredRun) envelope(b []byte, rank int, key match.Envelope) []byte {
	e := r.w.ranks[rank].e
	if s := e.senders[key]; s != nil {
		u := &s.usage
		b = number(b, 's', int(key.Source), int(key.Tag), bit(s.eagerSent), bit(s.stopped), bit(s.stopping), u.received, u.used, bit(u.tooFewUsed), u.sends, u.wouldUse)
		for q := s.firstUnmatched; q != nil; q = q.nextUnmatched {
			b = number(b, 'u', r.act(rank, q.id))
		}
		for _, h := range s.rtrs.pending() {
			b = number(b, 'r', r.act(int(key.Source), h.Recv))
		}
	}
	if h := e.receivers[key]; h != nil {
		b = number(b, 'h', int(key.Source), int(key.Tag), bit(h.rtrStopped), h.mispredicted)
	}
	return b
}

// act is the request that a rank knows by a name: its act, -1 if it has ended.
func (r *exploredRun) act(rank int, name uint32) int {
	for i, q := range r.reqs[rank] {
		if q != nil && name != 0 && q.id == name {
			return i
		}
	}
	return -1
}

// word is what a header says, with names of requests for what they are.
func (r *exploredRun) word(b []byte, from, to int, h *wire.Header) []byte {
	send, recv := from, to // whose names those are
	switch h.Kind {
	case wire.SyncAck, wire.CTS, wire.RTSAck, wire.Done:
		send = to
	}
	switch h.Kind {
	case wire.RTR, wire.CTS, wire.Revoke:
		recv = from
	}
	return number(b, int(h.Kind), int(h.Flags), int(h.Tag), int(h.Size), r.act(send, h.Send), r.act(recv, h.Recv))
}
