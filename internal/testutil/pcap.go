package testutil

import (
	"bufio"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// CapturedPacket is a packet of a capture file. Out and Comment are those of pcapng; Comment joins several comments by "\n".
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
