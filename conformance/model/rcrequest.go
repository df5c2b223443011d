package model

import (
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/verbs"
)

// RCRequest is a send request of an RC queue pair.
type RCRequest struct {
	verbs.SendWR
	// Data is the payload of a SEND, WRITE or ATOMIC WRITE.
	Data []byte
	// Len is the length of the response to a READ, 8 for an atomic, 0 for a FLUSH or ATOMIC WRITE.
	Len int
	// Window is the memory window of a bind or local invalidate.
	Window *RCWindow
	// Fails is the error that the device finds by itself when it begins the request.
	Fails verbs.WCStatus
	// Result is the data that a READ or atomic has received.
	Result []byte
	// Touched: the buffers of the READ or atomic may have been written.
	Touched bool

	number   int // among the requests on the wire, from 1 on
	psn      ib.PSN
	begun    bool
	answered int  // response packets received
	restart  int  // index of the response from which on a READ was requested again
	repeated bool // a READ or atomic was sent again
}

// RCWindow is a type 2 memory window.
type RCWindow struct{ Bound bool }

// execute executes a local request.
func (r *RCRequest) execute() {
	switch {
	case r.Opcode == verbs.OpBindMW && r.Window.Bound:
		r.Fails = verbs.WCMWBindErr
	case r.Opcode == verbs.OpLocalInv && !r.Window.Bound:
		r.Fails = verbs.WCGeneralErr // any error
	default:
		r.Window.Bound = r.Opcode == verbs.OpBindMW
	}
}

func (r *RCRequest) isLocal() bool { return r.Window != nil }

// hasResponse reports whether a response of its own, not an ACK, completes the request: a READ, an
// atomic, or a FLUSH or ATOMIC WRITE, whose responses have no data.
func (r *RCRequest) hasResponse() bool {
	return r.isRead() || r.Opcode == verbs.OpFlush || r.Opcode == verbs.OpAtomicWrite
}

// isRead reports whether the request is a READ or atomic.
func (r *RCRequest) isRead() bool { return r.Opcode == verbs.OpRDMARead || r.isAtomic() }

func (r *RCRequest) isAtomic() bool {
	return r.Opcode == verbs.OpAtomicCmpAndSwp || r.Opcode == verbs.OpAtomicFetchAdd
}

// needsReceive reports whether the request uses a receive of the peer.
func (r *RCRequest) needsReceive() bool {
	switch r.Opcode {
	case verbs.OpSend, verbs.OpSendImm, verbs.OpSendInv, verbs.OpRDMAWriteImm:
		return true
	}
	return false
}

// packets returns the number of PSNs of the request.
func (r *RCRequest) packets(mtu int) int {
	switch {
	case r.isLocal():
		return 0
	case r.hasResponse():
		return ib.Packets(r.Len, mtu)
	}
	return ib.Packets(len(r.Data), mtu)
}

// WCOpcode returns the opcode of the completion.
func (r *RCRequest) WCOpcode() verbs.WCOpcode { return wcOpcodes[r.Opcode] }

// wcOpcodes are the opcodes of completions.
var wcOpcodes = map[verbs.WROpcode]verbs.WCOpcode{
	verbs.OpSend: verbs.WCOpSend, verbs.OpSendImm: verbs.WCOpSend, verbs.OpSendInv: verbs.WCOpSend,
	verbs.OpRDMAWrite: verbs.WCOpRDMAWrite, verbs.OpRDMAWriteImm: verbs.WCOpRDMAWrite,
	verbs.OpRDMARead: verbs.WCOpRDMARead, verbs.OpAtomicCmpAndSwp: verbs.WCOpCompSwap,
	verbs.OpAtomicFetchAdd: verbs.WCOpFetchAdd, verbs.OpBindMW: verbs.WCOpBindMW, verbs.OpLocalInv: verbs.WCOpLocalInv,
	verbs.OpFlush: verbs.WCOpFlush, verbs.OpAtomicWrite: verbs.WCOpAtomicWrite,
}

// rcOpcodes are the opcodes of packets by their position in the message.
type rcOpcodes [4]ib.Opcode

var (
	rcSend  = rcOpcodes{ib.Only: ib.OpSendOnly, ib.First: ib.OpSendFirst, ib.Middle: ib.OpSendMiddle, ib.Last: ib.OpSendLast}
	rcWrite = rcOpcodes{ib.Only: ib.OpWriteOnly, ib.First: ib.OpWriteFirst, ib.Middle: ib.OpWriteMiddle, ib.Last: ib.OpWriteLast}

	rcMessageOpcodes = map[verbs.WROpcode]rcOpcodes{
		verbs.OpSend: rcSend, verbs.OpRDMAWrite: rcWrite,
		verbs.OpSendImm:      rcSend.ending(ib.OpSendOnlyImm, ib.OpSendLastImm),
		verbs.OpSendInv:      rcSend.ending(ib.OpSendOnlyInv, ib.OpSendLastInv),
		verbs.OpRDMAWriteImm: rcWrite.ending(ib.OpWriteOnlyImm, ib.OpWriteLastImm),
		verbs.OpRDMARead:     {ib.Only: ib.OpReadRequest}, verbs.OpAtomicFetchAdd: {ib.Only: ib.OpFetchAdd},
		verbs.OpAtomicCmpAndSwp: {ib.Only: ib.OpCompareSwap},
	}
)

func (o rcOpcodes) ending(only, last ib.Opcode) rcOpcodes {
	o[ib.Only], o[ib.Last] = only, last
	return o
}

// rcPosition returns the position of the i-th of n packets.
func rcPosition(i, n int) ib.Position {
	switch {
	case n == 1:
		return ib.Only
	case i == 0:
		return ib.First
	case i == n-1:
		return ib.Last
	}
	return ib.Middle
}

// packet returns the i-th packet of the request. For a READ it requests the responses from the
// i-th on. AckReq may have any value (nil).
func (r *RCRequest) packet(i, mtu int) ib.Packet {
	psn, at := r.psn.Add(i), ib.At(r.Remote.Addr, r.Remote.RKey, r.Len)
	var p ib.Packet
	switch r.Opcode {
	case verbs.OpRDMARead:
		p = ib.ReadRequest(psn, at.Skip(i*mtu)).WithPayload([]byte{})
	case verbs.OpAtomicFetchAdd:
		p = ib.FetchAdd(psn, at, r.Atomic.CompareAdd).WithCompare(0).WithPayload([]byte{})
	case verbs.OpAtomicCmpAndSwp:
		p = ib.CompareSwap(psn, at, r.Atomic.CompareAdd, r.Atomic.Swap).WithPayload([]byte{})
	case verbs.OpFlush:
		at = ib.At(r.Remote.Addr, r.Remote.RKey, int(r.Flush.Length))
		if r.Flush.Level == verbs.FlushMR {
			at.Len = nil // it has no meaning
		}
		p = ib.Flush(psn, uint8(r.Flush.Type), uint8(r.Flush.Level), at).WithPayload([]byte{})
	case verbs.OpAtomicWrite:
		p = ib.AtomicWrite(psn, at.Sized(8), r.Data)
	default:
		return r.messagePacket(i, mtu)
	}
	return p.NoSE()
}

// messagePacket returns the i-th packet of a SEND or WRITE.
func (r *RCRequest) messagePacket(i, mtu int) ib.Packet {
	n := r.packets(mtu)
	position := rcPosition(i, n)
	payload := append([]byte{}, r.Data[i*mtu:min((i+1)*mtu, len(r.Data))]...)
	p := ib.New(rcMessageOpcodes[r.Opcode][position], r.psn.Add(i), payload).NoSE()
	info, _ := p.Info()
	if info.Has(ib.HdrRETH) {
		p = p.WithRETH(ib.At(r.Remote.Addr, r.Remote.RKey, len(r.Data)))
	}
	if info.Has(ib.HdrImmDt) {
		p = p.WithImm(r.Imm)
	}
	if info.Has(ib.HdrIETH) {
		p = p.WithIETH(uint32(r.InvalidateRKey))
	}
	isEnd := position == ib.Only || position == ib.Last
	if isEnd && r.needsReceive() && r.Flags&verbs.SendSolicited != 0 {
		p = p.SE()
	}
	return p
}
