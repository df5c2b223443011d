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

// expectOpRefused asks for something with the first PSN that must be refused, and change
// nothing of the connection's memory.
func (c *conn) expectOpRefused(op remoteOp, at ib.RETH, code ib.NakCode) {
	c.send(op.packet(c.peerPSN(0), at))
	c.expectNak(c.peerPSN(0), code)
	c.Sync()
	c.ExpectUnchanged(c.targetMem, 0, 0)
}

// expectOpExecuted asks for something with the first PSN that must be done.
func (c *conn) expectOpExecuted(op remoteOp, at ib.RETH) { c.expectOpExecutedAt(0, op, at) }

// expectOpExecutedAt is opWorks with the n-th PSN.
func (c *conn) expectOpExecutedAt(n int, op remoteOp, at ib.RETH) {
	c.send(op.packet(c.peerPSN(n), at))
	got := c.expect(ib.Op(op.answer).WithPSN(c.peerPSN(n)))
	c.Check(got.Syndrome()>>5 == uint8(ib.AckPositive), "an answer to a "+op.name+" that is granted", "%v", got)
}
