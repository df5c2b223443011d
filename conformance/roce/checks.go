package roce

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
)

// expectDropped sends a packet and fails the case if the device answers, completes a
// request or changes memory. Use [Conn.expectAccepted] to check that the expected PSN is
// unchanged.
func (c *Conn) expectDropped(pkt ib.Packet) {
	c.Send(pkt)
	if got, ok := c.packetAfterSync(silencePeriod); ok {
		c.Fail(fmt.Sprintf("%v is dropped", pkt), "the response %v", got)
	}
	if wc, ok := c.PollCompletion(0); ok {
		c.Fail(fmt.Sprintf("%v is dropped", pkt), "%s", rig.Describe(&wc))
	}
	c.ExpectUnchanged(c.TargetMem, 0, 0)
	c.ExpectUnchanged(c.LocalMem, 0, 0)
}

// expectAccepted sends the peer's n-th message, a SEND of one packet, and fails the case
// unless the device acknowledges it and completes receive n+1. It also shows that earlier
// packets have not changed the expected PSN.
func (c *Conn) expectAccepted(n int, modify ...func(ib.Packet) ib.Packet) {
	pkt := ib.SendOnly(c.PeerPSN(n), Data(16)).AckReq()
	for _, f := range modify {
		pkt = f(pkt)
	}
	c.exchange(pkt, ib.Ack(c.PeerPSN(n), uint32(n+1)))
	c.ExpectRecv(uint64(n+1), 16)
	c.ExpectBytes(c.LocalMem, n*64, Data(16))
	c.LocalMem.Snapshot()
}

// annexA17 cites a section of IBTA Annex A17 (RoCEv2), and the ledger rows that it covers.
func annexA17(section string, rows ...string) conformance.Cite {
	return conformance.Cite{Doc: "Annex A17", Section: section, Rows: rows}
}

// ibta cites a clause of the IBTA base specification. The section is empty if it is not
// publicly known.
func ibta(section string, rows ...string) conformance.Cite {
	return conformance.Cite{Doc: "IBTA", Section: section, Rows: rows}
}
