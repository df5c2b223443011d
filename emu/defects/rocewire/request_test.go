package rocewire

import (
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
)

// requestDefects are those of a requester, of the unreliable services, of migration and
// congestion.
var requestDefects = map[string]defectCase{
	"Interleaves": {
		talk: func(r *rig) {
			r.out(wire.Opcode(wire.OpSendFirst), 7)
			r.out(wire.Opcode(wire.OpSendLast), 8)
			r.out(rcWrite, 9)
			r.out(rcSend, 10)
			r.hear()
		},
		sound:     "sent SEND_FIRST 7; sent SEND_LAST 8; sent WRITE_ONLY 9 0x0+0; sent SEND_ONLY 10",
		defective: "sent SEND_FIRST 7; sent WRITE_ONLY 8 0x0+0; sent SEND_LAST 9; sent SEND_ONLY 10",
	},
	"ReadTakesOnePSN": {
		talk: func(r *rig) {
			r.out(rcRead, 10, about(0, 600)) // three packets
			r.out(rcSend, 13)
			r.out(rcRead, 14, about(0, 300))
			r.out(rcSend, 16)
			r.hear()
			r.in(rcFirst, 10)
			r.in(rcLast, 12)
			r.in(rcAck, 11)
			r.in(rcAck, 13)
		},
		sound:     "sent READ 10 0x0+600; sent SEND_ONLY 13; sent READ 14 0x0+300; sent SEND_ONLY 16; got RR_FIRST 10 0x03 msn 7; got RR_LAST 12 0x03 msn 7; got ACK 11 0x03 msn 7; got ACK 13 0x03 msn 7",
		defective: "sent READ 10 0x0+600; sent SEND_ONLY 11; sent READ 12 0x0+300; sent SEND_ONLY 13; got RR_FIRST 10 0x03 msn 7; got RR_LAST 12 0x03 msn 7; got ACK 13 0x03 msn 7; got ACK 16 0x03 msn 7",
	},
	"AckReqNever": {
		talk: func(r *rig) {
			r.out(rcSend, 7, asking)
			r.out(rcWrite, 8, asking)
			r.out(rcRead, 9, asking)
			r.hear()
		},
		sound:     "sent SEND_ONLY 7 AckReq; sent WRITE_ONLY 8 AckReq 0x0+0; sent READ 9 AckReq 0x0+0",
		defective: "sent SEND_ONLY 7; sent WRITE_ONLY 8 0x0+0; sent READ 9 AckReq 0x0+0",
	},
	"ReservedNAKIsAck": {talk: naks, sound: refused, defective: "got ACK 9 0x60 msn 7; got ACK 9 0x62 msn 7; got ACK 9 0x64 msn 7; got ACK 9 0x1f msn 7; got ACK 9 0x1f msn 7"},
	"NAKWaitsForTimer": {talk: naks, sound: refused, defective: "got ACK 8 0x1f msn 7; got ACK 9 0x62 msn 7; got ACK 9 0x64 msn 7; got ACK 9 0x65 msn 7; got ACK 9 0x7f msn 7"},
	"ByteOrderWrong": {
		talk: func(r *rig) {
			imm := func(_ *link.Datagram, p *wire.Packet) { p.Imm = 0x01020304 }
			result := func(_ *link.Datagram, p *wire.Packet) { p.AtomicAckETH.Original = 0x0102030405060708 }
			r.in(rcSend+1, 100, imm)
			r.in(udSend+1, 1, imm)
			r.in(wire.Opcode(wire.OpAtomicAcknowledge), 2, result)
			r.out(ucSend+1, 7, imm)
			r.out(wire.Opcode(wire.OpAtomicAcknowledge), 3, result)
			r.hear()
		},
		sound:     "got SEND_ONLY_IMM 100 imm 01020304; got UD SEND_ONLY_IMM 1 imm 01020304; got ATOMIC_ACK 2 0x03 msn 7 original 102030405060708; sent UC SEND_ONLY_IMM 7 imm 01020304; sent ATOMIC_ACK 3 0x03 msn 7 original 102030405060708",
		defective: "got SEND_ONLY_IMM 100 imm 04030201; got UD SEND_ONLY_IMM 1 imm 04030201; got ATOMIC_ACK 2 0x03 msn 7 original 807060504030201; sent UC SEND_ONLY_IMM 7 imm 04030201; sent ATOMIC_ACK 3 0x03 msn 7 original 102030405060708",
	},
	"RETHPerPacket": {
		talk: func(r *rig) {
			r.out(wire.Opcode(wire.OpWriteFirst), 7, about(0x1000, 2*mtu+8), bytesOf(mtu))
			r.out(wire.Opcode(wire.OpWriteMiddle), 8, bytesOf(mtu))
			r.out(wire.Opcode(wire.OpWriteLast), 9, bytesOf(8))
			ds := make([]link.Datagram, 3)
			r.edge.Output(0, ds)
			for i := range ds {
				p := packet{Datagram: ds[i]}
				var h wire.RETH
				if _, err := h.Parse(p.Payload[wire.BTHLen:]); err == nil {
					r.note("%d bytes, %#x+%d, intact %v", len(p.Payload), h.VA, h.DMALen, r.edge.intact(&p))
				}
			}
		},
		sound:     "288 bytes, 0x1000+520, intact true; 272 bytes, 0x0+0, intact true",
		defective: "288 bytes, 0x1000+256, intact true; 288 bytes, 0x1100+256, intact true; 40 bytes, 0x1200+8, intact true",
	},
	"XRCETHMisplaced": {
		talk: func(r *rig) {
			r.out(xrcSend, 7, bytesOf(4))
			r.out(xrcAck, 100)
			ds := make([]link.Datagram, 2)
			r.edge.Output(0, ds)
			for i := range ds {
				p := packet{Datagram: ds[i]}
				r.note("%x of %d bytes, intact %v", p.Payload[0], len(p.Payload), r.edge.intact(&p))
			}
		},
		sound:     "a4 of 24 bytes, intact true; b1 of 20 bytes, intact true",
		defective: "a4 of 20 bytes, intact true; b1 of 24 bytes, intact true",
	},

	"UCLikeRC": {
		talk: func(r *rig) {
			r.in(ucSend, 100)
			r.hear()
			r.refuse = true
			r.in(ucSend, 101)
			r.hear()
			for _, s := range []wire.Syndrome{wire.Ack(0), wire.RNRNak(1)} {
				d := r.come(rcAck, 7, says(s), toward(ucQP))
				d.Payload[0] = byte(ucAck)
				wire.NewICRC(d.Src, d.Dst).Seal(0, d.Payload)
				r.arrive(d)
			}
		},
		sound:     "got UC SEND_ONLY 100; got UC SEND_ONLY 101; got 0x31 7 AETH 00000007; got 0x31 7 AETH 21000007",
		defective: "got UC SEND_ONLY 100; sent 0x31 100 M AETH 1f000001 from port 0xc000; got UC SEND_ONLY 101; sent 0x31 101 M AETH 21000001 from port 0xc000; got 0x31 7 AETH 00000007",
	},
	"UDPSNChecked": {
		talk: func(r *rig) {
			r.in(udSend, 5)
			r.in(udSend, 5)
			r.in(udSend, 4)
			r.in(udSend, 6)
			r.in(udSend, 1, func(_ *link.Datagram, p *wire.Packet) { p.DETH.SrcQP = 77 })
		},
		sound:     "got UD SEND_ONLY 5; got UD SEND_ONLY 5; got UD SEND_ONLY 4; got UD SEND_ONLY 6; got UD SEND_ONLY 1",
		defective: "got UD SEND_ONLY 5; got UD SEND_ONLY 6; got UD SEND_ONLY 1",
	},
	"UDWaitsForReceive": {
		talk: func(r *rig) {
			r.qp(udQP).Ready = false
			r.in(udSend, 1)
			r.note("a receive is posted")
			r.qp(udQP).Ready = true
			r.hear()
		},
		sound:     "got UD SEND_ONLY 1; a receive is posted",
		defective: "a receive is posted; got UD SEND_ONLY 1",
	},
	"GSIQKeyZero": {
		talk: func(r *rig) {
			gsi := func(_ *link.Datagram, p *wire.Packet) { p.DETH.QKey = 0x80010000 }
			r.out(udSend, 1, toward(gsiQPN), gsi)
			r.out(udSend, 2, gsi)
			r.hear()
		},
		sound:     "sent UD SEND_ONLY 1 to QP 1 Q_Key 0x80010000; sent UD SEND_ONLY 2 Q_Key 0x80010000",
		defective: "sent UD SEND_ONLY 1 to QP 1 Q_Key 0x0; sent UD SEND_ONLY 2 Q_Key 0x80010000",
	},

	"MigrationIgnored": {
		talk: func(r *rig) {
			moved := bth(func(b *wire.BTH) { b.MigReq = true })
			r.in(rcSend, 100, moved)
			r.qp(rcQP).Armed = true
			r.in(rcSend, 101, moved)
		},
		sound:     "got SEND_ONLY 100 M; got SEND_ONLY 101 M",
		defective: "got SEND_ONLY 100 M; got SEND_ONLY 101",
	},
	"NAKLate": {
		talk:      func(r *rig) { r.out(rcAck, 7, says(wire.Nak(wire.NakPSNSequence))); r.hearLate() },
		sound:     "sent ACK 7 0x60 msn 7; now",
		defective: "now; sent ACK 7 0x60 msn 7",
	},
	"CNPLate": {
		talk:      func(r *rig) { r.out(wire.CNP, 0, bytesOf(16)); r.hearLate() },
		sound:     "sent CNP 0 16B; now",
		defective: "now; sent CNP 0 16B",
	},
	"CNPMisaddressed": {
		talk: func(r *rig) {
			r.in(rcSend, 100, func(d *link.Datagram, _ *wire.Packet) { d.TClass = link.CE })
			r.out(wire.CNP, 0, bth(func(b *wire.BTH) { b.PKey = 0x8001 }), bytesOf(16))
			ds := make([]link.Datagram, 1)
			r.edge.Output(0, ds)
			r.note("%s, to QP %#x", r.render(&ds[0]), (&packet{Datagram: ds[0]}).destQP())
		},
		sound:     "got SEND_ONLY 100 class 0x3; CNP 0 P_Key 0x8001 16B, to QP 0x21",
		defective: "got SEND_ONLY 100 class 0x3; CNP 0 16B, to QP 0x11",
	},
	"CNPReservedUsed": {
		talk: func(r *rig) {
			r.out(wire.CNP, 0, bytesOf(16))
			r.hear()
			r.in(wire.CNP, 0, bytesOf(16))
			r.in(wire.CNP, 1, bytesOf(16))
			r.in(wire.CNP, 0, bth(func(b *wire.BTH) { b.MigReq = true }), bytesOf(16))
			r.in(wire.CNP, 0, func(_ *link.Datagram, p *wire.Packet) { p.Payload = append(make([]byte, 15), 1) })
		},
		sound:     "sent CNP 0 16B; got CNP 0 16B; got CNP 1 16B; got CNP 0 M 16B; got CNP 0 16B",
		defective: "sent CNP 1193046 SE M 16B; got CNP 0 16B",
	},
	"CNPTakesPSN": {
		talk:      func(r *rig) { r.in(wire.CNP, 0, bytesOf(16)) },
		sound:     "got CNP 0 16B",
		defective: "got WRITE_ONLY 0 M AckReq 0x0+0 from port 0xc000; got CNP 0 16B",
	},
}

// naks has the peer refuse in various ways.
func naks(r *rig) {
	for _, code := range []wire.NakCode{wire.NakPSNSequence, wire.NakRemoteAccess, wire.NakInvalidRD, 5, 31} {
		r.in(rcAck, 9, says(wire.Nak(code)))
	}
}

const refused = "got ACK 9 0x60 msn 7; got ACK 9 0x62 msn 7; got ACK 9 0x64 msn 7; got ACK 9 0x65 msn 7; got ACK 9 0x7f msn 7"
