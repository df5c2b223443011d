package capture

import (
	"fmt"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
)

// Headers implements PDU.
func (m *MPAStart) Headers() []Header {
	h := Header{Name: m.Op()}
	h.add("markers", m.Markers)
	h.add("CRC", m.CRC)
	h.add("reject", m.Reject)
	h.add("enhanced", m.Enhanced)
	if m.Reserved != 0 {
		h.add("reserved", m.Reserved, hexText(m.Reserved))
	}
	h.add("revision", m.Revision)
	h.add("private data", len(m.PrivateData), fmt.Sprintf("%d octets", len(m.PrivateData)))
	e, _, ok := m.Split()
	if !ok {
		return []Header{h}
	}
	enhanced := Header{Name: "enhanced"}
	enhanced.add("peer to peer", e.PeerToPeer)
	enhanced.add("RTR by Send", e.RTRSend)
	enhanced.add("RTR by Write", e.RTRWrite)
	enhanced.add("RTR by Read", e.RTRRead)
	enhanced.add("IRD", e.IRD, depth(e.IRD))
	enhanced.add("ORD", e.ORD, depth(e.ORD))
	return []Header{h, enhanced}
}

// Headers implements PDU: the FPDU, the DDP segment and the RDMAP header.
func (f *FPDU) Headers() []Header {
	h := Header{Name: "FPDU"}
	h.add("ULPDU_Length", f.Length)
	h.add("position", f.Offset)
	h.add("pad", wire.PadLen(f.Length), fmt.Sprintf("%d octets", wire.PadLen(f.Length)))
	h.add("markers", f.Markers)
	text := f.CRCStatus.String()
	if f.CRCStatus != wire.CRCUnknown {
		text = fmt.Sprintf("0x%08x (%v)", f.CRC, f.CRCStatus)
	}
	h.add("CRC", f.CRCStatus.String(), text)
	h.add("framing guessed", f.Guessed)
	all := []Header{h}
	if !f.HeadersComplete {
		return all
	}
	s := &f.Segment
	all = append(all, ddpHeader("DDP", &s.Header))
	if s.Control.Tagged {
		return all
	}
	switch s.Control.Opcode {
	case wire.OpReadRequest:
		all = append(all, readHeader("RDMA Read Request", &s.ReadRequest))
	case wire.OpTerminate:
		all = append(all, terminateHeaders(&s.Terminate)...)
	case wire.OpImmediate, wire.OpImmediateSE:
		i := Header{Name: "Immediate Data"}
		i.add("data", fmt.Sprintf("%x", s.Immediate))
		all = append(all, i)
	case wire.OpAtomicRequest:
		a := Header{Name: "Atomic Request"}
		a.add("operation", uint8(s.AtomicRequest.Op), s.AtomicRequest.Op.String())
		a.add("request ID", s.AtomicRequest.RequestID, hexText(s.AtomicRequest.RequestID))
		a.add("STag", uint32(s.AtomicRequest.STag), hexText(s.AtomicRequest.STag))
		a.add("TO", s.AtomicRequest.TO, hexText(s.AtomicRequest.TO))
		a.add("add or swap", s.AtomicRequest.AddSwap, hexText(s.AtomicRequest.AddSwap))
		a.add("add or swap mask", s.AtomicRequest.AddSwapMask, hexText(s.AtomicRequest.AddSwapMask))
		a.add("compare", s.AtomicRequest.Compare, hexText(s.AtomicRequest.Compare))
		a.add("compare mask", s.AtomicRequest.CompareMask, hexText(s.AtomicRequest.CompareMask))
		all = append(all, a)
	case wire.OpAtomicResponse:
		a := Header{Name: "Atomic Response"}
		a.add("request ID", s.AtomicResponse.RequestID, hexText(s.AtomicResponse.RequestID))
		a.add("original", s.AtomicResponse.Original, hexText(s.AtomicResponse.Original))
		all = append(all, a)
	}
	return all
}

// ddpHeader returns the fields of a DDP header, which is called name.
func ddpHeader(name string, d *wire.Header) Header {
	h := Header{Name: name}
	h.add("opcode", uint8(d.Control.Opcode), fmt.Sprintf("%d (%v)", uint8(d.Control.Opcode), d.Control.Opcode))
	h.add("tagged", d.Control.Tagged)
	h.add("last", d.Control.Last)
	h.add("DDP version", d.Control.DDPVersion)
	h.add("RDMAP version", d.Control.RDMAPVersion)
	if d.Control.DDPReserved != 0 || d.Control.RDMAPReserved != 0 {
		both := d.Control.DDPReserved<<4 | d.Control.RDMAPReserved
		h.add("reserved", both, fmt.Sprintf("%#x, %#x", d.Control.DDPReserved, d.Control.RDMAPReserved))
	}
	if d.Control.Tagged {
		h.add("STag", uint32(d.Tagged.STag), hexText(d.Tagged.STag))
		h.add("TO", d.Tagged.TO, hexText(d.Tagged.TO))
		return h
	}
	h.add("invalidate STag", uint32(d.Untagged.Invalidate), hexText(d.Untagged.Invalidate))
	h.add("QN", uint32(d.Untagged.QN))
	h.add("MSN", uint32(d.Untagged.MSN))
	h.add("MO", d.Untagged.MO)
	return h
}

// readHeader returns the fields of an RDMA Read Request header, which is called name.
func readHeader(name string, r *wire.ReadRequest) Header {
	h := Header{Name: name}
	h.add("sink STag", uint32(r.SinkSTag), hexText(r.SinkSTag))
	h.add("sink TO", r.SinkTO, hexText(r.SinkTO))
	h.add("size", r.Size)
	h.add("source STag", uint32(r.SrcSTag), hexText(r.SrcSTag))
	h.add("source TO", r.SrcTO, hexText(r.SrcTO))
	return h
}

// terminateHeaders returns the Terminate header and the headers that it quotes.
func terminateHeaders(t *wire.Terminate) []Header {
	h := Header{Name: "Terminate"}
	h.add("layer", uint8(t.Error.Layer), t.Error.Layer.String())
	h.add("type", t.Error.Type)
	h.add("code", t.Error.Code, fmt.Sprintf("0x%02x", t.Error.Code))
	h.add("error", t.Error.String())
	h.add("bit order", t.Order.String()) // that of the RFC, or Linux siw's
	if t.HasLength || t.HasDDP {
		h.add("segment length", t.SegmentLength)
	}
	all := []Header{h}
	if t.HasDDP {
		all = append(all, ddpHeader("terminated DDP", &t.DDP))
	}
	// The RDMAP header was parsed as that of a Read Request, which it is unless the DDP header says
	// otherwise.
	if t.HasRDMAP && (!t.HasDDP || t.DDP.Control.Opcode == wire.OpReadRequest) {
		all = append(all, readHeader("terminated read", &t.Read))
	}
	return all
}

// PDU is a RoCEv2 packet (*RoCE), an MPA start-up frame (*MPAStart) or an FPDU (*FPDU).
type PDU interface {
	Op() string        // name of the operation: "RC SEND_ONLY", "CM REQ", "MPA Reply", "RDMA Write"
	Summary() string   // main fields, in one line
	Headers() []Header // decoded headers
	PayloadLen() int   // length of the application payload on the wire
}

// Header is a decoded protocol header.
type Header struct {
	Name   string
	Fields []Field
}

// Field is a field of a header. Value is a number, a bool or a string; Text is its
// formatted value, empty for the default format.
type Field struct {
	Name  string
	Value any
	Text  string
}

// ChecksumStatus is the result of verifying a checksum.
type ChecksumStatus uint8

// Checksum states.
const (
	ChecksumUnknown ChecksumStatus = iota // octets were not captured
	ChecksumGood
	ChecksumBad
)

// String returns the name of the status.
func (v ChecksumStatus) String() string {
	return [...]string{"unknown", "good", "bad"}[v]
}
