package ib

import (
	"fmt"
	"slices"
)

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
	names := []string{"RC", "UC", "RD", "UD", "CNP", "XRC"}
	if i := int(t >> 5); i < len(names) { // the transport is the upper three bits of the opcode
		return names[i]
	}
	return fmt.Sprintf("transport %#02x", uint8(t))
}

// Op returns the opcode of this transport for the operation of op: UC.Op(OpSendOnly) is
// 0x24. [Opcode.Info] tells whether it exists.
func (t Transport) Op(op Opcode) Opcode { return Opcode(t) | op&0x1f }

// Transport returns the transport service of the opcode, which its upper three bits encode.
func (op Opcode) Transport() Transport { return Transport(op & 0xe0) }

// Operation returns the RC opcode of the same operation.
func (op Opcode) Operation() Opcode { return op & 0x1f }

// String is the name of the opcode, with its transport unless that is RC or the opcode is CNP:
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

// Kind is the kind of operation of an opcode.
type Kind uint8

// Kinds of operations.
const (
	KindSend Kind = iota
	KindWrite
	KindReadRequest
	KindReadResponse
	KindAcknowledge
	KindAtomicAcknowledge
	KindAtomic
	KindFlush
	KindAtomicWrite
	KindResync
	KindCNP
)

// Position is the position of a packet in its message.
type Position uint8

// Positions.
const (
	Only Position = iota
	First
	Middle
	Last
)

// PayloadRule is the permitted payload length of an opcode.
type PayloadRule uint8

// Payload rules. Pad bytes do not count.
const (
	PayloadNone  PayloadRule = iota
	PayloadFull              // the path MTU
	PayloadSome              // 1 to the path MTU
	PayloadAny               // 0 to the path MTU
	PayloadEight             // exactly 8
	PayloadCNP               // cnpPayloadLen, reserved
)

const cnpPayloadLen = 16

// Header is an extension header.
type Header uint8

// Extension headers, in their order after the BTH.
const (
	HdrRDETH Header = iota
	HdrXRCETH
	HdrDETH
	HdrFETH
	HdrRETH
	HdrAtomicETH
	HdrAETH
	HdrAtomicAckETH
	HdrImmDt
	HdrIETH
)

// OpInfo describes an opcode.
type OpInfo struct {
	Name      string // of the operation, without the transport
	Transport Transport
	Kind      Kind
	Position  Position
	Payload   PayloadRule
	Headers   []Header // after the BTH, in order
	// Response: the responder sends the packet.
	Response bool
}

// Has reports whether the opcode has an extension header.
func (i OpInfo) Has(h Header) bool { return slices.Contains(i.Headers, h) }

// Info returns the description of the opcode; ok is false for reserved and manufacturer opcodes.
func (op Opcode) Info() (info OpInfo, ok bool) {
	info, ok = opcodes[op]
	info.Headers = slices.Clone(info.Headers)
	return info, ok
}

// rcOps describes the operations of RC, from which those of other transports derive.
var rcOps = map[Opcode]OpInfo{
	OpSendFirst:          {Name: "SEND_FIRST", Kind: KindSend, Position: First, Payload: PayloadFull},
	OpSendMiddle:         {Name: "SEND_MIDDLE", Kind: KindSend, Position: Middle, Payload: PayloadFull},
	OpSendLast:           {Name: "SEND_LAST", Kind: KindSend, Position: Last, Payload: PayloadSome},
	OpSendLastImm:        {Name: "SEND_LAST_IMM", Kind: KindSend, Position: Last, Payload: PayloadSome, Headers: []Header{HdrImmDt}},
	OpSendOnly:           {Name: "SEND_ONLY", Kind: KindSend, Payload: PayloadAny},
	OpSendOnlyImm:        {Name: "SEND_ONLY_IMM", Kind: KindSend, Payload: PayloadAny, Headers: []Header{HdrImmDt}},
	OpWriteFirst:         {Name: "WRITE_FIRST", Kind: KindWrite, Position: First, Payload: PayloadFull, Headers: []Header{HdrRETH}},
	OpWriteMiddle:        {Name: "WRITE_MIDDLE", Kind: KindWrite, Position: Middle, Payload: PayloadFull},
	OpWriteLast:          {Name: "WRITE_LAST", Kind: KindWrite, Position: Last, Payload: PayloadSome},
	OpWriteLastImm:       {Name: "WRITE_LAST_IMM", Kind: KindWrite, Position: Last, Payload: PayloadSome, Headers: []Header{HdrImmDt}},
	OpWriteOnly:          {Name: "WRITE_ONLY", Kind: KindWrite, Payload: PayloadAny, Headers: []Header{HdrRETH}},
	OpWriteOnlyImm:       {Name: "WRITE_ONLY_IMM", Kind: KindWrite, Payload: PayloadAny, Headers: []Header{HdrRETH, HdrImmDt}},
	OpReadRequest:        {Name: "READ_REQUEST", Kind: KindReadRequest, Headers: []Header{HdrRETH}},
	OpReadResponseFirst:  {Name: "READ_RESPONSE_FIRST", Kind: KindReadResponse, Position: First, Payload: PayloadFull, Headers: []Header{HdrAETH}, Response: true},
	OpReadResponseMiddle: {Name: "READ_RESPONSE_MIDDLE", Kind: KindReadResponse, Position: Middle, Payload: PayloadFull, Response: true},
	OpReadResponseLast:   {Name: "READ_RESPONSE_LAST", Kind: KindReadResponse, Position: Last, Payload: PayloadSome, Headers: []Header{HdrAETH}, Response: true},
	OpReadResponseOnly:   {Name: "READ_RESPONSE_ONLY", Kind: KindReadResponse, Payload: PayloadAny, Headers: []Header{HdrAETH}, Response: true},
	OpAcknowledge:        {Name: "ACKNOWLEDGE", Kind: KindAcknowledge, Headers: []Header{HdrAETH}, Response: true},
	OpAtomicAcknowledge:  {Name: "ATOMIC_ACKNOWLEDGE", Kind: KindAtomicAcknowledge, Headers: []Header{HdrAETH, HdrAtomicAckETH}, Response: true},
	OpCompareSwap:        {Name: "COMPARE_SWAP", Kind: KindAtomic, Headers: []Header{HdrAtomicETH}},
	OpFetchAdd:           {Name: "FETCH_ADD", Kind: KindAtomic, Headers: []Header{HdrAtomicETH}},
	OpSendLastInv:        {Name: "SEND_LAST_INV", Kind: KindSend, Position: Last, Payload: PayloadSome, Headers: []Header{HdrIETH}},
	OpSendOnlyInv:        {Name: "SEND_ONLY_INV", Kind: KindSend, Payload: PayloadAny, Headers: []Header{HdrIETH}},
	OpFlush:              {Name: "FLUSH", Kind: KindFlush, Headers: []Header{HdrFETH, HdrRETH}},
	OpAtomicWrite:        {Name: "ATOMIC_WRITE", Kind: KindAtomicWrite, Payload: PayloadEight, Headers: []Header{HdrRETH}},
}

var opcodes = makeOpcodes()

// makeOpcodes returns the opcodes of all transports, derived from those of RC: other transports
// have some of its operations, with headers of their own before those of RC.
func makeOpcodes() map[Opcode]OpInfo {
	all := map[Opcode]OpInfo{
		OpCNP:           {Name: "CNP", Transport: Congestion, Kind: KindCNP, Payload: PayloadCNP},
		RD.Op(OpResync): {Name: "RESYNC", Transport: RD, Kind: KindResync, Headers: []Header{HdrRDETH, HdrDETH}},
	}
	add := func(t Transport, op Opcode, before ...Header) {
		info := rcOps[op]
		info.Transport = t
		info.Headers = append(before, info.Headers...)
		all[t.Op(op)] = info
	}
	for op, info := range rcOps {
		add(RC, op)
		if op <= OpWriteOnlyImm { // UC has SEND and WRITE only
			add(UC, op)
		}
		if op == OpSendOnly || op == OpSendOnlyImm {
			add(UD, op, HdrDETH)
		}
		rdHeaders, xrcHeaders := []Header{HdrRDETH, HdrDETH}, []Header{HdrXRCETH}
		if info.Response { // without DETH or XRCETH
			rdHeaders, xrcHeaders = rdHeaders[:1], nil
		}
		if op <= OpFetchAdd { // RD lacks the later operations of RC
			add(RD, op, rdHeaders...)
		}
		if op <= OpSendOnlyInv { // XRC lacks FLUSH and ATOMIC_WRITE
			add(XRC, op, xrcHeaders...)
		}
	}
	return all
}
