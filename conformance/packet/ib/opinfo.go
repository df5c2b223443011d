package ib

import "slices"

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
	PayloadCNP               // 16, reserved
)

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

// Info returns the description of the opcode; ok is false for reserved and manufacturer
// opcodes.
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
		if op <= OpWriteOnlyImm {
			add(UC, op)
		}
		if op == OpSendOnly || op == OpSendOnlyImm {
			add(UD, op, HdrDETH)
		}
		// Responses have no XRCETH.
		rd, xrc := []Header{HdrRDETH, HdrDETH}, []Header{HdrXRCETH}
		if info.Response {
			rd, xrc = rd[:1], nil
		}
		if op <= OpFetchAdd {
			add(RD, op, rd...)
		}
		if op <= OpSendOnlyInv {
			add(XRC, op, xrc...)
		}
	}
	return all
}
