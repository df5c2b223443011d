package ib

import "fmt"

// Opcode is the BTH opcode: three bits of transport, five of operation.
type Opcode uint8

// Opcodes of RC. [Transport.Op] converts them for other transports.
const (
	OpSendFirst          Opcode = 0x00
	OpSendMiddle         Opcode = 0x01
	OpSendLast           Opcode = 0x02
	OpSendLastImm        Opcode = 0x03
	OpSendOnly           Opcode = 0x04
	OpSendOnlyImm        Opcode = 0x05
	OpWriteFirst         Opcode = 0x06
	OpWriteMiddle        Opcode = 0x07
	OpWriteLast          Opcode = 0x08
	OpWriteLastImm       Opcode = 0x09
	OpWriteOnly          Opcode = 0x0a
	OpWriteOnlyImm       Opcode = 0x0b
	OpReadRequest        Opcode = 0x0c
	OpReadResponseFirst  Opcode = 0x0d
	OpReadResponseMiddle Opcode = 0x0e
	OpReadResponseLast   Opcode = 0x0f
	OpReadResponseOnly   Opcode = 0x10
	OpAcknowledge        Opcode = 0x11
	OpAtomicAcknowledge  Opcode = 0x12
	OpCompareSwap        Opcode = 0x13
	OpFetchAdd           Opcode = 0x14
	OpResync             Opcode = 0x15 // RD only
	OpSendLastInv        Opcode = 0x16
	OpSendOnlyInv        Opcode = 0x17
	OpFlush              Opcode = 0x1c
	OpAtomicWrite        Opcode = 0x1d
)

// Opcodes that are not derived from those of RC.
const (
	OpUDSendOnly    Opcode = 0x64
	OpUDSendOnlyImm Opcode = 0x65
	OpCNP           Opcode = 0x81
)

// Transport is the first three bits of an opcode.
type Transport uint8

// Transports.
const (
	RC         Transport = 0x00
	UC         Transport = 0x20
	RD         Transport = 0x40
	UD         Transport = 0x60
	Congestion Transport = 0x80 // CNP only
	XRC        Transport = 0xa0
)

// String is the name of the transport.
func (t Transport) String() string {
	switch t {
	case RC:
		return "RC"
	case UC:
		return "UC"
	case RD:
		return "RD"
	case UD:
		return "UD"
	case Congestion:
		return "CNP"
	case XRC:
		return "XRC"
	}
	return fmt.Sprintf("transport %#02x", uint8(t))
}

// Op returns the opcode of this transport for the operation of op: UC.Op(OpSendOnly) is
// 0x24. [Opcode.Info] tells whether it exists.
func (t Transport) Op(op Opcode) Opcode { return Opcode(t) | op&0x1f }

// Transport returns the transport of the opcode.
func (op Opcode) Transport() Transport { return Transport(op & 0xe0) }

// Operation returns the RC opcode of the same operation.
func (op Opcode) Operation() Opcode { return op & 0x1f }

// String is the name of the opcode, with its transport unless that is RC:
// "SEND_ONLY", "UC SEND_ONLY", "opcode 0x18".
func (op Opcode) String() string {
	info, ok := op.Info()
	switch {
	case !ok:
		return fmt.Sprintf("opcode %#02x", uint8(op))
	case info.Transport == RC || info.Transport == Congestion:
		return info.Name
	}
	return info.Transport.String() + " " + info.Name
}
