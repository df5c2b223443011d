package roce

import "github.com/fabrictest/fabrictest/conformance/packet/ib"

// remoteOp is an operation of the peer on the device's memory.
type remoteOp struct {
	name string
	// packet returns the request; a WRITE has as many bytes as the RETH says.
	packet func(ib.PSN, ib.RETH) ib.Packet
	// answer is the opcode of the response if the request is executed.
	answer ib.Opcode
}

func (op remoteOp) String() string { return op.name }

var (
	writeOp = remoteOp{"WRITE", func(psn ib.PSN, at ib.RETH) ib.Packet {
		return ib.WriteOnly(psn, at, Data(int(*at.Len))).AckReq()
	}, ib.OpAcknowledge}
	readOp = remoteOp{"READ", ib.ReadRequest, ib.OpReadResponseOnly}
	addOp  = remoteOp{"FETCH_ADD", func(psn ib.PSN, at ib.RETH) ib.Packet {
		return ib.FetchAdd(psn, at, 1)
	}, ib.OpAtomicAcknowledge}
	swapOp = remoteOp{"COMPARE_SWAP", func(psn ib.PSN, at ib.RETH) ib.Packet {
		return ib.CompareSwap(psn, at, 0, 1)
	}, ib.OpAtomicAcknowledge}
)

// expectOpRefused requests an operation with the first PSN, and fails the case unless the
// device sends a NAK with this code and leaves targetMem unchanged.
func (c *Conn) expectOpRefused(op remoteOp, at ib.RETH, code ib.NakCode) {
	c.Send(op.packet(c.PeerPSN(0), at))
	c.expectNak(c.PeerPSN(0), code)
	c.Sync()
	c.ExpectUnchanged(c.TargetMem, 0, 0)
}

// expectOpExecuted requests an operation with the first PSN, and fails the case unless it
// is executed.
func (c *Conn) expectOpExecuted(op remoteOp, at ib.RETH) { c.expectOpExecutedAt(0, op, at) }

// expectOpExecutedAt is expectOpExecuted with the n-th PSN.
func (c *Conn) expectOpExecutedAt(n int, op remoteOp, at ib.RETH) {
	got := c.exchange(op.packet(c.PeerPSN(n), at), ib.Op(op.answer).WithPSN(c.PeerPSN(n)))
	c.Check(got.Syndrome()>>5 == uint8(ib.AckPositive), "a response to a "+op.name+" without a NAK", "%v", got)
}
