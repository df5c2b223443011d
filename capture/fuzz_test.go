package capture

import (
	"bytes"
	"io"
	"testing"

	"github.com/gopacket/gopacket/layers"

	iwarp "github.com/fabrictest/fabrictest/emu/iwarp/wire"
)

// readAll reads a capture to its end, formats all headers and summaries, and returns
// the number of packets.
func readAll(t *testing.T, file []byte) int {
	s, err := Open(bytes.NewReader(file))
	if err != nil {
		return 0
	}
	n := 0
	for {
		p, err := s.Next()
		if err != nil {
			if err != io.EOF && err.Error() == "" {
				t.Fatal("an error without words")
			}
			if _, again := s.Next(); again != err {
				t.Fatalf("after %v: %v", err, again)
			}
			break
		}
		if n++; p.Number != n || p.Protocol == "" {
			t.Fatalf("packet %d is number %d of protocol %q", n, p.Number, p.Protocol)
		}
		if p.Truncated() < 0 {
			t.Fatalf("packet %d: %d of %d bytes", n, len(p.Data), p.Length)
		}
		p.Headers()
		for i := range p.PDUs {
			d := &p.PDUs[i]
			if d.Op() == "" || d.PayloadLen() < 0 {
				t.Fatalf("packet %d: op %q, payload of %d", n, d.Op(), d.PayloadLen())
			}
			_, _ = d.Summary(), d.Aliases()
		}
		if s.outOfOrderLen < 0 || s.outOfOrderLen > maxOutOfOrderTotal+maxPacketLen {
			t.Fatalf("packet %d: %d octets are held", n, s.outOfOrderLen)
		}
	}
	return n
}

func FuzzFile(f *testing.F) {
	f.Add(pcapngOf(f))
	f.Add(bigEndian())
	f.Add(pcapOf(f, layers.LinkTypeRaw, roce(request(4, 1, 10)), roce(request(4, 2, 11))))
	f.Fuzz(func(t *testing.T, b []byte) { readAll(t, b) })
}

func FuzzPackets(f *testing.F) {
	for _, framing := range []iwarp.Framing{{}, {CRC: true, Markers: true}} {
		frames, _ := connection(framing, []int{1, 100, 700}, 300)
		var b []byte
		for _, one := range frames {
			b = append(b, byte(len(one.data)>>8), byte(len(one.data)))
			b = append(b, one.data...)
		}
		f.Add(uint16(LinkRaw), uint16(0), b)
		f.Add(uint16(LinkRaw), uint16(90), b)
	}
	one := roce(request(4, 1, 10)).data
	f.Add(uint16(LinkEthernet), uint16(0), append([]byte{0, byte(len(one))}, one...))
	// Packets with a 2-octet length prefix each.
	f.Fuzz(func(t *testing.T, link, snap uint16, b []byte) {
		var frames []frame
		for len(b) >= 2 && len(frames) < 200 {
			n := min(int(b[0])<<8|int(b[1]), len(b)-2)
			data := b[2 : 2+n]
			b = b[2+n:]
			one := frame{data: data, length: len(data)}
			if snap > 0 {
				one.data = data[:min(len(data), int(snap))]
			}
			frames = append(frames, one)
		}
		if n := readAll(t, pcapOf(t, layers.LinkType(link), frames...)); n != len(frames) {
			t.Fatalf("%d of %d packets", n, len(frames))
		}
	})
}
