package engine

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// Scripted peers for UC, UD and XRC, and for QPs with an SRQ.

// over returns an edit that changes the transport of the opcode.
func over(tr wire.Transport) edit {
	return func(k *wire.Packet) { k.BTH.Opcode = wire.MakeOpcode(tr, k.BTH.Opcode.Operation()) }
}

// replaceQP replaces the QP of the test by a new one with the same connection.
func (p *peer) replaceQP(typ verbs.QPType, edit func(*QPConfig)) *QP {
	p.Helper()
	p.q = p.h.qp(typ, edit)
	p.port = 0
	p.connect(p.q, nil)
	return p.q
}

// connect connects a QP to the peer and moves it to RTS.
func (p *peer) connect(q *QP, edit func(*verbs.QPAttr)) {
	p.Helper()
	p.h.ready(q, p.addr, peerQPN, func(a *verbs.QPAttr) {
		a.PathMTU = verbs.MTUFor(p.mtu)
		a.RQPSN, a.SQPSN = uint32(p.rq), uint32(p.sq)
		if edit != nil {
			edit(a)
		}
	})
}

// drops compares the drop counters since the start: "drop_qkey 1" and so on.
func (p *peer) drops(want ...string) {
	p.Helper()
	var got []string
	for _, c := range p.h.nic.Counters() {
		if strings.HasPrefix(c.Name, "drop_") && c.Value > 0 {
			got = append(got, fmt.Sprintf("%s %d", c.Name, c.Value))
		}
	}
	p.compare("dropped", got, want)
}

// cqOf creates a CQ with another depth.
func (p *peer) cqOf(depth int) *nic.CQ {
	p.Helper()
	cq := must.Get(p.h.nic.CreateCQ(depth))(p)
	return cq
}

// polled compares the completions of a CQ.
func (p *peer) polled(cq *nic.CQ, want ...string) {
	p.Helper()
	into := make([]verbs.WC, cq.Depth())
	n := must.Get(cq.Poll(into))(p)
	var got []string
	for i := range n {
		got = append(got, renderWC(&into[i]))
	}
	p.compare("completed", got, want)
}

// allocPD allocates a protection domain.
func (h *host) allocPD() nic.PD {
	h.t.Helper()
	pd := must.Get(h.nic.AllocPD())(h.t)
	return pd
}

// srq creates an SRQ. edit may change its configuration.
func (h *host) srq(edit func(*nic.SRQConfig)) *nic.SRQ {
	h.t.Helper()
	c := nic.SRQConfig{PD: h.pd, MaxWR: 16, MaxSGE: 2}
	if edit != nil {
		edit(&c)
	}
	s := must.Get(h.nic.CreateSRQ(c))(h.t)
	return s
}

// postSRQ posts a receive of n bytes to an SRQ. Its buffer is recvBuf(id, n).
func (p *peer) postSRQ(s *nic.SRQ, id uint64, n int) {
	p.Helper()
	sge := p.h.sge(recvAt+int(id%16)*recvSize, n)
	must.Do(p, s.PostRecv(&verbs.RecvWR{WRID: id, SGL: []verbs.SGE{sge}}))
}

// ucPeer is a scripted peer of a UC QP.
type ucPeer struct{ *peer }

func eachUC(t *testing.T, s setup, f func(p ucPeer)) {
	t.Helper()
	qp := s.qp
	s.qp = func(c *QPConfig) {
		c.Type = verbs.QPTypeUC
		if qp != nil {
			qp(c)
		}
	}
	each(t, s, func(p *peer) { f(ucPeer{p}) })
}

func (p ucPeer) send(op wire.Operation, k int, edits ...edit) {
	p.Helper()
	p.peer.send(op, k, append([]edit{over(wire.TransportUC)}, edits...)...)
}

// udPeer is a scripted peer of a UD QP.
type udPeer struct{ *peer }

const udQKey = 0x1122_3344

// eachUD runs f with every flavour of a UD QP. The path MTU of the flavour and s.attr are not used.
func eachUD(t *testing.T, s setup, f func(p udPeer)) {
	t.Helper()
	anyLink := func(a *verbs.QPAttr) { a.PathMTU = verbs.MTU256 }
	each(t, setup{nic: s.nic, attr: anyLink}, func(p *peer) {
		p.replaceByUD(s.qp)
		f(udPeer{p})
	})
}

// replaceByUD replaces the QP of the test by a new UD QP.
func (p *peer) replaceByUD(edit func(*QPConfig)) *QP {
	p.Helper()
	p.q, p.port = p.h.qp(verbs.QPTypeUD, edit), 0
	a := verbs.QPAttr{State: verbs.QPStateInit, Port: 1, QKey: udQKey, SQPSN: uint32(p.sq)}
	p.h.modify(p.q, a, initMask|verbs.QPAttrQKey)
	a.State = verbs.QPStateRTR
	p.h.modify(p.q, a, verbs.QPAttrState)
	a.State = verbs.QPStateRTS
	p.h.modify(p.q, a, verbs.QPAttrState|verbs.QPAttrSQPSN)
	return p.q
}

func datagram(k *wire.Packet) {
	over(wire.TransportUD)(k)
	k.DETH = wire.DETH{QKey: udQKey, SrcQP: peerQPN}
}

func qkey(key uint32) edit { return func(k *wire.Packet) { k.DETH.QKey = key } }

func (p udPeer) send(op wire.Operation, k int, edits ...edit) {
	p.Helper()
	p.peer.send(op, k, append([]edit{datagram}, edits...)...)
}

// handle creates an address handle for the peer.
func (p *peer) handle(edit func(*verbs.AHAttr)) *AH {
	p.Helper()
	a := verbs.AHAttr{Port: 1, GRH: verbs.GRH{DGID: verbs.GIDFrom(p.addr), HopLimit: 64}}
	if edit != nil {
		edit(&a)
	}
	ah := must.Get(p.h.nic.CreateAH(p.h.pd, a))(p)
	return ah
}

// postTo posts a signaled datagram of n bytes for the peer's QP.
func (p udPeer) postTo(id uint64, ah *AH, n int, edits ...func(*verbs.SendWR)) {
	p.Helper()
	wr := verbs.SendWR{
		WRID: id, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: []verbs.SGE{p.h.sge(sourceAt, n)},
		UD: verbs.UD{QPN: peerQPN, QKey: udQKey},
	}
	for _, e := range edits {
		e(&wr)
	}
	must.Do(p, p.q.PostSend(p.now, &wr, Refs{AH: ah}))
}

func (p *peer) compare(what string, got, want []string) {
	p.Helper()
	if !reflect.DeepEqual(got, want) && len(got)+len(want) > 0 {
		p.Fatalf("%s %s at %v:\n\t%s\nwant:\n\t%s", p.name, what, p.now, strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

// checkPacket checks the fields that are the same in all packets and returns the others as text.
func (p *peer) checkPacket(d *link.Datagram) string {
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
	case len(d.Payload)%4 != 0 || int(k.BTH.PadCount) != wire.PadLen(len(k.Payload)):
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
