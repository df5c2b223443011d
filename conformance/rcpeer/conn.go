package rcpeer

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// Conn is a queue pair of the device and a peer that plays its other end.
type Conn struct {
	*Port
	QP verbs.QP
	// Attr is how the queue pair is connected; Attr.DestQPN is the peer's.
	Attr verbs.QPAttr
	// Mem is memory that the peer may do everything with; Own is for requests and
	// receives of the device's.
	Mem, Own *rig.Memory
	from     netip.Addr
}

// Setup is how a connection is made. The zero value has no receives and no timer.
type Setup struct {
	// Receives are posted at the start, with IDs from 1 on and 64 bytes each.
	Receives int
	// Peer is the number of the peer's address.
	Peer int
	// Change changes the attributes of the connection.
	Change func(*verbs.QPAttr)
}

// Numbers of connections, far from each other.
const (
	firstQPN = 0x0a0000
	theirPSN = 0x000100
	ownPSN   = 0x700000

	// MemLen is how long each memory of a connection is.
	MemLen = 64 << 10
	// MTU is the path MTU.
	MTU = 1024
)

// Theirs is memory of the peer's, as the device names it.
var Theirs = verbs.Remote{Addr: 0x1000, RKey: 0x77}

// What each transition of an RC queue pair demands.
const (
	toInit = verbs.QPAttrState | verbs.QPAttrPKeyIndex | verbs.QPAttrPort | verbs.QPAttrAccessFlags
	toRTR  = verbs.QPAttrState | verbs.QPAttrAV | verbs.QPAttrPathMTU | verbs.QPAttrDestQPN | verbs.QPAttrRQPSN |
		verbs.QPAttrMaxDestRdAtomic | verbs.QPAttrMinRNRTimer
	toRTS = verbs.QPAttrState | verbs.QPAttrSQPSN | verbs.QPAttrTimeout | verbs.QPAttrRetryCnt | verbs.QPAttrRNRRetry |
		verbs.QPAttrMaxQPRdAtomic
)

const rights = verbs.AccessRemoteWrite | verbs.AccessRemoteRead

// Connect makes a connection. It has no timer unless Change says so.
func (p *Port) Connect(s Setup) *Conn {
	c := &Conn{Port: p, from: p.PeerAt(s.Peer)}
	access := rights
	if p.Caps.Has(verbs.CapAtomics) {
		access |= verbs.AccessRemoteAtomic
	}
	c.Mem, c.Own = p.Memory(MemLen, access|verbs.AccessLocalWrite), p.Memory(MemLen, verbs.AccessLocalWrite)
	var err error
	c.QP, err = p.Device.CreateQP(verbs.QPInit{
		Type: verbs.QPTypeRC, PD: p.PD, SendCQ: p.CQ, RecvCQ: p.CQ, SignalAll: true,
		Caps: verbs.QPCaps{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 1, MaxRecvSGE: 1},
	})
	p.Do("a queue pair", err)
	p.Do("a queue pair in INIT", c.QP.Modify(verbs.QPAttr{State: verbs.QPStateInit, Port: 1, Access: access}, toInit))
	for i := range s.Receives {
		c.Recv(c.QP, uint64(i+1), c.Own.SGE(MemLen-64*(i+1), 64))
	}
	c.Attr = verbs.QPAttr{
		State: verbs.QPStateRTR, PathMTU: verbs.MTU1024, DestQPN: verbs.QPN(firstQPN + 0x111*p.conns), RQPSN: theirPSN, SQPSN: ownPSN,
		MaxRdAtomic: 4, MaxDestRdAtomic: 4, MinRNRTimer: 12, RetryCnt: 7, RNRRetry: 7,
		AH: verbs.AHAttr{Port: 1, GRH: verbs.GRH{DGID: verbs.GIDFrom(c.from), SGIDIndex: p.SourceIndex(), HopLimit: 64}},
	}
	p.conns++
	if s.Change != nil {
		s.Change(&c.Attr)
	}
	p.Do("a queue pair in RTR", c.QP.Modify(c.Attr, toRTR))
	c.Attr.State = verbs.QPStateRTS
	p.Do("a queue pair in RTS", c.QP.Modify(c.Attr, toRTS))
	return c
}

// Timer has a connection repeat what is not acknowledged after the time of a code.
func Timer(code uint8) func(*verbs.QPAttr) {
	return func(a *verbs.QPAttr) { a.Timeout = code }
}

// LongTimer returns the code of a local ACK timeout that is no shorter than that of
// code, and long enough for a case to react before it expires.
func (p *Port) LongTimer(code uint8) uint8 {
	const longest = 19 // 2.1 s
	for code < longest && ib.AckTimeout(code) < p.Reaction() {
		code++
	}
	return code
}

// PSN is that of the peer's n-th packet, counting from 0.
func (c *Conn) PSN(n int) ib.PSN { return ib.PSN(c.Attr.RQPSN).Add(n) }

// SQ is the PSN of the device's n-th packet, counting from 0.
func (c *Conn) SQ(n int) ib.PSN { return ib.PSN(c.Attr.SQPSN).Add(n) }

// At is n bytes of the memory that the peer works on, from off on.
func (c *Conn) At(off, n int) ib.RETH { return ib.At(c.Mem.Addr()+uint64(off), c.Mem.RKey(), n) }

// Put sends packets to the queue pair, and returns when the last was about to leave.
func (c *Conn) Put(pkts ...ib.Packet) (at time.Duration) {
	for _, pkt := range pkts {
		at = c.Port.Put(pkt.Or(ib.Packet{}.To(uint32(c.QP.QPN()))).Or(ib.Packet{}.From(c.from)))
	}
	return at
}

// mine reports whether a packet is for the peer's end of this connection.
func (c *Conn) mine(a *Arrival) bool { return a.DestQP() == uint32(c.Attr.DestQPN) }

// Next returns the next packet for this connection, if it comes in time.
func (c *Conn) Next(timeout time.Duration) (Arrival, bool) { return c.NextOf(c.mine, timeout) }

// Await returns the next packet for this connection that is wanted. If there is none
// in time, the case ends.
func (c *Conn) Await(want string, wanted func(*Arrival) bool) Arrival {
	a, ok := c.NextOf(func(a *Arrival) bool { return c.mine(a) && wanted(a) }, c.Patience())
	if !ok {
		c.Fail(want, "nothing in %v", c.Patience())
	}
	return a
}

// Take returns the next n packets for this connection; fewer end the case.
func (c *Conn) Take(n int) []Arrival {
	all := make([]Arrival, n)
	for i := range all {
		var ok bool
		if all[i], ok = c.Next(c.Patience()); !ok {
			c.Fail(fmt.Sprintf("%d packets", n), "%d", i)
		}
	}
	return all
}

// Writing is a WRITE of the device's to the peer, of so many full packets.
func (c *Conn) Writing(id uint64, packets int) verbs.SendWR {
	return verbs.SendWR{WRID: id, Opcode: verbs.OpRDMAWrite, SGL: c.Own.List(0, packets*MTU), Remote: Theirs}
}

// Sending is a SEND of n bytes.
func (c *Conn) Sending(id uint64, n int) verbs.SendWR {
	return verbs.SendWR{WRID: id, Opcode: verbs.OpSend, SGL: c.Own.List(0, n)}
}

// Reading is a READ from the peer that takes so many packets.
func (c *Conn) Reading(id uint64, packets int) verbs.SendWR {
	return verbs.SendWR{WRID: id, Opcode: verbs.OpRDMARead, SGL: c.Own.List(0, packets*MTU), Remote: Theirs}
}

// Data is n bytes to send.
func Data(n int) []byte { return rig.Pattern(n, 0x5a) }
