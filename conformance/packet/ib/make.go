package ib

// Op returns a packet with this opcode, be it one that exists or not, and nothing
// else said: the beginning of an odd packet, or of a loose expectation.
func Op(op Opcode) Packet { return Packet{BTH: BTH{Opcode: &op}} }

func request(op Opcode, psn PSN, payload []byte) Packet {
	p := Op(op).WithPSN(psn)
	p.Payload = payload
	return p
}

// SendFirst is the first packet of a SEND of several.
func SendFirst(psn PSN, payload []byte) Packet { return request(OpSendFirst, psn, payload) }

// SendMiddle is neither the first nor the last one.
func SendMiddle(psn PSN, payload []byte) Packet { return request(OpSendMiddle, psn, payload) }

// SendLast ends a SEND of several packets.
func SendLast(psn PSN, payload []byte) Packet { return request(OpSendLast, psn, payload) }

// SendLastImm ends a SEND of several packets with immediate data.
func SendLastImm(psn PSN, imm uint32, payload []byte) Packet {
	return request(OpSendLastImm, psn, payload).WithImm(imm)
}

// SendLastInv ends a SEND of several packets and invalidates a key.
func SendLastInv[K ~uint32 | ~int](psn PSN, rkey K, payload []byte) Packet {
	return request(OpSendLastInv, psn, payload).WithIETH(uint32(rkey))
}

// SendOnly is a SEND of one packet.
func SendOnly(psn PSN, payload []byte) Packet { return request(OpSendOnly, psn, payload) }

// SendOnlyImm is a SEND of one packet with immediate data.
func SendOnlyImm(psn PSN, imm uint32, payload []byte) Packet {
	return request(OpSendOnlyImm, psn, payload).WithImm(imm)
}

// SendOnlyInv is a SEND of one packet that invalidates a key.
func SendOnlyInv[K ~uint32 | ~int](psn PSN, rkey K, payload []byte) Packet {
	return request(OpSendOnlyInv, psn, payload).WithIETH(uint32(rkey))
}

// WriteFirst is the first packet of a WRITE of several; the RETH has the length of
// all of them.
func WriteFirst(psn PSN, to RETH, payload []byte) Packet {
	return request(OpWriteFirst, psn, payload).WithRETH(to)
}

// WriteMiddle is neither the first nor the last one.
func WriteMiddle(psn PSN, payload []byte) Packet { return request(OpWriteMiddle, psn, payload) }

// WriteLast ends a WRITE of several packets.
func WriteLast(psn PSN, payload []byte) Packet { return request(OpWriteLast, psn, payload) }

// WriteLastImm ends a WRITE of several packets with immediate data.
func WriteLastImm(psn PSN, imm uint32, payload []byte) Packet {
	return request(OpWriteLastImm, psn, payload).WithImm(imm)
}

// WriteOnly is a WRITE of one packet.
func WriteOnly(psn PSN, to RETH, payload []byte) Packet {
	return request(OpWriteOnly, psn, payload).WithRETH(to)
}

// WriteOnlyImm is a WRITE of one packet with immediate data.
func WriteOnlyImm(psn PSN, to RETH, imm uint32, payload []byte) Packet {
	return request(OpWriteOnlyImm, psn, payload).WithRETH(to).WithImm(imm)
}

// ReadRequest asks for memory.
func ReadRequest(psn PSN, from RETH) Packet { return request(OpReadRequest, psn, nil).WithRETH(from) }

// FetchAdd adds to eight bytes of memory; the length of the RETH is not sent.
func FetchAdd(psn PSN, at RETH, add uint64) Packet {
	p := request(OpFetchAdd, psn, nil)
	p.AtomicETH = &AtomicETH{VA: at.VA, RKey: at.RKey, SwapAdd: &add}
	return p
}

// CompareSwap stores swap if it finds compare; the length of the RETH is not sent.
func CompareSwap(psn PSN, at RETH, compare, swap uint64) Packet {
	p := request(OpCompareSwap, psn, nil)
	p.AtomicETH = &AtomicETH{VA: at.VA, RKey: at.RKey, SwapAdd: &swap, Compare: &compare}
	return p
}

// AtomicWrite writes eight bytes at once; payload is what to write, of any length.
func AtomicWrite(psn PSN, to RETH, payload []byte) Packet {
	return request(OpAtomicWrite, psn, payload).WithRETH(to)
}

// Flush asks for what was written to become visible or persistent.
func Flush(psn PSN, placement, selectivity uint8, of RETH) Packet {
	p := request(OpFlush, psn, nil).WithRETH(of)
	p.FETH = &FETH{Placement: &placement, Selectivity: &selectivity}
	return p
}

// Datagram is a SEND of UD.
func Datagram(psn PSN, qkey, srcQP uint32, payload []byte) Packet {
	return request(OpUDSendOnly, psn, payload).WithDETH(qkey, srcQP)
}

// DatagramImm is a SEND of UD with immediate data.
func DatagramImm(psn PSN, qkey, srcQP, imm uint32, payload []byte) Packet {
	return request(OpUDSendOnlyImm, psn, payload).WithDETH(qkey, srcQP).WithImm(imm)
}

// none is no payload, be it built or expected: nil would be any.
var none = []byte{}

func response(op Opcode, psn PSN, msn uint32, payload []byte) Packet {
	p := request(op, psn, payload)
	p.AETH = &AETH{Kind: new(AckPositive)}
	return p.WithMSN(msn)
}

// Ack acknowledges all packets up to psn. Any credits are expected, and none told.
func Ack(psn PSN, msn uint32) Packet { return response(OpAcknowledge, psn, msn, none) }

// Nak refuses the packet psn.
func Nak(psn PSN, code NakCode, msn uint32) Packet {
	p := response(OpAcknowledge, psn, msn, none)
	p.AETH.Kind, p.AETH.Value = new(AckNegative), new(uint8(code))
	return p
}

// RNR says that the receiver is not ready for the packet psn.
func RNR(psn PSN, timer uint8, msn uint32) Packet {
	p := response(OpAcknowledge, psn, msn, none)
	p.AETH.Kind, p.AETH.Value = new(AckRNR), &timer
	return p
}

// ReadResponseFirst begins the answer to a READ.
func ReadResponseFirst(psn PSN, msn uint32, payload []byte) Packet {
	return response(OpReadResponseFirst, psn, msn, payload)
}

// ReadResponseMiddle goes on with it.
func ReadResponseMiddle(psn PSN, payload []byte) Packet {
	return request(OpReadResponseMiddle, psn, payload)
}

// ReadResponseLast ends it.
func ReadResponseLast(psn PSN, msn uint32, payload []byte) Packet {
	return response(OpReadResponseLast, psn, msn, payload)
}

// ReadResponseOnly is an answer in one packet.
func ReadResponseOnly(psn PSN, msn uint32, payload []byte) Packet {
	return response(OpReadResponseOnly, psn, msn, payload)
}

// AtomicAck answers an atomic.
func AtomicAck(psn PSN, msn uint32, original uint64) Packet {
	p := response(OpAtomicAcknowledge, psn, msn, none)
	p.AtomicAck = &AtomicAckETH{Original: &original}
	return p
}

// CNP is a congestion notification: it asks the queue pair it is sent to to go slower. It is
// built with BECN, and expected with and without: nothing demands the bit.
func CNP() Packet { return request(OpCNP, 0, nil) }
