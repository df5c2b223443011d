package rocewire

import (
	"encoding/binary"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
)

const (
	rcFlush    = wire.Opcode(wire.OpFlush)
	rcFetchAdd = wire.Opcode(wire.OpFetchAdd)
	rcReserved = wire.Opcode(0x1f)
)

// rxeDefects are those of Linux's soft-RoCE.
var rxeDefects = map[string]defectCase{
	"MigReqZero": {
		talk: func(r *rig) {
			r.out(rcSend, 7, bth(func(b *wire.BTH) { b.MigReq = true }))
			r.hear()
		},
		sound:     "sent SEND_ONLY 7 M",
		defective: "sent SEND_ONLY 7",
	},
	"NoCongestion": {
		talk: func(r *rig) {
			r.in(rcSend, 100, class(0x68|link.CE))
			r.in(wire.CNP, 0)
			r.out(rcSend, 7, class(0x68|link.ECT0))
			r.hear()
		},
		sound:     "got SEND_ONLY 100 class 0x6b; got CNP 0; sent SEND_ONLY 7 class 0x6a",
		defective: "got SEND_ONLY 100 class 0x68; sent SEND_ONLY 7 class 0x68",
	},
	"ECNFromTClass": {
		talk: func(r *rig) {
			r.qp(rcQP).TClass = 0x69
			r.out(rcSend, 7, class(0x68|link.ECT0))
			r.out(udSend, 8, class(link.ECT0))
			r.hear()
		},
		sound:     "sent SEND_ONLY 7 class 0x6a; sent UD SEND_ONLY 8 class 0x2",
		defective: "sent SEND_ONLY 7 class 0x69; sent UD SEND_ONLY 8 class 0x2",
	},
	"FetchAddLeaks": {
		talk: func(r *rig) {
			r.out(rcFetchAdd, 7)
			ds := make([]link.Datagram, 1)
			r.edge.Output(0, ds)
			r.note("compare %#x", binary.BigEndian.Uint64(ds[0].Payload[wire.BTHLen+20:]))
		},
		sound:     "compare 0x0",
		defective: "compare 0x5b87807f7",
	},
	"FlushICRCDoubled": {
		talk: func(r *rig) {
			r.in(rcFlush, 100)
			doubled := r.come(rcFlush, 101)
			body, right := (&packet{Datagram: doubled}).split()
			binary.LittleEndian.PutUint32(doubled.Payload[len(body):], doubledICRC(right, body))
			r.arrive(doubled)
			r.in(rcSend, 102)
			r.out(rcFlush, 7)
			r.out(rcSend, 8)
			r.hear()
		},
		sound:     "got FLUSH 100 0x0+0; got FLUSH 101 0x0+0 ICRC wrong; got SEND_ONLY 102; sent FLUSH 7 0x0+0; sent SEND_ONLY 8",
		defective: "got FLUSH 100 0x0+0 ICRC wrong; got FLUSH 101 0x0+0; got SEND_ONLY 102; sent FLUSH 7 0x0+0 ICRC wrong; sent SEND_ONLY 8",
	},
	"GSIAckReq": {
		talk: func(r *rig) {
			r.out(udSend, 7, toward(gsiQPN))
			r.out(udSend, 8)
			r.hear()
		},
		sound:     "sent UD SEND_ONLY 7 to QP 1; sent UD SEND_ONLY 8",
		defective: "sent UD SEND_ONLY 7 AckReq to QP 1; sent UD SEND_ONLY 8",
	},
	"ReservedOpSilent": {
		talk: func(r *rig) {
			r.in(rcReserved, expected)
			r.in(rcReserved, expected+1)
		},
		sound:     "got 0x1f 100; got 0x1f 101",
		defective: "got 0x1f 101",
	},
	"RaggedAccepted": {
		talk: func(r *rig) {
			d := r.come(rcSend, 100, bytesOf(8))
			d.Payload = append(d.Payload[:wire.BTHLen+5], make([]byte, wire.ICRCLen)...)
			p := packet{Datagram: d}
			r.edge.seal(&p)
			r.arrive(p.Datagram)
		},
		sound:     "got SEND_ONLY 100 5B",
		defective: "got SEND_ONLY 100 5B pad 000000",
	},
	"FixedHopLimit": {
		talk: func(r *rig) {
			r.out(rcSend, 7, func(d *link.Datagram, _ *wire.Packet) { d.HopLimit = 7 })
			ds := make([]link.Datagram, 1)
			r.edge.Output(0, ds)
			r.note("hop limit %d", ds[0].HopLimit)
		},
		sound:     "hop limit 7",
		defective: "hop limit 64",
	},
	"NoCreditReporting": {
		talk: func(r *rig) {
			r.out(rcAck, 7)
			r.out(rcLast, 8)
			r.out(rcAck, 9, says(wire.Nak(wire.NakPSNSequence)))
			r.hear()
		},
		sound:     "sent ACK 7 0x03 msn 7; sent RR_LAST 8 0x03 msn 7; sent ACK 9 0x60 msn 7",
		defective: "sent ACK 7 0x1f msn 7; sent RR_LAST 8 0x1f msn 7; sent ACK 9 0x60 msn 7",
	},
	"NoCreditHeeding": {
		talk:      func(r *rig) { r.in(rcAck, 7) },
		sound:     "got ACK 7 0x03 msn 7",
		defective: "got ACK 7 0x1f msn 7",
	},
}

func class(c uint8) edit { return func(d *link.Datagram, _ *wire.Packet) { d.TClass = c } }
