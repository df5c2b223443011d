package rcpeer

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// Conn is an RC queue pair of the device, connected to the scripted peer.
type Conn struct {
	*Port
	QP verbs.QP
	// Attr are the attributes of the queue pair; Attr.DestQPN is the peer's QPN.
	Attr verbs.QPAttr
	// TargetMem is the target of the peer's requests; LocalMem is for requests and
	// receives of the device.
	TargetMem, LocalMem *rig.Memory
	from                netip.Addr
}

// Setup describes a connection. The zero value has no receives and no ACK timeout.
type Setup struct {
	// Receives is how many receives are posted, with IDs from 1 on and 64 bytes each.
	Receives int
	// PeerIndex is the index of the peer's address in Peers.
	PeerIndex int
	// Modify changes the attributes before the queue pair is connected.
	Modify func(*verbs.QPAttr)
}

// Initial numbers, distinct from each other.
const (
	firstQPN  = 0x0a0000
	peerPSN   = 0x000100
	devicePSN = 0x700000

	// MemLen is the size of TargetMem and of LocalMem.
	MemLen = 64 << 10
	// MTU is the path MTU.
	MTU = 1024
)

// PeerMemory is the remote address of the peer's memory in requests of the device.
var PeerMemory = verbs.Remote{Addr: 0x1000, RKey: 0x77}

// Required attributes of the state transitions of an RC queue pair.
const (
	toInit = verbs.QPAttrState | verbs.QPAttrPKeyIndex | verbs.QPAttrPort | verbs.QPAttrAccessFlags
	toRTR  = verbs.QPAttrState | verbs.QPAttrAV | verbs.QPAttrPathMTU | verbs.QPAttrDestQPN | verbs.QPAttrRQPSN |
		verbs.QPAttrMaxDestRdAtomic | verbs.QPAttrMinRNRTimer
	toRTS = verbs.QPAttrState | verbs.QPAttrSQPSN | verbs.QPAttrTimeout | verbs.QPAttrRetryCnt | verbs.QPAttrRNRRetry |
		verbs.QPAttrMaxQPRdAtomic
)

const remoteAccess = verbs.AccessRemoteWrite | verbs.AccessRemoteRead

// Connect makes a connection. It has no ACK timeout unless Modify sets one.
func (p *Port) Connect(s Setup) *Conn {
	c := &Conn{Port: p, from: p.PeerAddr(s.PeerIndex)}
	access := remoteAccess
	if p.Caps.Has(verbs.CapAtomics) {
		access |= verbs.AccessRemoteAtomic
	}
	c.TargetMem, c.LocalMem = p.Memory(MemLen, access|verbs.AccessLocalWrite), p.Memory(MemLen, verbs.AccessLocalWrite)
	var err error
	c.QP, err = p.Device.CreateQP(verbs.QPInit{
		Type: verbs.QPTypeRC, PD: p.PD, SendCQ: p.CQ, RecvCQ: p.CQ, SignalAll: true,
		Caps: verbs.QPCaps{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 1, MaxRecvSGE: 1},
	})
	p.Must("a queue pair", err)
	p.Must("a queue pair in INIT", c.QP.Modify(verbs.QPAttr{State: verbs.QPStateInit, Port: 1, Access: access}, toInit))
	for i := range s.Receives {
		c.PostRecv(c.QP, uint64(i+1), c.LocalMem.SGE(MemLen-64*(i+1), 64))
	}
	c.Attr = verbs.QPAttr{
		State: verbs.QPStateRTR, PathMTU: verbs.MTU1024, DestQPN: verbs.QPN(firstQPN + 0x111*p.conns), RQPSN: peerPSN, SQPSN: devicePSN,
		MaxRdAtomic: 4, MaxDestRdAtomic: 4, MinRNRTimer: 12, RetryCnt: 7, RNRRetry: 7,
		AH: verbs.AHAttr{Port: 1, GRH: verbs.GRH{DGID: verbs.GIDFrom(c.from), SGIDIndex: p.GIDIndex(), HopLimit: 64}},
	}
	p.conns++
	if s.Modify != nil {
		s.Modify(&c.Attr)
	}
	p.Must("a queue pair in RTR", c.QP.Modify(c.Attr, toRTR))
	c.Attr.State = verbs.QPStateRTS
	p.Must("a queue pair in RTS", c.QP.Modify(c.Attr, toRTS))
	return c
}

// WithTimeout returns a Modify function that sets the local ACK timeout to a code.
func WithTimeout(code uint8) func(*verbs.QPAttr) {
	return func(a *verbs.QPAttr) { a.Timeout = code }
}

// LongTimeout returns the code of a local ACK timeout that is not shorter than that of
// code, and long enough for a case to react before it expires.
func (p *Port) LongTimeout(code uint8) uint8 {
	const longest = 19 // 2.1 s
	for code < longest && ib.AckTimeout(code) < p.ReactionTime() {
		code++
	}
	return code
}

// PeerPSN is the PSN of the peer's n-th request packet, counting from 0.
func (c *Conn) PeerPSN(n int) ib.PSN { return ib.PSN(c.Attr.RQPSN).Add(n) }

// DevicePSN is the PSN of the device's n-th request packet, counting from 0.
func (c *Conn) DevicePSN(n int) ib.PSN { return ib.PSN(c.Attr.SQPSN).Add(n) }

// RETH returns the RETH for n bytes of TargetMem from off on.
func (c *Conn) RETH(off, n int) ib.RETH {
	return ib.At(c.TargetMem.Addr()+uint64(off), c.TargetMem.RKey(), n)
}

// Send sends packets to the queue pair, and returns the time just before the last send.
func (c *Conn) Send(pkts ...ib.Packet) (at time.Duration) {
	for _, pkt := range pkts {
		at = c.Port.Send(pkt.Or(ib.Packet{}.To(uint32(c.QP.QPN()))).Or(ib.Packet{}.From(c.from)))
	}
	return at
}

// isForPeer reports whether a packet is for the peer's queue pair of this connection.
func (c *Conn) isForPeer(a *Arrival) bool { return a.DestQP() == uint32(c.Attr.DestQPN) }

// NextPacket returns the next packet of this connection; false after the timeout.
func (c *Conn) NextPacket(timeout time.Duration) (Arrival, bool) {
	return c.NextMatching(c.isForPeer, timeout)
}

// Await returns the next packet of this connection that matches. The case fails if none
// arrives in time.
func (c *Conn) Await(want string, matches func(*Arrival) bool) Arrival {
	a, ok := c.NextMatching(func(a *Arrival) bool { return c.isForPeer(a) && matches(a) }, c.ResponseTimeout())
	if !ok {
		c.Fail(want, "nothing in %v", c.ResponseTimeout())
	}
	return a
}

// NextPackets returns the next n packets of this connection, or fails the case.
func (c *Conn) NextPackets(n int) []Arrival {
	all := make([]Arrival, n)
	for i := range all {
		var ok bool
		if all[i], ok = c.NextPacket(c.ResponseTimeout()); !ok {
			c.Fail(fmt.Sprintf("%d packets", n), "%d", i)
		}
	}
	return all
}

// WriteWR is a WRITE request to the peer of this many full packets.
func (c *Conn) WriteWR(id uint64, packets int) verbs.SendWR {
	return verbs.SendWR{WRID: id, Opcode: verbs.OpRDMAWrite, SGL: c.LocalMem.SGL(0, packets*MTU), Remote: PeerMemory}
}

// SendWR is a SEND request of n bytes.
func (c *Conn) SendWR(id uint64, n int) verbs.SendWR {
	return verbs.SendWR{WRID: id, Opcode: verbs.OpSend, SGL: c.LocalMem.SGL(0, n)}
}

// ReadWR is a READ request to the peer with this many full response packets.
func (c *Conn) ReadWR(id uint64, packets int) verbs.SendWR {
	return verbs.SendWR{WRID: id, Opcode: verbs.OpRDMARead, SGL: c.LocalMem.SGL(0, packets*MTU), Remote: PeerMemory}
}

// Data returns n bytes of payload.
func Data(n int) []byte { return rig.Pattern(n, 0x5a) }
