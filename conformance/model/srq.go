package model

import (
	"slices"

	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

// SRQLimit is the state of the limit of a shared receive queue.
type SRQLimit uint8

// States of a limit. It is unsure if it was set when fewer receives were posted: the event may then
// come, once.
const (
	SRQLimitOff SRQLimit = iota
	SRQLimitArmed
	SRQLimitUnsure
)

// SRQueue is the model of a shared receive queue. Messages may use its receives in any order.
type SRQueue struct {
	Number uint32
	Domain int      // of XRC; 0 if the queue has none
	Len    int      // of each receive
	Posted []uint64 // IDs of receives that have not completed
	Taken  int      // how many of them messages use
	Limit  int
	State  SRQLimit
	// Reached: the event that the limit is reached has to be raised. It may be raised when a message
	// takes a receive, and has been when the message is complete.
	Reached bool
}

// Free returns the number of receives that no message uses.
func (q *SRQueue) Free() int { return len(q.Posted) - q.Taken }

// SetLimit sets the limit; 0 disarms it. The specification leaves open whether a limit above the
// number of free receives raises the event.
func (q *SRQueue) SetLimit(n int) {
	q.Limit, q.State = n, SRQLimitArmed
	switch {
	case n == 0:
		q.State = SRQLimitOff
	case q.Free() < n:
		q.State = SRQLimitUnsure
	}
}

// take takes a receive for a message. It returns false if there is none.
func (q *SRQueue) take() bool {
	if q.Free() == 0 {
		return false
	}
	q.Taken++
	if q.State == SRQLimitArmed && q.Free() < q.Limit {
		q.State, q.Reached = SRQLimitOff, true
	}
	return true
}

// CompleteUnused removes a receive that a dropped message has used up, and returns false if it is not
// posted.
func (q *SRQueue) CompleteUnused(id uint64) bool { return q.take() && q.Complete(id) }

// Complete removes the receive of a message, and returns false if it is not posted.
func (q *SRQueue) Complete(id uint64) bool {
	i := slices.Index(q.Posted, id)
	if i < 0 {
		return false
	}
	q.Posted, q.Taken = slices.Delete(q.Posted, i, i+1), q.Taken-1
	return true
}

// SRQPair is the model of a queue pair that receives from shared receive queues.
type SRQPair struct {
	QPN     verbs.QPN
	Service ib.Transport
	State   verbs.QPState
	PSN     ib.PSN // expected next
	MSN     uint32
	Timer   uint8    // of RNR NAKs
	Queue   *SRQueue // nil for XRC, whose requests name the queue
	Domain  int      // of XRC
	Open    *SRQMessage
}

// SRQMessage is a message that has taken a receive.
type SRQMessage struct {
	Queue *SRQueue
	WC    verbs.WC // of its receive, without the ID
	Data  []byte   // so far
	Write bool     // a WRITE with immediate data: nothing is placed in the receive
	// Failed: the receive completes with an error, of any status.
	Failed bool
}

// SRQEffect is the effect of a packet.
type SRQEffect struct {
	Response  *ib.Packet
	Completed *SRQMessage // its receive completes
	Failed    bool        // the queue pair goes to ERR
}

// Receive returns the effect of a packet of a SEND, or of a WRITE with immediate data in one packet, at
// the expected PSN, in the right order of opcodes and with AckReq. queues are those of the device.
func (p *SRQPair) Receive(pkt ib.Packet, queues []*SRQueue) SRQEffect {
	if p.State == verbs.QPStateErr {
		return SRQEffect{}
	}
	info, _ := pkt.Opcode().Info()
	if info.Position == ib.First || info.Position == ib.Only {
		queue := p.queueOf(pkt, queues)
		if queue == nil {
			return p.refuse(pkt, nil)
		}
		if !queue.take() {
			return p.notReady(pkt)
		}
		p.Open = &SRQMessage{Queue: queue, WC: verbs.WC{QPN: p.QPN, Opcode: verbs.WCOpRecv}}
		if info.Kind == ib.KindWrite {
			p.Open.Write, p.Open.WC.Opcode = true, verbs.WCOpRecvRDMAWithImm
		}
	}
	p.PSN = pkt.PSN().Add(1)
	m := p.Open
	if m == nil {
		return SRQEffect{} // of UC: the message found no receive
	}
	if p.Service == ib.XRC && p.queueOf(pkt, queues) == nil {
		return p.RefuseOpen(pkt)
	}
	p.add(m, pkt)
	if !m.Write && len(m.Data) > m.Queue.Len {
		m.WC.Status, p.Open = verbs.WCLocLenErr, nil
		return p.refuse(pkt, m)
	}
	var done *SRQMessage
	if info.Position == ib.Last || info.Position == ib.Only {
		m.WC.ByteLen, p.Open, done = uint32(len(m.Data)), nil, m
		p.MSN++
	}
	return SRQEffect{Response: p.onService(ib.Ack(pkt.PSN(), p.MSN).WithCredits(ib.NoCreditCount)), Completed: done}
}

// queueOf returns the queue whose receives the message of pkt uses. For XRC, pkt names it: queueOf
// returns nil if there is no such queue in the domain of the queue pair.
func (p *SRQPair) queueOf(pkt ib.Packet, queues []*SRQueue) *SRQueue {
	if p.Service != ib.XRC {
		return p.Queue
	}
	i := slices.IndexFunc(queues, func(q *SRQueue) bool { return q.Domain == p.Domain && q.Number == *pkt.XRCETH.SRQ })
	if i < 0 {
		return nil
	}
	return queues[i]
}

// add adds the payload and the immediate data of a packet. A datagram has room for a GRH before.
func (p *SRQPair) add(m *SRQMessage, pkt ib.Packet) {
	if pkt.DETH != nil {
		m.Data = make([]byte, ib.GRHLen)
		m.WC.Flags, m.WC.SrcQP = verbs.WCWithGRH, verbs.QPN(*pkt.DETH.SrcQP)
	}
	m.Data = append(m.Data, pkt.Payload...)
	if pkt.Imm != nil {
		m.WC.Flags |= verbs.WCWithImm
		m.WC.Imm = *pkt.Imm.Data
	}
}

// notReady is the effect of a message that finds no receive: an RNR NAK. UC and UD drop the message
// without a response.
func (p *SRQPair) notReady(pkt ib.Packet) SRQEffect {
	switch p.Service {
	case ib.UC, ib.UD:
		p.PSN = pkt.PSN().Add(1)
		return SRQEffect{}
	}
	return SRQEffect{Response: p.onService(ib.RNR(pkt.PSN(), p.Timer, p.MSN))}
}

// RefuseOpen is the effect of an invalid packet within the open message, whose receive completes
// with an error.
func (p *SRQPair) RefuseOpen(pkt ib.Packet) SRQEffect {
	m := p.Open
	m.Failed, p.Open = true, nil
	return p.refuse(pkt, m)
}

// refuse is the effect of an invalid request of a reliable service, which may have taken a receive.
func (p *SRQPair) refuse(pkt ib.Packet, m *SRQMessage) SRQEffect {
	p.State = verbs.QPStateErr
	return SRQEffect{Response: p.onService(ib.Nak(pkt.PSN(), ib.NakInvalidRequest, p.MSN)), Completed: m, Failed: true}
}

// onService returns a response with the opcode of the queue pair's service; nil for UC and UD,
// which have no responses.
func (p *SRQPair) onService(pkt ib.Packet) *ib.Packet {
	if p.Service == ib.UC || p.Service == ib.UD {
		return nil
	}
	pkt = pkt.On(p.Service)
	return &pkt
}

// Fail is the effect of a change to ERR by the application: the receive of an open message is
// flushed.
func (p *SRQPair) Fail() SRQEffect {
	m := p.Open
	p.State, p.Open = verbs.QPStateErr, nil
	if m != nil {
		m.WC.Status = verbs.WCWRFlushErr
	}
	return SRQEffect{Completed: m, Failed: true}
}
