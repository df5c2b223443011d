package capture

import (
	"bytes"
	"hash/crc32"
	"slices"
	"strings"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"github.com/fabrictest/fabrictest/emu/softroce/wire"
)

func TestICRCOfCaptures(t *testing.T) {
	bad := map[string][]int{ // deliberately wrong
		"rxe612_e1.pcap":  {41, 42},
		"rxe612_e10.pcap": {2},
	}
	good := 0
	for _, path := range captureFiles(t, roceFiles) {
		name := path[strings.LastIndex(path, "/")+1:]
		forEachPacketOfFile(t, path, func(_ *Stream, p *Packet) {
			if len(p.PDUs) == 0 {
				return
			}
			want := ChecksumGood
			if slices.Contains(bad[name], p.Number) {
				want = ChecksumBad
			}
			switch got := p.PDUs[0].(*RoCE).ICRC; {
			case got == ChecksumUnknown && len(p.Data) < 14+20+8+wire.BTHLen+wire.ICRCLen: // too short
			case got != want || p.Has(MarkChecksum) != (want == ChecksumBad):
				t.Errorf("%s: packet %d: ICRC %v, want %v", name, p.Number, got, want)
			default:
				good++
			}
		})
	}
	if good < 1600 {
		t.Errorf("%d ICRCs were good, want 1600", good)
	}
}

// Package wire requires the DF flag; a NIC need not set it.
func TestICRCWithoutDontFragment(t *testing.T) {
	ip := bytes.Clone(readFile(t, "../emu/softroce/wire/testdata/golden.pcap")[24+16:][:20+8+12+16+4]) // an RC SEND_ONLY of 16 bytes
	ip[6] = 0
	masked := bytes.Clone(ip[:len(ip)-4])
	for _, i := range []int{1, 8, 10, 11, 26, 27, 28 + 4} {
		masked[i] = 0xff
	}
	sum := crc32.Update(crc32.ChecksumIEEE(bytes.Repeat([]byte{0xff}, 8)), crc32.IEEETable, masked)
	for i := range 4 {
		ip[len(ip)-4+i] = byte(sum >> (8 * i))
	}
	for _, flip := range []byte{0, 1} {
		ip[len(ip)-1] ^= flip
		var got ChecksumStatus
		_ = forEachPacket(t, bytes.NewReader(pcapOf(t, layers.LinkTypeRaw, frame{data: ip})), func(_ *Stream, p *Packet) {
			got = p.PDUs[0].(*RoCE).ICRC
		})
		if want := [...]ChecksumStatus{ChecksumGood, ChecksumBad}[flip]; got != want {
			t.Errorf("ICRC %v, want %v", got, want)
		}
	}
}

func TestTruncatedPacketsHaveHeadersAndUnknownICRC(t *testing.T) {
	p := request(wire.OpWriteOnlyImm, 9, 301)
	p.RETH, p.Imm = wire.RETH{VA: 0x1000, RKey: 5, DMALen: 301}, 77
	whole := roce(p)
	const headers = 40 + 8 + wire.BTHLen + wire.RETHLen + wire.ImmDtLen
	want := decode(t, whole)[0].ops[0]
	for n := range len(whole.data) {
		one := decode(t, frame{data: whole.data[:n], length: len(whole.data)})[0]
		if len(one.marks) > 0 {
			t.Errorf("%d bytes: marked %v", n, one.texts)
		}
		if shown := len(one.ops) == 1 && one.ops[0] == want; shown != (n >= headers) {
			t.Errorf("%d bytes: %q, want %q from %d on", n, one.ops, want, headers)
		}
	}
}

func respond(op wire.Operation, psn wire.PSN, s wire.Syndrome, msn wire.MSN, payload int) wire.Packet {
	p := request(op, psn, payload)
	p.AETH = wire.AETH{Syndrome: s, MSN: msn}
	return p
}

func read(psn wire.PSN, n uint32) wire.Packet {
	p := request(wire.OpReadRequest, psn, 0)
	p.RETH.DMALen = n
	return p
}

func TestPSNTracking(t *testing.T) {
	send := func(psn wire.PSN) wire.Packet { return request(wire.OpSendOnly, psn, 4) }
	ack := wire.Ack(31)
	other := func(p wire.Packet, qp uint32) wire.Packet { p.BTH.DestQP = qp; return p }
	none, repeated, gap, late := []MarkKind(nil), []MarkKind{MarkRetransmission}, []MarkKind{MarkGap}, []MarkKind{MarkOutOfOrder}
	for _, tc := range []struct {
		name    string
		packets []wire.Packet
		want    [][]MarkKind
	}{
		{"in order, over the wrap", []wire.Packet{send(0xfffffe), send(0xffffff), send(0), send(1)}, [][]MarkKind{none, none, none, none}},
		{"retransmission", []wire.Packet{send(5), send(6), send(5), send(6), send(7)}, [][]MarkKind{none, none, repeated, repeated, none}},
		{"retransmission over the wrap", []wire.Packet{send(0xffffff), send(0), send(0xffffff)}, [][]MarkKind{none, none, repeated}},
		{"gap, filled out of order", []wire.Packet{send(5), send(8), send(6), send(7), send(6)}, [][]MarkKind{none, gap, late, late, repeated}},
		{"separate queue pairs", []wire.Packet{send(5), other(send(5), 18), other(send(6), 18), send(6)}, [][]MarkKind{none, none, none, none}},
		{"new connection", []wire.Packet{send(5), send(4000000), send(4000001)}, [][]MarkKind{none, none, none}},
		{"read takes the PSNs of its responses", []wire.Packet{request(wire.OpSendFirst, 1, 1024), request(wire.OpSendLast, 2, 1), read(3, 2500), send(6), send(5)}, [][]MarkKind{none, none, none, none, repeated}},
		{"read within those PSNs", []wire.Packet{request(wire.OpSendFirst, 1, 1024), request(wire.OpSendLast, 2, 1), read(3, 2500), read(4, 1476)}, [][]MarkKind{none, none, none, repeated}},
		{"gap after those PSNs", []wire.Packet{request(wire.OpSendFirst, 1, 1024), request(wire.OpSendLast, 2, 1), read(3, 2500), send(7)}, [][]MarkKind{none, none, none, gap}},
		{"read with unknown MTU", []wire.Packet{read(3, 8192), send(11), send(10)}, [][]MarkKind{none, none, repeated}},
		{"gap even at the smallest MTU", []wire.Packet{read(3, 8192), send(36)}, [][]MarkKind{none, gap}},
		{"acknowledgements", []wire.Packet{respond(wire.OpAcknowledge, 5, ack, 1, 0), respond(wire.OpAcknowledge, 9, ack, 3, 0), respond(wire.OpAcknowledge, 9, ack, 3, 0)}, [][]MarkKind{none, none, {MarkDuplicateAck}}},
		{"NAKs", []wire.Packet{respond(wire.OpAcknowledge, 5, wire.RNRNak(12), 1, 0), respond(wire.OpAcknowledge, 5, wire.Nak(0), 1, 0), respond(wire.OpAcknowledge, 5, wire.Nak(0), 1, 0)}, [][]MarkKind{{MarkRNR}, {MarkNak}, {MarkNak, MarkDuplicateAck}}},
		{"read responses", []wire.Packet{
			respond(wire.OpReadResponseFirst, 5, ack, 1, 1024), request(wire.OpReadResponseMiddle, 6, 1024), respond(wire.OpReadResponseLast, 8, ack, 1, 9),
			respond(wire.OpReadResponseOnly, 20, ack, 2, 9), request(wire.OpReadResponseMiddle, 6, 1024),
		}, [][]MarkKind{none, none, gap, none, repeated}},
	} {
		var frames []frame
		for _, p := range tc.packets {
			frames = append(frames, roce(p))
		}
		for i, one := range decode(t, frames...) {
			if !slices.Equal(one.marks, tc.want[i]) {
				t.Errorf("%s: packet %d is marked %v %q, want %v", tc.name, i, one.marks, one.texts, tc.want[i])
			}
		}
	}
}

// A packet with a wrong ICRC must not count as seen.
func TestPSNTrackingIgnoresBadICRC(t *testing.T) {
	bad := roce(request(wire.OpSendOnly, 6, 4))
	bad.data[40+8+11] ^= 2 // its PSN
	all := decode(t, roce(request(wire.OpSendOnly, 5, 4)), bad, roce(request(wire.OpSendOnly, 6, 4)))
	if !slices.Equal(all[1].marks, []MarkKind{MarkChecksum}) || len(all[2].marks) != 0 {
		t.Errorf("marks %v and %v", all[1].marks, all[2].marks)
	}
}

func TestSyndromeAndCNPSummaries(t *testing.T) {
	for s, want := range map[wire.Syndrome]string{
		wire.Ack(31): "ACK", wire.Ack(3): "ACK credits 3", wire.RNRNak(12): "RNR NAK 0.64 ms", wire.RNRNak(0): "RNR NAK 655.36 ms",
		wire.RNRNak(1): "RNR NAK 0.01 ms", wire.Nak(wire.NakPSNSequence): "NAK PSN sequence error", wire.Nak(wire.NakRemoteAccess): "NAK remote access error",
	} {
		if got := syndromeText(s); got != want {
			t.Errorf("%#x: %q, want %q", uint8(s), got, want)
		}
	}
	cnp := decode(t, roce(wire.Packet{BTH: wire.BTH{Opcode: wire.CNP, BECN: true, DestQP: 17}, Payload: make([]byte, 16)}))[0]
	if cnp.protocol != "CNP" || cnp.ops[0] != "CNP: QP 0x11 BECN" || !slices.Equal(cnp.marks, []MarkKind{MarkCongestion}) {
		t.Errorf("CNP: %+v", cnp)
	}
}
