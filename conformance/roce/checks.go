package roce

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
)

// expectDropped ends the case if a packet has any effect that shows at once: an answer, a
// completion, a byte in memory. Whether it has taken a PSN, only [conn.accepts] of
// the next one tells.
func (c *conn) expectDropped(pkt ib.Packet) {
	c.send(pkt)
	if got, ok := c.packetAfterSync(silencePeriod); ok {
		c.Fail(fmt.Sprintf("%v is dropped", pkt), "the answer %v", got)
	}
	if wc, ok := c.PollCompletion(0); ok {
		c.Fail(fmt.Sprintf("%v is dropped", pkt), "%s", rig.Describe(&wc))
	}
	c.ExpectUnchanged(c.targetMem, 0, 0)
	c.ExpectUnchanged(c.localMem, 0, 0)
}

// expectAccepted ends the case unless the peer's n-th message, which has one packet, is
// executed: it has the PSN that is due, and fills the next receive. It is also how to
// see that what was sent before has not moved the connection.
func (c *conn) expectAccepted(n int, modify ...func(ib.Packet) ib.Packet) {
	pkt := ib.SendOnly(c.peerPSN(n), data(16)).AckReq()
	for _, f := range modify {
		pkt = f(pkt)
	}
	c.send(pkt)
	c.expect(ib.Ack(c.peerPSN(n), uint32(n+1)))
	c.ExpectRecv(uint64(n+1), 16)
	c.ExpectBytes(c.localMem, n*64, data(16))
	c.localMem.Snapshot()
}

// annexA17 cites a section of IBTA Annex A17 (RoCEv2), and the ledger rows that it covers.
func annexA17(section string, rows ...string) conformance.Cite {
	return conformance.Cite{Doc: "Annex A17", Section: section, Rows: rows}
}

// ibta cites a clause of the base specification; an empty section is one that is not
// publicly known.
func ibta(section string, rows ...string) conformance.Cite {
	return conformance.Cite{Doc: "IBTA", Section: section, Rows: rows}
}
