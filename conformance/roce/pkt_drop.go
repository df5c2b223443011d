package roce

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var headerDropCases = mostlyRC.Cases(append([]conformance.Case{{
	ID: "pkt/ip/contradictory-lengths-dropped", Cite: annexA17("CA17-24", "pkt/ip/11"), Setup: ipv4,
	Title:   "An IPv4 packet whose lengths contradict each other is dropped, although its ICRC is correct",
	Sends:   "SENDs whose UDP length, or IP total length, is 4, 8 and 1 too large and too small, or both are too large for the frame, with an ICRC that covers them",
	Expects: "no response, no effect, and the expected PSN unchanged",
	Defects: []string{"FrameEndICRC"}, Run: acceptsAfter(dropContradictoryLengths),
}, {
	ID: "pkt/ip/ipv6-contradictory-lengths-dropped", Cite: annexA17("CA17-24", "pkt/ip/11"), Setup: ipv6,
	Title:   "An IPv6 packet whose lengths contradict each other is dropped, although its ICRC is correct",
	Sends:   "SENDs whose UDP length, or IPv6 payload length, is 4, 8 and 1 too large and too small, or both are too large for the frame, with an ICRC that covers them",
	Expects: "no response, no effect, and the expected PSN unchanged",
	Defects: []string{"FrameEndICRC"}, Run: acceptsAfter(dropContradictoryLengths),
}, {
	ID: "pkt/udp/other-protocol-numbers-dropped", Cite: annexA17("CA17-10", "pkt/udp/6"), Setup: ipv4,
	Title:   "A packet whose IPv4 protocol number is not that of UDP is dropped",
	Sends:   "SENDs in packets of UDP-Lite, ICMP, IGMP, SCTP and an experimental protocol",
	Expects: "no response, no effect, and the expected PSN unchanged",
	Defects: []string{"IPUnchecked"}, Run: acceptsAfter(dropOtherProtocols),
}, {
	ID: "pkt/udp/ipv6-other-next-headers-dropped", Cite: annexA17("CA17-16", "pkt/udp/6"), Setup: ipv6,
	Title:   "A packet whose IPv6 next header is not UDP is dropped",
	Sends:   "SENDs in packets of UDP-Lite, ICMP, IGMP, SCTP and an experimental protocol",
	Expects: "no response, no effect, and the expected PSN unchanged",
	Defects: []string{"IPUnchecked"}, Run: acceptsAfter(dropOtherProtocols),
}, {
	ID: "pkt/udp/ipv6-extension-header-dropped", Cite: annexA17("CA17-16", "pkt/udp/6"), Setup: ipv6,
	Title:   "A packet with an IPv6 extension header before UDP is dropped",
	Sends:   "SENDs after a header of hop-by-hop options, and of destination options, with an ICRC that covers it and with one that does not",
	Expects: "no response, no effect, and the expected PSN unchanged",
	Defects: []string{"ICRCIgnored"}, Run: acceptsAfter(dropExtensionHeaders),
}, {
	ID: "bth/pkey/zero-matches-nothing", Cite: ibta("C10-116", "bth/pkey/6"),
	Title:   "P_Keys 0x0000 and 0x8000 match no queue pair",
	Sends:   "SENDs, a WRITE, and an ACK for the device's SEND, with these P_Keys",
	Expects: "no response, no effect, and the expected PSN unchanged",
	Defects: []string{"KeysIgnored"}, Run: acceptsAfter(func(c *Conn) {
		c.request(0, c.SendWR(100, 8))
		for _, pkey := range invalidPKeys {
			for _, pkt := range []ib.Packet{c.peerSend(0, 16), c.peerWrite(0, 16), c.peerRead(0, 16), c.peerAck(0, 1)} {
				c.expectDropped(pkt.WithPKey(pkey))
			}
		}
		c.completeWith(c.peerAck(0, 1), 100)
	}),
}, {
	ID: "bth/pkey/zero-matches-no-datagram", Cite: ibta("C10-116", "bth/pkey/6"), Needs: verbs.CapUD, Labels: labelUD,
	Title:   "P_Keys 0x0000 and 0x8000 match no UD queue pair",
	Sends:   "datagrams with these P_Keys, then one with that of the queue pair",
	Expects: "a completion of the last only",
	Defects: []string{"KeysIgnored"}, Run: onUD(1, func(d *udPort) {
		for _, pkey := range invalidPKeys {
			d.expectDropped(d.datagram(Data(16)).WithPKey(pkey))
		}
		d.expectAccepted()
	}),
}, {
	ID: "bth/pkey/zero-matches-no-table-entry", Cite: ibta("C10-116", "bth/pkey/6"), Needs: verbs.CapCM, Labels: labelCM,
	Title:   "Queue pair 1 drops MADs with P_Keys 0x0000 and 0x8000, also if the table has empty entries",
	Sends:   "REQs for a service without a listener with these P_Keys, then one with the first P_Key of the table",
	Expects: "nothing, nothing, and a REJ",
	Defects: []string{"KeysIgnored"}, Run: OnPort(func(p *Port) {
		req := ib.CM(0x11, p.cmRequest(cmClosedPort, 0x1001))
		for _, pkey := range invalidPKeys {
			p.SendPacket(req.WithPKey(pkey))
			p.expectSilence(silencePeriod)
		}
		p.SendPacket(req)
		p.cmExpect(ib.REJ{RemoteCommID: new(uint32(0x1001))})
	}),
}, {
	ID: "pkt/addr/rocev1-gid-sends-no-rocev2", Cite: annexA17("CA17-40", "pkt/addr/7"),
	Title:   "A connection with a GID for RoCEv1 only sends no RoCEv2 packets",
	Sends:   "nothing: the device posts a SEND on an RC and on a UC connection with such a GID",
	Expects: "the address vector is refused, or nothing is sent over IP",
	Defects: []string{"GIDsWrong"}, Run: OnPort(func(p *Port) {
		index := p.rocev1OnlyIndex()
		attrs := verbs.QPAttrState | rig.PathAttrs
		for _, kind := range []verbs.QPType{verbs.QPTypeUC, verbs.QPTypeRC} {
			if !p.Caps.Has(capOf[kind]) {
				continue
			}
			c := p.connect(Setup{qpType: kind, state: verbs.QPStateInit})
			c.Attr.State, c.Attr.AH.GRH.SGIDIndex = verbs.QPStateRTR, index
			if kind == verbs.QPTypeRC {
				p.Completions() // a UC request may have been sent over RoCEv1
				attrs |= rig.ResponderAttrs
			}
			if err := c.QP.Modify(c.Attr, attrs); err != nil {
				continue
			}
			p.ToRTS(c.QP, c.Attr)
			_, _ = c.postSend(100) // may fail or not
			p.expectSilence(silencePeriod)
		}
		p.ExpectNoSuccess()
	}),
}, {
	ID: "pkt/addr/rocev1-gid-sends-no-datagram", Cite: annexA17("CA17-42", "pkt/addr/7"), Needs: verbs.CapUD, Labels: labelUD,
	Title:   "An address handle with a GID for RoCEv1 only sends no RoCEv2 datagram",
	Sends:   "nothing: the device posts a datagram with such an address handle",
	Expects: "the address is refused, or nothing is sent over IP",
	Defects: []string{"GIDsWrong"}, Run: OnPort(func(p *Port) {
		attr := p.peerAttr(p.Peer).AH
		attr.GRH.SGIDIndex = p.rocev1OnlyIndex()
		ah, err := p.PD.CreateAH(attr)
		if err != nil {
			return
		}
		d := p.newUDPort(0, nil)
		_, _ = d.QP.PostSend([]verbs.SendWR{d.addressed(ah, verbs.SendWR{WRID: 1, SGL: d.LocalMem.SGL(0, 16)})}) // may fail or not
		p.expectSilence(silencePeriod)
	}),
}}, gidTypeCase("pkt/addr/gid-entries-have-a-type", 4), gidTypeCase("pkt/addr/gid-entries-of-ipv6-have-a-type", 6)))

// gidTypeCase returns the case about the types of GIDs of a port with IPv4 or IPv6 addresses, by
// family.
func gidTypeCase(id string, family int) conformance.Case {
	return conformance.Case{
		ID: id, Cite: annexA17("CA17-26", "pkt/addr/6"), Setup: conformance.Setup{Family: family},
		Title:   fmt.Sprintf("Each used entry of the GID table has a type, and each IPv%d address of the port an entry for RoCEv2", family),
		Sends:   "nothing",
		Expects: "types RoCEv1 or RoCEv2; for each address exactly one entry of RoCEv2; entries of RoCEv2 with unicast addresses only",
		Defects: []string{"GIDsWrong"}, Run: OnPort(func(p *Port) {
			entries := make(map[verbs.GID]int) // number of RoCEv2 entries for each GID
			for _, e := range p.gidTable() {
				if e.GID == (verbs.GID{}) {
					continue // an unused entry
				}
				p.Check(e.Type == verbs.GIDTypeRoCEv1 || e.Type == verbs.GIDTypeRoCEv2, "a GID of type RoCEv1 or RoCEv2", "%v of type %v", e.GID, e.Type)
				if e.Type == verbs.GIDTypeRoCEv2 {
					entries[e.GID]++
					a := e.GID.Addr()
					p.Check(a.IsValid() && !a.IsUnspecified() && !a.IsMulticast(), "a GID of RoCEv2 that is a unicast address", "%v", e.GID)
				}
			}
			for _, own := range p.Local {
				p.Check(entries[verbs.GIDFrom(own)] == 1, "one entry of RoCEv2 for "+own.String(), "%d", entries[verbs.GIDFrom(own)])
			}
		}),
	}
}

// invalidPKeys are the P_Keys whose low fifteen bits are 0.
var invalidPKeys = []uint16{0, pkeyFullMember}

// rocev1OnlyIndex returns the index of rocev1OnlyAddr in the GID table.
func (p *Port) rocev1OnlyIndex() uint8 {
	a := p.rocev1OnlyAddr()
	table := p.gidTable()
	i := slices.IndexFunc(table, func(e verbs.GIDEntry) bool { return e.GID.Addr() == a })
	return uint8(table[i].Index)
}

// dropContradictoryLengths sends SENDs with a wrong length in the UDP or IP header, and too long
// ones in both, which the device must drop.
func dropContradictoryLengths(c *Conn) {
	if c.UDPSockets {
		rig.BenchCannot("sockets do not set the lengths in the headers")
	}
	const udpLen = 8 + 12 + 16 + 4 // header, BTH, payload, ICRC
	ipLen := udpLen
	if c.deviceAddr.Is4() {
		ipLen += 20
	}
	for _, wrong := range []int{1, -1, 4, -4, 8, -8} {
		udp, ip := c.peerSend(0, 16), c.peerSend(0, 16)
		udp.UDP.Length = new(uint16(udpLen + wrong))
		c.expectDropped(udp)
		ip.IP.Length = new(uint16(ipLen + wrong))
		c.expectDropped(ip)
		if wrong > 0 { // shorter lengths in both headers only mean that the frame has padding
			ip.UDP.Length = udp.UDP.Length
			c.expectDropped(ip)
		}
	}
}

// dropOtherProtocols sends SENDs in packets of other protocols than UDP, which must be dropped.
func dropOtherProtocols(c *Conn) {
	if c.UDPSockets {
		rig.BenchCannot("sockets do not set the protocol number")
	}
	const icmp, igmp, sctp, udpLite, experimental = 1, 2, 132, 136, 253
	for _, protocol := range []uint8{icmp, igmp, sctp, udpLite, experimental} {
		send := c.peerSend(0, 16)
		send.IP.Protocol = &protocol
		c.expectDropped(send)
	}
}

// dropExtensionHeaders sends SENDs with an extension header of IPv6, which the device must drop:
// with the ICRC of the packet without it, and with that of the packet with it.
func dropExtensionHeaders(c *Conn) {
	const hopByHop, destinationOptions, headerLen = 0, 60, 40
	for _, kind := range []byte{hopByHop, destinationOptions} {
		raw := c.peerSend(0, 16).MigReq().To(uint32(c.QP.QPN())).Via(c.Peer, c.deviceAddr).Build()
		extension := []byte{raw[6], 0, 1, 4, 0, 0, 0, 0} // next header, length of 8 bytes, and a padding option
		raw[6] = kind
		raw[5] += byte(len(extension))
		raw = slices.Insert(raw, headerLen, extension...)
		for range 2 {
			if err := c.Wire.Send(raw); err != nil {
				rig.Abort(err)
			}
			c.expectNothing()
			binary.LittleEndian.PutUint32(raw[len(raw)-4:], ib.ICRCBehind(raw, headerLen+len(extension)))
		}
	}
}
