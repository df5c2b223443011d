package iwarp

import (
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// data is n bytes to send.
func data(n int) []byte { return rig.Data(n) }

// targetAddr is a place in the memory that the peer works on: an STag is a region's key.
func (c *conn) targetAddr(off int) iwarp.Addr {
	return iwarp.At(uint32(c.targetMem.RKey()), c.targetMem.Addr()+uint64(off))
}

// peerWrite is a Write of the peer to mem.
func (c *conn) peerWrite(off int, b []byte) iwarp.Segment {
	at := c.targetAddr(off)
	return iwarp.Write(at.STag, at.TO, b)
}

// peerRead is a Read Request of the peer for n octets of mem, to a sink of its own.
func (c *conn) peerRead(off, n int) iwarp.Segment {
	return iwarp.ReadRequest(c.nextRequestMSN(), iwarp.At(peerSTag, peerTO), uint32(n), c.targetAddr(off))
}

// Requests of the application, with n bytes of own from off on.

func (c *conn) sendWR(id uint64, off, n int) verbs.SendWR {
	return verbs.SendWR{WRID: id, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGL: c.localMem.SGL(off, n)}
}

func (c *conn) writeWR(id uint64, off, n int) verbs.SendWR {
	return verbs.SendWR{
		WRID: id, Opcode: verbs.OpRDMAWrite, Flags: verbs.SendSignaled, SGL: c.localMem.SGL(off, n),
		Remote: verbs.Remote{Addr: peerTO, RKey: peerSTag},
	}
}

func (c *conn) readWR(id uint64, off, n int) verbs.SendWR {
	return verbs.SendWR{
		WRID: id, Opcode: verbs.OpRDMARead, Flags: verbs.SendSignaled, SGL: c.localMem.SGL(off, n),
		Remote: verbs.Remote{Addr: peerTO, RKey: peerSTag},
	}
}
