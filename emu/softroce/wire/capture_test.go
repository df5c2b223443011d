package wire

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
)

// frame is one frame of a capture that carries IP.
type frame struct {
	number int // from 1
	ip     []byte
}

// readCapture returns the IP packets of testdata/name, including Ethernet padding.
func readCapture(t testing.TB, name string) []frame {
	t.Helper()
	var frames []frame
	for i, p := range testutil.ReadCaptureFile(t, filepath.Join("testdata", name)) {
		if ip, ok := p.IP(); ok {
			frames = append(frames, frame{i + 1, ip})
		}
	}
	return frames
}

// captures returns the names of the captures that match pattern.
func captures(t testing.TB, pattern string) []string {
	t.Helper()
	paths := must.Get(filepath.Glob(filepath.Join("testdata", pattern)))(t)
	var names []string
	for _, p := range paths {
		names = append(names, filepath.Base(p))
	}
	return names
}

// ipUDP are the IP and UDP headers of a packet. The UDP checksum is 0, and DF is set.
type ipUDP struct {
	Src, Dst         netip.AddrPort
	TClass, HopLimit uint8
	ID               uint16
	FlowLabel        uint32
}

func (h *ipUDP) ICRC() ICRC { return NewICRC(h.Src, h.Dst) }

// Append appends the IP packet with a UDP payload.
func (h *ipUDP) Append(b, payload []byte) []byte {
	return link.AppendUDP(b, &link.Datagram{
		Src: h.Src, Dst: h.Dst, TClass: h.TClass, HopLimit: h.HopLimit, IPID: uint32(h.ID), FlowLabel: h.FlowLabel,
		Variants: link.NoChecksum, Payload: payload,
	})
}

// parseIPUDP returns the headers and the payload of a UDP packet; false if it is not UDP.
func parseIPUDP(ip []byte) (h ipUDP, payload []byte, ok bool) {
	protocol, udp := ip[9], ip[IPv4HeaderLen:]
	if ip[0]>>4 == 6 {
		protocol, udp = ip[6], ip[IPv6HeaderLen:]
	}
	if protocol != link.ProtocolUDP {
		return h, nil, false
	}
	var d link.Datagram
	link.ReadIP(ip, &d)
	h = ipUDP{TClass: d.TClass, HopLimit: d.HopLimit, ID: uint16(d.IPID), FlowLabel: d.FlowLabel}
	h.Src = netip.AddrPortFrom(d.Src.Addr(), binary.BigEndian.Uint16(udp))
	h.Dst = netip.AddrPortFrom(d.Dst.Addr(), binary.BigEndian.Uint16(udp[2:]))
	return h, udp[UDPHeaderLen:binary.BigEndian.Uint16(udp[4:])], true
}

// checkRoundTrip parses a packet of a conforming peer, checks its ICRC, and encodes it again.
func checkRoundTrip(t *testing.T, ip []byte) {
	t.Helper()
	h, payload, ok := parseIPUDP(ip)
	if !ok {
		t.Error("not a UDP packet")
		return
	}

	var p Packet
	if err := p.Parse(payload); err != nil {
		t.Errorf("Parse: %v", err)
		return
	}
	if !padOK(&p) {
		t.Errorf("wrong pad count %d and payload of %d", p.BTH.PadCount, len(p.Payload))
	}
	c := h.ICRC()
	if !c.Check(h.ID, payload) {
		t.Errorf("Check(%#x) rejects", h.ID)
	}
	if id, ok := c.CheckAnyIPID(payload); !ok || id != h.ID {
		t.Errorf("CheckAnyIPID = %#x, %v; want %#x, true", id, ok, h.ID)
	}

	again := p.Append(nil)
	c.Seal(h.ID, again)
	if !bytes.Equal(again, payload) {
		t.Errorf("re-encoded packet differs:\n got %x\nwant %x", again, payload)
	}
}

func TestCapturedKernelPacketsRoundTrip(t *testing.T) {
	total, notRoCE := 0, 0
	for _, name := range captures(t, "rxe_*.pcap") {
		t.Run(name, func(t *testing.T) {
			for _, f := range readCapture(t, name) {
				if _, _, ok := parseIPUDP(f.ip); !ok {
					notRoCE++ // the TCP side channel of one capture
					continue
				}
				total++
				checkRoundTrip(t, f.ip)
				if t.Failed() {
					t.Fatalf("frame %d", f.number)
				}
			}
		})
	}
	if total != 385 || notRoCE != 11 {
		t.Errorf("saw %d RoCE packets and %d others, want 385 and 11", total, notRoCE)
	}
}

func TestCapturedSocketPacketsRoundTrip(t *testing.T) {
	frames := readCapture(t, "host_ud_peer.pcap")
	for _, f := range frames {
		checkRoundTrip(t, f.ip)
		if t.Failed() {
			t.Fatalf("frame %d", f.number)
		}
	}
	if len(frames) != 40 {
		t.Errorf("saw %d packets, want 40", len(frames))
	}
}

// malformed lists the invalid probe packets: the error of Parse, whether the ICRC is correct, and
// whether the pad count is.
var malformed = map[string]map[int]struct {
	parse error
	icrc  bool
	pad   bool
}{
	"rxe612_e1.pcap": {
		41: {nil, false, true},      // one bit of the ICRC flipped
		42: {nil, false, true},      // ICRC with its bytes reversed
		49: {ErrOpcode, true, true}, // 0x18
		50: {ErrOpcode, true, true}, // 0x15
		55: {ErrShort, false, true}, // twelve bytes in all
		56: {ErrShort, true, true},  // WRITE_ONLY with a truncated RETH
		57: {ErrPad, true, false},   // three pad bytes without payload
		70: {nil, true, false},      // five bytes and no pad
	},
	"rxe612_e3.pcap": {
		71: {nil, true, false},      // ten bytes and no pad
		79: {ErrOpcode, true, true}, // 0x2c, a UC READ
	},
	"rxe612_e9.pcap": {
		90: {nil, true, false}, // ten bytes and no pad
	},
	"rxe612_e10.pcap": {
		2: {nil, false, true}, // FLUSH with the ICRC of the kernel: see below
	},
}

func TestKernelProbePackets(t *testing.T) {
	fromKernel, toKernel, faults := 0, 0, 0
	for _, name := range captures(t, "rxe612_*.pcap") {
		t.Run(name, func(t *testing.T) {
			for _, f := range readCapture(t, name) {
				h, payload, _ := parseIPUDP(f.ip)
				fault, isFaulty := malformed[name][f.number]
				switch addr := h.Src.Addr().String(); {
				case addr == "10.77.0.11" || addr == "fd77::11":
					fromKernel++
					checkRoundTrip(t, f.ip)
				case !isFaulty:
					toKernel++
					checkProbe(t, h, payload)
				default:
					faults++
					var p Packet
					must.Fail(t, "Parse", p.Parse(payload), fault.parse)
					if got := h.ICRC().Check(h.ID, payload); got != fault.icrc {
						t.Errorf("Check = %v, want %v", got, fault.icrc)
					}
					if id, ok := h.ICRC().CheckAnyIPID(payload); ok != fault.icrc || ok && id != h.ID {
						t.Errorf("CheckAnyIPID = %#x, %v; want %#x, %v", id, ok, h.ID, fault.icrc)
					}
					if padOK(&p) != fault.pad {
						t.Errorf("right pad count: %v, want %v", padOK(&p), fault.pad)
					}
				}
				if t.Failed() {
					t.Fatalf("frame %d", f.number)
				}
			}
		})
	}
	if fromKernel != 898 || toKernel != 276 || faults != 12 {
		t.Errorf("saw %d packets from the kernel, %d to it, %d malformed; want 898, 276, 12",
			fromKernel, toKernel, faults)
	}
}

// checkProbe checks a packet with valid headers, but any pad bytes and reserved bits.
func checkProbe(t *testing.T, h ipUDP, payload []byte) {
	t.Helper()
	var p Packet
	if err := p.Parse(payload); err != nil {
		t.Errorf("Parse: %v", err)
		return
	}
	headers := p.AppendHeaders(nil)
	again := append(headers, payload[len(headers):]...)
	if !bytes.Equal(again, payload) {
		t.Errorf("re-encoded headers differ:\n got %x\nwant %x", again, payload)
	}
	if !h.ICRC().Check(h.ID, payload) {
		t.Errorf("Check(%#x) rejects", h.ID)
	}
	if id, ok := h.ICRC().CheckAnyIPID(payload); !ok || id != h.ID {
		t.Errorf("CheckAnyIPID = %#x, %v; want %#x, true", id, ok, h.ID)
	}
}

// The kernel's soft-RoCE computes the ICRC of a FLUSH over its headers twice, and drops a FLUSH
// with the correct ICRC. This package follows the specification; the test documents the kernel.
func TestKernelHashesFlushHeadersTwice(t *testing.T) {
	const name = "rxe612_e10.pcap"
	h, payload, _ := parseIPUDP(readCapture(t, name)[1].ip)
	if !strings.HasSuffix(Opcode(payload[0]).String(), "FLUSH") {
		t.Fatalf("%s frame 2 is %v, want a FLUSH", name, Opcode(payload[0]))
	}
	body := payload[:len(payload)-ICRCLen]
	twice := crc32.Update(h.ICRC().Sum(h.ID, body), crc32.IEEETable, body)
	if got := binary.LittleEndian.Uint32(payload[len(body):]); got != twice {
		t.Errorf("ICRC %08x, want %08x, over the headers twice", got, twice)
	}
}
