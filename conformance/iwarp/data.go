package iwarp

import (
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// data returns n octets of payload.
func data(n int) []byte { return rig.Data(n) }

// targetAddr returns the address of an octet of targetMem; the R_Key is the STag.
func (c *conn) targetAddr(off int) iwarp.Addr {
	return iwarp.At(uint32(c.targetMem.RKey()), c.targetMem.Addr()+uint64(off))
}

// peerWrite returns a Write of the peer to targetMem.
func (c *conn) peerWrite(off int, b []byte) iwarp.Segment {
	at := c.targetAddr(off)
	return iwarp.Write(at.STag, at.TO, b)
}

// peerRead returns a Read Request of the peer for n octets of targetMem.
func (c *conn) peerRead(off, n int) iwarp.Segment {
	return iwarp.ReadRequest(c.nextRequestMSN(), iwarp.At(peerSTag, peerTO), uint32(n), c.targetAddr(off))
}

// Work requests of the device, with n bytes of localMem from off on.

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
