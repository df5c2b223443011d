package wire

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
)

// vector is one packet of testdata/golden.txt.
type vector struct {
	name   string
	source string // capture and frame number, or "computed"
	ip     []byte
}

func readGolden(t testing.TB) []vector {
	t.Helper()
	f := must.Get(os.Open("testdata/golden.txt"))(t)
	defer f.Close()
	var vectors []vector
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if name, source, ok := strings.Cut(line, " | "); ok {
			vectors = append(vectors, vector{name: name, source: source})
			continue
		}
		ip, err := hex.DecodeString(line)
		if err != nil || len(vectors) == 0 {
			t.Fatalf("golden.txt:%d: neither a title nor bytes: %v", n, err)
		}
		vectors[len(vectors)-1].ip = ip
	}
	must.Do(t, lines.Err())
	return vectors
}

func fromHex(t testing.TB, s string) []byte {
	t.Helper()
	b := must.Get(hex.DecodeString(s))(t)
	return b
}

// goldenWant are the fields of the golden packets, decoded by hand. Only the lengths of CM payloads
// are compared: other tests decode MADs.
var goldenWant = []struct {
	name       string
	ip         ipUDP
	packet     Packet
	payload    string // hexadecimal
	payloadLen int    // where payload is empty
}{
	{
		"RC SEND_ONLY 16 B", ip12to11(0xc93f, 0xaace),
		Packet{BTH: request(0x04, 0x1f, 0x4bcf5b)},
		"0000564af0f478400000121400000064", 0,
	},
	{"RC ACK", ip11to12(0xc93f, 0x953e), Packet{BTH: response(0x11, 0x1f, 0x4bcf5b), AETH: AETH{0x1f, 1}}, "", 0},
	{
		"RC READ_REQUEST", ip11to12(0xc93f, 0x953f),
		Packet{BTH: request(0x0c, 0x1f, 0x458185), RETH: RETH{0x564af0f47840, 0x1214, 100}},
		"", 0,
	},
	{
		"RC WRITE_ONLY 8 B", ip11to12(0xc271, 0x8d69),
		Packet{BTH: request(0x0a, 0x19, 0x89af29), RETH: RETH{0x555641914000, 0x90b, 8}},
		"0000000000000001", 0,
	},
	{
		"RC FETCH_ADD", ip12to11(0xc310, 0xa3f4),
		Packet{BTH: request(0x14, 0x1c, 0x850b06), AtomicETH: AtomicETH{0x56537dc48000, 0xcbe, 1, 0}},
		"", 0,
	},
	{
		"RC FETCH_ADD with a compare field", ip12to11(0xc310, 0xa3f8),
		Packet{BTH: request(0x14, 0x1c, 0x850b0a), AtomicETH: AtomicETH{0x56537dc48100, 0xcbe, 1, 0x5b87807f7}},
		"", 0,
	},
	{
		"RC ATOMIC_ACK", ip11to12(0xc310, 0x922e),
		Packet{BTH: response(0x12, 0x1c, 0x850b07), AETH: AETH{0x1f, 2}, AtomicAckETH: AtomicAckETH{0x7189d4f794e7db39}},
		"", 0,
	},
	{
		"RC COMPARE_SWAP", ip12to11(0xc349, 0xa4b3),
		Packet{BTH: request(0x13, 0x1d, 0xbce207), AtomicETH: AtomicETH{0x563811527000, 0xd9b, 0, 0}},
		"", 0,
	},
	{
		"UD SEND_ONLY_IMM 64 B", ip12to11(0xce44, 0xac6f),
		Packet{BTH: response(0x65, 0x20, 0), DETH: DETH{QKey: 0x01234567, SrcQP: 0x20}, Imm: 0x20},
		"e844edc30956000000000000000000001000000010000000608127a30c560000" +
			"408127a30c560000000000000000000000000000000000000000000000000000", 0,
	},
	{"RNR NAK code 12", ip11to1(0xc000, 0xc8cd), Packet{BTH: response(0x11, 0x100001, 0x66), AETH: AETH{RNRNak(12), 2}}, "", 0},
	{
		"NAK PSN sequence error", ip11to1(0xc000, 0xc8ce),
		Packet{BTH: response(0x11, 0x100001, 0x66), AETH: AETH{Nak(NakPSNSequence), 2}},
		"", 0,
	},
	{
		"NAK invalid request", ip11to1(0xc0aa, 0xcd49),
		Packet{BTH: response(0x11, 0x100003, 0x64), AETH: AETH{Nak(NakInvalidRequest), 0}},
		"", 0,
	},
	{
		"NAK remote access error", ip11to1(0xc23c, 0xcfb5),
		Packet{BTH: response(0x11, 0x10000a, 0x64), AETH: AETH{Nak(NakRemoteAccess), 0}},
		"", 0,
	},
	{
		"NAK remote operational error", ip11to1(0xc000, 0xccd7),
		Packet{BTH: response(0x11, 0x100001, 0x64), AETH: AETH{Nak(NakRemoteOperational), 0}},
		"", 0,
	},
	{
		"RC READ_RESPONSE_ONLY zero length", ip11to1(0xc5c0, 0xd257),
		Packet{BTH: response(0x10, 0x100016, 0x64), AETH: AETH{Ack(CreditUnlimited), 1}},
		"", 0,
	},
	{
		"RC READ_RESPONSE_ONLY 8 B", ip11to1(0xc326, 0xf2fd),
		Packet{BTH: response(0x10, 0x100007, 0x64), AETH: AETH{Ack(CreditUnlimited), 1}},
		"0000000000000000", 0,
	},
	{"RC SEND_ONLY zero length", ip11to1(0xc2a7, 0xf5f7), Packet{BTH: request(0x04, 0x100004, 500)}, "", 0},
	{"RC SEND_ONLY 1 B (pad 3)", ip11to1(0xc2a7, 0xf5f8), Packet{BTH: padded(request(0x04, 0x100004, 501), 3)}, "41", 0},
	{
		"RC SEND_ONLY_IMM 6 B, SE (pad 2)", ip11to1(0xc2a7, 0xf5fc),
		Packet{BTH: solicited(padded(request(0x05, 0x100004, 505), 2)), Imm: 0x01020304},
		"41484f565d64", 0,
	},
	{
		"RC WRITE_ONLY_IMM 3 B, SE (pad 1)", ip11to1(0xc2a7, 0xf5fd),
		Packet{BTH: solicited(padded(request(0x0b, 0x100004, 506), 1)), RETH: RETH{0x1000, 0x55, 3}, Imm: 0x0a0b0c0d},
		"41484f", 0,
	},
	{
		"RC SEND_ONLY_INV 5 B (pad 3)", ip11to1(0xc2a7, 0xf601),
		Packet{BTH: padded(request(0x17, 0x100004, 510), 3), IETH: IETH{0x99aabbcc}},
		"41484f565d", 0,
	},
	{
		"RC READ_REQUEST partial retry", ip11to1(0xc14a, 0xe9a1),
		Packet{BTH: request(0x0c, 0x100003, 501), RETH: RETH{0x1400, 0x55, 1476}},
		"", 0,
	},
	{"IPv6 RC ACK (TC 0x20)", ip6(0xc334), Packet{BTH: response(0x11, 0x100001, 100), AETH: AETH{0x1f, 1}}, "", 0},
	{"IPv6 RC SEND_ONLY 6 B (pad 2)", ip6(0xc334), Packet{BTH: padded(request(0x04, 0x100001, 500), 2)}, "41484f565d64", 0},
	{"IPv6 RC READ_REQUEST", ip6(0xc334), Packet{BTH: request(0x0c, 0x100001, 501), RETH: RETH{0x1000, 0x55, 64}}, "", 0},
	{
		"RC ATOMIC_WRITE response (RR_ONLY, 0 B)", ip11to1(0xc000, 0xfddd),
		Packet{BTH: response(0x10, 0x100001, 0x66), AETH: AETH{0x1f, 3}},
		"", 0,
	},
	{"CM REQ", ip12to11(0xd872, 0xaac8), mad(0), "", 256},
	{"CM REP", ip11to12(0xd872, 0x953c), mad(0), "", 256},
	{"CM RTU", ip12to11(0xd872, 0xaacd), mad(1), "", 256},
	{"CM DREQ", ip12to11(0xd872, 0xaae0), mad(2), "", 256},
	{"CM DREP", ip11to12(0xd872, 0x9550), mad(1), "", 256},
	{"CM SIDR_REQ", ip12to11(0xd872, 0xac6b), mad(3), "", 256},
	{"CM SIDR_REP", ip11to12(0xd872, 0x970c), mad(2), "", 256},
	{"CM REJ (reason 8)", ip11to1(0xd872, 0xffac), mad(0), "", 256},
	{
		"CNP", ipv4("10.77.0.1", "10.77.0.11", 4791, 0),
		Packet{BTH: BTH{Opcode: CNP, PKey: 0xffff, BECN: true, DestQP: 0x11}},
		strings.Repeat("00", CNPPayloadLen), 0,
	},
}

func ip11to12(sport, id uint16) ipUDP { return ipv4("10.77.0.11", "10.77.0.12", sport, id) }
func ip12to11(sport, id uint16) ipUDP { return ipv4("10.77.0.12", "10.77.0.11", sport, id) }
func ip11to1(sport, id uint16) ipUDP  { return ipv4("10.77.0.11", "10.77.0.1", sport, id) }

func ipv4(src, dst string, sport, id uint16) ipUDP {
	return ipUDP{
		Src:      netip.AddrPortFrom(netip.MustParseAddr(src), sport),
		Dst:      netip.AddrPortFrom(netip.MustParseAddr(dst), 4791),
		HopLimit: 64, ID: id,
	}
}

func ip6(sport uint16) ipUDP {
	return ipUDP{
		Src:      netip.AddrPortFrom(netip.MustParseAddr("fd77::11"), sport),
		Dst:      netip.MustParseAddrPort("[fd77::1]:4791"),
		HopLimit: 64, TClass: 0x20,
	}
}

func request(op Opcode, qp uint32, psn PSN) BTH {
	return BTH{Opcode: op, PKey: 0xffff, DestQP: qp, AckReq: true, PSN: psn}
}

func response(op Opcode, qp uint32, psn PSN) BTH {
	return BTH{Opcode: op, PKey: 0xffff, DestQP: qp, PSN: psn}
}

func padded(h BTH, pad uint8) BTH { h.PadCount = pad; return h }
func solicited(h BTH) BTH         { h.Solicited = true; return h }

// mad is a datagram to the general services interface, QP 1.
func mad(psn PSN) Packet {
	return Packet{BTH: request(0x64, 1, psn), DETH: DETH{QKey: 0x80010000, SrcQP: 1}}
}

func TestGoldenPackets(t *testing.T) {
	vectors := readGolden(t)
	if len(vectors) != len(goldenWant) || len(vectors) != 35 {
		t.Fatalf("golden.txt has %d packets, the table %d; want 35", len(vectors), len(goldenWant))
	}
	for i, want := range goldenWant {
		v := vectors[i]
		t.Run(v.name, func(t *testing.T) {
			if v.name != want.name {
				t.Fatalf("golden.txt has this name, the table has %q", want.name)
			}
			checkRoundTrip(t, v.ip)

			h, payload, _ := parseIPUDP(v.ip)
			if h != want.ip {
				t.Errorf("headers:\n got %+v\nwant %+v", h, want.ip)
			}
			var got Packet
			must.Do(t, got.Parse(payload))
			wantPayload := fromHex(t, want.payload)
			if want.payloadLen != 0 {
				if len(got.Payload) != want.payloadLen {
					t.Errorf("payload of %d bytes, want %d", len(got.Payload), want.payloadLen)
				}
				wantPayload = got.Payload
			}
			if !bytes.Equal(got.Payload, wantPayload) {
				t.Errorf("payload %x, want %x", got.Payload, wantPayload)
			}

			// The table alone gives the same bytes.
			build := want.packet
			build.Payload = wantPayload
			b := build.Append(nil)
			NewICRC(want.ip.Src, want.ip.Dst).Seal(want.ip.ID, b)
			if b = want.ip.Append(nil, b); !bytes.Equal(b, v.ip) {
				t.Errorf("built from the table:\n got %x\nwant %x", b, v.ip)
			}

			got.Payload = nil
			if !reflect.DeepEqual(got, want.packet) {
				t.Errorf("Parse:\n got %+v\nwant %+v", got, want.packet)
			}
		})
	}
}

func TestGoldenPacketsMatchCapture(t *testing.T) {
	all := readCapture(t, "golden.pcap")
	vectors := readGolden(t)
	if len(all) != len(vectors) {
		t.Fatalf("golden.pcap has %d packets, golden.txt %d", len(all), len(vectors))
	}
	captured := 0
	for i, v := range vectors {
		if !bytes.Equal(all[i].ip, v.ip) {
			t.Errorf("%s: golden.pcap frame %d differs", v.name, all[i].number)
		}
		file, number, ok := strings.Cut(v.source, ":")
		if !ok {
			continue
		}
		n, err := strconv.Atoi(number)
		if err != nil {
			t.Fatalf("%s: %v", v.name, err)
		}
		if err := frameIs(readCapture(t, file), n, v.ip); err != nil {
			t.Errorf("%s: %s: %v", v.name, file, err)
		}
		captured++
	}
	if captured != 34 {
		t.Errorf("%d packets name a capture, want 34", captured)
	}
}

// frameIs returns an error unless frame n is the IP packet want.
func frameIs(frames []frame, n int, want []byte) error {
	for _, f := range frames {
		if f.number == n {
			if !bytes.HasPrefix(f.ip, want) {
				return fmt.Errorf("frame %d is another packet", n)
			}
			return nil
		}
	}
	return fmt.Errorf("no IP packet in frame %d", n)
}

func TestECNMarksDoNotChangeTheICRC(t *testing.T) {
	cnp := readGolden(t)[34]
	h, payload, _ := parseIPUDP(cnp.ip)
	for marks := range 256 { // FECN, BECN and the reserved six bits
		payload[4] = byte(marks)
		if !h.ICRC().Check(h.ID, payload) {
			t.Errorf("BTH byte 4 = %#02x: ICRC rejected", marks)
		}
	}
}
