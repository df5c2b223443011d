package capture

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	iwarp "github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/internal/must"
)

// captureFiles returns captures of real devices from the codec tests.
func captureFiles(t testing.TB, patterns ...string) (paths []string) {
	t.Helper()
	for _, p := range patterns {
		found := must.Get(filepath.Glob(p))(t)
		paths = append(paths, found...)
	}
	if len(paths) == 0 {
		t.Fatalf("no capture matches %v", patterns)
	}
	return paths
}

const (
	roceFiles  = "../emu/softroce/wire/testdata/*.pcap"
	iwarpFiles = "../emu/iwarp/wire/testdata/*.pcap"
)

// forEachPacket calls do for every packet of a capture and returns the read error.
func forEachPacket(t testing.TB, r io.Reader, do func(*Stream, *Packet)) error {
	t.Helper()
	s, err := Open(r)
	if err != nil {
		return err
	}
	for {
		p, err := s.Next()
		if errors.Is(err, io.EOF) && !errors.Is(err, ErrTruncated) {
			return nil
		}
		if err != nil {
			return err
		}
		do(s, p)
	}
}

func forEachPacketOfFile(t testing.TB, path string, do func(*Stream, *Packet)) {
	t.Helper()
	f := must.Get(os.Open(path))(t)
	defer f.Close()
	if err := forEachPacket(t, f, do); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// frame is a packet to write to a capture.
type frame struct {
	data   []byte
	length int // 0: as long as data
}

// pcapOf returns a pcap file with frames that are a millisecond apart.
func pcapOf(t testing.TB, link layers.LinkType, frames ...frame) []byte {
	t.Helper()
	var b bytes.Buffer
	w := pcapgo.NewWriterNanos(&b)
	must.Do(t, w.WriteFileHeader(1<<16, link))
	for i, f := range frames {
		must.Do(t, w.WritePacket(infoOf(i, f), f.data))
	}
	return b.Bytes()
}

func infoOf(i int, f frame) gopacket.CaptureInfo {
	return gopacket.CaptureInfo{
		Timestamp:     time.Unix(1000, 0).Add(time.Duration(i) * time.Millisecond),
		CaptureLength: len(f.data), Length: max(f.length, len(f.data)),
	}
}

// decode decodes frames of raw IP.
func decode(t testing.TB, frames ...frame) (all []decoded) {
	t.Helper()
	err := forEachPacket(t, bytes.NewReader(pcapOf(t, layers.LinkTypeRaw, frames...)), func(_ *Stream, p *Packet) {
		one := decoded{protocol: p.Protocol, note: p.Note}
		for _, m := range p.Marks {
			one.marks = append(one.marks, m.Kind)
			one.texts = append(one.texts, m.Text)
		}
		for _, d := range p.PDUs {
			one.ops = append(one.ops, d.Op()+": "+d.Summary())
			d.Headers()
			if f, ok := d.(*FPDU); ok && f.CRCStatus != iwarp.CRCBad && f.Segment.Control.Opcode == iwarp.OpSend {
				checkSend(t, f)
			}
		}
		p.Headers()
		all = append(all, one)
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// checkSend checks the payload that send wrote: PDUs of one packet must not overwrite
// each other.
func checkSend(t testing.TB, f *FPDU) {
	t.Helper()
	for i, v := range f.Segment.Payload {
		if v != byte(f.Segment.Untagged.MSN) {
			t.Fatalf("octet %d of message %d is %d", i, f.Segment.Untagged.MSN, v)
		}
	}
}

// decoded is the result for a packet.
type decoded struct {
	protocol, note string
	ops            []string
	marks          []MarkKind
	texts          []string
}

var (
	alice = netip.MustParseAddr("fd00::a")
	bob   = netip.MustParseAddr("fd00::b")
)

// roce returns a RoCEv2 packet over IPv6.
func roce(p wire.Packet) frame {
	d := link.Datagram{Src: netip.AddrPortFrom(alice, 49152), Dst: netip.AddrPortFrom(bob, wire.Port), HopLimit: 64, Variants: link.NoChecksum}
	if p.BTH.PKey == 0 {
		p.BTH.PKey = wire.DefaultPKey
	}
	d.Payload = p.Append(nil)
	wire.NewICRC(d.Src, d.Dst).Seal(0, d.Payload)
	return frame{data: link.AppendUDP(nil, &d)}
}

// request returns a request packet to QP 17.
func request(op wire.Operation, psn wire.PSN, payload int) wire.Packet {
	return wire.Packet{BTH: wire.BTH{Opcode: wire.MakeOpcode(wire.TransportRC, op), DestQP: 17, PSN: psn}, Payload: make([]byte, payload)}
}

// tcp returns a TCP segment between port 41000 of alice and 41001 of bob.
func tcp(fromAlice bool, seq, ack uint32, flags string, payload []byte) frame {
	ip := &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolTCP, SrcIP: alice.AsSlice(), DstIP: bob.AsSlice()}
	t := &layers.TCP{SrcPort: 41000, DstPort: 41001, Seq: seq, Ack: ack, Window: 100, ACK: true}
	if !fromAlice {
		ip.SrcIP, ip.DstIP, t.SrcPort, t.DstPort = ip.DstIP, ip.SrcIP, 41001, 41000
	}
	for _, f := range flags {
		switch f {
		case 'S':
			t.SYN, t.ACK = true, !fromAlice
		case 'F':
			t.FIN = true
		case 'R':
			t.RST = true
		}
	}
	_ = t.SetNetworkLayerForChecksum(ip)
	b := gopacket.NewSerializeBuffer()
	opts := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(b, opts, ip, t, gopacket.Payload(payload)); err != nil {
		panic(err)
	}
	return frame{data: bytes.Clone(b.Bytes())}
}

// send returns a DDP segment with message msn of n octets.
func send(msn iwarp.MSN, n int) []byte {
	h := iwarp.Header{Control: iwarp.NewControl(iwarp.OpSend, true), Untagged: iwarp.Untagged{MSN: msn}}
	return append(h.Append(nil), bytes.Repeat([]byte{byte(msn)}, n)...)
}
