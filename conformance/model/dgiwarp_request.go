package model

import (
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// DGRequest is a request of a program for an unreliable queue pair (UD).
type DGRequest struct {
	Op        verbs.WROpcode // Send, Write, or Write with immediate data
	Solicited bool
	Payload   []byte
	Target    iwarp.Addr // of a Write
	Immediate uint32
	// MSN is the number of a Send. A Write-Record has the number that its first packet has.
	MSN uint32
}

// Lengths of headers and CRC.
const (
	dgPacketOverhead = 20
	dgUntagged       = 18
	dgTagged         = 14
	dgRecordHeader   = 16
)

// MaxPayload returns how many octets of the request fit into a UDP payload of udp octets.
func (r *DGRequest) MaxPayload(udp int) int {
	switch r.Op {
	case verbs.OpRDMAWrite:
		return udp - dgPacketOverhead - dgTagged
	case verbs.OpRDMAWriteImm:
		return udp - dgPacketOverhead - dgTagged - dgRecordHeader
	}
	return udp - dgPacketOverhead - dgUntagged
}

// Packets returns the packets of the request on UD, with at most n octets of payload each
// (requirements dg/ud/1, dg/ud/2 and dg/tag/2). A request without payload has one, and n may be 0.
func (r *DGRequest) Packets(n int) (all []iwarp.Packet) {
	n = max(n, 1)
	if r.Op == verbs.OpRDMAWriteImm {
		for _, p := range iwarp.WriteRecords(r.MSN, r.Target, r.Payload, r.Immediate, n) {
			last := int(*p.Record.MO)+len(p.Segment.Payload) == len(r.Payload)
			all = append(all, dgFixedFields(p.EditSegment(func(s iwarp.Segment) iwarp.Segment { return s.Last(last) })))
		}
		return all
	}
	for _, s := range r.Segments(n) {
		all = append(all, dgFixedFields(iwarp.UD(s)))
	}
	return all
}

// Segments returns the segments of a Send or a Write, with at most n octets of payload each.
func (r *DGRequest) Segments(n int) (all []iwarp.Segment) {
	for at := 0; at == 0 || at < len(r.Payload); at += n {
		end := min(at+n, len(r.Payload))
		s := iwarp.Send(r.MSN, r.Payload[at:end]).MO(uint32(at)).QN(0)
		switch {
		case r.Op == verbs.OpRDMAWrite:
			s = iwarp.Write(r.Target.STag, r.Target.TO+uint64(at), r.Payload[at:end])
		case r.Solicited:
			s = s.Opcode(iwarp.OpSendSE)
		}
		all = append(all, s.Last(end == len(r.Payload)))
	}
	return all
}

// dgFixedFields sets the fields of an expected UD packet that have only one correct value. All
// flags are 0, because only packets of reliable datagrams (RD) use them.
func dgFixedFields(p iwarp.Packet) iwarp.Packet {
	h := &p.Header
	h.Version, h.FlagsReserved, h.Reserved = new(uint8(1)), new(uint8(0)), new(uint16(0))
	for _, flag := range []**bool{&h.HasData, &h.HasAck, &h.Start, &h.AckNow, &h.Marked, &h.Repeats} {
		*flag = new(false)
	}
	return p.EditSegment(dgSegmentFields)
}

// dgSegmentFields sets the fields of an expected segment that have only one correct value.
func dgSegmentFields(s iwarp.Segment) iwarp.Segment {
	return s.Tagged(s.IsTagged()).DV(1).RV(1).DDPReserved(0).RDMAPReserved(0)
}
