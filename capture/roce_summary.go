package capture

import (
	"fmt"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/emu/softroce/wire"
)

func (r *RoCE) summary() string {
	if r.CM != nil {
		return r.CM.Summary()
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

// summariseHeaders appends the fields of the extension headers.
func (r *RoCE) summariseHeaders(b *strings.Builder, info wire.Info) {
	has := info.Headers.Has
	if info.Class.Has(wire.HasPayload) && r.BTH.Opcode != wire.CNP || r.payload != 0 && r.BTH.Opcode != wire.CNP {
		fmt.Fprintf(b, " %d B", r.payload)
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
		fmt.Fprintf(b, " %s MSN %d", SyndromeText(r.AETH.Syndrome), r.AETH.MSN)
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

// SyndromeText describes an AETH syndrome, as in "ACK", "ACK credits 16", "RNR NAK 0.64
// ms" or "NAK PSN sequence error".
func SyndromeText(s wire.Syndrome) string {
	switch s.Kind() {
	case wire.SyndromeAck:
		if n, counted := wire.CreditCount(s.Value()); counted {
			return fmt.Sprintf("ACK credits %d", n)
		}
		return "ACK"
	case wire.SyndromeRNR:
		return "RNR NAK " + milliseconds(wire.RNRDelay(s.Value()))
	}
	return s.String()
}

// milliseconds formats an RNR timer, as in "0.64 ms".
func milliseconds(d time.Duration) string {
	return strings.TrimRight(strings.TrimRight(fmt.Sprintf("%.2f", float64(d)/1e6), "0"), ".") + " ms"
}

// SyndromeText describes the AETH syndrome of a response; ok is false if it has none.
func (r *RoCE) SyndromeText() (text string, ok bool) {
	info, _ := r.BTH.Opcode.Info()
	if !r.HeadersComplete || !info.Headers.Has(wire.HasAETH) {
		return "", false
	}
	return SyndromeText(r.AETH.Syndrome), true
}
