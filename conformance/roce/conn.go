package roce

import (
	"cmp"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// Conn is a connected queue pair of the device, with a scripted peer. The peer is
// stateless: it never acknowledges or retransmits by itself.
type Conn struct {
	*Port
	QP verbs.QP
	// Attr are the attributes of the queue pair; Attr.DestQPN is the peer's QPN.
	Attr verbs.QPAttr
	// TargetMem is the target of the peer's requests; LocalMem is for requests and
	// receives of the device.
	TargetMem, LocalMem *rig.Memory
	from                netip.Addr // source address of the peer's packets; the port's Peer if unset
}

// Initial numbers of a connection, distinct from each other.
const (
	peerQPN        = 0x0abcde  // QPN of the peer
	firstPeerPSN   = 0x0000100 // first PSN of the peer's requests
	firstDevicePSN = 0x0700000 // first PSN of the device's requests
	memLen         = 16 << 10  // length of TargetMem and of LocalMem

	// MTU is the default path MTU in bytes.
	MTU = 1024
)

// Setup describes a connection; the zero value is an RC connection in RTS without ACK timeout.
type Setup struct {
	qpType verbs.QPType
	state  verbs.QPState // to which the queue pair is moved; RTS if zero
	caps   verbs.QPCaps
	// Receives is how many receives are posted, with IDs from 1 on and recvLen bytes
	// each (64 if zero), one after the other in LocalMem.
	Receives, recvLen int
	memLen            int // size of TargetMem and of LocalMem; 16 KiB if zero
	// access are the rights of the peer on TargetMem and on the queue pair; all if zero.
	access verbs.Access
	srq    verbs.SRQ
	// PeerIndex is the index of the peer's address in Peers, for [Port.Connect].
	PeerIndex int
	Modify    func(*verbs.QPAttr) // changes the attributes of the connection before it is made
	// exactTimeout keeps the local ACK timeout that Modify sets, even on a slow bench.
	exactTimeout bool
	signalAll    bool // every send request completes
}

const allAccess = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic

// onConn makes the body of a case from a function that uses a connection.
func onConn(s Setup, body func(*Conn)) func(*conformance.Bench) error {
	return OnPort(func(p *Port) { body(p.connect(s)) })
}

// onRC makes the body of a case from a function that uses an RC connection with four receives.
func onRC(body func(*Conn)) func(*conformance.Bench) error { return onConn(Setup{Receives: 4}, body) }

// Connect makes an RC connection for cases that measure or count packets. The peer has another QPN
// for each connection, every send request completes, and the ACK timeout is exactly that which
// Modify sets.
func (p *Port) Connect(s Setup) *Conn {
	from, qpn, modify := p.PeerAddr(s.PeerIndex), verbs.QPN(0x0a0000+0x111*p.conns), s.Modify
	p.conns++
	s.memLen, s.signalAll, s.exactTimeout = 64<<10, true, true
	if !p.Caps.Has(verbs.CapAtomics) {
		s.access = allAccess &^ verbs.AccessRemoteAtomic
	}
	s.Modify = func(a *verbs.QPAttr) {
		a.DestQPN, a.AH.GRH.DGID = qpn, verbs.GIDFrom(from)
		if modify != nil {
			modify(a)
		}
	}
	c := p.connect(s)
	c.from = from
	return c
}

// connect registers memory, creates a queue pair whose remote end is the peer, posts its receives,
// and moves it to s.state. A short ACK timeout of s.Modify is lengthened, unless s.exactTimeout.
func (p *Port) connect(s Setup) *Conn {
	c := &Conn{Port: p}
	s.qpType = cmp.Or(s.qpType, verbs.QPTypeRC)
	s.state = cmp.Or(s.state, verbs.QPStateRTS)
	s.access = cmp.Or(s.access, allAccess)
	s.recvLen, s.memLen = cmp.Or(s.recvLen, 64), cmp.Or(s.memLen, memLen)
	s.caps = cmp.Or(s.caps, verbs.QPCaps{MaxSendWR: 128, MaxRecvWR: 64, MaxSendSGE: 2, MaxRecvSGE: 2})
	c.TargetMem, c.LocalMem = p.Memory(s.memLen, s.access|verbs.AccessLocalWrite), p.Memory(s.memLen, verbs.AccessLocalWrite)
	c.QP = p.CreateQP(verbs.QPInit{
		Type: s.qpType, PD: p.PD, SendCQ: p.CQ, RecvCQ: p.CQ, SRQ: s.srq, Caps: s.caps, SignalAll: s.signalAll,
	})
	p.ToInit(c.QP, s.access&^verbs.AccessLocalWrite, udQKey)
	for i := range s.Receives {
		c.PostRecv(c.QP, uint64(i+1), c.LocalMem.SGE(i*s.recvLen, s.recvLen))
	}
	c.Attr = p.peerAttr(p.Peer)
	c.Attr.DestQPN, c.Attr.RQPSN, c.Attr.SQPSN = peerQPN, firstPeerPSN, firstDevicePSN
	if s.Modify != nil {
		s.Modify(&c.Attr)
		if c.Attr.Timeout > 0 && !s.exactTimeout {
			c.Attr.Timeout = p.LongTimeout(c.Attr.Timeout)
		}
	}
	if s.state >= verbs.QPStateRTR {
		p.ToRTR(c.QP, c.Attr)
	}
	if s.state >= verbs.QPStateRTS {
		p.ToRTS(c.QP, c.Attr)
	}
	return c
}

// PeerPSN is the PSN of the peer's n-th request packet, counting from 0.
func (c *Conn) PeerPSN(n int) ib.PSN { return ib.PSN(c.Attr.RQPSN).Add(n) }

// DevicePSN is the PSN of the device's n-th request packet, counting from 0.
func (c *Conn) DevicePSN(n int) ib.PSN { return ib.PSN(c.Attr.SQPSN).Add(n) }

// Send sends packets to the connection's queue pair, and returns the time before the last send.
func (c *Conn) Send(pkts ...ib.Packet) (at time.Duration) {
	to := ib.Packet{}.To(uint32(c.QP.QPN()))
	if c.from.IsValid() {
		to = to.From(c.from)
	}
	for _, pkt := range pkts {
		at = c.SendPacket(pkt.Or(to))
	}
	return at
}

// expect returns the next packet, which must be of this connection and match want.
func (c *Conn) expect(want ib.Packet) Arrival { return c.expectPacket(c.fromDevice(want)) }

// exchange sends a packet, and fails the case unless the next packets are of this connection
// and match the responses. It returns the last of them.
func (c *Conn) exchange(pkt ib.Packet, responses ...ib.Packet) (last Arrival) {
	c.Send(pkt)
	for _, want := range responses {
		last = c.expect(want)
	}
	return last
}

// fromDevice adds the connection's addresses and destination QPN to an expected packet.
func (c *Conn) fromDevice(want ib.Packet) ib.Packet {
	return want.Or(ib.Packet{}.To(uint32(c.Attr.DestQPN)).Via(c.deviceAddr, c.Peer))
}

// isForPeer reports whether a packet is for the peer's queue pair of this connection.
func (c *Conn) isForPeer(a *Arrival) bool { return a.DestQP() == uint32(c.Attr.DestQPN) }

// Await returns the next packet of this connection that matches, or fails the case.
func (c *Conn) Await(want string, matches func(*Arrival) bool) Arrival {
	a, ok := c.NextMatching(func(a *Arrival) bool { return c.isForPeer(a) && matches(a) }, c.ResponseTimeout())
	c.Check(ok, want, "nothing in %v", c.ResponseTimeout())
	return a
}

// AwaitPackets returns the next n packets of this connection, or fails the case.
func (c *Conn) AwaitPackets(n int) []Arrival { return c.awaitMatching(n, c.isForPeer) }

// RETH returns the RETH for n bytes of TargetMem from off on.
func (c *Conn) RETH(off, n int) ib.RETH { return rethFor(c.TargetMem, off, n) }

// peerSend is a SEND of n bytes in one packet, with AckReq and the peer's k-th PSN.
func (c *Conn) peerSend(k, n int) ib.Packet { return ib.SendOnly(c.PeerPSN(k), Data(n)).AckReq() }

// peerWrite is a WRITE of n bytes to the start of TargetMem, with AckReq and the peer's k-th PSN.
func (c *Conn) peerWrite(k, n int) ib.Packet {
	return ib.WriteOnly(c.PeerPSN(k), c.RETH(0, n), Data(n)).AckReq()
}

// peerRead is a READ of the first n bytes of TargetMem, with the peer's k-th PSN.
func (c *Conn) peerRead(k, n int) ib.Packet { return ib.ReadRequest(c.PeerPSN(k), c.RETH(0, n)) }

// peerAck is the ACK of the device's packets up to the k-th.
func (c *Conn) peerAck(k int, msn uint32) ib.Packet { return ib.Ack(c.DevicePSN(k), msn) }

// peerNak is a NAK for the device's k-th packet.
func (c *Conn) peerNak(k int, code ib.NakCode, msn uint32) ib.Packet {
	return ib.Nak(c.DevicePSN(k), code, msn)
}

// deviceAck is the expected ACK of the peer's packets up to the k-th.
func (c *Conn) deviceAck(k int, msn uint32) ib.Packet { return ib.Ack(c.PeerPSN(k), msn) }

// deviceNak is the expected NAK for the peer's k-th packet.
func (c *Conn) deviceNak(k int, code ib.NakCode, msn uint32) ib.Packet {
	return ib.Nak(c.PeerPSN(k), code, msn)
}

// timeout67ms is the code of an ACK timeout of 67 ms, which does not expire while a case reacts.
const timeout67ms = 14

// LongTimeout returns the code of a local ACK timeout within which a case can react: code itself,
// or that of a longer timeout of at most 2.1 s.
func (p *Port) LongTimeout(code uint8) uint8 {
	const longest = 19 // 2.1 s
	for code < longest && ib.AckTimeout(code) < p.ReactionTime() {
		code++
	}
	return code
}

// Data returns n bytes of payload.
func Data(n int) []byte { return rig.Data(n) }

// peerAttr returns the default attributes of a connection with the peer, without ACK timeout.
func (p *Port) peerAttr(peer netip.Addr) verbs.QPAttr {
	return verbs.QPAttr{
		PathMTU: verbs.MTU1024, MaxRdAtomic: 4, MaxDestRdAtomic: 4, MinRNRTimer: 12, RetryCnt: 7, RNRRetry: 7,
		AH: verbs.AHAttr{Port: 1, GRH: verbs.GRH{DGID: verbs.GIDFrom(peer), SGIDIndex: p.gidIndex(p.Local[0]), HopLimit: 64}},
	}
}
