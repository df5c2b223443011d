package ib

// Op returns a packet with this opcode and no other field set, for invalid packets or
// expectations of few fields.
func Op(op Opcode) Packet { return Packet{BTH: BTH{Opcode: &op}} }

// New returns a packet without extension headers. The functions below make the packets that cases
// use most, with their headers.
func New(op Opcode, psn PSN, payload []byte) Packet {
	return Op(op).WithPSN(psn).WithPayload(payload)
}

// SendFirst is the first packet of a SEND.
func SendFirst(psn PSN, payload []byte) Packet { return New(OpSendFirst, psn, payload) }

// SendOnly is a single-packet SEND.
func SendOnly(psn PSN, payload []byte) Packet { return New(OpSendOnly, psn, payload) }

// SendOnlyImm is a single-packet SEND with immediate data.
func SendOnlyImm(psn PSN, imm uint32, payload []byte) Packet {
	return New(OpSendOnlyImm, psn, payload).WithImm(imm)
}

// SendOnlyInv is a single-packet SEND with invalidate.
func SendOnlyInv[K ~uint32 | ~int](psn PSN, rkey K, payload []byte) Packet {
	return New(OpSendOnlyInv, psn, payload).WithIETH(uint32(rkey))
}

// WriteFirst is the first packet of a WRITE; the RETH has the length of the message.
func WriteFirst(psn PSN, to RETH, payload []byte) Packet {
	return New(OpWriteFirst, psn, payload).WithRETH(to)
}

// WriteOnly is a single-packet WRITE.
func WriteOnly(psn PSN, to RETH, payload []byte) Packet {
	return New(OpWriteOnly, psn, payload).WithRETH(to)
}

// WriteOnlyImm is a single-packet WRITE with immediate data.
func WriteOnlyImm(psn PSN, to RETH, imm uint32, payload []byte) Packet {
	return New(OpWriteOnlyImm, psn, payload).WithRETH(to).WithImm(imm)
}

// ReadRequest is a READ request.
func ReadRequest(psn PSN, from RETH) Packet { return New(OpReadRequest, psn, nil).WithRETH(from) }

// FetchAdd is a FETCH_ADD request; the length of the RETH is not sent.
func FetchAdd(psn PSN, at RETH, add uint64) Packet {
	p := New(OpFetchAdd, psn, nil)
	p.AtomicETH = &AtomicETH{VA: at.VA, RKey: at.RKey, SwapAdd: &add}
	return p
}

// CompareSwap is a COMPARE_SWAP request; the length of the RETH is not sent.
func CompareSwap(psn PSN, at RETH, compare, swap uint64) Packet {
	p := New(OpCompareSwap, psn, nil)
	p.AtomicETH = &AtomicETH{VA: at.VA, RKey: at.RKey, SwapAdd: &swap, Compare: &compare}
	return p
}

// AtomicWrite is an ATOMIC WRITE request. A valid one has eight bytes of payload.
func AtomicWrite(psn PSN, to RETH, payload []byte) Packet {
	return New(OpAtomicWrite, psn, payload).WithRETH(to)
}

// Flush is a FLUSH request.
func Flush(psn PSN, placement, selectivity uint8, of RETH) Packet {
	p := New(OpFlush, psn, nil).WithRETH(of)
	p.FETH = &FETH{Placement: &placement, Selectivity: &selectivity}
	return p
}

// Datagram is a SEND of UD.
func Datagram(psn PSN, qkey, srcQP uint32, payload []byte) Packet {
	return New(OpUDSendOnly, psn, payload).WithDETH(qkey, srcQP)
}

// noPayload is an empty payload; nil would match any.
var noPayload = []byte{}

// Response returns a packet with opcode op and the AETH of an ACK.
func Response(op Opcode, psn PSN, msn uint32, payload []byte) Packet {
	p := New(op, psn, payload)
	p.AETH = &AETH{Kind: new(AckPositive)}
	return p.WithMSN(msn)
}

// Ack acknowledges all packets up to psn. It matches any credit count, and is built without one.
func Ack(psn PSN, msn uint32) Packet { return Response(OpAcknowledge, psn, msn, noPayload) }

// Nak is a NAK for packet psn.
func Nak(psn PSN, code NakCode, msn uint32) Packet {
	return Ack(psn, msn).WithSyndrome(uint8(AckNegative)<<5 | uint8(code))
}

// RNR is an RNR NAK for packet psn, with the code of a timer.
func RNR(psn PSN, timer uint8, msn uint32) Packet {
	return Ack(psn, msn).WithSyndrome(uint8(AckRNR)<<5 | timer)
}

// ReadResponseOnly is a single-packet READ response.
func ReadResponseOnly(psn PSN, msn uint32, payload []byte) Packet {
	return Response(OpReadResponseOnly, psn, msn, payload)
}

// AtomicAck is the response to an atomic.
func AtomicAck(psn PSN, msn uint32, original uint64) Packet {
	p := Response(OpAtomicAcknowledge, psn, msn, noPayload)
	p.AtomicAck = &AtomicAckETH{Original: &original}
	return p
}

// CNP is a congestion notification packet. [Packet.To] sets its queue pair. It is built with BECN
// and matches with and without, since the specification does not require the bit.
func CNP() Packet { return New(OpCNP, 0, nil) }

// messageOps are the opcodes of a message's packets by their [Position].
type messageOps [4]Opcode

var (
	sendOps         = messageOps{Only: OpSendOnly, First: OpSendFirst, Middle: OpSendMiddle, Last: OpSendLast}
	writeOps        = messageOps{Only: OpWriteOnly, First: OpWriteFirst, Middle: OpWriteMiddle, Last: OpWriteLast}
	readResponseOps = messageOps{Only: OpReadResponseOnly, First: OpReadResponseFirst, Middle: OpReadResponseMiddle, Last: OpReadResponseLast}
)

// packets returns the packets of one message with consecutive PSNs.
func (ops messageOps) packets(psn PSN, data []byte, mtu int) []Packet {
	ps := make([]Packet, Packets(len(data), mtu))
	for i := range ps {
		position := Middle
		switch {
		case len(ps) == 1:
			position = Only
		case i == 0:
			position = First
		case i == len(ps)-1:
			position = Last
		}
		ps[i] = New(ops[position], psn.Add(i), data[i*mtu:min((i+1)*mtu, len(data))])
	}
	return ps
}

// Packets returns the number of packets, each with one PSN, of a message of n bytes.
func Packets(n, mtu int) int { return max(1, (n+mtu-1)/mtu) }

// Send returns the packets of a SEND; the last has AckReq.
func Send(psn PSN, data []byte, mtu int) []Packet {
	return ackReqLast(sendOps.packets(psn, data, mtu))
}

// Write returns the packets of a WRITE of data; the last has AckReq. It sets the RETH's length.
func Write(psn PSN, to RETH, data []byte, mtu int) []Packet {
	ps := writeOps.packets(psn, data, mtu)
	ps[0] = ps[0].WithRETH(to.Sized(len(data)))
	return ackReqLast(ps)
}

func ackReqLast(ps []Packet) []Packet {
	ps[len(ps)-1] = ps[len(ps)-1].AckReq()
	return ps
}

// ReadResponses returns the response packets of a READ; psn is that of the first. All but the
// middle ones have an AETH.
func ReadResponses(psn PSN, msn uint32, data []byte, mtu int) []Packet {
	ps := readResponseOps.packets(psn, data, mtu)
	for i, p := range ps {
		if p.Opcode() != OpReadResponseMiddle {
			ps[i] = Response(p.Opcode(), p.PSN(), msn, p.Payload)
		}
	}
	return ps
}
