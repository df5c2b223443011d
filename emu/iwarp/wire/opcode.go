package wire

import "fmt"

// Opcode is the RDMAP opcode of a segment, four bits.
type Opcode uint8

// The opcodes. 12 to 14 are unassigned, 15 is for experiments.
const (
	OpWrite Opcode = iota
	OpReadRequest
	OpReadResponse
	OpSend
	OpSendInv
	OpSendSE // solicited event
	OpSendSEInv
	OpTerminate
	OpImmediate   // RFC 7306, as all that follow
	OpImmediateSE // solicited event
	OpAtomicRequest
	OpAtomicResponse
)

const opcodeMask = 0x0F

// Info are the properties of an opcode.
type Info struct {
	Name   string
	Tagged bool
	Queue  QN    // of untagged messages
	Header int   // length of the RDMAP header; the minimum for a Terminate
	Class  Class // further properties
}

// Class are properties of a message. Bits combine.
type Class uint8

// The bits of a Class.
const (
	HasPayload   Class = 1 << iota // carries application data
	ConsumesRecv                   // consumes a receive work request
	Solicited                      // causes a solicited event
	Invalidates                    // invalidates the STag in the untagged header
	Response                       // answers a Read Request or an Atomic Request
)

// Has reports whether c has all bits of want.
func (c Class) Has(want Class) bool { return c&want == want }

const send = HasPayload | ConsumesRecv

// opcodes is the table of all opcodes.
var opcodes = [opcodeMask + 1]Info{
	OpWrite:          {"RDMA Write", true, 0, 0, HasPayload},
	OpReadRequest:    {"RDMA Read Request", false, QueueReadRequest, ReadRequestLen, 0},
	OpReadResponse:   {"RDMA Read Response", true, 0, 0, HasPayload | Response},
	OpSend:           {"Send", false, QueueSend, 0, send},
	OpSendInv:        {"Send with Invalidate", false, QueueSend, 0, send | Invalidates},
	OpSendSE:         {"Send with SE", false, QueueSend, 0, send | Solicited},
	OpSendSEInv:      {"Send with SE and Invalidate", false, QueueSend, 0, send | Solicited | Invalidates},
	OpTerminate:      {"Terminate", false, QueueTerminate, TerminateLen, 0},
	OpImmediate:      {"Immediate Data", false, QueueSend, ImmediateLen, ConsumesRecv},
	OpImmediateSE:    {"Immediate Data with SE", false, QueueSend, ImmediateLen, ConsumesRecv | Solicited},
	OpAtomicRequest:  {"Atomic Request", false, QueueReadRequest, AtomicRequestLen, 0},
	OpAtomicResponse: {"Atomic Response", false, QueueAtomicResponse, AtomicResponseLen, Response},
}

// Info returns the properties of o; false if o is not assigned.
func (o Opcode) Info() (Info, bool) {
	info := opcodes[o&opcodeMask]
	return info, info.Name != ""
}

// String returns the message's name as the RFCs spell it; for an unassigned opcode its number.
func (o Opcode) String() string {
	if name := opcodes[o&opcodeMask].Name; name != "" {
		return name
	}
	return fmt.Sprintf("opcode %d", uint8(o&opcodeMask))
}
