package rocewire

import (
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
)

// answerDefects are those of a responder.
var answerDefects = map[string]defectCase{
	"AckPSNOff": {talk: answers, sound: answered, defective: "sent ACK 101 0x03 msn 7; sent ACK 102 0x2c msn 7; sent ACK 103 0x60 msn 7; sent ACK 103 0x63 msn 7; sent RR_ONLY 103 0x03 msn 7; sent ATOMIC_ACK 104 0x03 msn 0 original 0"},
	"NoAcks":    {talk: answers, sound: answered, defective: "sent ACK 101 0x2c msn 7; sent ACK 102 0x60 msn 7; sent ACK 102 0x63 msn 7; sent RR_ONLY 103 0x03 msn 7; sent ATOMIC_ACK 104 0x03 msn 0 original 0"},
	"ReadNeedsAckReq": {
		talk: func(r *rig) {
			r.in(rcRead, 100, about(0, 300))
			r.out(rcFirst, 100)
			r.out(rcLast, 101)
			r.hear()
			r.in(rcRead, 100, about(0, 300), asking)
			r.out(rcFirst, 100)
			r.out(rcLast, 101)
			r.hear()
		},
		sound:     "got READ 100 0x0+300; sent RR_FIRST 100 0x03 msn 7; sent RR_LAST 101 0x03 msn 7; got READ 100 AckReq 0x0+300; sent RR_FIRST 100 0x03 msn 7; sent RR_LAST 101 0x03 msn 7",
		defective: "got READ 100 0x0+300; got READ 100 AckReq 0x0+300; sent RR_FIRST 100 0x03 msn 7; sent RR_LAST 101 0x03 msn 7",
	},
	"AckOvertakesRead": {
		talk: func(r *rig) {
			r.out(rcFirst, 100)
			r.out(rcMiddle, 101)
			r.out(rcLast, 102)
			r.out(rcAck, 103)
			r.hear()
		},
		sound:     "sent RR_FIRST 100 0x03 msn 7; sent RR_MIDDLE 101; sent RR_LAST 102 0x03 msn 7; sent ACK 103 0x03 msn 7",
		defective: "sent ACK 103 0x03 msn 7; sent RR_FIRST 100 0x03 msn 7; sent RR_MIDDLE 101; sent RR_LAST 102 0x03 msn 7",
	},
	"MSNLate":            {talk: answers, sound: answered, defective: "sent ACK 100 0x03 msn 6; sent ACK 101 0x2c msn 7; sent ACK 102 0x60 msn 7; sent ACK 102 0x63 msn 7; sent RR_ONLY 103 0x03 msn 6; sent ATOMIC_ACK 104 0x03 msn 0 original 0"},
	"CreditsInvented":    {talk: answers, sound: answered, defective: "sent ACK 100 0x0a msn 7; sent ACK 101 0x2c msn 7; sent ACK 102 0x60 msn 7; sent ACK 102 0x63 msn 7; sent RR_ONLY 103 0x0a msn 7; sent ATOMIC_ACK 104 0x0a msn 0 original 0"},
	"RNRSilent":          {talk: answers, sound: answered, defective: "sent ACK 100 0x03 msn 7; sent ACK 102 0x60 msn 7; sent ACK 102 0x63 msn 7; sent RR_ONLY 103 0x03 msn 7; sent ATOMIC_ACK 104 0x03 msn 0 original 0"},
	"RNRTimerIgnored":    {talk: answers, sound: answered, defective: "sent ACK 100 0x03 msn 7; sent ACK 101 0x21 msn 7; sent ACK 102 0x60 msn 7; sent ACK 102 0x63 msn 7; sent RR_ONLY 103 0x03 msn 7; sent ATOMIC_ACK 104 0x03 msn 0 original 0"},
	"BadRecvKeyIsAccess": {talk: answers, sound: answered, defective: "sent ACK 100 0x03 msn 7; sent ACK 101 0x2c msn 7; sent ACK 102 0x60 msn 7; sent ACK 102 0x62 msn 7; sent RR_ONLY 103 0x03 msn 7; sent ATOMIC_ACK 104 0x03 msn 0 original 0"},
	"AETHInMiddle": {
		talk: func(r *rig) {
			for i, op := range []wire.Opcode{rcFirst, rcMiddle, rcMiddle, rcLast} {
				n := mtu
				if op == rcLast {
					n = 9
				}
				b := make([]byte, n)
				for j := range b {
					b[j] = byte(i*mtu+j)%251 + 1
				}
				r.out(op, wire.PSN(100+i), func(_ *link.Datagram, p *wire.Packet) { p.Payload = b })
			}
			ds := make([]link.Datagram, 4)
			r.edge.Output(0, ds)
			var all []byte
			for i := range ds {
				p := packet{Datagram: ds[i]}
				data := p.data()
				if p.is(wire.OpReadResponseMiddle) && r.edge.q.AETHInMiddle {
					r.note("AETH %x", data[:4])
					data = data[4:]
				}
				r.note("%d bytes, intact %v", len(data), r.edge.intact(&p))
				all = append(all, data...)
			}
			right := true
			for i, b := range all {
				right = right && b == byte(i/mtu*mtu+i%mtu)%251+1
			}
			r.note("%d bytes in order: %v", len(all), right)
		},
		sound:     "256 bytes, intact true; 256 bytes, intact true; 256 bytes, intact true; 9 bytes, intact true; 777 bytes in order: true",
		defective: "256 bytes, intact true; AETH 03000007; 252 bytes, intact true; AETH 03000007; 252 bytes, intact true; 17 bytes, intact true; 777 bytes in order: true",
	},
	"ReadPSNStuck": {
		talk: func(r *rig) {
			r.out(rcFirst, 100)
			r.out(rcMiddle, 101)
			r.out(rcLast, 102)
			r.hear()
		},
		sound:     "sent RR_FIRST 100 0x03 msn 7; sent RR_MIDDLE 101; sent RR_LAST 102 0x03 msn 7",
		defective: "sent RR_FIRST 100 0x03 msn 7; sent RR_MIDDLE 100; sent RR_LAST 100 0x03 msn 7",
	},
	"DupReadDropped": {
		talk: func(r *rig) {
			r.in(rcRead, 100, about(0, 300))
			r.qp(rcQP).Expected = 102
			r.in(rcRead, 100, about(0, 300))
			r.in(rcSend, 99)
		},
		sound:     "got READ 100 0x0+300; got READ 100 0x0+300; got SEND_ONLY 99",
		defective: "got READ 100 0x0+300; got SEND_ONLY 99",
	},
	"SubReadWhole": {
		talk: func(r *rig) {
			r.in(rcRead, 100, about(0x1000, 600))
			r.qp(rcQP).Expected = 103
			r.in(rcRead, 101, about(0x1100, 344))
		},
		sound:     "got READ 100 0x1000+600; got READ 101 0x1100+344",
		defective: "got READ 100 0x1000+600; got READ 100 0x1000+600",
	},
	"ReplayKeepsOne": {
		talk: func(r *rig) {
			swap := wire.Opcode(wire.OpCompareSwap)
			r.in(swap, 100)
			r.qp(rcQP).Expected = 101
			r.in(swap, 101)
			r.qp(rcQP).Expected = 102
			r.in(swap, 101)
			r.in(swap, 100)
		},
		sound:     "got CAS 100; got CAS 101; got CAS 101; got CAS 100",
		defective: "got CAS 100; got CAS 101; got CAS 101",
	},
	"HugeLengthIsAccess": {
		talk: func(r *rig) {
			invalid := says(wire.Nak(wire.NakInvalidRequest))
			r.in(rcRead, 100, about(0, 1<<31+1))
			r.out(rcAck, 99, invalid)
			r.out(rcAck, 100, invalid)
			r.hear()
		},
		sound:     "got READ 100 0x0+2147483649; sent ACK 99 0x61 msn 7; sent ACK 100 0x61 msn 7",
		defective: "got READ 100 0x0+2147483649; sent ACK 99 0x61 msn 7; sent ACK 100 0x62 msn 7",
	},
	"PadDelivered": {
		talk: func(r *rig) {
			r.in(rcSend, 100, bytesOf(5))
			r.in(rcWrite, 101, bytesOf(5))
		},
		sound:     "got SEND_ONLY 100 5B pad 000000; got WRITE_ONLY 101 0x0+0 5B pad 000000",
		defective: "got SEND_ONLY 100 8B; got WRITE_ONLY 101 0x0+0 5B pad 000000",
	},
	"AccessNAKsSwapped": {
		talk: func(r *rig) {
			r.in(rcWrite, 100, about(0, 4)) // the QP allows READs only
			r.out(rcAck, 100, says(wire.Nak(wire.NakInvalidRequest)))
			r.hear()
			r.in(rcRead, 100, about(0, 4))
			r.out(rcAck, 100, says(wire.Nak(wire.NakRemoteAccess)))
			r.out(rcAck, 100, says(wire.Nak(wire.NakInvalidRequest)))
			r.hear()
		},
		sound:     "got WRITE_ONLY 100 0x0+4; sent ACK 100 0x61 msn 7; got READ 100 0x0+4; sent ACK 100 0x62 msn 7; sent ACK 100 0x61 msn 7",
		defective: "got WRITE_ONLY 100 0x0+4; sent ACK 100 0x62 msn 7; got READ 100 0x0+4; sent ACK 100 0x61 msn 7; sent ACK 100 0x61 msn 7",
	},
}

// answers has the NIC answer in all ways there are.
func answers(r *rig) {
	r.out(rcAck, 100)
	r.out(rcAck, 101, says(wire.RNRNak(12)))
	r.out(rcAck, 102, says(wire.Nak(wire.NakPSNSequence)))
	r.out(rcAck, 102, says(wire.Nak(wire.NakRemoteOperational)))
	r.out(wire.Opcode(wire.OpReadResponseOnly), 103)
	r.out(wire.Opcode(wire.OpAtomicAcknowledge), 104, func(_ *link.Datagram, p *wire.Packet) { p.AETH.MSN = 0 })
	r.hear()
}

const answered = "sent ACK 100 0x03 msn 7; sent ACK 101 0x2c msn 7; sent ACK 102 0x60 msn 7; sent ACK 102 0x63 msn 7; sent RR_ONLY 103 0x03 msn 7; sent ATOMIC_ACK 104 0x03 msn 0 original 0"
