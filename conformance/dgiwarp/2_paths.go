package dgiwarp

import (
	"bytes"
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
)

var pathCases = []conformance.Case{{
	ID: "dg/packet/none-is-longer-than-the-path", Cite: cite("2", "dg/pkt/8"),
	Setup:   conformance.Setup{Family: 4, MTU: 1500},
	Title:   "No packet is longer than the path MTU, and over IPv4 all have DF",
	Sends:   "nothing; the device sends 16 KiB over a path MTU of 1500",
	Expects: "packets of at most 1500 octets, none of them a fragment, all with DF",
	Defects: []string{"PathMTUIgnored"}, Run: onPeer(func(p *peer) { p.expectWithinMTU(16 << 10) }),
}, {
	ID: "dg/packet/path-of-576", Cite: cite("2", "dg/pkt/10", "dg/pkt/8"),
	Setup:   conformance.Setup{Family: 4, MTU: 576},
	Title:   "A path MTU of 576 octets is sufficient",
	Sends:   "a Send in a datagram of 512 octets; the device sends 4 KiB over a path MTU of 576",
	Expects: "a receive, and packets of at most 576 octets",
	Defects: []string{"PathMTUIgnored"}, Run: onSetup(setup{receives: 1, recvLen: 512}, expectNarrowPathTraffic),
}, {
	ID: "dg/packet/narrow-path", Cite: cite("2", "dg/pkt/10", "dg/pkt/8"),
	Setup:   conformance.Setup{Family: 4, MTU: 540},
	Title:   "UDP payloads of 512 octets are sent and accepted",
	Sends:   "a Send in a datagram of 512 octets; the device sends 4 KiB over a path MTU of 540",
	Expects: "a receive, and packets of at most 540 octets",
	Defects: []string{"PathMTUIgnored"}, Run: onSetup(setup{receives: 1, recvLen: 512}, expectNarrowPathTraffic),
}}

// expectNarrowPathTraffic fails the case unless messages pass a path with a small MTU in both directions.
func expectNarrowPathTraffic(p *peer) {
	p.expectReceived(1, iwarp.Send(1, data(512-sendOverhead)))
	p.expectWithinMTU(4 << 10)
}

// expectWithinMTU fails the case unless the device sends a message of n octets in packets within the path MTU.
func (p *peer) expectWithinMTU(n int) {
	p.PostSend(p.qp, p.sendWR(1, 0, n))
	var message []byte
	for _, a := range p.nextMessage() {
		p.Check(a.size <= p.MTU, fmt.Sprintf("packets of at most %d octets", p.MTU), "one of %d", a.size)
		p.Check(!a.IP.Fragmented() && packet.Get(a.IP.DF, true), "packets that may not be fragmented", "MF %v, offset %d, DF %v",
			iwarp.Val(a.IP.MF), iwarp.Val(a.IP.FragOff), iwarp.Val(a.IP.DF))
		message = append(message, a.Segment.Payload...)
	}
	p.Check(bytes.Equal(message, p.localMem.Buf[:n]), fmt.Sprintf("a message of %d octets", n), "%d, or other content", len(message))
}
