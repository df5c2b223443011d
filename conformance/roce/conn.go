package roce

import (
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rcpeer"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// conn is a connected queue pair of the device and a peer that plays its other end by
// hand. The peer keeps no state but what the case tells it to: it neither answers nor
// repeats anything by itself.
type conn struct {
	*port
	qp verbs.QP
	// attr is how the queue pair is connected.
	attr verbs.QPAttr
	// mem is memory that the peer may write to, read from and do atomics on; own is
	// for the device's own requests and receives.
	mem, own *rig.Memory
}

// Numbers of the connection: far from each other, so that one taken for the other
// shows.
const (
	peerQPN  = 0x0abcde  // the peer's queue pair
	firstPSN = 0x0000100 // of the peer's requests
	ownPSN   = 0x0700000 // of the device's
	memLen   = 16 << 10  // of each memory
)

// setup is how a connection is made; the zero value is an RC one in RTS.
type setup struct {
	kind verbs.QPType
	// state is how far the queue pair goes; RTS if zero.
	state verbs.QPState
	caps  verbs.QPCaps
	// receives are posted at the start, with IDs from 1 on and recvLen bytes each
	// (64 if zero), one behind the other in own.
	receives, recvLen int
	// access is what the peer may do with mem and with the queue pair; everything if
	// zero.
	access verbs.Access
	srq    verbs.SRQ
	// change changes the attributes of the connection: timers, limits, path.
	change func(*verbs.QPAttr)
	// exactTimer keeps the local ACK timeout of change on a slow bench: the case is
	// about that timeout.
	exactTimer bool
	// signalAll has every request complete.
	signalAll bool
}

const allAccess = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic

// on makes a case of a body that uses a connection made like that.
func on(s setup, body func(*conn)) func(*conformance.Bench) error {
	return onPort(func(p *port) { body(p.connect(s)) })
}

// onRC makes a case of a body that uses an RC connection with some receives posted.
func onRC(body func(*conn)) func(*conformance.Bench) error { return on(setup{receives: 4}, body) }

// connect makes a connection.
func (p *port) connect(s setup) *conn {
	c := &conn{port: p}
	if s.kind == 0 {
		s.kind = verbs.QPTypeRC
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
	c.mem, c.own = p.Memory(memLen, s.access|verbs.AccessLocalWrite), p.Memory(memLen, verbs.AccessLocalWrite)
	var err error
	c.qp, err = p.Device.CreateQP(verbs.QPInit{
		Type: s.kind, PD: p.PD, SendCQ: p.CQ, RecvCQ: p.CQ, SRQ: s.srq, Caps: s.caps, SignalAll: s.signalAll,
	})
	p.Must("a queue pair", err)
	p.toInit(c.qp, s.access&^verbs.AccessLocalWrite)
	for i := range s.receives {
		c.PostRecv(c.qp, uint64(i+1), c.own.SGE(i*s.recvLen, s.recvLen))
	}
	c.attr = p.peerAttr(p.peer)
	c.attr.DestQPN, c.attr.RQPSN, c.attr.SQPSN = peerQPN, firstPSN, ownPSN
	if s.change != nil {
		s.change(&c.attr)
		if c.attr.Timeout > 0 && !s.exactTimer {
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

// psn is that of the peer's n-th packet, counting from 0.
func (c *conn) psn(n int) ib.PSN { return ib.PSN(c.attr.RQPSN).Add(n) }

// sq is the PSN of the device's n-th packet, counting from 0.
func (c *conn) sq(n int) ib.PSN { return ib.PSN(c.attr.SQPSN).Add(n) }

// send sends packets to the connection's queue pair.
func (c *conn) send(pkts ...ib.Packet) {
	for _, pkt := range pkts {
		c.put(pkt.Or(ib.Packet{}.To(uint32(c.qp.QPN()))))
	}
}

// expects is port.expect for packets of this connection.
func (c *conn) expects(want ib.Packet) ib.Packet { return c.expect(c.ofDevice(want)) }

// ofDevice is an expectation with the way that the device's packets take on this
// connection.
func (c *conn) ofDevice(want ib.Packet) ib.Packet {
	return want.Or(ib.Packet{}.To(uint32(c.attr.DestQPN)).Via(c.device, c.peer))
}

// at is n bytes of the memory that the peer works on, from off on.
func (c *conn) at(off, n int) ib.RETH {
	return ib.At(c.mem.Addr()+uint64(off), uint32(c.mem.RKey()), n)
}

// timeoutCode is a local ACK timeout of 67 ms: long against everything but waiting.
const timeoutCode = 14

// data is n bytes to send.
func data(n int) []byte { return rcpeer.Data(n) }

// quiet is how long silence lasts where no timer runs.
const quiet = time.Second
