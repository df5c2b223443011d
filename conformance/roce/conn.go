package roce

import (
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rcpeer"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// conn is a connected queue pair of the device, with a scripted peer. The peer is
// stateless: it never acknowledges or retransmits by itself.
type conn struct {
	*port
	qp verbs.QP
	// attr are the attributes of the connection.
	attr verbs.QPAttr
	// targetMem is the target of the peer's requests; localMem is for requests and
	// receives of the device.
	targetMem, localMem *rig.Memory
}

// Initial numbers of a connection, distinct from each other.
const (
	peerQPN        = 0x0abcde  // the peer's queue pair
	firstPeerPSN   = 0x0000100 // of the peer's requests
	firstDevicePSN = 0x0700000 // of the device's requests
	memLen         = 16 << 10  // of each memory
)

// setup describes a connection. The zero value is an RC connection in RTS.
type setup struct {
	qpType verbs.QPType
	// state is the last state that the queue pair is moved to; RTS if zero.
	state verbs.QPState
	caps  verbs.QPCaps
	// receives is how many receives are posted, with IDs from 1 on and recvLen bytes
	// each (64 if zero), one after the other in localMem.
	receives, recvLen int
	// access are the rights of the peer on targetMem and on the queue pair; all if zero.
	access verbs.Access
	srq    verbs.SRQ
	// modify changes the attributes of the connection before it is made.
	modify func(*verbs.QPAttr)
	// exactTimeout keeps the local ACK timeout that modify sets, even if it is short for a
	// slow bench.
	exactTimeout bool
	// signalAll makes every send request complete.
	signalAll bool
}

const allAccess = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic

// onConn makes the body of a case from a function that uses a connection.
func onConn(s setup, body func(*conn)) func(*conformance.Bench) error {
	return onPort(func(p *port) { body(p.connect(s)) })
}

// onRC makes the body of a case from a function that uses an RC connection with four
// receives.
func onRC(body func(*conn)) func(*conformance.Bench) error { return onConn(setup{receives: 4}, body) }

// connect makes a connection.
func (p *port) connect(s setup) *conn {
	c := &conn{port: p}
	if s.qpType == 0 {
		s.qpType = verbs.QPTypeRC
	}
	if s.state == 0 {
		s.state = verbs.QPStateRTS
	}
	if s.access == 0 {
		s.access = allAccess
	}
	if s.recvLen == 0 {
		s.recvLen = 64
	}
	if s.caps == (verbs.QPCaps{}) {
		s.caps = verbs.QPCaps{MaxSendWR: 128, MaxRecvWR: 64, MaxSendSGE: 2, MaxRecvSGE: 2}
	}
	c.targetMem, c.localMem = p.Memory(memLen, s.access|verbs.AccessLocalWrite), p.Memory(memLen, verbs.AccessLocalWrite)
	var err error
	c.qp, err = p.Device.CreateQP(verbs.QPInit{
		Type: s.qpType, PD: p.PD, SendCQ: p.CQ, RecvCQ: p.CQ, SRQ: s.srq, Caps: s.caps, SignalAll: s.signalAll,
	})
	p.Must("a queue pair", err)
	p.toInit(c.qp, s.access&^verbs.AccessLocalWrite)
	for i := range s.receives {
		c.PostRecv(c.qp, uint64(i+1), c.localMem.SGE(i*s.recvLen, s.recvLen))
	}
	c.attr = p.peerAttr(p.peerAddr)
	c.attr.DestQPN, c.attr.RQPSN, c.attr.SQPSN = peerQPN, firstPeerPSN, firstDevicePSN
	if s.modify != nil {
		s.modify(&c.attr)
		if c.attr.Timeout > 0 && !s.exactTimeout {
			c.attr.Timeout = p.LongTimeout(c.attr.Timeout)
		}
	}
	if s.state >= verbs.QPStateRTR {
		p.toRTR(c.qp, c.attr)
	}
	if s.state >= verbs.QPStateRTS {
		p.toRTS(c.qp, c.attr)
	}
	return c
}

// peerPSN is the PSN of the peer's n-th request packet, counting from 0.
func (c *conn) peerPSN(n int) ib.PSN { return ib.PSN(c.attr.RQPSN).Add(n) }

// devicePSN is the PSN of the device's n-th request packet, counting from 0.
func (c *conn) devicePSN(n int) ib.PSN { return ib.PSN(c.attr.SQPSN).Add(n) }

// send sends packets to the connection's queue pair.
func (c *conn) send(pkts ...ib.Packet) {
	for _, pkt := range pkts {
		c.sendPacket(pkt.Or(ib.Packet{}.To(uint32(c.qp.QPN()))))
	}
}

// expect fails the case unless the next packet is of this connection and matches want. It
// returns the packet.
func (c *conn) expect(want ib.Packet) ib.Packet { return c.expectPacket(c.fromDevice(want)) }

// fromDevice adds the addresses and the destination QPN of the connection to an expected
// packet.
func (c *conn) fromDevice(want ib.Packet) ib.Packet {
	return want.Or(ib.Packet{}.To(uint32(c.attr.DestQPN)).Via(c.deviceAddr, c.peerAddr))
}

// reth returns the RETH for n bytes of targetMem from off on.
func (c *conn) reth(off, n int) ib.RETH {
	return ib.At(c.targetMem.Addr()+uint64(off), uint32(c.targetMem.RKey()), n)
}

// timeout67ms is the code of a local ACK timeout of 67 ms, which does not expire while a
// case reacts.
const timeout67ms = 14

// data returns n bytes of payload.
func data(n int) []byte { return rcpeer.Data(n) }
