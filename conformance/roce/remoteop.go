package roce

import "github.com/fabrictest/fabrictest/conformance/packet/ib"

// remoteOp is something that a peer does with the device's memory.
type remoteOp struct {
	name string
	// packet asks for it; a WRITE is of as many bytes as the RETH says.
	packet func(ib.PSN, ib.RETH) ib.Packet
	// answer is the opcode of an answer to one that was executed.
	answer ib.Opcode
}

// String is its name.
func (op remoteOp) String() string { return op.name }

// The operations.
var (
	writeOp = remoteOp{"WRITE", func(psn ib.PSN, at ib.RETH) ib.Packet {
		return ib.WriteOnly(psn, at, data(int(*at.Len))).AckReq()
	}, ib.OpAcknowledge}
	readOp = remoteOp{"READ", ib.ReadRequest, ib.OpReadResponseOnly}
	addOp  = remoteOp{"FETCH_ADD", func(psn ib.PSN, at ib.RETH) ib.Packet {
		return ib.FetchAdd(psn, at, 1)
	}, ib.OpAtomicAcknowledge}
	swapOp = remoteOp{"COMPARE_SWAP", func(psn ib.PSN, at ib.RETH) ib.Packet {
		return ib.CompareSwap(psn, at, 0, 1)
	}, ib.OpAtomicAcknowledge}
)

// opRefused asks for something with the first PSN that must be refused, and change
// nothing of the connection's memory.
func (c *conn) opRefused(op remoteOp, at ib.RETH, code ib.NakCode) {
	c.send(op.packet(c.psn(0), at))
	c.rdmaNaked(c.psn(0), code)
	c.settle()
	c.ExpectUnchanged(c.mem, 0, 0)
}

// opWorks asks for something with the first PSN that must be done.
func (c *conn) opWorks(op remoteOp, at ib.RETH) { c.opWorksAt(0, op, at) }

// opWorksAt is opWorks with the n-th PSN.
func (c *conn) opWorksAt(n int, op remoteOp, at ib.RETH) {
	c.send(op.packet(c.psn(n), at))
	got := c.expects(ib.Op(op.answer).WithPSN(c.psn(n)))
	c.Check(got.Syndrome()>>5 == uint8(ib.AckPositive), "an answer to a "+op.name+" that is granted", "%v", got)
}
