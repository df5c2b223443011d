package engine

import (
	"encoding/binary"

	"github.com/fabrictest/fabrictest/emu/dgiwarp/wire"
	ddp "github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/verbs"
)

const (
	taggedHeader   = ddp.ControlLen + ddp.TaggedLen
	untaggedHeader = ddp.ControlLen + ddp.UntaggedLen
	packetStart    = 0 // offset of a packet in its buffer, for wire.AppendCRC
)

// buildDatagram builds the next packet of r, from offset q.sent on. It reports false if the
// memory of r is invalid.
func (q *QP) buildDatagram(d *link.Datagram, r *request) bool {
	header := wire.NewHeader(wire.KindUD, r.qpn, q.QPN, r.qkey)
	r.path.address(d)
	b := header.Append(d.Payload[:0])
	room := maxDatagramPayload(q.nic.cfg.LinkMTU, r.path.dst.Addr().Is4()) - wire.UDOverhead
	b, room = q.appendSegment(b, r, room)
	n := min(room, int(r.Length-q.sent))
	at := len(b)
	b = extend(b, n, maxDatagramPayload(q.nic.cfg.LinkMTU, ipv4)) // room for a packet of either IP version
	if n > 0 && r.Gather(&q.nic.Base, q.PD, b[at:], q.sent) != nil {
		return false
	}
	q.sent += uint32(n)
	if q.sent == r.Length {
		b[wire.HeaderLen] |= lastFlag  // in the DDP control field, which follows the header
		if r.Op != verbs.OpRDMAWrite { // a Write has no MSN
			q.msn = q.msn.Next()
		}
	}
	d.Payload = wire.AppendCRC(b, packetStart)
	return true
}

// lastFlag is the L flag in the first octet of a DDP header.
const lastFlag = 0x40

const lastSegment, moreSegments = true, false // the L flag of ddp.NewControl

// appendSegment appends the headers of the next segment of r, without the L flag, and returns
// how many octets of payload fit: none after immediate data.
func (q *QP) appendSegment(b []byte, r *request, room int) ([]byte, int) {
	solicited := r.Flags&verbs.SendSolicited != 0
	switch r.Op {
	case verbs.OpRDMAWrite, verbs.OpRDMAWriteImm:
		op := ddp.OpWrite
		if r.Op == verbs.OpRDMAWriteImm {
			op = wire.OpWriteRecord
			room -= wire.WriteRecordLen
		}
		c := ddp.NewControl(op, moreSegments)
		c.Tagged = true
		b = ddp.Tagged{STag: ddp.STag(r.Remote.RKey), TO: r.Remote.Addr + uint64(q.sent)}.Append(c.Append(b))
		if r.Op == verbs.OpRDMAWriteImm {
			b = wire.WriteRecord{MSN: uint32(q.msn), MO: q.sent, Length: r.Length, Imm: r.Imm}.Append(b)
		}
		return b, room - taggedHeader
	case verbs.OpSendImm:
		op := ddp.OpImmediate
		if solicited {
			op = ddp.OpImmediateSE
		}
		b = ddp.Untagged{QN: ddp.QueueSend, MSN: q.msn}.Append(ddp.NewControl(op, moreSegments).Append(b))
		b = binary.BigEndian.AppendUint32(b, r.Imm)
		return append(b, 0, 0, 0, 0), 0 // RFC 7306 has eight octets, verbs four
	default:
		op := ddp.OpSend
		if solicited {
			op = ddp.OpSendSE
		}
		b = ddp.Untagged{QN: ddp.QueueSend, MSN: q.msn, MO: q.sent}.Append(ddp.NewControl(op, moreSegments).Append(b))
		return b, room - untaggedHeader
	}
}

// extend returns b longer by n octets, with capacity for a CRC. If b lacks the capacity, it
// allocates a buffer of at least size octets.
func extend(b []byte, n, size int) []byte {
	if cap(b)-len(b) < n+wire.CRCLen {
		grown := make([]byte, len(b), max(size, len(b)+n+wire.CRCLen))
		copy(grown, b)
		b = grown
	}
	return b[:len(b)+n]
}
