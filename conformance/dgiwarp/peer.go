package dgiwarp

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// deviceQP is a queue pair of the device.
type deviceQP struct {
	*host
	qp  verbs.QP
	key uint32
	// targetMem is for requests of peers; localMem for requests and receives of the device.
	targetMem, localMem *rig.Memory
	// recvLen is the length of its receives, GRH area included.
	recvLen int
}

// setup describes a queue pair. The zero value is one in RTS without receives.
type setup struct {
	// receives is how many receives are posted, with IDs from 1 on and recvLen octets after the
	// GRH area (64 if zero), one after the other in localMem.
	receives, recvLen int
	// access are the rights of peers on targetMem; all if zero.
	access verbs.Access
	// memLen is the length of targetMem and localMem; 16 KiB if zero.
	memLen int
	key    uint32
	cq     verbs.CQ
	srq    verbs.SRQ
}

const (
	allAccess = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic
	// grhAreaLen is the length of the GRH area before a received message, which has the IP header.
	grhAreaLen = verbs.GRHLen
	// deviceKey is the default Q_Key. Its first bit is 0: with 1, verbs use the Q_Key of the
	// queue pair in place of that of the request.
	deviceKey = 0x0badcafe
)

// newQP creates a queue pair of the device in RTS, with its memory and s.receives posted receives.
// Receive i, from 1 on, fills the i-th part of localMem, of recvLen octets.
func (h *host) newQP(s setup) *deviceQP {
	q := &deviceQP{host: h, key: cmp.Or(s.key, deviceKey), recvLen: grhAreaLen + cmp.Or(s.recvLen, 64)}
	if s.cq == nil {
		s.cq = h.CQ
	}
	memLen := cmp.Or(s.memLen, 16<<10)
	q.targetMem = h.Memory(memLen, cmp.Or(s.access, allAccess)|verbs.AccessLocalWrite)
	q.localMem = h.Memory(max(memLen, s.receives*q.recvLen), verbs.AccessLocalWrite)
	q.qp = h.CreateQP(verbs.QPInit{
		Type: verbs.QPTypeUD, PD: h.PD, SendCQ: s.cq, RecvCQ: s.cq, SRQ: s.srq,
		Caps: verbs.QPCaps{MaxSendWR: 512, MaxRecvWR: 256, MaxSendSGE: 2, MaxRecvSGE: 2},
	})
	q.toRTS()
	for i := range s.receives {
		q.PostRecv(q.qp, uint64(i+1), q.localMem.SGE(i*q.recvLen, q.recvLen))
	}
	return q
}

// toRTS moves the queue pair from RESET to RTS.
func (q *deviceQP) toRTS() {
	const noAccess = 0
	q.ToInit(q.qp, noAccess, q.key)
	q.ToRTR(q.qp, verbs.QPAttr{})
	q.ToRTS(q.qp, verbs.QPAttr{})
}

// ahAttr returns the address attributes of a host and UDP port, which is the flow label.
func ahAttr(host netip.Addr, port uint32) verbs.AHAttr {
	return verbs.AHAttr{Port: 1, GRH: verbs.GRH{DGID: verbs.GIDFrom(host), FlowLabel: port, HopLimit: 64}}
}

// addressHandle creates an address handle.
func (h *host) addressHandle(a verbs.AHAttr) verbs.AH {
	ah, err := h.PD.CreateAH(a)
	h.Must("an address handle", err)
	return ah
}

// expectRecv fails the case unless the next completion is that of receive id of the queue pair,
// with the message in the receive's part of localMem, after the 40 octets where UD has the GRH. It
// returns the completion.
func (q *deviceQP) expectRecv(id uint64, message []byte) verbs.WC {
	wc := q.ExpectRecv(id, grhAreaLen+len(message))
	q.Check(wc.QPN == q.qp.QPN(), "a receive of the queue pair that the packet names", "one of %#x", uint32(wc.QPN))
	q.ExpectBytes(q.localMem, int(id-1)*q.recvLen+grhAreaLen, message)
	return wc
}

// targetAddr returns the address of an octet of targetMem; the R_Key is the STag.
func (q *deviceQP) targetAddr(off int) iwarp.Addr { return addrOf(q.targetMem, off) }

// addrOf returns the STag and TO of an octet of a region.
func addrOf(m *rig.Memory, off int) iwarp.Addr {
	return iwarp.At(uint32(m.RKey()), m.Addr()+uint64(off))
}

// writeToTarget returns a Write to targetMem.
func (q *deviceQP) writeToTarget(off int, b []byte) iwarp.Segment {
	return writeTo(q.targetAddr(off), b)
}

func writeTo(at iwarp.Addr, b []byte) iwarp.Segment { return iwarp.Write(at.STag, at.TO, b) }

// zeroLengthWrite returns a message that has no effect, and needs no receive and no MSN.
func zeroLengthWrite() iwarp.Segment { return iwarp.Write(0, 0, nil) }

// unknownSTag is a key that no region has.
const unknownSTag = 0x5eadbeef

// unknownKeyWrite returns a Write that is an error on every queue pair.
func unknownKeyWrite() iwarp.Segment { return iwarp.Write(unknownSTag, 0, data(8)) }

// data returns n octets of payload.
func data(n int) []byte { return rig.Data(n) }

// syncQP is a queue pair that only synchronizes: its reply shows that the device has processed all
// earlier packets. With RD the device itself answers a flow start without a valid cookie; with UD
// the application replies.
type syncQP struct {
	p  *peer
	cq verbs.CQ
	// round counts the requests.
	round uint32
}

// syncQPN is the QPN of the peer that talks with the syncQP, distinct from those of other peers.
const syncQPN = 0x00ca4a51

// newSyncQP creates the queue pair of syncDevice, with a completion queue that cases do not see.
func newSyncQP(h *host) *syncQP {
	c := &syncQP{cq: h.CreateCQ(verbs.CQInit{Depth: 16})}
	c.p = h.newQP(setup{cq: c.cq, memLen: 2 * syncBufLen}).peer(0)
	c.p.qpn = syncQPN
	return c
}

// syncBufLen is the buffer size of one message.
const syncBufLen = grhAreaLen + 8

// requestReply makes the queue pair reply. If the device has RD, the peer starts a flow without the
// cookie of a Challenge, and the device answers by a Challenge or Refusal. Else the peer sends a
// message, and requestReply posts the application's reply.
func (c *syncQP) requestReply() {
	c.round++
	if c.p.Caps.Has(verbs.CapRD) {
		const seq, incarnation = 0, 1
		c.p.send(iwarp.RDData(c.round, seq, zeroLengthWrite()).Starting(noProof, incarnation, c.p.key).AckNow())
		return
	}
	c.p.PostRecv(c.p.qp, uint64(c.round), c.p.localMem.SGE(0, syncBufLen))
	c.p.send(iwarp.UD(iwarp.Send(c.round, data(8))))
	_, ok := c.p.PollCQ(c.cq, c.p.ResponseTimeout())
	c.p.Check(ok, "a receive of the synchronization queue pair", "nothing in %v", c.p.ResponseTimeout())
	copy(c.p.localMem.Buf[syncBufLen:], c.replyPayload())
	reply := c.p.sendWR(uint64(c.round), syncBufLen, 8)
	reply.Flags = 0 // unsignaled: nothing polls its completion
	c.p.PostSend(c.p.qp, reply)
}

// replyPayload returns the payload of the application's reply to the current request.
func (c *syncQP) replyPayload() []byte { return binary.BigEndian.AppendUint64(nil, uint64(c.round)) }

// isReply reports whether a packet is a reply of the synchronization queue pair, to any request.
func (c *syncQP) isReply(a arrival) bool { return iwarp.Val(a.Header.DestQP) == syncQPN }

// answered reports whether a packet is the reply to the current request, and not to an earlier one.
func (c *syncQP) answered(a arrival) bool {
	switch {
	case !c.isReply(a):
		return false
	case a.Challenge != nil:
		return iwarp.Val(a.Challenge.Epoch) == c.round
	case a.Refusal != nil:
		return iwarp.Val(a.Refusal.Epoch) == c.round
	}
	return a.Segment != nil && bytes.Equal(a.Segment.Payload, c.replyPayload())
}

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
	// toDeviceFlow is the flow to the device, fromDeviceFlow the flow from it.
	toDeviceFlow, fromDeviceFlow flow
	partial                      iwarp.PartialMessages[arrival] // on UD
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

// peer returns the n-th scripted peer of the queue pair, with its own QPN, key and incarnation (the
// number by which RD tells apart queue pairs that have the same QPN one after the other). The peers
// use the peer addresses of the bench (the test setup) in turn, so that some share an address.
func (q *deviceQP) peer(n int) *peer {
	host := n % len(q.Peers)
	return &peer{
		partial:  iwarp.PartialMessages[arrival]{WriteTO: peerTO},
		deviceQP: q, route: q.defaultRoute(host), qpn: peerQPN + uint32(n), key: peerKey + uint32(n), incarnation: peerIncarnation + uint32(n),
		ah: q.addressHandle(ahAttr(q.Peers[host], peerPort)),
	}
}

// similarSources returns p, and peers that differ from it in the host, the port and the QPN only.
func (p *peer) similarSources() []*peer {
	host, port, pair := p.deviceQP.peer(0), p.deviceQP.peer(0), p.deviceQP.peer(0)
	host.route = p.defaultRoute(1)
	port.route = p.route.fromPort(peerPort + 1)
	pair.qpn++
	return []*peer{p, host, port, pair}
}

// onSetup makes the body of a case from a function that uses a peer of a queue pair.
func onSetup(s setup, body func(*peer)) func(*conformance.Bench) error {
	return onHost(func(h *host) { body(h.newQP(s).peer(0)) })
}

// onPeer makes the body of a case from a function that uses a peer of a QP with eight receives.
func onPeer(body func(*peer)) func(*conformance.Bench) error {
	return onSetup(setup{receives: 8}, body)
}

// path returns the QPNs and the key of packets to the device.
func (p *peer) path() iwarp.PacketPath {
	return iwarp.PacketPath{Dest: uint32(p.qp.QPN()), Source: p.qpn, Key: p.deviceQP.key}
}

// send sends packets to the queue pair. QPNs and keys that are unset in a packet become those of
// the path from this peer.
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

// expect fails the case unless the next packet is from the queue pair to the peer and matches want.
func (p *peer) expect(want iwarp.Packet) arrival {
	got := p.mustNextPacket(want.String())
	p.checkPacket(p.fromDevice(want), got)
	p.Check(got.IP.Dst == p.route.from.Addr() && iwarp.Val(got.UDP.DstPort) == p.route.from.Port(),
		fmt.Sprintf("%v goes to %v", got.Packet, p.route.from), "it goes to %v, port %d", got.IP.Dst, iwarp.Val(got.UDP.DstPort))
	return got
}

// expectSent posts a UD request, and expects that the device sends a packet that matches want and
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
