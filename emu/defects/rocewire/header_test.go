package rocewire

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// headerDefects are those of IP, UDP, the ICRC and the BTH.
var headerDefects = map[string]defectCase{
	"IPv6Dead": {
		talk: func(r *rig) {
			r.in(rcSend, 100)
			r.in(rcSend, 101, overIPv6)
			r.out(rcSend, 7)
			r.out(rcSend, 8, overIPv6)
			r.hear()
		},
		sound:     "got SEND_ONLY 100; got SEND_ONLY 101 from fd00::9 to fd00::1; sent SEND_ONLY 7; sent SEND_ONLY 8 from fd00::9 to fd00::1",
		defective: "got SEND_ONLY 100; sent SEND_ONLY 7",
	},
	"AnswersNoDSCP": {
		talk: func(r *rig) {
			class := func(d *link.Datagram, _ *wire.Packet) { d.TClass = 0x6a }
			r.out(rcSend, 7, class)
			r.out(rcAck, 100, class)
			r.hear()
		},
		sound:     "sent SEND_ONLY 7 class 0x6a; sent ACK 100 0x03 msn 7 class 0x6a",
		defective: "sent SEND_ONLY 7 class 0x6a; sent ACK 100 0x03 msn 7",
	},
	"TrailingBytes": {
		talk: func(r *rig) {
			r.out(rcSend, 7)
			ds := make([]link.Datagram, 1)
			r.edge.Output(0, ds)
			d := ds[0]
			n := len(d.Payload) - 16
			icrc := binary.LittleEndian.Uint32(d.Payload[12:])
			r.note("%d more bytes, ICRC right: %v", n, icrc == icrcOf(&d, d.Payload[:12], false, n))
		},
		sound:     "0 more bytes, ICRC right: true",
		defective: "4 more bytes, ICRC right: true",
	},
	"PlainSocket": {
		talk: func(r *rig) {
			r.out(rcSend, 7, noChecksum)
			ds := make([]link.Datagram, 1)
			r.edge.Output(0, ds)
			body, icrc := (&packet{Datagram: ds[0]}).split()
			may := ds[0].Variants&link.MayFragment != 0
			r.note("checksum %v, DF %v, ICRC right: %v", ds[0].Variants&link.NoChecksum == 0, !may, icrc == icrcOf(&ds[0], body, may, 0))
		},
		sound:     "checksum false, DF true, ICRC right: true",
		defective: "checksum true, DF false, ICRC right: true",
	},
	"UDPChecksumRequired": {
		talk: func(r *rig) {
			r.in(rcSend, 100, noChecksum)
			r.in(rcSend, 101)
		},
		sound:     "got SEND_ONLY 100; got SEND_ONLY 101",
		defective: "got SEND_ONLY 101",
	},
	"DFUnchecked": {
		talk: func(r *rig) {
			for _, seen := range []bool{true, false} {
				d := r.come(rcSend, 100, func(d *link.Datagram, _ *wire.Packet) { d.IPID = 0x1234 })
				body := d.Payload[:len(d.Payload)-4]
				binary.LittleEndian.PutUint32(d.Payload[len(body):], icrcOf(&d, body, true, 0))
				if !seen {
					d.IPID = link.IPIDUnknown
				}
				r.arrive(d)
			}
			d := r.come(rcSend, 100)
			d.Payload[8] ^= 1
			r.arrive(d)
		},
		sound:     "got SEND_ONLY 100 ICRC wrong; got SEND_ONLY 100 ICRC wrong; got SEND_ONLY 100 reserved 0x0 0x1 ICRC wrong",
		defective: "got SEND_ONLY 100; got SEND_ONLY 100; got SEND_ONLY 100 reserved 0x0 0x1 ICRC wrong",
	},
	"IPUnchecked": {
		talk: func(r *rig) {
			for _, at := range []string{"10.0.0.1:4790", "10.0.0.2:4791", "10.0.0.3:4791", "10.0.0.4:4791"} {
				to := func(d *link.Datagram, _ *wire.Packet) { d.Dst = netip.MustParseAddrPort(at) }
				r.in(rcSend, 100, to)
				r.in(udSend, 1, to)
			}
		},
		sound:     "got SEND_ONLY 100 to port 4790; got UD SEND_ONLY 1 to port 4790; got SEND_ONLY 100 to 10.0.0.2; got UD SEND_ONLY 1 to 10.0.0.2; got SEND_ONLY 100 to 10.0.0.3; got UD SEND_ONLY 1 to 10.0.0.3; got SEND_ONLY 100 to 10.0.0.4; got UD SEND_ONLY 1 to 10.0.0.4",
		defective: "got SEND_ONLY 100; got UD SEND_ONLY 1; got SEND_ONLY 100; got UD SEND_ONLY 1 to 10.0.0.2; got SEND_ONLY 100; got UD SEND_ONLY 1; got SEND_ONLY 100 to 10.0.0.4; got UD SEND_ONLY 1 to 10.0.0.4",
	},
	"PrimaryAddressUsed": {
		talk: func(r *rig) {
			r.out(rcSend, 7, func(d *link.Datagram, _ *wire.Packet) { d.Src = netip.AddrPortFrom(secondAddr, 0xc123) })
			r.hear()
		},
		sound:     "sent SEND_ONLY 7 from 10.0.0.2",
		defective: "sent SEND_ONLY 7",
	},
	"QPNLoose": {
		talk: func(r *rig) {
			r.in(udSend, 1, toward(0))
			r.in(udSend, 2, toward(uint32(verbs.MulticastQPN)))
			r.in(rcSend, 3, toward(0x999))
			r.in(wire.CNP, 4, toward(0x999), bytesOf(16))
			r.in(rcSend, 5, toward(xrcQP)) // which there is
		},
		sound:     "got UD SEND_ONLY 1 to QP 0; got UD SEND_ONLY 2 to QP 16777215; got SEND_ONLY 3 to QP 2457; got CNP 4 to QP 2457 16B; got SEND_ONLY 5",
		defective: "got UD SEND_ONLY 1 to QP 1; got UD SEND_ONLY 2; got SEND_ONLY 3; got CNP 4 16B; got SEND_ONLY 5",
	},
	"SourcePortPerPacket": {
		talk: func(r *rig) {
			r.out(rcSend, 7)
			r.out(rcAck, 100)
			r.hear()
		},
		sound:     "sent SEND_ONLY 7; sent ACK 100 0x03 msn 7",
		defective: "sent SEND_ONLY 7 from port 0xc000; sent ACK 100 0x03 msn 7 from port 0xc001",
	},
	"FrameEndICRC": {
		talk: func(r *rig) {
			r.in(rcSend, 100)
			r.in(rcSend, 101, bytesOf(4))
			r.in(rcSend, 102, overIPv6)
			r.in(rcSend, 103, bytesOf(4), func(d *link.Datagram, _ *wire.Packet) { d.Variants |= link.Padded })
		},
		sound:     "got SEND_ONLY 100; got SEND_ONLY 101 4B; got SEND_ONLY 102 from fd00::9 to fd00::1; got SEND_ONLY 103 4B",
		defective: "got SEND_ONLY 101 4B; got SEND_ONLY 102 from fd00::9 to fd00::1",
	},
	"ICRCCheckUnmasked": {
		talk: func(r *rig) {
			r.in(rcSend, 100, noChecksum)
			r.in(rcSend, 99)
			r.in(rcSend, 101, noChecksum, func(d *link.Datagram, _ *wire.Packet) { d.HopLimit-- })
			r.in(rcSend, 102, noChecksum, func(d *link.Datagram, _ *wire.Packet) { d.TClass = 2 })
			r.in(rcSend, 103, noChecksum, func(d *link.Datagram, _ *wire.Packet) { d.FlowLabel = 1 })
			r.in(rcSend, 104, noChecksum, bth(func(b *wire.BTH) { b.BECN = true }))
		},
		sound:     "got SEND_ONLY 100; got SEND_ONLY 99; got SEND_ONLY 101; got SEND_ONLY 102 class 0x2; got SEND_ONLY 103; got SEND_ONLY 104 BECN",
		defective: "got SEND_ONLY 100",
	},
	"ICRCUnchecked": {
		talk: func(r *rig) {
			d := r.come(rcSend, 100, bytesOf(5))
			icrc := d.Payload[len(d.Payload)-4:]
			slices.Reverse(icrc)
			r.arrive(d)
			slices.Reverse(icrc)
			d.Payload[len(d.Payload)-5] ^= 1 // the pad
			r.arrive(d)
			d = r.come(rcSend, 101)
			d.IPID = 77
			r.arrive(d)
			d = r.come(rcSend, 102)
			d.Payload[8] ^= 0x81
			r.arrive(d)
			d = r.come(rcSend, 103)
			d.Payload[11] ^= 1
			r.arrive(d)
		},
		sound:     "got SEND_ONLY 100 5B pad 000000 ICRC wrong; got SEND_ONLY 100 5B pad 000001 ICRC wrong; got SEND_ONLY 101 ICRC wrong; got SEND_ONLY 102 AckReq reserved 0x0 0x1 ICRC wrong; got SEND_ONLY 102 ICRC wrong",
		defective: "got SEND_ONLY 100 5B pad 000000; got SEND_ONLY 100 5B pad 000001; got SEND_ONLY 101; got SEND_ONLY 102 AckReq reserved 0x0 0x1; got SEND_ONLY 102 ICRC wrong",
	},

	"BTHUnchecked": {
		talk: func(r *rig) {
			r.in(rcSend, 100, bth(func(b *wire.BTH) { b.TVer = 3 }))
			r.in(udSend, 101, toward(rcQP))
			r.in(wire.CNP, 0, bytesOf(16))
		},
		sound:     "got SEND_ONLY 100 version 3; got UD SEND_ONLY 101; got CNP 0 16B",
		defective: "got SEND_ONLY 100; got SEND_ONLY 101 8B; got CNP 0 16B",
	},
	"MissingHeadersZero": {
		talk: func(r *rig) {
			d := r.come(rcWrite, 100)
			d.Payload = d.Payload[:20]
			wire.NewICRC(d.Src, d.Dst).Seal(0, d.Payload)
			r.arrive(d)
		},
		sound:     "got WRITE_ONLY 100 0x0+0 (RETH of 16 bytes: packet too short)",
		defective: "got WRITE_ONLY 100 0x0+0",
	},
	"ReservedBitsSent": {
		talk: func(r *rig) {
			r.out(rcSend, 7)
			r.hear()
		},
		sound:     "sent SEND_ONLY 7",
		defective: "sent SEND_ONLY 7 reserved 0x3f 0x7f",
	},
	"ReservedBitsChecked": {
		talk: func(r *rig) {
			r.in(rcSend, 100, bth(func(b *wire.BTH) { b.Reserved6 = 1 }))
			r.in(rcSend, 101, bth(func(b *wire.BTH) { b.Reserved7 = 1 }))
			r.in(rcSend, 102, bth(func(b *wire.BTH) { b.FECN = true }))
		},
		sound:     "got SEND_ONLY 100 reserved 0x1 0x0; got SEND_ONLY 101 reserved 0x0 0x1; got SEND_ONLY 102",
		defective: "got SEND_ONLY 102",
	},
	"SolicitedInverted": {
		talk: func(r *rig) {
			r.in(rcSend, 100)
			r.in(rcSend, 101, bth(func(b *wire.BTH) { b.Solicited = true }))
			r.in(rcWrite, 102)
		},
		sound:     "got SEND_ONLY 100; got SEND_ONLY 101 SE; got WRITE_ONLY 102 0x0+0",
		defective: "got SEND_ONLY 100 SE; got SEND_ONLY 101; got WRITE_ONLY 102 0x0+0",
	},
	"UnreliableAckReq": {
		talk: func(r *rig) {
			r.out(ucSend, 1)
			r.out(wire.MakeOpcode(wire.TransportUC, wire.OpSendFirst), 2)
			r.out(udSend, 3)
			r.out(udSend, 4, toward(gsiQPN))
			r.out(rcSend, 5)
			r.hear()
		},
		sound:     "sent UC SEND_ONLY 1; sent UC SEND_FIRST 2; sent UD SEND_ONLY 3; sent UD SEND_ONLY 4 to QP 1; sent SEND_ONLY 5",
		defective: "sent UC SEND_ONLY 1 AckReq; sent UC SEND_FIRST 2; sent UD SEND_ONLY 3 AckReq; sent UD SEND_ONLY 4 to QP 1; sent SEND_ONLY 5",
	},
	"PadSloppy": {
		talk: func(r *rig) {
			for n := range 4 {
				r.out(rcSend, wire.PSN(n), bytesOf(n))
			}
			r.hear()
		},
		sound:     "sent SEND_ONLY 0; sent SEND_ONLY 1 1B pad 000000; sent SEND_ONLY 2 2B pad 0000; sent SEND_ONLY 3 3B pad 00",
		defective: "sent SEND_ONLY 0; sent SEND_ONLY 1 1B pad a5; sent SEND_ONLY 2 2B; sent SEND_ONLY 3 3B pad a5",
	},
	"EarlyAckCounts": {
		talk: func(r *rig) {
			r.qp(rcQP).State = verbs.QPStateRTR
			r.in(rcAck, 8)
			r.qp(rcQP).State = verbs.QPStateRTS
			r.out(rcSend, 7)
			r.out(rcSend, 8)
			r.out(rcSend, 9)
			r.hear()
		},
		sound:     "got ACK 8 0x03 msn 7; sent SEND_ONLY 7; sent SEND_ONLY 8; sent SEND_ONLY 9",
		defective: "got ACK 8 0x03 msn 7; got ACK 7 M 0x1f msn 0 from port 0xc000; got ACK 8 M 0x1f msn 0 from port 0xc000; sent SEND_ONLY 7; sent SEND_ONLY 8; sent SEND_ONLY 9",
	},
}
