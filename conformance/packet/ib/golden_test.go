package ib

import (
	"bytes"
	"encoding/hex"
	"errors"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/conformance/packet"
	"github.com/fabrictest/fabrictest/internal/testutil"
)

// golden are the packets of testdata/golden.pcap, as a case would build them.
// Addresses, ports and queue pair come from the packet.
var golden = []struct {
	icrc string // as on the wire
	want Packet
	line string
}{
	{"fe2f8b14", SendOnly(0x4bcf5b, unhex("0000564af0f478400000121400000064")).AckReq(), "SEND_ONLY psn 4968283 AckReq 16 B"},
	{"d3517b4a", Ack(0x4bcf5b, 1), "ACK psn 4968283 msn 1"},
	{"786bce12", ReadRequest(0x458185, At(0x564af0f47840, 0x1214, 100)).AckReq(), "READ_REQUEST psn 4555141 va 0x564af0f47840 rkey 0x1214 len 100 AckReq"},
	{"60aa4ce2", WriteOnly(0x89af29, At(0x555641914000, 0x90b, 8), unhex("0000000000000001")).AckReq(), "WRITE_ONLY psn 9023273 va 0x555641914000 rkey 0x90b len 8 AckReq 8 B"},
	{"54b5009c", FetchAdd(0x850b06, At(0x56537dc48000, 0xcbe, 8), 1).AckReq(), "FETCH_ADD psn 8719110 va 0x56537dc48000 rkey 0xcbe add 0x1 AckReq"},
	{"60a67225", FetchAdd(0x850b0a, At(0x56537dc48100, 0xcbe, 8), 1).WithCompare(0x5b87807f7).AckReq(), "FETCH_ADD psn 8719114 va 0x56537dc48100 rkey 0xcbe add 0x1 AckReq"},
	{"83ed7036", AtomicAck(0x850b07, 2, 0x7189d4f794e7db39), "ATOMIC_ACKNOWLEDGE psn 8719111 msn 2 original 0x7189d4f794e7db39"},
	{"638e2f10", CompareSwap(0xbce207, At(0x563811527000, 0xd9b, 8), 0, 0).AckReq(), "COMPARE_SWAP psn 12378631 va 0x563811527000 rkey 0xd9b compare 0x0 swap 0x0 AckReq"},
	{"5247f299", Datagram(0, UDQKey, 0x20, unhex("e844edc30956000000000000000000001000000010000000608127a30c560000408127a30c5600000000000000000000000000000000000000000000"+"00000000")).WithOpcode(OpUDSendOnlyImm).WithImm(0x20).To(0x20), "UD SEND_ONLY_IMM psn 0 qkey 0x1234567 from 0x20 imm 0x20 64 B"},
	{"d7c5e8cb", RNR(0x66, 12, 2), "RNR_NAK psn 102 timer 12 (640µs) msn 2"},
	{"a93eb1c9", Nak(0x66, NakSequence, 2), "NAK psn 102 sequence msn 2"},
	{"4676a424", Nak(0x64, NakInvalidRequest, 0), "NAK psn 100 invalid request msn 0"},
	{"980b1605", Nak(0x64, NakRemoteAccess, 0), "NAK psn 100 remote access msn 0"},
	{"e013affb", Nak(0x64, NakRemoteOp, 0), "NAK psn 100 remote operational msn 0"},
	{"b3cfdcb0", ReadResponseOnly(0x64, 1, []byte{}), "READ_RESPONSE_ONLY psn 100 msn 1 0 B"},
	{"83ceb77e", ReadResponseOnly(0x64, 1, make([]byte, 8)), "READ_RESPONSE_ONLY psn 100 msn 1 8 B"},
	{"a8ad8d4b", SendOnly(500, []byte{}).AckReq(), "SEND_ONLY psn 500 AckReq 0 B"},
	{"876d3f66", SendOnly(501, unhex("41")).AckReq(), "SEND_ONLY psn 501 AckReq 1 B"},
	{"566714a8", SendOnlyImm(505, 0x01020304, unhex("41484f565d64")).AckReq().SE(), "SEND_ONLY_IMM psn 505 imm 0x1020304 SE AckReq 6 B"},
	{"d8726f5c", WriteOnlyImm(506, At(0x1000, 0x55, 3), 0x0a0b0c0d, unhex("41484f")).AckReq().SE(), "WRITE_ONLY_IMM psn 506 va 0x1000 rkey 0x55 len 3 imm 0xa0b0c0d SE AckReq 3 B"},
	{"6293ec10", SendOnlyInv(510, uint32(0x99aabbcc), unhex("41484f565d")).AckReq(), "SEND_ONLY_INV psn 510 invalidate 0x99aabbcc AckReq 5 B"},
	{"1d3c7088", ReadRequest(501, At(0x1000, 0x55, 2500).Skip(1024)).AckReq(), "READ_REQUEST psn 501 va 0x1400 rkey 0x55 len 1476 AckReq"},
	{"b75794b0", Ack(100, 1), "ACK psn 100 msn 1"},
	{"27b8aee4", SendOnly(500, unhex("41484f565d64")).AckReq(), "SEND_ONLY psn 500 AckReq 6 B"},
	{"4d3a9385", ReadRequest(501, At(0x1000, 0x55, 64)).AckReq(), "READ_REQUEST psn 501 va 0x1000 rkey 0x55 len 64 AckReq"},
	{"524f327a", ReadResponseOnly(102, 3, []byte{}), "READ_RESPONSE_ONLY psn 102 msn 3 0 B"},
	{"a06657d9", CM(0x2024088d8, goldenREQ).AckReq(), "CM REQ comm d8884002 service 0x1061c06 qp 0x1f starting psn 4555141 psn 0 AckReq 256 B"},
	{"af7cce52", CM(0x2024088d8, goldenREP).AckReq(), "CM REP comm cbb122a4 for d8884002 qp 0x1f starting psn 4968283 psn 0 AckReq 256 B"},
	{"1cf3fd70", CM(0x2024088d8, RTU{LocalCommID: new(uint32(0xd8884002)), RemoteCommID: new(uint32(0xcbb122a4))}).AckReq().WithPSN(1), "CM RTU comm d8884002 for cbb122a4 psn 1 AckReq 256 B"},
	{"c28807fe", CM(0x2024088d8, DREQ{LocalCommID: new(uint32(0xd8884002)), RemoteCommID: new(uint32(0xcbb122a4)), RemoteQPN: new(uint32(0x1f))}).AckReq().WithPSN(2), "CM DREQ comm d8884002 for cbb122a4 psn 2 AckReq 256 B"},
	{"f607ae6e", CM(0x2024088d8, DREP{LocalCommID: new(uint32(0xcbb122a4)), RemoteCommID: new(uint32(0xd8884002))}).AckReq().WithPSN(1), "CM DREP comm cbb122a4 for d8884002 psn 1 AckReq 256 B"},
	{"a09ac6e0", CM(0x2024088d9, goldenSIDRREQ).AckReq().WithPSN(3), "CM SIDR_REQ request d9884002 service 0x1111c06 psn 3 AckReq 256 B"},
	{"175c4931", CM(0x2024088d9, goldenSIDRREP).AckReq().WithPSN(2), "CM SIDR_REP request d9884002 status 0 qp 0x20 psn 2 AckReq 256 B"},
	{"bc08625a", CM(0x1122, REJ{LocalCommID: new(uint32(0)), RemoteCommID: new(uint32(0x01020304)), Reason: new(RejInvalidServiceID)}).AckReq(), "CM REJ comm 00000000 for 01020304: 8 (invalid service id) psn 0 AckReq 256 B"},
	{"ed216497", CNP(), "CNP qp 0x11 BECN"},
}

func unhex(s string) []byte {
	b, err := hex.DecodeString(s)
	if err != nil {
		panic(err)
	}
	return b
}

// connection returns the fields of p that all packets of its connection share.
func connection(p Packet) Packet {
	return Packet{
		IP:  packet.IP{Src: p.IP.Src, Dst: p.IP.Dst, ID: p.IP.ID, TClass: p.IP.TClass},
		UDP: packet.UDP{SrcPort: p.UDP.SrcPort},
		BTH: BTH{DestQP: p.BTH.DestQP},
	}
}

// withoutComputed returns a parsed packet without its lengths, checksums, padding and ICRC, which
// Build then computes. A UDP checksum is computed if there was one.
func withoutComputed(p Packet) Packet {
	p.udpChecksum = *p.UDP.Checksum != 0
	p.IP, p.UDP.Length, p.UDP.Checksum = p.IP.WithoutComputed(), nil, nil
	p.BTH.PadCnt, p.Pad, p.ICRC, p.raw = nil, nil, nil, nil
	return p
}

func goldenPackets(t testing.TB) []testutil.CapturedPacket {
	t.Helper()
	all := testutil.ReadCaptureFile(t, filepath.Join("testdata", "golden.pcap"))
	if len(all) != len(golden) {
		t.Fatalf("%d golden packets, the table has %d", len(all), len(golden))
	}
	return all
}

func TestGoldenPackets(t *testing.T) {
	for i, c := range goldenPackets(t) {
		g := golden[i]
		p, err := Parse(c.Data)
		if err != nil {
			t.Errorf("%d %s: %v", i+1, g.line, err)
			continue
		}
		if err := p.CheckICRC(); err != nil {
			t.Errorf("%d %s: %v", i+1, g.line, err)
		}
		if got := hex.EncodeToString(c.Data[len(c.Data)-4:]); got != g.icrc {
			t.Errorf("%d %s: ICRC on the wire %s, want %s", i+1, g.line, got, g.icrc)
		}
		if got := p.String(); got != g.line {
			t.Errorf("%d: %q, want %q", i+1, got, g.line)
		}
		if d := g.want.Diff(p); d != nil {
			t.Errorf("%d %s: %v", i+1, g.line, d)
		}
		if got := p.Build(); !bytes.Equal(got, c.Data) {
			t.Errorf("%d %s: parsed and built is\n%x, want\n%x", i+1, g.line, got, c.Data)
		}
		if got := withoutComputed(p).Build(); !bytes.Equal(got, c.Data) {
			t.Errorf("%d %s: parsed and rebuilt is\n%x, want\n%x", i+1, g.line, got, c.Data)
		}
		if got := g.want.Or(connection(p)).Build(); !bytes.Equal(got, c.Data) {
			t.Errorf("%d %s: built is\n%x, want\n%x", i+1, g.line, got, c.Data)
		}
		if faults := p.Faults(); len(faults) > 0 {
			t.Errorf("%d %s: faults %v", i+1, g.line, faults)
		}
	}
}

func TestGoldenPacketsDoNotMatchEachOther(t *testing.T) {
	all := goldenPackets(t)
	for i := range golden {
		for j, c := range all {
			p, err := Parse(c.Data)
			if err != nil {
				t.Fatal(err)
			}
			if i != j && golden[i].want.Matches(p) && golden[i].line != golden[j].line {
				t.Errorf("the expectation %q matches %q", golden[i].line, golden[j].line)
			}
		}
	}
}

func TestParseRejectsEveryPrefix(t *testing.T) {
	for i, c := range goldenPackets(t) {
		for n := range c.Data {
			p, err := Parse(c.Data[:n])
			if !errors.Is(err, packet.ErrShort) {
				t.Fatalf("packet %d, %d bytes: %v, want ErrShort", i+1, n, err)
			}
			_, _ = p.String(), p.Faults()

			// The same, with lengths that match the prefix.
			whole, _, trailer, ipErr := packet.ParseIP(c.Data)
			if ipErr != nil || len(trailer) != 0 {
				t.Fatal(ipErr, trailer)
			}
			size := len(whole.Append(nil, nil))
			if n < size+8 {
				continue
			}
			udp, _, _, _ := packet.ParseUDP(c.Data[size:])
			short := whole.WithoutComputed().Append(nil, packet.UDP{SrcPort: udp.SrcPort, DstPort: udp.DstPort}.Append(nil, whole, c.Data[size+8:n]))
			p, err = Parse(short)
			if err == nil && p.CheckICRC() == nil {
				t.Fatalf("packet %d cut to %d bytes is valid", i+1, n)
			}
			_, _ = p.String(), p.Faults()
		}
	}
}

// TestCaptures parses every captured packet and builds it again, with the original lengths,
// checksums and ICRC, and with computed ones.
func TestCaptures(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "*.pcap"))
	if err != nil || len(files) < 10 {
		t.Fatalf("captures: %v, %v", files, err)
	}
	total := map[Opcode]int{}
	for _, file := range files {
		for i, c := range testutil.ReadCaptureFile(t, file) {
			b, ok := c.IP()
			if !ok {
				continue // ARP
			}
			p, err := Parse(b)
			if errors.Is(err, ErrNotRoCE) {
				continue // a TCP connection of the tools
			}
			probing := strings.Contains(file, "probe_") && fromProber(p)
			if err != nil {
				if !probing {
					t.Errorf("%s: packet %d: %v", file, i+1, err)
				}
				continue
			}
			total[p.Opcode()]++
			ip := b[:len(b)-len(p.Trailer)]
			if got := p.Build(); !bytes.Equal(got, b) {
				t.Errorf("%s: packet %d (%v): built\n%x, want\n%x", file, i+1, p, got, b)
			}
			if probing {
				continue // some are invalid on purpose
			}
			fresh := withoutComputed(p)
			fresh.Trailer = nil
			if got := fresh.Build(); !bytes.Equal(got, ip) {
				t.Errorf("%s: packet %d (%v): rebuilt\n%x, want\n%x", file, i+1, p, got, ip)
			}
			if faults := p.Faults(); len(faults) > 0 {
				t.Errorf("%s: packet %d (%v): faults %v", file, i+1, p, faults)
			}
		}
	}
	for _, op := range []Opcode{
		OpSendOnly, OpWriteFirst, OpWriteMiddle, OpWriteLast, OpReadRequest, OpReadResponseFirst, OpReadResponseMiddle,
		OpReadResponseLast, OpReadResponseOnly, OpAcknowledge, OpAtomicAcknowledge, OpFetchAdd, OpCompareSwap, OpAtomicWrite,
		UC.Op(OpSendFirst), UC.Op(OpSendMiddle), UC.Op(OpSendLast), OpUDSendOnly, OpUDSendOnlyImm, OpCNP,
	} {
		if total[op] == 0 {
			t.Errorf("no %v in the captures: is the set complete?", op)
		}
	}
}

func fromProber(p Packet) bool {
	return p.IP.Src == netip.MustParseAddr("10.77.0.1") || p.IP.Src == netip.MustParseAddr("fd77::1")
}
