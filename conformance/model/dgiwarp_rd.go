package model

import (
	"encoding/binary"
	"slices"

	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// DGWindow is the most packets of a flow that a receiver takes from the first missing one on.
const DGWindow = 256

// DGVerdict is what a receiver of a flow does with a data packet.
type DGVerdict int

// The verdicts.
const (
	DGInOrder DGVerdict = iota
	DGClosesGap
	DGOutOfOrder
	DGDuplicate
	DGBeyondWindow
)

// DGFlow is a model of the receiving end of a flow (RD): dg/ack/1 to dg/ack/3.
type DGFlow struct {
	Epoch uint32
	// Next is the first packet that has not arrived.
	Next uint32
	kept map[uint32]iwarp.Segment
}

// NewDGFlow returns a flow of which packets before next have arrived.
func NewDGFlow(epoch, next uint32) *DGFlow {
	return &DGFlow{Epoch: epoch, Next: next, kept: make(map[uint32]iwarp.Segment)}
}

// Receive takes a data packet. It returns the segments that DDP gets now, and how it arrived.
func (f *DGFlow) Receive(seq uint32, s iwarp.Segment) (ready []iwarp.Segment, v DGVerdict) {
	_, has := f.kept[seq]
	switch ahead := int32(seq - f.Next); {
	case ahead < 0 || has:
		return nil, DGDuplicate
	case ahead >= DGWindow:
		return nil, DGBeyondWindow
	case ahead > 0:
		f.kept[seq] = s
		return nil, DGOutOfOrder
	}
	if len(f.kept) > 0 {
		v = DGClosesGap
	}
	f.kept[seq] = s
	for {
		s, ok := f.kept[f.Next]
		if !ok {
			return ready, v
		}
		ready = append(ready, s)
		delete(f.kept, f.Next)
		f.Next++
	}
}

// Kept returns the packets that have arrived behind a gap, in order.
func (f *DGFlow) Kept() (all []uint32) {
	for seq := range f.kept {
		all = append(all, seq)
	}
	slices.SortFunc(all, func(a, b uint32) int { return int(int32(a - b)) })
	return all
}

// DGRD is a model of a reliable queue pair (RD): what the segments of its flows do.
type DGRD struct {
	QPN      uint32
	Memory   DGMemory
	Receives []DGReceive
}

// DGPeer is the state of DDP and RDMAP for the flow of one peer.
type DGPeer struct {
	Source DGSource
	// Open is the receive of a Send that has arrived in part; nil if there is none.
	Open *DGReceive
	// Reads are the outstanding reads and atomics of the device, in order.
	Reads    []*DGRead
	received []byte // the octets of the Send of Open that have arrived
	// Atomics counts Atomic Requests: the MSNs of their responses.
	Atomics uint32
}

// DGRead is a read or an atomic of the device. Sink is the expected content of its memory.
type DGRead struct {
	Sink     []byte
	Base     uint64 // TO of the sink
	Answered bool
}

// DGEffect is what a delivered segment does.
type DGEffect struct {
	Completions []DGCompletion
	// Responses are the messages that the device sends to the peer.
	Responses []DGResponse
	Causes    []iwarp.Cause
}

// DGResponse is a Read Response, or an Atomic Response.
type DGResponse struct {
	Atomic *iwarp.Segment
	Sink   iwarp.Addr
	Data   []byte
}

// Deliver executes a segment of a peer's flow, and returns what the device must do: respond,
// complete requests or receives, or report an error (Causes).
func (q *DGRD) Deliver(p *DGPeer, s iwarp.Segment) (e DGEffect) {
	switch s.Op() {
	case iwarp.OpWrite:
		var target []byte
		target, e.Causes = q.Memory.Check(iwarp.At(*s.DDP.STag, *s.DDP.TO), len(s.Payload), verbs.AccessRemoteWrite)
		copy(target, s.Payload)
	case iwarp.OpReadRequest:
		h := s.Read
		source, causes := q.Memory.Check(iwarp.At(*h.SrcSTag, *h.SrcTO), int(*h.Size), verbs.AccessRemoteRead)
		if e.Causes = causes; causes == nil {
			e.Responses = []DGResponse{{Sink: iwarp.At(*h.SinkSTag, *h.SinkTO), Data: slices.Clone(source)}}
		}
	case iwarp.OpAtomicRequest:
		e = q.atomic(p, s.AtomicRequest)
	case iwarp.OpReadResponse, iwarp.OpAtomicResponse:
		p.answer(s)
	case iwarp.OpImmediate, iwarp.OpImmediateSE:
		wc := verbs.WC{Opcode: verbs.WCOpRecvRDMAWithImm, Imm: uint32(*s.Immediate.Value), Flags: verbs.WCWithImm}
		e.Completions = []DGCompletion{q.take().complete(q.QPN, p.Source, nil, wc)}
	default:
		e = q.receiveSend(p, s)
	}
	return e
}

// take removes the first receive. There must be one.
func (q *DGRD) take() DGReceive {
	r := q.Receives[0]
	q.Receives = q.Receives[1:]
	return r
}

// receiveSend executes a segment of a Send. The first one takes a receive, and the last one
// completes it.
func (q *DGRD) receiveSend(p *DGPeer, s iwarp.Segment) DGEffect {
	if p.Open == nil {
		p.Open, p.received = new(q.take()), nil
	}
	if p.Open.Len() < verbs.GRHLen+len(p.received)+len(s.Payload) {
		return DGEffect{Causes: []iwarp.Cause{iwarp.DDPUntaggedTooLong}}
	}
	p.received = append(p.received, s.Payload...)
	if !*s.DDP.Last {
		return DGEffect{}
	}
	wc := verbs.WC{Opcode: verbs.WCOpRecv}
	if s.Op() == iwarp.OpSendInvalidate || s.Op() == iwarp.OpSendSEInvalidate {
		wc.Flags, wc.InvalidatedRKey = verbs.WCWithInv, verbs.RKey(*s.RDMAP.InvalidateSTag)
		q.Memory = slices.DeleteFunc(slices.Clone(q.Memory), func(r *DGRegion) bool { return r.STag == *s.RDMAP.InvalidateSTag })
	}
	r := *p.Open
	p.Open = nil
	return DGEffect{Completions: []DGCompletion{r.complete(q.QPN, p.Source, p.received, wc)}}
}

// complete places a message of a source in the receive, after the room for a GRH, and returns the
// completion on queue pair qpn, with the other fields of wc.
func (r DGReceive) complete(qpn uint32, from DGSource, b []byte, wc verbs.WC) DGCompletion {
	r.place(verbs.GRHLen, b)
	wc.WRID, wc.ByteLen, wc.QPN, wc.SrcQP = r.ID, uint32(verbs.GRHLen+len(b)), verbs.QPN(qpn), verbs.QPN(from.QPN)
	wc.Flags |= verbs.WCWithGRH
	return DGCompletion{WC: wc, Receive: r, Source: from, Data: b}
}

// atomic executes an Atomic Request on a word in the byte order of the device's host.
func (q *DGRD) atomic(p *DGPeer, h *iwarp.AtomicRequestHeader) DGEffect {
	word, causes := q.Memory.Check(iwarp.At(*h.STag, *h.TO), 8, verbs.AccessRemoteAtomic)
	if causes != nil {
		return DGEffect{Causes: causes}
	}
	was := binary.NativeEndian.Uint64(word)
	switch {
	case *h.Operation == iwarp.AtomicFetchAdd:
		binary.NativeEndian.PutUint64(word, was+*h.Data)
	case was == *h.Compare:
		binary.NativeEndian.PutUint64(word, *h.Data)
	}
	p.Atomics++
	s := dgSegmentFields(iwarp.AtomicResponse(p.Atomics, *h.ID, was).QN(atomicResponseQueue).MO(0).Last(true))
	return DGEffect{Responses: []DGResponse{{Atomic: &s}}}
}

// answer takes a segment of the response to the first read or atomic that is not answered. The last
// segment of a Read Response completes the answer.
func (p *DGPeer) answer(s iwarp.Segment) {
	i := slices.IndexFunc(p.Reads, func(r *DGRead) bool { return !r.Answered })
	if i < 0 {
		return
	}
	r := p.Reads[i]
	if s.Op() == iwarp.OpAtomicResponse {
		binary.NativeEndian.PutUint64(r.Sink, *s.AtomicResponse.Original)
		r.Answered = true
		return
	}
	copy(r.Sink[*s.DDP.TO-r.Base:], s.Payload)
	r.Answered = *s.DDP.Last
}
