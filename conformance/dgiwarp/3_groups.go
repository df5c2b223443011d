package dgiwarp

import (
	"net/netip"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// Multicast groups without other members.
var (
	groupA = netip.MustParseAddr("ff02::d9:1")
	groupB = netip.MustParseAddr("ff02::d9:2")
)

// ipv4Broadcast is the limited broadcast address.
var ipv4Broadcast = netip.MustParseAddr("255.255.255.255")

var groupCases = conformance.Group{Setup: ipv6}.Cases([]conformance.Case{{
	ID: "dg/group/one-copy-for-each-that-attached", Cite: cite("3", "dg/addr/6"), Needs: verbs.CapMulticast,
	Title:   "A packet to a group goes to every queue pair that is attached to it, once, and to no other",
	Sends:   "Sends to the group QPN at two group addresses; two of four queue pairs are in the first, one of them and a third in the second",
	Expects: "one receive of each member of the group",
	Defects: []string{"GroupsMixed"}, Run: onHost(func(h *host) {
		first, both, second, none := h.newQP(setup{receives: 3}), h.newQP(setup{receives: 3}), h.newQP(setup{receives: 3}), h.newQP(setup{receives: 3})
		h.attachToGroup(groupA, first, both)
		h.attachToGroup(groupB, both, second)
		p := none.peer(0)
		p.sendToGroup(groupA, iwarp.Send(1, data(8)))
		h.expectGroupDelivery(data(8), first, both)
		p.sendToGroup(groupB, iwarp.Send(2, data(16)))
		h.expectGroupDelivery(data(16), both, second)
		h.expectIdle()
	}),
}, {
	ID: "dg/group/detached-gets-no-more", Cite: cite("3", "dg/addr/6"), Needs: verbs.CapMulticast,
	Title:   "A detached queue pair receives no more packets of the group",
	Sends:   "a Send to a group of two queue pairs, and another after the first was detached",
	Expects: "a receive of both, then of the second",
	Defects: []string{"GroupsMixed"}, Run: onHost(func(h *host) {
		a, b := h.newQP(setup{receives: 3}), h.newQP(setup{receives: 3})
		h.attachToGroup(groupA, a, b)
		p := a.peer(0)
		p.sendToGroup(groupA, iwarp.Send(1, data(8)))
		h.expectGroupDelivery(data(8), a, b)
		h.Must("a queue pair that can be detached", a.qp.DetachMulticast(verbs.GIDFrom(groupA)))
		p.sendToGroup(groupA, iwarp.Send(2, data(16)))
		h.expectGroupDelivery(data(16), b)
		h.expectNoCompletionYet()
	}),
}, {
	ID: "dg/group/number-of-groups-under-a-host-address", Cite: cite("3", "dg/addr/6"), Needs: verbs.CapMulticast,
	Title:   "A packet to the group QPN at the device's unicast address is dropped",
	Sends:   "a Send and an invalid segment to the group QPN at the device's address; then a Send to the group",
	Expects: "nothing, then a receive",
	Defects: []string{"GroupsMixed"}, Run: onPeer(func(p *peer) {
		p.attachToGroup(groupA, p.deviceQP)
		p.send(iwarp.UD(iwarp.Send(1, data(8))).ToQP(iwarp.GroupQP), iwarp.UD(unknownKeyWrite()).ToQP(iwarp.GroupQP))
		p.expectNoEffect()
		p.sendToGroup(groupA, iwarp.Send(2, data(16)))
		p.expectRecv(1, data(16))
	}),
}, {
	ID: "dg/group/errors-are-not-answered", Cite: cite("3", "dg/addr/7", "dg/err/3"), Needs: verbs.CapMulticast,
	Title:   "Errors of multicast packets are not reported to the sender",
	Sends:   "a Write with an unknown key, a Send to an unknown queue and a Read Request, each to a separate group",
	Expects: "no packet at all",
	Defects: []string{"GroupAnswered"}, Run: onHost(func(h *host) {
		for i, wrong := range []iwarp.Segment{
			unknownKeyWrite(), iwarp.Send(1, data(8)).QN(9), iwarp.ReadRequest(1, iwarp.At(peerSTag, peerTO), 8, iwarp.At(unknownSTag, 0)),
		} {
			q := h.newQP(setup{receives: 2})
			group := netip.AddrFrom16([16]byte{0: 0xff, 1: 0x02, 13: 0xd9, 15: byte(i + 8)})
			h.attachToGroup(group, q)
			q.peer(0).sendToGroup(group, wrong)
			h.expectSilence(silencePeriod)
		}
	}),
}, {
	ID: "dg/group/reliable-packets-are-not-answered", Cite: cite("3", "dg/addr/7"), Setup: conformance.Setup{Family: 4, Reliable: true},
	Title:   "RD packets at a broadcast address are dropped without a response",
	Sends:   "to the broadcast address: a start, data of an unknown flow and of a known one, to the QPN and to the group QPN",
	Expects: "no packet at all, and no receive; then an Ack for the same data at the device's address",
	Defects: []string{"GroupAnswered"}, Run: onFlow(setup{receives: 2}, func(p *peer) {
		d := p.nextDataPacket(iwarp.Send(1, data(8))).AckNow()
		stranger := p.peer(1)
		stranger.toDevice.epoch = p.toDevice.epoch + 1
		strange := stranger.dataPacket(0, zeroLengthWrite()).AckNow()
		for _, to := range []uint32{uint32(p.qp.QPN()), iwarp.GroupQP} {
			for _, pkt := range []iwarp.Packet{d, strange.FromQP(stranger.qpn), stranger.withStart(0, strange).FromQP(stranger.qpn)} {
				p.sendOctets(p.route.toAddr(ipv4Broadcast), pkt.ToQP(to).Over(p.path()).Append(nil))
			}
		}
		p.expectIdle()
		p.send(d)
		p.expectAck(2)
		p.expectRecv(1, data(8))
	}),
}})

// attachToGroup attaches queue pairs to a group.
func (h *host) attachToGroup(group netip.Addr, qs ...*deviceQP) {
	for _, q := range qs {
		h.Must("a queue pair that can be attached", q.qp.AttachMulticast(verbs.GIDFrom(group)))
	}
}

// sendToGroup sends a segment to a group.
func (p *peer) sendToGroup(group netip.Addr, s iwarp.Segment) {
	p.sendOctets(p.route.toAddr(group), iwarp.UD(s).ToQP(iwarp.GroupQP).Over(p.path()).Append(nil))
}

// expectGroupDelivery fails the case unless exactly the queue pairs receive the message, once
// each.
func (h *host) expectGroupDelivery(message []byte, qs ...*deviceQP) {
	got := make(map[verbs.QPN]int)
	for range qs {
		wc := h.NextCompletion()
		h.Check(wc.Status == verbs.WCSuccess && int(wc.ByteLen) == areaLen+len(message), "a receive of the message", "%v, %d octets", wc.Status, wc.ByteLen)
		got[wc.QPN]++
	}
	for _, q := range qs {
		h.Check(got[q.qp.QPN()] == 1, "one receive of each member of the group", "%d", got[q.qp.QPN()])
	}
}
