package model

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// DGSource is the source of datagrams: a queue pair of a host.
type DGSource struct {
	Host netip.AddrPort
	QPN  uint32
}

// DGUD is a model of the receiving side of an unreliable queue pair (UD) of datagram-iWARP.
type DGUD struct {
	QPN, Key uint32
	// Isolated queue pairs survive the errors of peers.
	Isolated bool
	Memory   DGMemory
	Receives []DGReceive
	// Failed says that the queue pair is in the error state.
	Failed bool

	assemblies []*dgAssembly // oldest first
	records    []*dgRecord   // oldest first
}

// DGCompletion is a completion of a receive, with the octets after the room for a GRH.
type DGCompletion struct {
	WC      verbs.WC
	Receive DGReceive
	Source  DGSource
	Data    []byte
}

// DGOutcome is what a correct device does after a packet, or when time passes.
type DGOutcome struct {
	Completions []DGCompletion
	// Causes are the permitted causes of an error message about the packet; nil if it is valid.
	Causes []iwarp.Cause
	// ErrorReport says that the packet is an error message: the program gets an event.
	ErrorReport bool
	// MayConsume says that the error may complete the first receive with an error.
	MayConsume bool
}

// dgMessage identifies a message of a source.
type dgMessage struct {
	from DGSource
	msn  uint32
}

// dgAssembly is a Send that has arrived in part.
type dgAssembly struct {
	dgMessage
	begun   time.Duration
	op      iwarp.Opcode
	end     int // -1 before the last segment
	arrived dgRanges
	buf     []byte
}

// dgRecord is a Write-Record that has arrived in part.
type dgRecord struct {
	dgMessage
	begun     time.Duration
	begin     iwarp.Addr
	length    int
	immediate uint32
	arrived   dgRanges
}

// Receive takes the octets of a datagram to the device's address. Use ReceiveGroup for others.
func (u *DGUD) Receive(now time.Duration, from DGSource, octets []byte) DGOutcome {
	return u.receive(now, from, octets, u.QPN)
}

// ReceiveGroup takes the octets of a datagram to a group to which the queue pair is attached.
func (u *DGUD) ReceiveGroup(now time.Duration, from DGSource, octets []byte) DGOutcome {
	return u.receive(now, from, octets, iwarp.GroupQP)
}

// receive takes the octets of a datagram, and drops it if its destination is not destQP.
func (u *DGUD) receive(now time.Duration, from DGSource, octets []byte, destQP uint32) DGOutcome {
	p := iwarp.ParsePacket(octets)
	if !wellFormed(p) || *p.Header.DestQP != destQP {
		return DGOutcome{}
	}
	return u.execute(now, from, p)
}

// wellFormed reports whether a packet must not be dropped silently (requirement dg/pkt/6).
func wellFormed(p iwarp.ReceivedPacket) bool {
	if p.CRCStatus == nil || *p.CRCStatus != iwarp.CRCCorrect || p.Header.Version == nil || *p.Header.Version != 1 {
		return false
	}
	return *p.Header.Kind >= iwarp.KindUD && *p.Header.Kind <= iwarp.KindRefusal && len(p.Trailer) == 0
}

// execute checks and executes a packet for the queue pair, which fails if the packet has an error,
// unless it is isolated. It drops packets of other kinds than UD and with a wrong key.
func (u *DGUD) execute(now time.Duration, from DGSource, p iwarp.ReceivedPacket) DGOutcome {
	s := p.Segment
	if u.Failed || *p.Header.Kind != iwarp.KindUD {
		return DGOutcome{}
	}
	from.QPN = *p.Header.SourceQP
	if s.Op() == iwarp.OpTerminate {
		return DGOutcome{ErrorReport: true} // its key does not matter (requirement dg/addr/4)
	}
	if *p.Header.Key != u.Key {
		return DGOutcome{}
	}
	var out DGOutcome
	if out.Causes = dgHeaderError(s); out.Causes == nil {
		switch s.Op() {
		case iwarp.OpWrite:
			out.Causes = u.write(*s)
		case iwarp.OpExperimental:
			out = u.receiveRecord(now, from, p)
		default:
			out = u.receiveSend(now, from, *s)
		}
	}
	u.Failed = out.Causes != nil && !u.Isolated
	return out
}

// dgHeaderError returns the permitted causes of an error in the DDP and RDMAP headers of a UD
// segment, or nil.
func dgHeaderError(s *iwarp.Segment) []iwarp.Cause {
	isSend := s.Op() == iwarp.OpSend || s.Op() == iwarp.OpSendSE
	switch {
	case *s.DDP.Version != 1 && s.IsTagged():
		return []iwarp.Cause{iwarp.DDPTaggedInvalidVersion}
	case *s.DDP.Version != 1:
		return []iwarp.Cause{iwarp.DDPUntaggedInvalidVersion}
	case *s.RDMAP.Version != 1:
		return []iwarp.Cause{iwarp.RDMAPInvalidVersion}
	case s.IsTagged() && (s.Op() == iwarp.OpWrite || s.Op() == iwarp.OpExperimental):
		return nil
	case s.IsTagged() && s.Op() == iwarp.OpReadResponse:
		return []iwarp.Cause{iwarp.RDMAPUnexpectedOpcode, iwarp.DDPTaggedInvalidSTag, iwarp.RDMAPAccess}
	case s.IsTagged():
		return []iwarp.Cause{iwarp.RDMAPUnexpectedOpcode}
	case isSend && *s.DDP.QN != 0:
		return []iwarp.Cause{iwarp.DDPUntaggedInvalidQN, iwarp.RDMAPUnexpectedOpcode}
	case isSend && uint64(*s.DDP.MO)+uint64(len(s.Payload)) > DGMaxSend:
		return []iwarp.Cause{iwarp.DDPUntaggedInvalidMO, iwarp.DDPUntaggedTooLong}
	case isSend:
		return nil
	}
	return []iwarp.Cause{iwarp.RDMAPUnexpectedOpcode, iwarp.DDPUntaggedInvalidQN}
}

// write places a segment of a Write (requirements dg/tag/1 and dg/tag/8).
func (u *DGUD) write(s iwarp.Segment) []iwarp.Cause {
	target, causes := u.Memory.Check(iwarp.At(*s.DDP.STag, *s.DDP.TO), len(s.Payload), verbs.AccessRemoteWrite)
	copy(target, s.Payload)
	return causes
}

// receiveSend takes a segment of a Send, and delivers a complete message (requirements dg/ud/5 to
// 8). A new assembly replaces the oldest if there are DGMaxAssemblies, and one that the segment
// contradicts is dropped.
func (u *DGUD) receiveSend(now time.Duration, from DGSource, s iwarp.Segment) DGOutcome {
	key := dgMessage{from, *s.DDP.MSN}
	i := slices.IndexFunc(u.assemblies, func(a *dgAssembly) bool { return a.dgMessage == key })
	if i < 0 {
		if *s.DDP.MO == 0 && *s.DDP.Last {
			return u.deliver(from, s.Payload)
		}
		if len(u.assemblies) == DGMaxAssemblies {
			u.assemblies = u.assemblies[1:]
		}
		i = len(u.assemblies)
		u.assemblies = append(u.assemblies, &dgAssembly{dgMessage: key, begun: now, op: s.Op(), end: -1})
	}
	a := u.assemblies[i]
	if a.contradicts(s) {
		u.assemblies = slices.Delete(u.assemblies, i, i+1)
		return DGOutcome{}
	}
	if a.add(s); a.end < 0 || !a.arrived.whole(a.end) {
		return DGOutcome{}
	}
	u.assemblies = slices.Delete(u.assemblies, i, i+1)
	return u.deliver(from, a.buf[:a.end])
}

// contradicts reports whether a segment disagrees on the opcode or the end of its message.
func (a *dgAssembly) contradicts(s iwarp.Segment) bool {
	to := int(*s.DDP.MO) + len(s.Payload)
	switch last := *s.DDP.Last; {
	case s.Op() != a.op:
		return true
	case a.end >= 0:
		return to > a.end || last && to != a.end
	default:
		return last && len(a.arrived) > 0 && a.arrived[len(a.arrived)-1].To > to
	}
}

// add adds a segment to the message.
func (a *dgAssembly) add(s iwarp.Segment) {
	from := int(*s.DDP.MO)
	to := from + len(s.Payload)
	if *s.DDP.Last {
		a.end = to
	}
	if len(a.buf) < to {
		a.buf = append(a.buf, make([]byte, to-len(a.buf))...)
	}
	copy(a.buf[from:], s.Payload)
	if to > from {
		a.arrived = a.arrived.add(DGRange{from, to})
	}
}

// deliver completes the first receive with a message. It drops the message if there is no receive,
// and returns the cause of an error if the receive is too short.
func (u *DGUD) deliver(from DGSource, message []byte) DGOutcome {
	switch {
	case len(u.Receives) == 0:
		return DGOutcome{}
	case u.Receives[0].Len() < verbs.GRHLen+len(message):
		return DGOutcome{Causes: []iwarp.Cause{iwarp.DDPUntaggedTooLong}, MayConsume: true}
	}
	return DGOutcome{Completions: []DGCompletion{u.complete(from, message, verbs.WC{Opcode: verbs.WCOpRecv})}}
}

// complete takes the first receive, and returns its completion with the other fields of wc.
func (u *DGUD) complete(from DGSource, b []byte, wc verbs.WC) DGCompletion {
	r := u.Receives[0]
	u.Receives = u.Receives[1:]
	return r.complete(u.QPN, from, b, wc)
}

// receiveRecord takes a segment of a Write-Record, and completes a receive if all segments have
// arrived (requirements dg/tag/2 to dg/tag/8). It drops a segment that needs a record or a range
// too many, or that contradicts the begin or length of its record.
func (u *DGUD) receiveRecord(now time.Duration, from DGSource, p iwarp.ReceivedPacket) DGOutcome {
	h, s := p.Record, *p.Segment
	mo, to := int(*h.MO), int(*h.MO)+len(s.Payload)
	key, begin := dgMessage{from, *h.MSN}, iwarp.At(*s.DDP.STag, *s.DDP.TO-uint64(*h.MO))
	target, causes := u.Memory.Check(iwarp.At(*s.DDP.STag, *s.DDP.TO), len(s.Payload), verbs.AccessRemoteWrite)
	if causes != nil {
		return DGOutcome{Causes: causes}
	}
	i := slices.IndexFunc(u.records, func(r *dgRecord) bool { return r.dgMessage == key })
	if i < 0 {
		if len(u.records) == DGMaxRecords {
			return DGOutcome{}
		}
		i = len(u.records)
		u.records = append(u.records, &dgRecord{dgMessage: key, begun: now, begin: begin, length: int(*h.Length), immediate: *h.Immediate})
	}
	r := u.records[i]
	if r.begin != begin || r.length != int(*h.Length) {
		return DGOutcome{}
	}
	arrived := r.arrived
	if to > mo {
		arrived = arrived.add(DGRange{mo, to})
	}
	if len(arrived) > DGMaxRanges {
		return DGOutcome{}
	}
	r.arrived = arrived
	copy(target, s.Payload)
	if !r.arrived.whole(r.length) {
		return DGOutcome{}
	}
	u.records = slices.Delete(u.records, i, i+1)
	return u.endRecord(r)
}

// endRecord completes the first receive with a description of the Write-Record: its address, its
// length and the ranges that have arrived. Without a receive it does nothing.
func (u *DGUD) endRecord(r *dgRecord) DGOutcome {
	if len(u.Receives) == 0 {
		return DGOutcome{}
	}
	room := max(0, u.Receives[0].Len()-verbs.GRHLen-dgRecordLen) / dgRangeLen
	ranges := r.arrived[:min(room, len(r.arrived))]
	b := binary.BigEndian.AppendUint32(nil, r.begin.STag)
	b = binary.BigEndian.AppendUint64(b, r.begin.TO)
	b = binary.BigEndian.AppendUint32(b, uint32(r.length))
	b = binary.BigEndian.AppendUint32(b, uint32(len(ranges)))
	for _, x := range ranges {
		b = binary.BigEndian.AppendUint32(b, uint32(x.From))
		b = binary.BigEndian.AppendUint32(b, uint32(x.To-x.From))
	}
	wc := verbs.WC{Opcode: verbs.WCOpRecvRDMAWithImm, Imm: r.immediate, Flags: verbs.WCWithImm}
	return DGOutcome{Completions: []DGCompletion{u.complete(r.from, b, wc)}}
}

// Deadlines returns when the incomplete Sends (assemblies) and Write-Records time out.
func (u *DGUD) Deadlines() (all []time.Duration) {
	if u.Failed {
		return nil
	}
	for _, a := range u.assemblies {
		all = append(all, a.begun+DGAssemblyTimeout)
	}
	for _, r := range u.records {
		all = append(all, r.begun+DGRecordTimeout)
	}
	return all
}

// Expire drops the incomplete Sends (assemblies), and completes the Write-Records, that time out.
func (u *DGUD) Expire(now time.Duration) (out DGOutcome) {
	u.assemblies = slices.DeleteFunc(u.assemblies, func(a *dgAssembly) bool { return a.begun+DGAssemblyTimeout <= now })
	for !u.Failed && len(u.records) > 0 && u.records[0].begun+DGRecordTimeout <= now {
		r := u.records[0]
		u.records = u.records[1:]
		out.Completions = append(out.Completions, u.endRecord(r).Completions...)
	}
	return out
}

// Pending returns how many Sends and Write-Records have arrived in part.
func (u *DGUD) Pending() (sends, records int) { return len(u.assemblies), len(u.records) }

// HasAssembly reports whether a Send of a source has arrived in part.
func (u *DGUD) HasAssembly(from DGSource, msn uint32) bool {
	return slices.ContainsFunc(u.assemblies, func(a *dgAssembly) bool { return a.dgMessage == dgMessage{from, msn} })
}

// HasRecord reports whether a Write-Record of a source has arrived in part.
func (u *DGUD) HasRecord(from DGSource, msn uint32) bool {
	return slices.ContainsFunc(u.records, func(r *dgRecord) bool { return r.dgMessage == dgMessage{from, msn} })
}
