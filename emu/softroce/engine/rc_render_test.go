package engine

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

func (p *peer) compare(what string, got, want []string) {
	p.Helper()
	if !reflect.DeepEqual(got, want) && len(got)+len(want) > 0 {
		p.Fatalf("%s %s at %v:\n\t%s\nwant:\n\t%s", p.name, what, p.now, strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

// see checks what all packets have in common and returns the rest as text.
func (p *peer) see(d *link.Datagram) string {
	p.Helper()
	var k wire.Packet
	if err := k.Parse(d.Payload); err != nil {
		p.Fatalf("sent %x: %v", d.Payload, err)
	}
	if !wire.NewICRC(d.Src, d.Dst).Check(0, d.Payload) {
		p.Errorf("ICRC of %x is wrong", d.Payload)
	}
	if p.port == 0 {
		p.port = d.Src.Port()
	}
	if d.Src != netip.AddrPortFrom(p.h.addr, p.port) || d.Dst != netip.AddrPortFrom(p.addr, wire.Port) {
		p.Errorf("sent from %v to %v", d.Src, d.Dst)
	}
	info, _ := k.BTH.Opcode.Info()
	body := d.Payload[info.HeaderLen : len(d.Payload)-wire.ICRCLen]
	switch pad := body[len(k.Payload):]; {
	case len(d.Payload)%4 != 0 || !k.PadOK():
		p.Errorf("pad count %d for %d bytes", k.BTH.PadCount, len(k.Payload))
	case strings.Trim(string(pad), "\x00") != "":
		p.Errorf("pad bytes %x", pad)
	}
	if b := &k.BTH; b.TVer != 0 || b.Reserved6 != 0 || b.Reserved7 != 0 || b.FECN || b.BECN || b.PKey != wire.DefaultPKey || b.DestQP != peerQPN {
		p.Errorf("BTH %+v", *b)
	}
	if info.Class.Has(wire.Response) && k.BTH.AckReq {
		p.Errorf("%v carries AckReq", k.BTH.Opcode)
	}
	k.Payload = append([]byte(nil), k.Payload...)
	p.got = append(p.got, k)
	return p.render(&k, info)
}

var nakTexts = []string{"sequence", "invalid", "access", "operational"}

func (p *peer) render(k *wire.Packet, info wire.Info) string {
	var b strings.Builder
	base := p.sq
	if info.Class.Has(wire.Response) {
		base = p.rq
	}
	name := strings.TrimPrefix(info.Name, "RC ")
	name = strings.Replace(name, "READ_RESPONSE", "RR", 1)
	if k.BTH.Opcode.Operation() == wire.OpAcknowledge {
		name = []string{"ACK", "RNR", "NAK", "RESERVED"}[k.AETH.Syndrome.Kind()]
	}
	fmt.Fprintf(&b, "%s %d", name, k.BTH.PSN.Sub(base))
	if len(k.Payload) > 0 {
		fmt.Fprintf(&b, " %dB", len(k.Payload))
	}
	if info.Headers.Has(wire.HasRETH) {
		fmt.Fprintf(&b, " va+%d len %d", k.RETH.VA-peerVA, k.RETH.DMALen)
	}
	if info.Headers.Has(wire.HasAtomicETH) {
		fmt.Fprintf(&b, " va+%d %d %d", k.AtomicETH.VA-peerVA, k.AtomicETH.SwapAdd, k.AtomicETH.Compare)
	}
	if info.Headers.Has(wire.HasAtomicAckETH) {
		fmt.Fprintf(&b, " was %d", k.AtomicAckETH.Original)
	}
	if info.Headers.Has(wire.HasImm) {
		fmt.Fprintf(&b, " imm %08x", uint32(k.Imm))
	}
	if info.Headers.Has(wire.HasIETH) {
		fmt.Fprintf(&b, " inv %x", k.IETH.RKey)
	}
	if info.Headers.Has(wire.HasAETH) {
		switch v := k.AETH.Syndrome.Value(); k.AETH.Syndrome.Kind() {
		case wire.SyndromeNak:
			b.WriteString(" " + nakTexts[v])
		case wire.SyndromeRNR:
			fmt.Fprintf(&b, " code %d", v)
		case wire.SyndromeReserved:
			fmt.Fprintf(&b, " syndrome %x", uint8(k.AETH.Syndrome))
		}
		fmt.Fprintf(&b, " msn %d", k.AETH.MSN)
	}
	if k.BTH.Solicited {
		b.WriteString(" se")
	}
	if k.BTH.AckReq {
		b.WriteString(" ackreq")
	}
	return b.String()
}

func renderWC(wc *verbs.WC) string {
	s := fmt.Sprintf("%d %s", wc.WRID, strings.TrimPrefix(wc.Status.String(), "IBV_WC_"))
	if wc.Status != verbs.WCSuccess {
		return s
	}
	s += " " + strings.TrimPrefix(wc.Opcode.String(), "IBV_WC_")
	if wc.ByteLen > 0 {
		s += fmt.Sprintf(" %dB", wc.ByteLen)
	}
	if wc.Flags&verbs.WCWithImm != 0 {
		s += fmt.Sprintf(" imm %08x", wc.Imm)
	}
	if wc.Flags&verbs.WCWithInv != 0 {
		s += fmt.Sprintf(" inv %x", uint32(wc.InvalidatedRKey))
	}
	return s
}
