package iwarp

import (
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// data is n bytes to send.
func data(n int) []byte { return rig.Data(n) }

// at is a place in the memory that the peer works on: an STag is a region's key.
func (c *conn) at(off int) iwarp.Addr {
	return iwarp.At(uint32(c.mem.RKey()), c.mem.Addr()+uint64(off))
}

// writes is a Write of the peer's to mem.
func (c *conn) writes(off int, b []byte) iwarp.Segment {
	at := c.at(off)
	return iwarp.Write(at.STag, at.TO, b)
}

// reads is a Read Request of the peer's for n octets of mem, to a sink of its own.
func (c *conn) reads(off, n int) iwarp.Segment {
	return iwarp.ReadRequest(c.nextRequest(), iwarp.At(peerSTag, peerTO), uint32(n), c.at(off))
}

// Requests of the device's program, with n bytes of own from off on.

func (c *conn) sendWR(id uint64, off, n int) verbs.SendWR {
	return verbs.SendWR{WRID: id, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: c.own.SGL(off, n)}
}

func (c *conn) writeWR(id uint64, off, n int) verbs.SendWR {
	return verbs.SendWR{
		WRID: id, Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: c.own.SGL(off, n),
		Remote: verbs.Remote{Addr: peerTO, RKey: peerSTag},
	}
}

func (c *conn) readWR(id uint64, off, n int) verbs.SendWR {
	return verbs.SendWR{
		WRID: id, Opcode: verbs.OpRDMARead, Flags: verbs.SendSignaled, SGL: c.own.SGL(off, n),
		Remote: verbs.Remote{Addr: peerTO, RKey: peerSTag},
	}
}
