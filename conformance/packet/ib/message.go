package ib

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

// Write returns the packets of a WRITE of data; the last has AckReq. It sets the length of
// the RETH.
func Write(psn PSN, to RETH, data []byte, mtu int) []Packet {
	ps := writeOps.packets(psn, data, mtu)
	ps[0] = ps[0].WithRETH(to.Sized(len(data)))
	return ackReqLast(ps)
}

func ackReqLast(ps []Packet) []Packet {
	ps[len(ps)-1] = ps[len(ps)-1].AckReq()
	return ps
}

// ReadResponses returns the response packets of a READ; psn is that of the first.
func ReadResponses(psn PSN, msn uint32, data []byte, mtu int) []Packet {
	ps := readResponseOps.packets(psn, data, mtu)
	for i, p := range ps {
		if p.Opcode() != OpReadResponseMiddle {
			ps[i] = Response(p.Opcode(), p.PSN(), msn, p.Payload)
		}
	}
	return ps
}
