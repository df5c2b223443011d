package rocewire

import "github.com/fabrictest/fabrictest/emu/softroce/wire"

// ackDefects are those of fields that answers have and nobody uses.
var ackDefects = map[string]defectCase{
	"AckSolicited":   {talk: answers, sound: answered, defective: "sent ACK 100 SE 0x03 msn 7; sent ACK 101 SE 0x2c msn 7; sent ACK 102 SE 0x60 msn 7; sent ACK 102 SE 0x63 msn 7; sent RR_ONLY 103 0x03 msn 7; sent ATOMIC_ACK 104 0x03 msn 0 original 0"},
	"AckPKeyLimited": {talk: answers, sound: answered, defective: "sent ACK 100 P_Key 0x7fff 0x03 msn 7; sent ACK 101 P_Key 0x7fff 0x2c msn 7; sent ACK 102 P_Key 0x7fff 0x60 msn 7; sent ACK 102 P_Key 0x7fff 0x63 msn 7; sent RR_ONLY 103 0x03 msn 7; sent ATOMIC_ACK 104 0x03 msn 0 original 0"},
	"AckBECN":        {talk: answers, sound: answered, defective: "sent ACK 100 BECN 0x03 msn 7; sent ACK 101 BECN 0x2c msn 7; sent ACK 102 BECN 0x60 msn 7; sent ACK 102 BECN 0x63 msn 7; sent RR_ONLY 103 0x03 msn 7; sent ATOMIC_ACK 104 0x03 msn 0 original 0"},
	"AckPayload":     {talk: answers, sound: answered, defective: "sent ACK 100 0x03 msn 7 4B; sent ACK 101 0x2c msn 7 4B; sent ACK 102 0x60 msn 7 4B; sent ACK 102 0x63 msn 7 4B; sent RR_ONLY 103 0x03 msn 7; sent ATOMIC_ACK 104 0x03 msn 0 original 0"},
	"ResponseTVerUnchecked": {
		talk: func(r *rig) {
			second := bth(func(b *wire.BTH) { b.TVer = 2 })
			r.in(rcSend, 100, second)
			r.in(rcAck, 9, second)
			r.in(rcMiddle, 10, second)
		},
		sound:     "got SEND_ONLY 100 version 2; got ACK 9 version 2 0x03 msn 7; got RR_MIDDLE 10 version 2",
		defective: "got SEND_ONLY 100 version 2; got ACK 9 0x03 msn 7; got RR_MIDDLE 10",
	},
	"ResponseLengthUnchecked": {
		talk: func(r *rig) {
			r.in(rcFirst, 9, bytesOf(mtu-1))
			r.in(rcMiddle, 10, bytesOf(mtu))
			r.in(rcMiddle, 11, bytesOf(4))
			r.in(rcLast, 12, bytesOf(4))
			cut := packet{Datagram: r.come(rcFirst, 13)}
			cut.Payload = cut.Payload[:wire.BTHLen+wire.ICRCLen] // its AETH would be the ICRC
			r.edge.seal(&cut)
			r.arrive(cut.Datagram)
		},
		sound: "got RR_FIRST 9 0x03 msn 7 255B pad 00; got RR_MIDDLE 10 256B; got RR_MIDDLE 11 4B; got RR_LAST 12 0x03 msn 7 4B; " +
			"got RR_FIRST 13 0x09 msn 4258736 (ICRC of 4 bytes: packet too short)",
		defective: "got RR_FIRST 9 0x03 msn 7 256B; got RR_MIDDLE 10 256B; got RR_MIDDLE 11 256B; got RR_LAST 12 0x03 msn 7 4B; " +
			"got RR_FIRST 13 0x09 msn 4258736 (ICRC of 4 bytes: packet too short)",
	},
}
