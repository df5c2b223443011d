package iwarp

import (
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
)

var registryCases = []conformance.Case{{
	ID: "rdmap/registry/any-code-of-a-local-catastrophe", Cite: cite("rfc6580/3.1/1"),
	Title:   "A Terminate for a local catastrophic error ends the stream, whatever its code",
	Sends:   "Terminates of layer 0, type 0, with the codes 00, 01, 77 and ff, each on a separate connection",
	Expects: "the end of the stream without a message, the application is notified, and a receive that fails",
	Defects: []string{"StrangeTerminateIgnored"}, Run: onHost(func(h *host) {
		for _, code := range []uint8{0x00, 0x01, 0x77, 0xff} {
			c := h.connect(setup{receives: 1})
			c.send(iwarp.Terminate(iwarp.NewCause(0, 0, code)))
			c.expectEnd()
			c.expectDisconnect()
			c.expectFailure(1)
		}
	}),
}, {
	ID: "rdmap/registry/mpa-errors-are-of-type-zero", Cite: cite("rfc6580/3.3/1"),
	Title:   "An MPA error has layer 2, type 0",
	Sends:   "a Write with a wrong CRC",
	Expects: "a Terminate that begins with the octets 20 02, and quotes nothing",
	Defects: []string{"MPAErrorType"}, Run: onConn(func(c *conn) {
		c.expectAnswer(c.peerWrite(0, data(64)).BadCRC(), iwarp.Terminate(iwarp.MPACRC).QuotingNothing())
	}),
}, {
	ID: "rdmap/registry/unassigned-opcodes", Cite: cite("rfc6580/3.4/1", "rfc5040/7.2/1"),
	Title:   "Unassigned opcodes are reported as unexpected",
	Sends:   "messages with the opcodes 12, 13, 14 and 15, each on a separate connection",
	Expects: "a Terminate for an unexpected opcode each, and a receive that fails",
	Defects: []string{"OpcodeMasked"}, Run: onHost(func(h *host) {
		for op := iwarp.Opcode(12); op <= iwarp.OpExperimental; op++ {
			c := h.connect(setup{receives: 1})
			h.Note("opcode %d", op)
			c.expectRefusal(iwarp.Op(op).QN(0).MSN(c.nextSendMSN()).WithPayload(data(16)), iwarp.RDMAPUnexpectedOpcode)
			c.expectFailure(1)
		}
	}),
}}
