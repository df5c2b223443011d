package wire

import "fmt"

// Opcode is the first byte of a BTH: a transport in the upper three bits and
// an operation in the lower five.
type Opcode uint8

// Transport is the transport service of an opcode: its upper three bits.
type Transport uint8

// The transports. 0xC0 is reserved and 0xE0 is for manufacturers.
const (
	TransportRC  Transport = 0x00 // reliable connection
	TransportUC  Transport = 0x20 // unreliable connection
	TransportRD  Transport = 0x40 // reliable datagram
	TransportUD  Transport = 0x60 // unreliable datagram
	TransportCNP Transport = 0x80 // congestion notification, one opcode only
	TransportXRC Transport = 0xA0 // extended reliable connection
)

// Operation is the operation of an opcode: its lower five bits.
type Operation uint8

// The operations. A transport defines some of them; see Opcode.Info.
const (
	OpSendFirst Operation = iota
	OpSendMiddle
	OpSendLast
	OpSendLastImm
	OpSendOnly
	OpSendOnlyImm
	OpWriteFirst
	OpWriteMiddle
	OpWriteLast
	OpWriteLastImm
	OpWriteOnly
	OpWriteOnlyImm
	OpReadRequest
	OpReadResponseFirst
	OpReadResponseMiddle // the only response without an AETH
	OpReadResponseLast
	OpReadResponseOnly
	OpAcknowledge
	OpAtomicAcknowledge
	OpCompareSwap
	OpFetchAdd
	OpResync // reliable datagram only
	OpSendLastInv
	OpSendOnlyInv
	OpFlush       Operation = 0x1C // Annex A19; answered by OpReadResponseOnly
	OpAtomicWrite Operation = 0x1D // Annex A19; answered by OpReadResponseOnly
)

// CNP is the congestion notification packet of RoCEv2.
const CNP Opcode = 0x81

const operationMask = 0x1F

// MakeOpcode returns the opcode of a transport and an operation.
func MakeOpcode(t Transport, op Operation) Opcode {
	return Opcode(t) | Opcode(op)&operationMask
}

// Transport returns the upper three bits, not shifted.
func (o Opcode) Transport() Transport { return Transport(o &^ operationMask) }

// Operation returns the lower five bits.
func (o Opcode) Operation() Operation { return Operation(o & operationMask) }

// Info returns the properties of o; false if o is reserved.
func (o Opcode) Info() (Info, bool) {
	info := opcodes[o]
	return info, info.HeaderLen != 0
}

// Class returns the class of o; 0 if o is reserved.
func (o Opcode) Class() Class { return opcodes[o].Class }

// String prints o as "RC SEND_ONLY", or as "0x18" if it is reserved.
func (o Opcode) String() string {
	if name := opcodes[o].Name; name != "" {
		return name
	}
	return fmt.Sprintf("0x%02x", uint8(o))
}

var transportNames = map[Transport]string{
	TransportRC: "RC", TransportUC: "UC", TransportRD: "RD", TransportUD: "UD", TransportCNP: "CNP", TransportXRC: "XRC",
}

// String prints the transport's short name.
func (t Transport) String() string {
	if name, ok := transportNames[t]; ok {
		return name
	}
	return fmt.Sprintf("0x%02x", uint8(t))
}
