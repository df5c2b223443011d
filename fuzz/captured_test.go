package fuzz_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/fabrictest/fabrictest/conformance/packet"
	"github.com/fabrictest/fabrictest/internal/must"
)

// captured calls f with what IP carries in the packets of captures, which Linux's
// own drivers made, and with its protocol.
func captured(t testing.TB, pattern string, f func(file string, protocol uint8, payload []byte)) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no captures at %s: %v", pattern, err)
	}
	for _, name := range files {
		r := must.Get(os.Open(name))(t)
		all, err := packet.ReadCapture(r)
		_ = r.Close()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, c := range all {
			b, ok := c.IP()
			if !ok {
				continue
			}
			if h, payload, _, err := packet.ParseIP(b); err == nil {
				f(name, *h.Protocol, payload)
			}
		}
	}
}

// capturedStreams have one side of captured iWARP connections, and then the other,
// be what is said to a device.
func capturedStreams(t testing.TB, add func([]byte)) {
	sides := map[string][]byte{}
	captured(t, "../emu/iwarp/wire/testdata/*.pcap", func(file string, protocol uint8, b []byte) {
		if protocol != packet.ProtocolTCP || len(b) < 20 || len(b) <= int(b[12]>>4)*4 {
			return
		}
		side := file + string(b[:2])
		if sides[side] == nil {
			sides[side] = []byte{byte(len(sides) & 1)}
		}
		for data := b[int(b[12]>>4)*4:]; len(data) > 0; {
			n := min(len(data), 255)
			sides[side] = append(append(sides[side], sayAnything, byte(n)), data[:n]...)
			data = data[n:]
		}
	})
	for _, side := range slices.Sorted(maps.Keys(sides)) {
		add(sides[side][:min(len(sides[side]), maxProgram)])
	}
}

// capturedPackets have captured RoCE packets be what a hostile one injects.
func capturedPackets(t testing.TB, add func([]byte)) {
	seen := map[byte]int{} // by opcode
	captured(t, "../emu/softroce/wire/testdata/rxe*.pcap", func(_ string, protocol uint8, b []byte) {
		if protocol != packet.ProtocolUDP || len(b) < 8+16 || len(b) > 8+600 {
			return
		}
		b = b[8:]
		if seen[b[0]]++; seen[b[0]] > 3 {
			return
		}
		seed := append([]byte{4, 3, 0, 3, 6, pathInject, byte(len(b) >> 8), byte(len(b))}, b...)
		add(seed)
	})
}
