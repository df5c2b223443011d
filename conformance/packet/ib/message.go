package ib

// parts splits data into payloads of at most mtu bytes; empty data is one empty payload.
func parts(data []byte, mtu int) [][]byte {
	out := [][]byte{data[:min(mtu, len(data))]}
	for at := mtu; at < len(data); at += mtu {
		out = append(out, data[at:min(at+mtu, len(data))])
	}
	return out
}

// message returns the packets of one message. first, middle, last and only are the opcodes for
// their positions in it.
func message(psn PSN, data []byte, mtu int, first, middle, last, only Opcode) []Packet {
	all := parts(data, mtu)
	ps := make([]Packet, 0, len(all))
	for i, part := range all {
		op := middle
		switch {
		case len(all) == 1:
			op = only
		case i == 0:
			op = first
		case i == len(all)-1:
			op = last
		}
		ps = append(ps, newPacket(op, psn.Add(i), part))
	}
	return ps
}

// Packets returns the number of packets, each with one PSN, of a message of n bytes.
func Packets(n, mtu int) int { return max(1, (n+mtu-1)/mtu) }

// Send returns the packets of a SEND; the last has AckReq.
func Send(psn PSN, data []byte, mtu int) []Packet {
	return ackReqLast(message(psn, data, mtu, OpSendFirst, OpSendMiddle, OpSendLast, OpSendOnly))
}

// Write returns the packets of a WRITE of data; the last has AckReq. It sets the length of
// the RETH.
func Write(psn PSN, to RETH, data []byte, mtu int) []Packet {
	ps := message(psn, data, mtu, OpWriteFirst, OpWriteMiddle, OpWriteLast, OpWriteOnly)
	ps[0] = ps[0].WithRETH(to.Sized(len(data)))
	return ackReqLast(ps)
}

func ackReqLast(ps []Packet) []Packet {
	ps[len(ps)-1] = ps[len(ps)-1].AckReq()
	return ps
}

// ReadResponses returns the response packets of a READ; psn is that of the first.
func ReadResponses(psn PSN, msn uint32, data []byte, mtu int) []Packet {
	ps := message(psn, data, mtu, OpReadResponseFirst, OpReadResponseMiddle, OpReadResponseLast, OpReadResponseOnly)
	for i, p := range ps {
		if p.Opcode() != OpReadResponseMiddle {
			p.AETH = &AETH{Kind: new(AckPositive)}
			ps[i] = p.WithMSN(msn)
		}
	}
	return ps
}
