package capture

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/fabrictest/fabrictest/emu/softroce/wire"
)

// Summary implements PDU.
func (r *RoCE) Summary() string {
	if r.CM != nil {
		return r.CM.summary
	}
	var b strings.Builder
	fmt.Fprintf(&b, "QP %#x", r.BTH.DestQP)
	if r.BTH.Opcode != wire.CNP {
		fmt.Fprintf(&b, " PSN %d", r.BTH.PSN)
	}
	info, _ := r.BTH.Opcode.Info()
	if r.HeadersComplete {
		r.summariseHeaders(&b, info)
	}
	if r.BTH.PKey != wire.DefaultPKey {
		fmt.Fprintf(&b, " P_Key %#04x", r.BTH.PKey)
	}
	for _, f := range []struct {
		set  bool
		name string
	}{{r.BTH.AckReq, "ack-req"}, {r.BTH.Solicited, "solicited"}, {r.BTH.FECN, "FECN"}, {r.BTH.BECN, "BECN"}} {
		if f.set {
			b.WriteString(" " + f.name)
		}
	}
	return b.String()
}

// summariseHeaders appends the fields of the extension headers to the line of a packet.
func (r *RoCE) summariseHeaders(b *strings.Builder, info wire.Info) {
	has := info.Headers.Has
	if r.BTH.Opcode != wire.CNP && (info.Class.Has(wire.HasPayload) || r.payloadLen != 0) {
		fmt.Fprintf(b, " %d B", r.payloadLen)
	}
	if has(wire.HasXRCETH) {
		fmt.Fprintf(b, " SRQ %#x", r.XRCETH.SRQN)
	}
	if has(wire.HasDETH) {
		fmt.Fprintf(b, " from QP %#x Q_Key %#x", r.DETH.SrcQP, r.DETH.QKey)
	}
	if has(wire.HasRETH) {
		fmt.Fprintf(b, " va %#x rkey %#x len %d", r.RETH.VA, r.RETH.RKey, r.RETH.DMALen)
	}
	if has(wire.HasAtomicETH) {
		fmt.Fprintf(b, " va %#x rkey %#x", r.AtomicETH.VA, r.AtomicETH.RKey)
		if r.BTH.Opcode.Operation() == wire.OpCompareSwap {
			fmt.Fprintf(b, " %#x if %#x", r.AtomicETH.SwapAdd, r.AtomicETH.Compare)
		} else {
			fmt.Fprintf(b, " add %#x", r.AtomicETH.SwapAdd)
		}
	}
	if has(wire.HasAETH) {
		fmt.Fprintf(b, " %s MSN %d", syndromeText(r.AETH.Syndrome), r.AETH.MSN)
	}
	if has(wire.HasAtomicAckETH) {
		fmt.Fprintf(b, " was %#x", r.AtomicAckETH.Original)
	}
	if has(wire.HasImm) {
		fmt.Fprintf(b, " imm %#x", uint32(r.Imm))
	}
	if has(wire.HasIETH) {
		fmt.Fprintf(b, " invalidate %#x", r.IETH.RKey)
	}
	if has(wire.HasFETH) {
		fmt.Fprintf(b, " placement %d selectivity %d", r.FETH.Placement, r.FETH.Selectivity)
	}
}

// syndromeText describes an AETH syndrome, as in "ACK", "ACK credits 16", "RNR NAK 0.64
// ms" or "NAK PSN sequence error".
func syndromeText(s wire.Syndrome) string {
	switch s.Kind() {
	case wire.SyndromeAck:
		if n, valid := wire.CreditCount(s.Value()); valid {
			return fmt.Sprintf("ACK credits %d", n)
		}
		return "ACK"
	case wire.SyndromeRNR:
		milliseconds := float64(wire.RNRDelay(s.Value())) / 1e6
		return "RNR NAK " + strconv.FormatFloat(milliseconds, 'f', -1, 64) + " ms"
	}
	return s.String()
}

// Headers implements PDU.
func (r *RoCE) Headers() (all []Header) {
	all = append(all, r.bth())
	if r.HeadersComplete {
		info, _ := r.BTH.Opcode.Info()
		all = append(all, r.extensions(info.Headers.Has)...)
	}
	if r.CM != nil {
		m := Header{Name: "MAD"}
		m.add("class", r.CM.Header.Class, hexText(r.CM.Header.Class))
		m.add("class version", r.CM.Header.ClassVersion)
		m.add("method", r.CM.Header.Method, hexText(r.CM.Header.Method))
		m.add("transaction", r.CM.Header.TID, hexText(r.CM.Header.TID))
		m.add("attribute", uint16(r.CM.Header.Attr), r.CM.Name())
		all = append(all, m, Header{Name: "CM " + r.CM.Name(), Fields: r.CM.Body.Fields})
	}
	end := Header{Name: "payload"}
	end.add("length", r.payloadLen)
	end.add("pad", r.BTH.PadCount)
	icrc := r.ICRC.String()
	if r.ICRC != ChecksumUnknown {
		icrc = fmt.Sprintf("0x%08x (%v)", r.ICRCValue, r.ICRC)
	}
	end.add("ICRC", r.ICRC.String(), icrc)
	return append(all, end)
}

// bth returns the fields of the base transport header.
func (r *RoCE) bth() Header {
	h := Header{Name: "BTH"}
	h.add("opcode", uint8(r.BTH.Opcode), fmt.Sprintf("0x%02x (%s)", uint8(r.BTH.Opcode), r.BTH.Opcode))
	h.add("solicited", r.BTH.Solicited)
	h.add("migration", r.BTH.MigReq)
	h.add("version", r.BTH.TVer)
	h.add("P_Key", r.BTH.PKey, fmt.Sprintf("0x%04x", r.BTH.PKey))
	h.add("FECN", r.BTH.FECN)
	h.add("BECN", r.BTH.BECN)
	h.add("destination QP", r.BTH.DestQP, hexText(r.BTH.DestQP))
	h.add("ack request", r.BTH.AckReq)
	h.add("PSN", uint32(r.BTH.PSN))
	if r.BTH.Reserved6 != 0 || r.BTH.Reserved7 != 0 {
		both := uint16(r.BTH.Reserved6)<<8 | uint16(r.BTH.Reserved7)
		h.add("reserved", both, fmt.Sprintf("%#x, %#x", r.BTH.Reserved6, r.BTH.Reserved7))
	}
	return h
}

// extensions returns the extension headers of the packet. The function has reports which headers
// the opcode has.
func (r *RoCE) extensions(has func(wire.HeaderSet) bool) (all []Header) {
	header := func(set wire.HeaderSet, name string, fields ...Field) {
		if has(set) {
			all = append(all, Header{name, fields})
		}
	}
	header(wire.HasRDETH, "RDETH", hexField("EE context", r.RDETH.EEContext))
	header(wire.HasXRCETH, "XRCETH", hexField("SRQ", r.XRCETH.SRQN))
	header(wire.HasDETH, "DETH", hexField("Q_Key", r.DETH.QKey), hexField("source QP", r.DETH.SrcQP))
	header(wire.HasFETH, "FETH", Field{"placement", r.FETH.Placement, ""}, Field{"selectivity", r.FETH.Selectivity, ""})
	header(wire.HasRETH, "RETH", hexField("virtual address", r.RETH.VA), hexField("R_Key", r.RETH.RKey),
		Field{"DMA length", r.RETH.DMALen, ""})
	header(wire.HasAtomicETH, "AtomicETH", hexField("virtual address", r.AtomicETH.VA), hexField("R_Key", r.AtomicETH.RKey),
		hexField("swap or add", r.AtomicETH.SwapAdd), hexField("compare", r.AtomicETH.Compare))
	syndrome := fmt.Sprintf("0x%02x (%s)", uint8(r.AETH.Syndrome), syndromeText(r.AETH.Syndrome))
	header(wire.HasAETH, "AETH", Field{"syndrome", uint8(r.AETH.Syndrome), syndrome}, Field{"MSN", uint32(r.AETH.MSN), ""})
	header(wire.HasAtomicAckETH, "AtomicAckETH", hexField("original", r.AtomicAckETH.Original))
	header(wire.HasImm, "ImmDt", hexField("immediate", uint32(r.Imm)))
	header(wire.HasIETH, "IETH", hexField("R_Key", r.IETH.RKey))
	return all
}
