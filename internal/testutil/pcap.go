package testutil

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// CapturedPacket is a packet of a capture file. Out and Comment are those of pcapng; Comment joins
// several comments by "\n".
type CapturedPacket struct {
	At      time.Time
	Link    layers.LinkType
	Data    []byte
	Out     bool
	Comment string
}

// IP returns the IP packet with the padding of its frame; ok is false if there is none.
func (p CapturedPacket) IP() (b []byte, ok bool) {
	switch p.Link {
	case layers.LinkTypeRaw:
		return p.Data, true
	case layers.LinkTypeEthernet:
		eth := new(layers.Ethernet)
		err := eth.DecodeFromBytes(p.Data, gopacket.NilDecodeFeedback)
		return eth.Payload, err == nil && (eth.EthernetType == layers.EthernetTypeIPv4 || eth.EthernetType == layers.EthernetTypeIPv6)
	}
	return nil, false
}

// ReadCaptureFile returns the packets of a pcap or pcapng file.
func ReadCaptureFile(t testing.TB, name string) []CapturedPacket {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return ReadCapture(t, f)
}

// ReadCapture returns the packets of a pcap or pcapng file.
func ReadCapture(t testing.TB, r io.Reader) (all []CapturedPacket) {
	t.Helper()
	next, err := openCapture(r)
	for err == nil {
		var p CapturedPacket
		if p, err = next(); err == nil {
			all = append(all, p)
		}
	}
	if !errors.Is(err, io.EOF) {
		t.Fatalf("capture, after %d packets: %v", len(all), err)
	}
	return all
}

// openCapture returns a function that reads the next packet of a file; io.EOF at its end.
func openCapture(r io.Reader) (next func() (CapturedPacket, error), err error) {
	in := bufio.NewReader(r)
	if magic, _ := in.Peek(1); len(magic) == 0 || magic[0] != 0x0a { // a section header of pcapng is 0a 0d 0d 0a
		f, err := pcapgo.NewReader(in)
		return func() (CapturedPacket, error) {
			data, info, err := f.ReadPacketData()
			return CapturedPacket{At: info.Timestamp, Link: f.LinkType(), Data: data}, err
		}, err
	}
	f, err := pcapgo.NewNgReader(in, pcapgo.NgReaderOptions{WantMixedLinkType: true})
	return func() (CapturedPacket, error) {
		data, info, opts, err := f.ReadPacketDataWithOptions()
		if err != nil {
			return CapturedPacket{}, err
		}
		intf, err := f.Interface(info.InterfaceIndex)
		out := opts.Flags != nil && opts.Flags.Direction == pcapgo.NgEpbFlagDirectionOutbound
		return CapturedPacket{info.Timestamp, intf.LinkType, data, out, strings.Join(opts.Comments, "\n")}, err
	}, err
}

// Conversation has the octets that the two ends of a TCP connection sent.
type Conversation struct{ Initiator, Responder []byte }

// ReadConversations returns the TCP connections of a capture file. The file must have every octet
// in order; retransmitted octets may occur twice.
func ReadConversations(t testing.TB, name string) (all []*Conversation) {
	t.Helper()
	type direction struct {
		sent *[]byte
		next uint32 // sequence number
	}
	directions := map[string]*direction{}
	for _, packet := range ReadCaptureFile(t, name) {
		p := gopacket.NewPacket(packet.Data, packet.Link, gopacket.Default)
		tcp, ok := p.Layer(layers.LayerTypeTCP).(*layers.TCP)
		if !ok {
			continue
		}
		net := p.NetworkLayer().NetworkFlow()
		src, dst := fmt.Sprint(net.Src(), tcp.SrcPort), fmt.Sprint(net.Dst(), tcp.DstPort)
		switch key := src + dst; {
		case tcp.SYN && !tcp.ACK:
			c := &Conversation{}
			all = append(all, c)
			directions[key] = &direction{&c.Initiator, tcp.Seq + 1}
			directions[dst+src] = &direction{sent: &c.Responder}
		case tcp.SYN:
			directions[key].next = tcp.Seq + 1
		case len(tcp.Payload) > 0:
			d := directions[key]
			seen := int32(d.next - tcp.Seq) // octets of this packet that earlier packets had
			if seen < 0 {
				t.Fatalf("%s: octets are missing before %d", name, tcp.Seq)
			}
			b := tcp.Payload[min(int(seen), len(tcp.Payload)):]
			*d.sent = append(*d.sent, b...)
			d.next += uint32(len(b))
		}
	}
	return all
}
