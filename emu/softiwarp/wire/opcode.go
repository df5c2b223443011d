package wire

import "fmt"

// Opcode is the four bits that say which RDMAP message a segment belongs to.
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

// Info is what the RFCs say about one opcode.
type Info struct {
	Name   string
	Tagged bool
	Queue  QN    // if it is not tagged
	Header int   // octets of RDMAP header after that of DDP; a Terminate's may be longer
	Class  Class // what else there is to say
}

// Class says what role a message plays. Bits combine.
type Class uint8

// The bits of a Class.
const (
	HasPayload   Class = 1 << iota // carries octets of the application
	ConsumesRecv                   // takes a receive work request
	Solicited                      // raises an event if the receiver armed for solicited ones
	Invalidates                    // revokes the STag in the untagged header
	Response                       // answers a Read Request or an Atomic Request
)

// Has reports whether c holds all of want.
func (c Class) Has(want Class) bool { return c&want == want }

const send = HasPayload | ConsumesRecv

// opcodes is the one place that knows which opcodes exist.
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

// Info returns what the RFCs say about o, or false if they say nothing.
func (o Opcode) Info() (Info, bool) {
	info := opcodes[o&opcodeMask]
	return info, info.Name != ""
}

// Tagged reports whether messages of opcode o use the tagged model.
func (o Opcode) Tagged() bool { return opcodes[o&opcodeMask].Tagged }

// String prints the message's name as the RFCs spell it, or "opcode 13".
func (o Opcode) String() string {
	if name := opcodes[o&opcodeMask].Name; name != "" {
		return name
	}
	return fmt.Sprintf("opcode %d", uint8(o&opcodeMask))
}
