package impair

import (
	"encoding/binary"
	"errors"
	"hash/fnv"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/internal/must"
)

// toy dissects a protocol of nine bytes: flow, sequence number, a field, their
// sum.
type toy struct{}

func toyPacket(flow byte, seq uint32, field byte) []byte {
	b := binary.BigEndian.AppendUint32([]byte{flow}, seq)
	b = append(b, field, 0)
	return toySeal(b)
}

func toySeal(b []byte) []byte {
	sum := byte(0)
	for _, x := range b[:6] {
		sum += x
	}
	b[6] = sum
	return b
}

func toyIntact(b []byte) bool {
	return len(b) == 7 && string(toySeal(append([]byte(nil), b...))) == string(b)
}

func (toy) Dissect(b []byte) (Flow, uint32, bool) {
	if len(b) != 7 {
		return 0, 0, false
	}
	return Flow(b[0]), binary.BigEndian.Uint32(b[1:]), true
}

var errNoField = errors.New("no such field")

func (toy) SetField(d *link.Datagram, field string, v uint64) error {
	if field != "field" {
		return errNoField
	}
	d.Payload[5] = byte(v)
	toySeal(d.Payload)
	return nil
}

func datagram(payload []byte) *link.Datagram {
	return &link.Datagram{
		Src:     netip.MustParseAddrPort("10.0.0.1:50000"),
		Dst:     netip.MustParseAddrPort("10.0.0.2:4791"),
		TClass:  link.ECT0,
		Payload: payload,
	}
}

// sources returns a seeded stream for each name.
func sources(seed uint64) func(string) Source {
	return func(kind string) Source {
		h := fnv.New64a()
		_, _ = h.Write([]byte(kind))
		return rand.NewPCG(seed, h.Sum64())
	}
}

func pipe(t testing.TB, cfg Config) *Pipe {
	t.Helper()
	p := must.Get(NewPipe(cfg, toy{}, sources(1)))(t)
	return p
}

func specPipe(t testing.TB, s Spec) *Pipe { return pipe(t, Config{Specs: []Spec{s}}) }

// feed applies a Pipe to n packets, a microsecond apart, numbered by sequence
// number, and returns the output of each.
func feed(p *Pipe, n int) [][]Outcome {
	all := make([][]Outcome, n)
	for i := range all {
		all[i] = p.Apply(mono.Time(i*1000), datagram(toyPacket(1, uint32(i), 0)), nil)
		for j := range all[i] { // the payload is valid only until the next Apply
			d := &all[i][j].Datagram
			d.Payload = append([]byte(nil), d.Payload...)
		}
	}
	return all
}

func share(t *testing.T, what string, got, of int, ppm, tolerancePPM int) {
	t.Helper()
	if x := int(int64(got) * PPM / int64(of)); x < ppm-tolerancePPM || x > ppm+tolerancePPM {
		t.Errorf("%s: %d ppm, want %d within %d", what, x, ppm, tolerancePPM)
	}
}
