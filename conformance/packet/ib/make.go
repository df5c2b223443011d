package ib

// Op returns a packet with this opcode and no other field set, for invalid packets or
// expectations of few fields.
func Op(op Opcode) Packet { return Packet{BTH: BTH{Opcode: &op}} }

// newPacket returns a packet without extension headers.
func newPacket(op Opcode, psn PSN, payload []byte) Packet {
	p := Op(op).WithPSN(psn)
	p.Payload = payload
	return p
}

// SendFirst is the first packet of a SEND.
func SendFirst(psn PSN, payload []byte) Packet { return newPacket(OpSendFirst, psn, payload) }

// SendMiddle is a middle packet of a SEND.
func SendMiddle(psn PSN, payload []byte) Packet { return newPacket(OpSendMiddle, psn, payload) }

// SendLast is the last packet of a SEND.
func SendLast(psn PSN, payload []byte) Packet { return newPacket(OpSendLast, psn, payload) }

// SendLastImm is the last packet of a SEND with immediate data.
func SendLastImm(psn PSN, imm uint32, payload []byte) Packet {
	return newPacket(OpSendLastImm, psn, payload).WithImm(imm)
}

// SendLastInv is the last packet of a SEND with invalidate.
func SendLastInv[K ~uint32 | ~int](psn PSN, rkey K, payload []byte) Packet {
	return newPacket(OpSendLastInv, psn, payload).WithIETH(uint32(rkey))
}

// SendOnly is a single-packet SEND.
func SendOnly(psn PSN, payload []byte) Packet { return newPacket(OpSendOnly, psn, payload) }

// SendOnlyImm is a single-packet SEND with immediate data.
func SendOnlyImm(psn PSN, imm uint32, payload []byte) Packet {
	return newPacket(OpSendOnlyImm, psn, payload).WithImm(imm)
}

// SendOnlyInv is a single-packet SEND with invalidate.
func SendOnlyInv[K ~uint32 | ~int](psn PSN, rkey K, payload []byte) Packet {
	return newPacket(OpSendOnlyInv, psn, payload).WithIETH(uint32(rkey))
}

// WriteFirst is the first packet of a WRITE; the RETH has the length of the message.
func WriteFirst(psn PSN, to RETH, payload []byte) Packet {
	return newPacket(OpWriteFirst, psn, payload).WithRETH(to)
}

// WriteMiddle is a middle packet of a WRITE.
func WriteMiddle(psn PSN, payload []byte) Packet { return newPacket(OpWriteMiddle, psn, payload) }

// WriteLast is the last packet of a WRITE.
func WriteLast(psn PSN, payload []byte) Packet { return newPacket(OpWriteLast, psn, payload) }

// WriteLastImm is the last packet of a WRITE with immediate data.
func WriteLastImm(psn PSN, imm uint32, payload []byte) Packet {
	return newPacket(OpWriteLastImm, psn, payload).WithImm(imm)
}

// WriteOnly is a single-packet WRITE.
func WriteOnly(psn PSN, to RETH, payload []byte) Packet {
	return newPacket(OpWriteOnly, psn, payload).WithRETH(to)
}

// WriteOnlyImm is a single-packet WRITE with immediate data.
func WriteOnlyImm(psn PSN, to RETH, imm uint32, payload []byte) Packet {
	return newPacket(OpWriteOnlyImm, psn, payload).WithRETH(to).WithImm(imm)
}

// ReadRequest is a READ request.
func ReadRequest(psn PSN, from RETH) Packet { return newPacket(OpReadRequest, psn, nil).WithRETH(from) }

// FetchAdd is a FETCH_ADD request; the length of the RETH is not sent.
func FetchAdd(psn PSN, at RETH, add uint64) Packet {
	p := newPacket(OpFetchAdd, psn, nil)
	p.AtomicETH = &AtomicETH{VA: at.VA, RKey: at.RKey, SwapAdd: &add}
	return p
}

// CompareSwap is a COMPARE_SWAP request; the length of the RETH is not sent.
func CompareSwap(psn PSN, at RETH, compare, swap uint64) Packet {
	p := newPacket(OpCompareSwap, psn, nil)
	p.AtomicETH = &AtomicETH{VA: at.VA, RKey: at.RKey, SwapAdd: &swap, Compare: &compare}
	return p
}

// AtomicWrite is an ATOMIC WRITE request. A valid one has eight bytes of payload.
func AtomicWrite(psn PSN, to RETH, payload []byte) Packet {
	return newPacket(OpAtomicWrite, psn, payload).WithRETH(to)
}

// Flush is a FLUSH request.
func Flush(psn PSN, placement, selectivity uint8, of RETH) Packet {
	p := newPacket(OpFlush, psn, nil).WithRETH(of)
	p.FETH = &FETH{Placement: &placement, Selectivity: &selectivity}
	return p
}

// Datagram is a SEND of UD.
func Datagram(psn PSN, qkey, srcQP uint32, payload []byte) Packet {
	return newPacket(OpUDSendOnly, psn, payload).WithDETH(qkey, srcQP)
}

// DatagramImm is a SEND of UD with immediate data.
func DatagramImm(psn PSN, qkey, srcQP, imm uint32, payload []byte) Packet {
	return newPacket(OpUDSendOnlyImm, psn, payload).WithDETH(qkey, srcQP).WithImm(imm)
}

// noPayload is an empty payload; nil would match any.
var noPayload = []byte{}

// response returns a packet with the AETH of an ACK.
func response(op Opcode, psn PSN, msn uint32, payload []byte) Packet {
	p := newPacket(op, psn, payload)
	p.AETH = &AETH{Kind: new(AckPositive)}
	return p.WithMSN(msn)
}

// Ack acknowledges all packets up to psn. It matches any credit count, and is built without one.
func Ack(psn PSN, msn uint32) Packet { return response(OpAcknowledge, psn, msn, noPayload) }

// Nak is a NAK for packet psn.
func Nak(psn PSN, code NakCode, msn uint32) Packet {
	p := response(OpAcknowledge, psn, msn, noPayload)
	p.AETH.Kind, p.AETH.Value = new(AckNegative), new(uint8(code))
	return p
}

// RNR is an RNR NAK for packet psn, with the code of a timer.
func RNR(psn PSN, timer uint8, msn uint32) Packet {
	p := response(OpAcknowledge, psn, msn, noPayload)
	p.AETH.Kind, p.AETH.Value = new(AckRNR), &timer
	return p
}

// ReadResponseFirst is the first response packet of a READ.
func ReadResponseFirst(psn PSN, msn uint32, payload []byte) Packet {
	return response(OpReadResponseFirst, psn, msn, payload)
}

// ReadResponseMiddle is a middle response packet of a READ.
func ReadResponseMiddle(psn PSN, payload []byte) Packet {
	return newPacket(OpReadResponseMiddle, psn, payload)
}

// ReadResponseLast is the last response packet of a READ.
func ReadResponseLast(psn PSN, msn uint32, payload []byte) Packet {
	return response(OpReadResponseLast, psn, msn, payload)
}

// ReadResponseOnly is a single-packet READ response.
func ReadResponseOnly(psn PSN, msn uint32, payload []byte) Packet {
	return response(OpReadResponseOnly, psn, msn, payload)
}

// AtomicAck is the response to an atomic.
func AtomicAck(psn PSN, msn uint32, original uint64) Packet {
	p := response(OpAtomicAcknowledge, psn, msn, noPayload)
	p.AtomicAck = &AtomicAckETH{Original: &original}
	return p
}

// CNP is a congestion notification packet. [Packet.To] sets its queue pair. It is built with BECN and
// matches with and without, since the specification does not require the bit.
func CNP() Packet { return newPacket(OpCNP, 0, nil) }
