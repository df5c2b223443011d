package dgiwarp

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var addressCases = []conformance.Case{{
	ID: "dg/address/number-names-the-queue-pair", Cite: cite("3", "dg/addr/1"),
	Title:   "A packet is delivered to the queue pair with its destination QPN, and dropped if it does not exist",
	Sends:   "Sends to each of three queue pairs of one socket, and to an unknown QPN",
	Expects: "a receive of the addressed queue pair",
	Defects: []string{"NumberIgnored"}, Run: onHost(func(h *host) {
		qs, free := make([]*deviceQP, 3), uint32(0) // free is a QPN above all that are in use
		for i := range qs {
			qs[i] = h.newQP(setup{receives: 3})
			free = max(free, uint32(qs[i].qp.QPN())+1)
		}
		for round := range 2 {
			for i := range qs {
				q := qs[len(qs)-1-i]
				q.peer(0).sendSegments(iwarp.Send(uint32(round+1), data(8)))
				q.expectRecv(uint64(round+1), data(8))
			}
		}
		qs[0].peer(0).send(iwarp.UD(iwarp.Send(9, data(8))).ToQP(free))
		// A synchronization queue pair might get this very QP number.
		qs[0].peer(0).sendSegments(iwarp.Send(10, data(16)))
		qs[0].expectRecv(3, data(16))
		h.ExpectNoCompletion()
	}),
}, {
	ID: "dg/address/zero-names-the-only-one", Cite: cite("3", "dg/addr/1"),
	Title:   "QPN 0 addresses the only queue pair of a socket",
	Sends:   "a Send to QPN 0 of a socket with one queue pair",
	Expects: "a receive of that queue pair",
	Defects: []string{"ZeroUnknown"}, Run: onPeer(func(p *peer) {
		p.send(iwarp.UD(iwarp.Send(1, data(8))).ToQP(0))
		p.expectRecv(1, data(8))
	}),
}, {
	ID: "dg/address/zero-names-the-only-reliable-one", Cite: cite("3", "dg/addr/1"), Setup: setupRD,
	Title:   "QPN 0 addresses the only queue pair of a socket in a flow, too",
	Sends:   "a flow to QPN 0 of a socket with one queue pair, and a packet of the same flow to its QPN",
	Expects: "a Challenge, Acks and receives",
	Defects: []string{"ZeroUnknown"}, Run: onPeer(func(p *peer) {
		p.toDeviceFlow = flow{epoch: p.Rand.Uint32()}
		p.send(p.start(noProof, iwarp.Send(1, data(8))).ToQP(0))
		cookie := *p.expectChallenge().Challenge.Cookie
		p.send(p.withStart(cookie, p.nextDataPacket(iwarp.Send(1, data(8)))).AckNow().ToQP(0))
		p.expectAck(1)
		p.expectRecv(1, data(8))
		p.expectDeliveredTo(2, iwarp.Send(2, data(16)))
	}),
}, {
	ID: "dg/address/services-do-not-mix", Cite: cite("3", "dg/addr/1", "dg/start/11"),
	Title:   "A UD queue pair refuses data of RD as no reliable queue pair, and drops other RD packets",
	Sends:   "a start, data, an Ack, a Challenge and a Refusal to a UD queue pair",
	Expects: "Refusals with reason 2 of the start and the data, and nothing else",
	Defects: []string{"ServiceUnchecked"}, Run: onPeer(func(p *peer) {
		p.toDeviceFlow.epoch = 7
		for _, pkt := range []iwarp.Packet{p.start(noProof, iwarp.Send(1, data(8))), p.dataPacket(1, zeroLengthWrite())} {
			p.send(pkt)
			p.expectRefusal(iwarp.ReasonNoQP)
		}
		p.send(iwarp.RDAck(7, 0), iwarp.Challenge(7, 1, 1), iwarp.Refusal(7, iwarp.ReasonUnknownFlow))
		p.expectNoEffect()
	}),
}, {
	ID: "dg/address/reliable-queue-pairs-take-no-ud", Cite: cite("3", "dg/addr/1"), Setup: setupRD,
	Title:   "A reliable queue pair drops UD packets",
	Sends:   "a Send, a Write and an invalid segment in UD packets to an RD queue pair",
	Expects: "no receive, no answer, memory unchanged",
	Defects: []string{"ServiceUnchecked"}, Run: onPeer(func(p *peer) {
		p.sendSegments(iwarp.Send(1, data(8)), p.writeToTarget(0, data(8)), unknownKeyWrite())
		p.expectNoEffect()
		p.openFlowTo(1, iwarp.Send(1, data(16)))
	}),
}, {
	ID: "dg/address/zero-names-none-of-several", Cite: cite("3", "dg/addr/1"),
	Title:   "QPN 0 addresses no queue pair if there are several",
	Sends:   "a Send to QPN 0 of a socket with two queue pairs",
	Expects: "no completion, no response",
	Defects: []string{"NumberIgnored"}, Run: onHost(func(h *host) {
		a, b := h.newQP(setup{receives: 2}), h.newQP(setup{receives: 2})
		a.peer(0).send(iwarp.UD(iwarp.Send(1, data(8))).ToQP(0))
		// A later receive shows that it was processed.
		b.peer(0).sendSegments(iwarp.Send(2, data(16)))
		b.expectRecv(1, data(16))
		h.ExpectNoCompletion()
		a.expectNoEffect()
	}),
}, {
	ID: "dg/address/queue-number-names-no-queue-pair", Cite: cite("3", "dg/addr/2"),
	Title:   "The DDP queue number is no QPN",
	Sends:   "a Send to a queue pair with the QPN of another as DDP queue number; the device sends one",
	Expects: "an error: invalid queue number, and no receive; queue 0 in the device's Send",
	Defects: []string{"QueueNumberIgnored"}, Run: onHost(func(h *host) {
		a, b := h.newQP(setup{receives: 2}), h.newQP(setup{receives: 2})
		p := a.peer(0)
		p.expectSent(p.sendWR(7, 0, 8), iwarp.UD(iwarp.Send(1, p.localMem.Buf[:8]).QN(0)))
		wrong := iwarp.Send(1, data(8)).QN(uint32(b.qp.QPN()))
		p.sendSegments(wrong)
		p.expect(iwarp.UD(iwarp.Terminate(iwarp.DDPUntaggedInvalidQN).Quoting(wrong)))
		b.ExpectUntouched(b.localMem)
		a.ExpectUntouched(a.localMem)
	}),
}, {
	ID: "dg/address/wrong-key-vanishes", Cite: cite("3", "dg/addr/3", "dg/verbs/5"),
	Title:   "A packet with another key than the queue pair's is dropped",
	Sends:   "Sends, Writes and invalid segments with each bit of the key flipped, with 0 and with the peer's key; then a Send with the correct one",
	Expects: "nothing, then a receive",
	Defects: []string{"KeysUnused"}, Run: onPeer(func(p *peer) {
		keys := []uint32{0, p.key, ^uint32(deviceKey)}
		for bit := range 32 {
			keys = append(keys, deviceKey^1<<bit)
		}
		for _, key := range keys {
			p.send(
				iwarp.UD(iwarp.Send(1, data(8))).WithKey(key),
				iwarp.UD(p.writeToTarget(0, data(8))).WithKey(key),
				iwarp.UD(unknownKeyWrite()).WithKey(key),
			)
		}
		p.expectNoEffect()
		p.expectReceived(1, iwarp.Send(2, data(16)))
	}),
}, {
	ID: "dg/address/key-of-the-destination-is-sent", Cite: cite("8", "dg/verbs/5", "dg/addr/3"),
	Title:   "A packet carries the Q_Key of its work request",
	Sends:   "nothing; the device sends to two queue pairs with different keys",
	Expects: "the key of each destination, and both QPNs",
	Defects: []string{"KeysUnused"}, Run: onPeer(func(p *peer) {
		other := p.peer(1)
		for range 2 {
			p.PostSend(p.qp, p.sendWR(1, 0, 8), other.wr(2, verbs.OpRDMAWrite, 0, 8))
			p.expect(iwarp.UD(iwarp.Op(iwarp.OpSend)).WithKey(p.key))
			other.expect(iwarp.UD(iwarp.Op(iwarp.OpWrite)).WithKey(other.key))
			p.ExpectCompletions(verbs.WCSuccess, 1, 2)
		}
	}),
}, {
	ID: "dg/address/key-of-each-request-of-a-flow", Cite: cite("8", "dg/verbs/5", "dg/addr/3"), Setup: setupRD,
	Title:   "A data packet of a flow carries the Q_Key of its work request, not that of an earlier one",
	Sends:   "Acks for Sends and a Write to one queue pair, each posted with another Q_Key",
	Expects: "packets of one flow, with the Q_Key of the request",
	Defects: []string{"FirstQKeyKept", "KeysUnused"}, Run: onPeer(func(p *peer) {
		p.establishDeviceFlow()
		for i, op := range []verbs.WROpcode{verbs.OpSend, verbs.OpRDMAWrite, verbs.OpSend} {
			p.key++
			id := uint64(i + 1)
			p.PostSend(p.qp, p.wr(id, op, 0, 8))
			p.checkPacket(iwarp.AnyPacket().WithKey(p.key), p.expectData(uint32(id)))
			p.ackAndComplete(id)
		}
	}),
}, {
	ID: "dg/address/answers-need-no-key", Cite: cite("3", "dg/addr/4"), Setup: setupRD,
	Title:   "Challenges, Acks and Refusals are accepted with any key",
	Sends:   "a Challenge, an Ack and a Refusal with an unknown key",
	Expects: "the cookie, a completion and a failure; in responses of the device the key of the packet they respond to",
	Defects: []string{"KeyOnEverything"}, Run: onPeer(func(p *peer) {
		p.recvStartOf(p.sendWR(1, 0, 8))
		p.send(iwarp.Challenge(p.fromDeviceFlow.epoch, p.incarnation, peerCookie).WithKey(0x11111111))
		p.expectProof(peerCookie)
		p.send(p.ack(1).WithKey(0))
		p.ExpectCompletion(1, verbs.WCSuccess)
		p.PostSend(p.qp, p.sendWR(2, 0, 8))
		p.expectData(1)
		p.send(iwarp.Refusal(p.fromDeviceFlow.epoch, iwarp.ReasonUnknownFlow).WithKey(0x22222222))
		p.expectFailure(2)
	}),
}, {
	ID: "dg/address/answers-carry-the-key-of-what-they-answer", Cite: cite("3", "dg/addr/4"), Setup: setupRD,
	Title:   "A Challenge, a Refusal and an error message carry the key of the packet they respond to, and an Ack that of the peer",
	Sends:   "a start without proof, data of an unknown flow, and data that is accepted, in two flows with different source keys",
	Expects: "a Challenge and a Refusal with the device's key, and Acks with the peer's",
	Defects: []string{"KeysUnused", "FirstSourceKeyKept"}, Run: onPeer(func(p *peer) {
		p.toDeviceFlow.epoch = 7
		p.send(p.withStart(noProof, p.dataPacket(0, zeroLengthWrite())))
		p.checkPacket(iwarp.PacketOf(iwarp.KindChallenge).WithKey(deviceKey), p.expectChallenge())
		p.send(p.dataPacket(0, zeroLengthWrite()))
		p.expect(iwarp.Refusal(7, iwarp.ReasonUnknownFlow).WithKey(deviceKey))
		for range 2 {
			p.key++
			p.openFlow(zeroLengthWrite())
			p.checkPacket(iwarp.AnyPacket().WithKey(p.key), p.expectDelivered(zeroLengthWrite()))
		}
	}),
}, {
	ID: "dg/address/errors-need-no-key", Cite: cite("3", "dg/addr/4", "dg/err/6"),
	Title:   "An error message is accepted with any key, and that of a device has the key of the packet it responds to",
	Sends:   "an error message with an unknown key, then an invalid segment",
	Expects: "an event of the addressed queue pair; then an error message with the key of the segment",
	Defects: []string{"KeyOnEverything"}, Run: onPeer(func(p *peer) {
		sent := p.expectSent(p.sendWR(1, 0, 8), iwarp.UD(iwarp.Op(iwarp.OpSend)))
		p.send(iwarp.UD(iwarp.Terminate(iwarp.DDPUntaggedTooLong).About(*sent.Segment)).WithKey(0x11111111))
		p.expectQPEvent()
		p.sendSegments(unknownKeyWrite())
		p.expect(iwarp.UD(iwarp.Op(iwarp.OpTerminate)).WithKey(deviceKey))
	}),
}, {
	ID: "dg/address/completion-names-the-source", Cite: cite("3", "dg/addr/5", "dg/verbs/2"),
	Title:   "The completion of a receive names address, port and queue pair of the source, for a reply",
	Sends:   "Sends from several hosts, ports and queue pairs, to each of which the application replies",
	Expects: "the replies go to the sources of the Sends",
	Defects: []string{"SourceLost"}, Run: onPeer(func(p *peer) {
		for i, port := range []uint16{peerPort, 1024, 65535, devicePort} {
			from := p.peer(i)
			from.route = from.route.fromPort(port)
			from.sendSegments(iwarp.Send(1, data(8)))
			wc := p.expectRecv(uint64(i+1), data(8))
			p.Check(uint32(wc.SrcQP) == from.qpn, fmt.Sprintf("the source %#x", from.qpn), "%#x", uint32(wc.SrcQP))
			area := p.localMem.Buf[i*p.recvLen:][:grhAreaLen]
			attr, err := verbs.InitAHFromWC(1, 0, &wc, area)
			p.Check(err == nil, "an address area that a reply can use", "%v: % x", err, area)
			from.ah = p.addressHandle(attr)
			from.expectSent(from.sendWR(uint64(i), 0, 8), iwarp.UD(iwarp.Op(iwarp.OpSend)))
		}
	}),
}, {
	ID: "dg/address/default-port", Cite: cite("3", "dg/addr/8"), Level: conformance.Should,
	Title:   "The UDP port of a device is 65041",
	Sends:   "nothing; the device sends; then a Send to that port",
	Expects: "packets from that port, and a receive",
	Defects: []string{"PortEphemeral"}, Run: onPeer(func(p *peer) {
		a := p.expectSent(p.sendWR(7, 0, 8), iwarp.UD(iwarp.Op(iwarp.OpSend)))
		p.Check(iwarp.Val(a.UDP.SrcPort) == devicePort, fmt.Sprintf("source port %d", devicePort), "%d", iwarp.Val(a.UDP.SrcPort))
		p.expectReceived(1, iwarp.Send(1, data(8)))
	}),
}, {
	ID: "dg/address/impossible-sources-vanish", Cite: cite("3", "dg/addr/9"), Setup: ipv6,
	Title:   "A packet from a multicast address, the unspecified address or port 0 is dropped",
	Sends:   "Sends and invalid segments from ff02::1, from ff0e::1234, from :: and from port 0; then a Send from a valid address",
	Expects: "nothing, then a receive",
	Defects: []string{"StrangersHeard"},
	Run:     onPeer(func(p *peer) { p.expectDroppedFrom("ff02::1", "ff0e::1234", "::") }),
}, {
	ID: "dg/address/impossible-sources-of-ipv4-vanish", Cite: cite("3", "dg/addr/9"), Setup: ipv4,
	Title:   "A packet from a multicast, broadcast or unspecified address or from port 0 is dropped, over IPv4",
	Sends:   "Sends and invalid segments from 224.0.0.1, from 255.255.255.255, from 0.0.0.0 and from port 0; then a Send from a valid address",
	Expects: "nothing, then a receive",
	Defects: []string{"StrangersHeard"},
	Run:     onPeer(func(p *peer) { p.expectDroppedFrom("224.0.0.1", "255.255.255.255", "0.0.0.0") }),
}, {
	ID: "dg/address/removed-address-sends-nothing", Cite: cite("3", "dg/addr/10"), Setup: conformance.Setup{TwoAddresses: true},
	Title:   "A queue pair sends nothing from an address that was removed from the host, and continues from the others",
	Sends:   "nothing; each address is removed and added again, and the device sends with an address handle of each",
	Expects: "a packet from each address that the host has, and none from the other",
	Defects: []string{"RemovedAddressSends"}, Run: onPeer(func(p *peer) {
		if p.SetAddress == nil {
			rig.BenchCannot("remove an address from the device")
		}
		var handles []verbs.AH
		for i := range p.Local {
			a := ahAttr(p.Peers[0], peerPort)
			a.GRH.SGIDIndex = uint8(i)
			handles = append(handles, p.addressHandle(a))
		}
		for removed := range p.Local {
			for _, present := range []bool{false, true} {
				p.Must("an address that can be removed and added", p.SetAddress(p.Local[removed], present))
				p.ExpectEvent(verbs.EventGIDChange)
				for from := range p.Local {
					p.ah = handles[from]
					p.checkSentFrom(p.Local[from], present || from != removed)
				}
			}
		}
	}),
}}

// checkSentFrom fails the case unless a Send with p.ah, which names a source address, is sent from
// that address. If sent is false, it must not be sent, and may complete or not.
func (p *peer) checkSentFrom(addr netip.Addr, sent bool) {
	if sent {
		a := p.expectSent(p.sendWR(1, 0, 8), iwarp.UD(iwarp.Op(iwarp.OpSend)))
		p.Check(a.IP.Src == addr, fmt.Sprintf("a packet from %v", addr), "from %v", a.IP.Src)
		return
	}
	_, _ = p.qp.PostSend([]verbs.SendWR{p.sendWR(2, 0, 8)}) // may be refused
	a, ok := p.nextPacket(silencePeriod)                    // no synchronization: the address may be the one for it
	p.Check(!ok, fmt.Sprintf("nothing is sent from %v, which was removed", addr), "%v", a.Packet)
	p.Completions()
}

// expectDroppedFrom fails the case unless the device drops packets from these addresses, and from
// UDP port 0: a Send, and a Write to an unknown STag, which would be answered by an error. Then a
// valid Send must take the first receive.
func (p *peer) expectDroppedFrom(addresses ...string) {
	routes := []route{p.route.fromPort(0)}
	for _, a := range addresses {
		r := p.route
		r.from = netip.AddrPortFrom(netip.MustParseAddr(a), peerPort)
		routes = append(routes, r)
	}
	for _, r := range routes {
		forged := *p
		forged.route = r
		forged.sendSegments(iwarp.Send(1, data(8)), unknownKeyWrite())
	}
	p.expectNoEffect()
	p.expectReceived(1, iwarp.Send(2, data(16))) // a UD receiver does not check the order of MSNs
}

// expectQPEvent expects an asynchronous event of the queue pair. Its type is not specified.
func (q *deviceQP) expectQPEvent() {
	e, err := q.Device.WaitAsync(q.ResponseTimeout())
	q.Check(err == nil, "an event of the queue pair", "%v", err)
	q.Note("event %v", e.Type)
	q.Check(e.QP != nil && e.QP.QPN() == q.qp.QPN(), "an event of the queue pair", "%v of another", e.Type)
}

// expectFailure fails the case unless the next completion is an error completion of request id,
// long before the device would give up retransmitting (giveUpTimeout). It returns the status.
func (h *host) expectFailure(id uint64) verbs.WCStatus {
	wc, ok := h.PollCompletion(giveUpTimeout / 5)
	h.Check(ok, fmt.Sprintf("request %d to fail", id), "nothing in %v", giveUpTimeout/5)
	h.Check(wc.WRID == id && wc.Status != verbs.WCSuccess, fmt.Sprintf("request %d to fail", id), "%s", rig.Describe(&wc))
	return wc.Status
}

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
	Sends:   "Sends to the group QPN at two group addresses; two of four queue pairs are in the first, one of them and a third, which attaches twice, in the second",
	Expects: "one receive of each member of the group",
	Defects: []string{"GroupsMixed", "CopyForEachAttach"},
	Run:     onHost(func(h *host) { h.expectCopiesForMembers(groupA, groupB) }),
}, {
	ID: "dg/group/one-copy-for-each-that-attached-over-ipv4", Cite: cite("3", "dg/addr/6"), Needs: verbs.CapMulticast, Setup: ipv4,
	Title:   "A packet to an IPv4 group goes to every queue pair that is attached to it, once, and to no other",
	Sends:   "Sends to the group QPN at two group addresses; two of four queue pairs are in the first, one of them and a third, which attaches twice, in the second",
	Expects: "one receive of each member of the group",
	Defects: []string{"GroupsMixed"}, Run: onHost(func(h *host) {
		h.expectCopiesForMembers(netip.MustParseAddr("239.0.217.1"), netip.MustParseAddr("239.0.217.2"))
		q := h.newQP(setup{receives: 1})
		if q.qp.AttachMulticast(verbs.GIDFrom(ipv4Broadcast)) == nil { // a network may not have it
			q.peer(0).sendToGroup(ipv4Broadcast, iwarp.Send(1, data(8)))
			q.expectRecv(1, data(8))
		}
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
	Sends:   "a Write with an unknown key, a Send to an unknown queue and a Read Request, each to a separate group; data of RD",
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
		q := h.newQP(setup{receives: 2})
		h.attachToGroup(groupA, q)
		p := q.peer(0)
		for _, pkt := range []iwarp.Packet{p.start(noProof, zeroLengthWrite()), p.dataPacket(1, zeroLengthWrite())} {
			for _, to := range []uint32{uint32(q.qp.QPN()), iwarp.GroupQP} {
				p.sendOctets(p.route.toAddr(groupA), pkt.ToQP(to).Over(p.path()).Append(nil))
			}
		}
		q.expectSilence(silencePeriod)
		q.ExpectUntouched(q.localMem)
	}),
}, {
	ID: "dg/group/reliable-packets-are-not-answered", Cite: cite("3", "dg/addr/7"), Setup: conformance.Setup{Family: 4, Reliable: true},
	Title:   "RD packets at a broadcast address are dropped without a response",
	Sends:   "to the broadcast address: a start, data of an unknown flow and of a known one, to the QPN and to the group QPN",
	Expects: "no packet at all, and no receive; then an Ack for the same data at the device's address",
	Defects: []string{"GroupAnswered"}, Run: onFlow(setup{receives: 2}, func(p *peer) {
		d := p.nextDataPacket(iwarp.Send(1, data(8))).AckNow()
		stranger := p.peer(1)
		stranger.toDeviceFlow.epoch = p.toDeviceFlow.epoch + 1
		strange := stranger.dataPacket(0, zeroLengthWrite()).AckNow()
		for _, to := range []uint32{uint32(p.qp.QPN()), iwarp.GroupQP} {
			for _, pkt := range []iwarp.Packet{d, strange.FromQP(stranger.qpn), stranger.withStart(noProof, strange).FromQP(stranger.qpn)} {
				p.sendOctets(p.route.toAddr(ipv4Broadcast), pkt.ToQP(to).Over(p.path()).Append(nil))
			}
		}
		p.expectIdle()
		p.send(d)
		p.expectAck(2)
		p.expectRecv(1, data(8))
	}),
}})

// expectCopiesForMembers fails the case unless packets to two groups reach exactly their members.
func (h *host) expectCopiesForMembers(a, b netip.Addr) {
	first, both, second, none := h.newQP(setup{receives: 3}), h.newQP(setup{receives: 3}), h.newQP(setup{receives: 3}), h.newQP(setup{receives: 3})
	h.attachToGroup(a, first, both)
	h.attachToGroup(b, both, second)
	second.Note("attach again: %v", second.qp.AttachMulticast(verbs.GIDFrom(b))) // may fail
	p := none.peer(0)
	p.sendToGroup(a, iwarp.Send(1, data(8)))
	h.expectGroupDelivery(data(8), first, both)
	p.sendToGroup(b, iwarp.Send(2, data(16)))
	h.expectGroupDelivery(data(16), both, second)
	h.expectIdle()
}

// attachToGroup attaches queue pairs to a multicast group.
func (h *host) attachToGroup(group netip.Addr, qs ...*deviceQP) {
	for _, q := range qs {
		h.Must("a queue pair that can be attached", q.qp.AttachMulticast(verbs.GIDFrom(group)))
	}
}

// sendToGroup sends a segment to a multicast group.
func (p *peer) sendToGroup(group netip.Addr, s iwarp.Segment) {
	p.sendOctets(p.route.toAddr(group), iwarp.UD(s).ToQP(iwarp.GroupQP).Over(p.path()).Append(nil))
}

// expectGroupDelivery expects that the next completions are receives, one of each queue pair, with
// the message after the 40 octets where UD has the GRH.
func (h *host) expectGroupDelivery(message []byte, qs ...*deviceQP) {
	got := make(map[verbs.QPN]int)
	for range qs {
		wc := h.NextCompletion()
		h.Check(wc.Status == verbs.WCSuccess && int(wc.ByteLen) == grhAreaLen+len(message), "a receive of the message", "%v, %d octets", wc.Status, wc.ByteLen)
		got[wc.QPN]++
		if i := slices.IndexFunc(qs, func(q *deviceQP) bool { return q.qp.QPN() == wc.QPN }); i >= 0 {
			qs[i].ExpectBytes(qs[i].localMem, int(wc.WRID-1)*qs[i].recvLen+grhAreaLen, message)
		}
	}
	for _, q := range qs {
		h.Check(got[q.qp.QPN()] == 1, "one receive of each member of the group", "%d", got[q.qp.QPN()])
	}
}
