package roce

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
)

// PacketChecker checks rules that hold for every packet from a device: the ICRC, and the
// fields of transport headers. Network headers and recommendations have their own cases.
type PacketChecker struct {
	// pkey is the expected P_Key, the first of the port's table; pkeys are exceptions by
	// the peer's QPN.
	pkey  uint16
	pkeys map[uint32]uint16
	// markSent is set once the peer has sent a packet with CE or FECN.
	markSent bool
}

// PacketSent tells the checker of a packet sent to the device. Once one has a CE mark or FECN, the
// packets of the device may have FECN and BECN.
func (w *PacketChecker) PacketSent(p ib.Packet) {
	marked := p.IP.TClass != nil && *p.IP.TClass&3 == 3 /* CE */ || p.BTH.FECN != nil && *p.BTH.FECN
	w.markSent = w.markSent || marked
}

// Check fails the case if a packet has [ib.Packet.Faults], or a wrong P_Key, FECN or BECN.
func (w *PacketChecker) Check(r *rig.Rig, p ib.Packet) {
	for _, f := range p.Faults() {
		r.Fail(f.Rule, "%v: %s", p, f.Found)
	}
	if p.Opcode() == ib.OpCNP {
		return // a CNP has the P_Key of the marked packet, and BECN
	}
	// QP 1 responds with the P_Key of the request.
	pkey, hasOwn := w.pkeys[p.DestQP()]
	if !hasOwn {
		pkey = w.pkey
	}
	r.Check(p.DestQP() == ib.GSIQPN || *p.BTH.PKey == pkey,
		fmt.Sprintf("the P_Key of the queue pair, %#04x", pkey), "%v with P_Key %#04x", p, *p.BTH.PKey)
	r.Check(w.markSent || !*p.BTH.FECN && !*p.BTH.BECN,
		"no FECN or BECN where no packet was marked", "%v with FECN %v, BECN %v", p, *p.BTH.FECN, *p.BTH.BECN)
}

// RequireICRCFields ends a case about ICRCs as unsupported if the bench does not see all
// fields that the ICRC covers: with UDP sockets over IPv4. [PacketChecker.Check] then
// accepts an ICRC that is correct for any value of the hidden fields.
func (p *Port) RequireICRCFields() {
	if p.UDPSockets && p.Local[0].Is4() {
		rig.BenchCannot("sockets do not show the identification and the flags of IPv4, which the ICRC covers")
	}
}

// expectDropped sends a packet and fails the case if the device answers, completes a
// request or changes memory. Use [Conn.expectAccepted] to check that the expected PSN is
// unchanged.
func (c *Conn) expectDropped(pkt ib.Packet) {
	c.Send(pkt)
	got, answered := c.NextAfterSync(silencePeriod)
	c.Check(!answered, fmt.Sprintf("%v is dropped", pkt), "the response %v", got)
	wc, completed := c.PollCompletion(0)
	c.Check(!completed, fmt.Sprintf("%v is dropped", pkt), "%s", rig.Describe(&wc))
	c.ExpectUntouched(c.TargetMem, c.LocalMem)
}

// expectAccepted sends the peer's n-th message, a SEND of one packet, and fails the case
// unless the device acknowledges it and completes receive n+1. It also shows that earlier
// packets have not changed the expected PSN.
func (c *Conn) expectAccepted(n int, modify ...func(ib.Packet) ib.Packet) {
	pkt := c.peerSend(n, 16)
	for _, f := range modify {
		pkt = f(pkt)
	}
	c.exchange(pkt, c.deviceAck(n, uint32(n+1)))
	c.ExpectRecv(uint64(n+1), 16)
	c.ExpectBytes(c.LocalMem, n*64, Data(16))
	c.LocalMem.Snapshot()
}

// acceptsAfter makes the body of a case from steps on an RC connection with four receives. After
// them the device must accept a SEND with the first PSN.
func acceptsAfter(steps func(*Conn)) func(*conformance.Bench) error {
	return onRC(func(c *Conn) {
		steps(c)
		c.expectAccepted(0)
	})
}

// annexA17 cites a section of IBTA Annex A17 (RoCEv2). rows are the covered rows of the ledger,
// without the prefix "roce/" of their IDs.
func annexA17(section string, rows ...string) conformance.Cite {
	return cite("Annex A17", section, rows)
}

// ibta is annexA17 for the IBTA base specification. The section is empty if it is not public.
func ibta(section string, rows ...string) conformance.Cite { return cite("IBTA", section, rows) }

// cite returns a citation of rows of ../ledger/roce.yaml.
func cite(doc, section string, rows []string) conformance.Cite {
	c := conformance.Cite{Doc: doc, Section: section}
	for _, row := range rows {
		c.Rows = append(c.Rows, "roce/"+row)
	}
	return c
}
