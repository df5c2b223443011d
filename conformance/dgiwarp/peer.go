package dgiwarp

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/verbs"
)

// peer is a scripted queue pair, with the queue pair of the device that it talks with. It never
// responds or retransmits by itself.
type peer struct {
	*deviceQP
	route route
	// qpn and key are the QPN and key of the peer.
	qpn, key    uint32
	incarnation uint32
	// ah is the address handle of the peer for the application.
	ah verbs.AH
	// toDevice is the flow to the device, fromDeviceFlow the flow from it.
	toDevice, fromDeviceFlow flow
	partial                  partialMessages // on UD
}

// flow is the peer's state of a flow.
type flow struct {
	epoch uint32
	// next is the next sequence number to send, or to receive from the device.
	next uint32
	// lastTimestamp is the timestamp of the packet that came last.
	lastTimestamp uint32
}

// The values of peer 0; each further peer adds one.
const (
	peerQPN         = 0x000abc00
	peerKey         = 0x0ddba115
	peerIncarnation = 0x1ca50001
)

// peer returns the n-th peer of the queue pair. Peers are distributed over the addresses of the
// bench's peer side round robin.
func (q *deviceQP) peer(n int) *peer {
	host := n % len(q.Peers)
	return &peer{
		partial:  partialMessages{},
		deviceQP: q, route: q.defaultRoute(host), qpn: peerQPN + uint32(n), key: peerKey + uint32(n), incarnation: peerIncarnation + uint32(n),
		ah: q.addressHandle(ahAttr(q.Peers[host], peerPort)),
	}
}

// onSetup makes the body of a case from a function that uses a peer of a queue pair.
func onSetup(s setup, body func(*peer)) func(*conformance.Bench) error {
	return onHost(func(h *host) { body(h.newQP(s).peer(0)) })
}

// onPeer is onSetup for a queue pair with eight receives.
func onPeer(body func(*peer)) func(*conformance.Bench) error {
	return onSetup(setup{receives: 8}, body)
}

// path returns the QPNs and the key of packets to the device.
func (p *peer) path() iwarp.PacketPath {
	return iwarp.PacketPath{Dest: uint32(p.qp.QPN()), Source: p.qpn, Key: p.deviceQP.key}
}

// send sends packets to the queue pair.
func (p *peer) send(pkts ...iwarp.Packet) {
	for _, pkt := range pkts {
		p.sendOctets(p.route, pkt.Over(p.path()).Append(nil))
	}
}

// sendSegments sends each segment in a UD packet.
func (p *peer) sendSegments(segments ...iwarp.Segment) {
	for _, s := range segments {
		p.send(iwarp.UD(s))
	}
}

// expect fails the case unless the next packet is from the queue pair to the peer and matches
// want. It returns the packet.
func (p *peer) expect(want iwarp.Packet) arrival {
	got := p.mustNextPacket(want.String())
	p.checkPacket(p.fromDevice(want), got)
	p.Check(got.IP.Dst == p.route.from.Addr() && iwarp.Val(got.UDP.DstPort) == p.route.from.Port(),
		fmt.Sprintf("%v goes to %v", got.Packet, p.route.from), "it goes to %v, port %d", got.IP.Dst, iwarp.Val(got.UDP.DstPort))
	return got
}

// expectSent posts a UD request, and fails the case unless the device sends the packet and
// completes the request.
func (p *peer) expectSent(wr verbs.SendWR, want iwarp.Packet) arrival {
	p.PostSend(p.qp, wr)
	a := p.expect(want)
	p.ExpectCompletion(wr.WRID, verbs.WCSuccess)
	return a
}

// expectErrorFor sends segments, each in a UD packet, and expects an error message.
func (p *peer) expectErrorFor(segments ...iwarp.Segment) {
	p.sendSegments(segments...)
	p.expect(iwarp.UD(iwarp.Op(iwarp.OpTerminate)))
}

// expectReceived sends a Send in a UD packet, and expects that it completes receive id.
func (p *peer) expectReceived(id uint64, send iwarp.Segment) {
	p.sendSegments(send)
	p.expectRecv(id, send.Payload)
}

// fromDevice adds the QPNs of the peer and the queue pair to an expected packet.
func (p *peer) fromDevice(want iwarp.Packet) iwarp.Packet {
	return want.ToQP(p.qpn).FromQP(uint32(p.qp.QPN()))
}

// wr returns a work request of the device to the peer, with n bytes of localMem from off on.
func (p *peer) wr(id uint64, op verbs.WROpcode, off, n int) verbs.SendWR {
	return verbs.SendWR{
		WRID: id, Opcode: op, Flags: verbs.SendSignaled, SGL: p.localMem.SGL(off, n),
		UD:     verbs.UD{AH: p.ah, QPN: verbs.QPN(p.qpn), QKey: p.key},
		Remote: verbs.Remote{Addr: peerTO, RKey: peerSTag},
	}
}

func (p *peer) sendWR(id uint64, off, n int) verbs.SendWR { return p.wr(id, verbs.OpSend, off, n) }

// The STag and TO of the peer's memory, which does not exist.
const (
	peerSTag = 0x0bad5eed
	peerTO   = 0x0000_7000_0000_1000
)
