package capture

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/fabrictest/fabrictest/internal/must"
)

func TestPacketsMatchGopacket(t *testing.T) {
	for _, path := range captureFiles(t, roceFiles, iwarpFiles) {
		f := must.Get(os.Open(path))(t)
		other := must.Get(pcapgo.NewReader(f))(t)
		forEachPacketOfFile(t, path, func(_ *Stream, p *Packet) {
			data, info, err := other.ReadPacketData()
			if err != nil {
				t.Fatalf("%s: packet %d: gopacket: %v", path, p.Number, err)
			}
			if !bytes.Equal(p.Data, data) || !p.Time.Equal(info.Timestamp) || p.Length != info.Length ||
				p.Interface.LinkType != LinkType(other.LinkType()) {
				t.Errorf("%s: packet %d: %d of %d bytes at %v; gopacket has %d of %d at %v",
					path, p.Number, len(p.Data), p.Length, p.Time, len(data), info.Length, info.Timestamp)
			}
		})
		if _, _, err := other.ReadPacketData(); !errors.Is(err, io.EOF) {
			t.Errorf("%s: gopacket has more: %v", path, err)
		}
		f.Close()
	}
}

// pcapngOf returns a pcapng file with two interfaces, comments and directions.
func pcapngOf(t testing.TB) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := pcapgo.NewNgWriterInterface(&b, pcapgo.NgInterface{Name: "host0/rdma0", LinkType: layers.LinkTypeRaw},
		pcapgo.NgWriterOptions{SectionInfo: pcapgo.NgSectionInfo{Comment: "the command that repeats it"}})
	if err != nil {
		t.Fatal(err)
	}
	must.Get(w.AddInterface(pcapgo.NgInterface{Name: "host1/rdma0", LinkType: layers.LinkTypeRaw}))(t)
	for i, f := range []frame{
		roce(request(4, 100, 5)),
		roce(request(4, 101, 6)),
		roce(request(4, 101, 6)),
	} {
		info := infoOf(i, f)
		info.InterfaceIndex = i % 2
		opts := pcapgo.NgPacketOptions{Flags: &pcapgo.NgEpbFlags{Direction: pcapgo.NgEpbFlagDirectionOutbound}}
		if i%2 == 1 {
			opts.Flags = &pcapgo.NgEpbFlags{Direction: pcapgo.NgEpbFlagDirectionInbound}
			opts.Comments = []string{"dropped by the switch", "and again"}
		}
		must.Do(t, w.WritePacketWithOptions(info, f.data, opts))
	}
	must.Do(t, w.Flush())
	return b.Bytes()
}

func TestPcapngInterfacesCommentsDirectionsAndNames(t *testing.T) {
	n := 0
	var last *Stream
	err := forEachPacket(t, bytes.NewReader(pcapngOf(t)), func(s *Stream, p *Packet) {
		n++
		last = s
		if p.Interface.Name != []string{"host1/rdma0", "host0/rdma0"}[n%2] || p.Direction != []Direction{Inbound, Outbound}[n%2] {
			t.Errorf("packet %d: %+v, direction %d", n, p.Interface, p.Direction)
		}
		if n == 2 && (len(p.Comments) != 2 || p.Comments[1] != "and again" || !p.Has(MarkComment)) {
			t.Errorf("packet %d: comments %q, marks %v", n, p.Comments, p.Marks)
		}
		if want := time.Duration(n-1) * time.Millisecond; p.SinceFirst != want || !p.Time.Equal(time.Unix(1000, int64(want))) {
			t.Errorf("packet %d: %v after the first, at %v", n, p.SinceFirst, p.Time)
		}
	})
	if err != nil || n != 3 {
		t.Fatalf("%d packets, %v", n, err)
	}
	if len(last.interfaces) != 2 {
		t.Errorf("%d interfaces", len(last.interfaces))
	}
	// Packets are outbound at host0 and inbound at host1.
	for addr, want := range map[string]string{alice.String(): "host0", bob.String(): "host1"} {
		a := alice
		if addr == bob.String() {
			a = bob
		}
		if name, ok := last.Host(a); !ok || name != want {
			t.Errorf("%s has the name %q, %v; want %q", addr, name, ok, want)
		}
	}
}

// bigEndian returns a big-endian pcapng file with a name resolution block, an unknown
// block, a clock of 2^-10 s, and a simple packet.
func bigEndian() []byte {
	be := binary.BigEndian
	block := func(kind uint32, body []byte) []byte {
		for len(body)%4 != 0 {
			body = append(body, 0)
		}
		n := uint32(len(body) + 12)
		b := be.AppendUint32(nil, kind)
		b = be.AppendUint32(b, n)
		b = append(b, body...)
		return be.AppendUint32(b, n)
	}
	option := func(code uint16, value []byte) []byte {
		b := be.AppendUint16(nil, code)
		b = be.AppendUint16(b, uint16(len(value)))
		b = append(b, value...)
		for len(b)%4 != 0 {
			b = append(b, 0)
		}
		return b
	}
	section := be.AppendUint32(nil, sectionMagic)
	section = append(section, 0, 1, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255)
	out := block(blockSection, section)
	iface := append([]byte{0, 101, 0, 0, 0, 0, 0, 0}, option(optionName, []byte("x"))...)
	iface = append(iface, option(optionResolution, []byte{0x80 | 10})...)
	out = append(out, block(blockInterface, iface)...)
	out = append(out, block(blockNames, append(option(2, append(alice.AsSlice(), "alice\x00"...)), 0, 0, 0, 0))...)
	out = append(out, block(0x0BAD, []byte("unknown!"))...)
	data := roce(request(4, 7, 3)).data
	packet := be.AppendUint32(nil, 0)
	packet = be.AppendUint64(packet, 5<<10|512) // 5.5 s
	packet = be.AppendUint32(packet, uint32(len(data)))
	packet = be.AppendUint32(packet, uint32(len(data)))
	out = append(out, block(blockEnhanced, append(packet, data...))...)
	return append(out, block(blockSimple, append(be.AppendUint32(nil, uint32(len(data))), data...))...)
}

func TestPcapngBigEndian(t *testing.T) {
	n := 0
	err := forEachPacket(t, bytes.NewReader(bigEndian()), func(s *Stream, p *Packet) {
		n++
		if p.Protocol != "RoCEv2" || len(p.PDUs) != 1 || p.PDUs[0].(*RoCE).ICRC != ChecksumGood {
			t.Errorf("packet %d: %s %s", n, p.Protocol, p.Note)
		}
		if want := time.Unix(5, 5e8); n == 1 && !p.Time.Equal(want) || n == 2 && !p.Time.IsZero() {
			t.Errorf("packet %d at %v", n, p.Time)
		}
		if name, _ := s.Host(alice); name != "alice" {
			t.Errorf("%v has the name %q", alice, name)
		}
	})
	if err != nil || n != 2 {
		t.Errorf("%d packets, %v", n, err)
	}
}

func TestGzipIsDecompressed(t *testing.T) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write(pcapngOf(t))
	_ = z.Close()
	n := 0
	if err := forEachPacket(t, &b, func(*Stream, *Packet) { n++ }); err != nil || n != 3 {
		t.Errorf("%d packets, %v", n, err)
	}
}

// Wherever a file is truncated, the packets before are read. The error has the offset,
// unless the file ends between two records.
func TestTruncatedFilesYieldPacketsBefore(t *testing.T) {
	for name, whole := range map[string][]byte{
		"pcap": pcapOf(t, layers.LinkTypeRaw, roce(request(4, 1, 10)), roce(request(4, 2, 11)), roce(request(4, 3, 0))),
		"ng":   pcapngOf(t), "big-endian": bigEndian(),
	} {
		total := 0
		if err := forEachPacket(t, bytes.NewReader(whole), func(*Stream, *Packet) { total++ }); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		before, clean := 0, 0
		for n := range whole {
			seen := 0
			err := forEachPacket(t, bytes.NewReader(whole[:n]), func(*Stream, *Packet) { seen++ })
			var corrupt *CorruptError
			switch {
			case err == nil:
				clean++
			case errors.As(err, &corrupt):
				if !errors.Is(err, ErrTruncated) || corrupt.Packet != seen || corrupt.Offset > int64(n) {
					t.Errorf("%s cut at %d: %v after %d packets", name, n, err, seen)
				}
			case seen > 0:
				t.Errorf("%s cut at %d: %v", name, n, err)
			}
			if seen < before || seen > total {
				t.Errorf("%s cut at %d: %d packets, %d with a shorter file", name, n, seen, before)
			}
			before = seen
		}
		if clean > 8 {
			t.Errorf("%s: %d truncated files end without an error", name, clean)
		}
	}
}

func TestCorruptErrorHasOffset(t *testing.T) {
	good := roce(request(4, 1, 10))
	one := len(pcapOf(t, layers.LinkTypeRaw, good))
	for name, tc := range map[string]struct {
		file   []byte
		offset int64
	}{
		"a packet of 4 GB":   {append(pcapOf(t, layers.LinkTypeRaw, good), bytes.Repeat([]byte{0xff}, 40)...), int64(one)},
		"a block of 7 bytes": {append(pcapngOf(t), 6, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0), int64(len(pcapngOf(t)))},
		"a block of 2 GB":    {append(pcapngOf(t), 6, 0, 0, 0, 0, 0, 0, 0x80, 0, 0, 0, 0), int64(len(pcapngOf(t)))},
		"different lengths":  {append(pcapngOf(t), 3, 0, 0, 0, 20, 0, 0, 0, 4, 0, 0, 0, 1, 2, 3, 4, 24, 0, 0, 0), int64(len(pcapngOf(t)))},
		"unknown interface":  {append(pcapngOf(t), append([]byte{6, 0, 0, 0, 32, 0, 0, 0, 9}, append(make([]byte, 19), 32, 0, 0, 0)...)...), int64(len(pcapngOf(t)))},
		"half of a packet":   {pcapOf(t, layers.LinkTypeRaw, good, good)[:one+20], int64(one)},
	} {
		n := 0
		err := forEachPacket(t, bytes.NewReader(tc.file), func(*Stream, *Packet) { n++ })
		var corrupt *CorruptError
		if !errors.As(err, &corrupt) || corrupt.Offset != tc.offset || corrupt.Packet != n || n == 0 {
			t.Errorf("%s: %v after %d packets, want a CorruptError at %d", name, err, n, tc.offset)
		}
	}
}

func TestOpenRejectsOtherFormats(t *testing.T) {
	for _, s := range []string{"", "x", "hello, world", "\x0a\x0d\x0d\x0a", "\xd4\xc3\xb2\xa1\x02\x00"} {
		if err := forEachPacket(t, bytes.NewReader([]byte(s)), func(*Stream, *Packet) {}); err == nil {
			t.Errorf("%q opens without an error", s)
		}
	}
	if _, err := Open(bytes.NewReader([]byte("hello, world"))); !errors.Is(err, ErrFormat) {
		t.Errorf("%v, want ErrFormat", err)
	}
}
