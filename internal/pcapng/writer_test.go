package pcapng

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/fabrictest/fabrictest/internal/must"
)

// Files are the same, byte for byte, as those that gopacket writes.
func TestFileIsThatOfGopacket(t *testing.T) {
	at := time.Unix(1_700_000_000, 123_456_789)
	for _, texts := range []struct{ application, comment, name string }{{"fabrictest", "fabrictest run x", "host0/rdma0"}, {"", "", ""}, {"", "odd", "a"}} {
		var got, want bytes.Buffer
		w := NewWriter(&got)
		must.Do(t, w.WriteSection(texts.application, texts.comment))
		first := must.Get(w.AddInterface(texts.name, RawIP))(t)
		second := must.Get(w.AddInterface(texts.name, Ethernet))(t)

		ng := must.Get(pcapgo.NewNgWriterInterface(&want, pcapgo.NgInterface{Name: texts.name, LinkType: layers.LinkTypeRaw},
			pcapgo.NgWriterOptions{SectionInfo: pcapgo.NgSectionInfo{Application: texts.application, Comment: texts.comment}}))(t)
		must.Get(ng.AddInterface(pcapgo.NgInterface{Name: texts.name, LinkType: layers.LinkTypeEthernet}))(t)
		if first != 0 || second != 1 {
			t.Errorf("interfaces %d and %d", first, second)
		}
		for i := range 70 {
			p := Packet{Interface: i % 2, At: at.Add(time.Duration(i)), Bytes: bytes.Repeat([]byte{byte(i)}, i), Direction: Direction(i % 3)}
			var opts pcapgo.NgPacketOptions
			switch p.Direction {
			case Unknown:
			case Inbound:
				opts.Flags = &pcapgo.NgEpbFlags{Direction: pcapgo.NgEpbFlagDirectionInbound}
			case Outbound:
				opts.Flags = &pcapgo.NgEpbFlags{Direction: pcapgo.NgEpbFlagDirectionOutbound}
			}
			if i%5 > 0 {
				p.Comment = strings.Repeat("c", i)
				opts.Comments = []string{p.Comment}
			}
			must.Do(t, w.WritePacket(&p))
			info := gopacket.CaptureInfo{Timestamp: p.At, CaptureLength: i, Length: i, InterfaceIndex: p.Interface}
			must.Do(t, ng.WritePacketWithOptions(info, p.Bytes, opts))
		}
		must.Do(t, w.WriteStats(1, at, 35, 2))
		must.Do(t, ng.WriteInterfaceStats(1, pcapgo.NgInterfaceStatistics{LastUpdate: at, PacketsReceived: 35, PacketsDropped: 2}))
		must.Do(t, errors.Join(w.Flush(), ng.Flush()))
		if !bytes.Equal(got.Bytes(), want.Bytes()) {
			t.Errorf("%+v: the file differs:\n%x\nwant\n%x", texts, got.Bytes(), want.Bytes())
		}
	}
}

// failing is an io.Writer.
type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

func TestWriteErrorIsReported(t *testing.T) {
	full := errors.New("full")
	w := NewWriter(failing{full})
	must.Do(t, w.WriteSection("", "")) // it is in the buffer
	must.Fail(t, "WritePacket", w.WritePacket(&Packet{Bytes: make([]byte, 1<<16)}), full)
	must.Fail(t, "Flush", w.Flush(), full)
}
