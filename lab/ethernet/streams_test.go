package ethernet

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/netns/uswitch"
)

// segmentFrame returns a frame with a TCP segment and a valid checksum.
func segmentFrame(t *testing.T, v6 bool, seq uint32, syn bool, data []byte) []byte {
	t.Helper()
	tcp := &layers.TCP{SrcPort: 4000, DstPort: 5000, Seq: seq, SYN: syn, ACK: !syn, PSH: !syn, Window: 100}
	eth := &layers.Ethernet{SrcMAC: make([]byte, 6), DstMAC: make([]byte, 6), EthernetType: layers.EthernetTypeIPv4}
	var ip interface {
		gopacket.SerializableLayer
		gopacket.NetworkLayer
	}
	if v6 {
		eth.EthernetType = layers.EthernetTypeIPv6
		ip = &layers.IPv6{Version: 6, NextHeader: layers.IPProtocolTCP, HopLimit: 64, SrcIP: netip.MustParseAddr("fd00::1").AsSlice(), DstIP: netip.MustParseAddr("fd00::2").AsSlice()}
	} else {
		ip = &layers.IPv4{Version: 4, Protocol: layers.IPProtocolTCP, TTL: 64, SrcIP: []byte{10, 0, 0, 1}, DstIP: []byte{10, 0, 0, 2}}
	}
	must.Do(t, tcp.SetNetworkLayerForChecksum(ip))
	buf := gopacket.NewSerializeBuffer()
	must.Do(t, gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, eth, ip, tcp, gopacket.Payload(data)))
	return buf.Bytes()
}

// readSegment is what gopacket finds in a frame, which has to be whole.
func readSegment(t *testing.T, frame []byte) *layers.TCP {
	t.Helper()
	p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.DecodeOptions{})
	tcp, ok := p.TransportLayer().(*layers.TCP)
	if !ok {
		t.Fatalf("no TCP in %v", p)
	}
	must.Do(t, tcp.SetNetworkLayerForChecksum(p.NetworkLayer()))
	if sum, err := tcp.ComputeChecksum(); err != nil || sum != 0 {
		t.Errorf("the checksum is off by %#x (%v)", sum, err)
	}
	return tcp
}

// Events apply once to the segment with their byte, and the checksum stays valid:
// across sequence number wrap, for both IP versions, and at odd offsets.
func TestStreamImpairer(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		for _, isn := range []uint32{1000, 1<<32 - 50} {
			way := NewStreamImpairer([]lab.StreamEvent{
				{Offset: 3, Do: lab.StreamCorrupt, Bit: 7},
				{Offset: 8, Do: lab.StreamCorrupt, Bit: 0},
				{Offset: 10, Do: lab.StreamDrop},
				{Offset: 120, Do: lab.StreamDelay, Delay: time.Millisecond},
				{Offset: 130, Do: lab.StreamReset},
				{Offset: 3, Conn: 2, Do: lab.StreamReset},
			}, passThrough{})
			var out []byte
			var delay time.Duration
			give := func(seq uint32, syn bool, data []byte) {
				out, delay = nil, 0
				frame := segmentFrame(t, v6, seq, syn, data)
				before := string(frame)
				way.Apply(0, uswitch.Frame{Bytes: frame}, func(after time.Duration, f uswitch.Frame) { out, delay = append([]byte(nil), f.Bytes...), after })
				if string(frame) != before {
					t.Error("the frame was changed in place")
				}
			}
			give(isn-7, false, []byte("who is that"))
			if got := readSegment(t, out); string(got.Payload) != "who is that" {
				t.Errorf("of a stream that nobody knows: %q", got.Payload)
			}
			give(isn, true, nil)
			readSegment(t, out)
			give(isn+1, false, []byte("123456789"))
			if got := readSegment(t, out); string(got.Payload) != "123\xb45678\x38" {
				t.Errorf("%q", got.Payload)
			}
			give(isn+10, false, []byte("01234"))
			if out != nil || way.drops != 1 {
				t.Errorf("%d dropped", way.drops)
			}
			give(isn+10, false, []byte("01234"))
			if got := readSegment(t, out); string(got.Payload) != "01234" {
				t.Errorf("sent again: %q", got.Payload)
			}
			give(isn+15, false, make([]byte, 100))
			give(isn+115, false, make([]byte, 10))
			if readSegment(t, out); delay != time.Millisecond {
				t.Errorf("delayed by %v", delay)
			}
			give(isn+125, false, make([]byte, 10))
			if got := readSegment(t, out); !got.RST || got.PSH || !got.ACK || delay != 0 {
				t.Errorf("%+v", got)
			}
			// More streams between the same ports: the second has another event.
			for conn := range 2 {
				isn += 5000
				give(isn, true, nil)
				give(isn+1, false, []byte("1234"))
				if got := readSegment(t, out); string(got.Payload) != "123\xb4" || got.RST != (conn == 0) {
					t.Errorf("stream %d: %q, reset %v", conn+2, got.Payload, got.RST)
				}
			}
		}
	}
}

func TestStreamImpairerKeepsPartialChecksums(t *testing.T) {
	way := NewStreamImpairer([]lab.StreamEvent{{Offset: 1, Do: lab.StreamCorrupt}}, passThrough{})
	way.Apply(0, uswitch.Frame{Bytes: segmentFrame(t, true, 1, true, nil)}, func(time.Duration, uswitch.Frame) {})
	frame := segmentFrame(t, true, 2, false, []byte("abc"))
	sum := binary.BigEndian.Uint16(frame[14+40+16:])
	way.Apply(0, uswitch.Frame{Bytes: frame, ChecksumPartial: true}, func(_ time.Duration, f uswitch.Frame) {
		if got := binary.BigEndian.Uint16(f.Bytes[14+40+16:]); got != sum || !f.ChecksumPartial || f.Bytes[len(f.Bytes)-2] != 'c' {
			t.Errorf("checksum %#x, was %#x; %q", got, sum, f.Bytes[len(f.Bytes)-3:])
		}
	})
}
