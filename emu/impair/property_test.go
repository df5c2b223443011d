package impair

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/internal/must"
)

// randomConfig returns a random valid config.
func randomConfig(r *rand.Rand) Config {
	ppm := func() uint32 {
		if r.IntN(2) == 0 {
			return 0
		}
		return r.Uint32N(PPM + 1)
	}
	span := func() time.Duration { return time.Duration(r.IntN(3) * r.IntN(5000)) }
	var cfg Config
	for range r.IntN(3) {
		s := Spec{
			LossPPM: ppm() / 2, DuplicatePPM: ppm(), DuplicateDelay: span(), ReorderPPM: ppm(), ReorderDelay: span() + 1,
			Delay: span(), Jitter: span(), KeepOrder: r.IntN(2) == 0, CorruptPPM: ppm(), TruncatePPM: ppm(), MarkPPM: ppm(),
			From: mono.Time(r.IntN(100_000)),
		}
		if r.IntN(2) == 0 {
			s.RateBps, s.QueueBytes = 1+r.Uint64N(1e9), 1+r.IntN(2000)
		}
		if r.IntN(2) == 0 {
			s.Burst = GilbertElliott{ToBadPPM: ppm(), ToGoodPPM: ppm(), LossBadPPM: 1 + ppm()/2, LossGoodPPM: ppm() / 2}
		}
		cfg.Specs = append(cfg.Specs, s)
	}
	kinds := []ActionKind{Drop, Duplicate, Delay, Reorder, CorruptBit, Truncate, SetECN, SetField}
	for range r.IntN(6) {
		e := Event{Action: Action{
			Kind: kinds[r.IntN(len(kinds))], Count: r.IntN(4), Delay: span() + 1, Bit: r.IntN(80) - 40,
			Bytes: r.IntN(9), ECN: uint8(r.IntN(4)), Field: []string{"field", "nosuch"}[r.IntN(2)],
		}}
		switch r.IntN(3) {
		case 0:
			e.Match.Nth = new(1 + r.Uint64N(50))
		case 1:
			e.Match.Seq, e.Occurrence = new(r.Uint32N(20)), r.IntN(4)
		case 2:
			e.Match.Flow, e.Occurrence = new(Flow(r.IntN(3))), r.IntN(40)
		}
		cfg.Events = append(cfg.Events, e)
	}
	return cfg
}

// checkPipe runs a random config and checks the invariants of all configs.
func checkPipe(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 0))
	p, err := NewPipe(randomConfig(r), toy{}, sources(seed))
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	now, emitted, held := mono.Time(0), 0, 0
	check := func(out []Outcome) {
		emitted += len(out)
		for _, o := range out {
			if o.Delay < 0 || len(o.Datagram.Payload) > 7 {
				t.Fatalf("seed %d: outcome %+v", seed, o)
			}
		}
	}
	for range 200 {
		now += mono.Time(r.IntN(2000))
		if p.NextTimer() <= now {
			check(p.HandleTimer(now, nil))
		}
		mine := toyPacket(byte(r.IntN(3)), r.Uint32N(20), byte(r.IntN(256)))
		before := bytes.Clone(mine)
		check(p.Apply(now, datagram(mine), nil))
		if !bytes.Equal(mine, before) {
			t.Fatalf("seed %d: the caller's bytes were changed", seed)
		}
	}
	held = len(p.held)
	if p.NextTimer() != mono.Never {
		check(p.HandleTimer(mono.Never-1, nil))
		held = len(p.held)
	}
	c := p.Counters()
	in := int(c.Offered + c.Duplicated)
	dropped := int(c.Lost + c.LostInBurst + c.Overflowed + c.EventsDropped)
	if held != 0 || in-dropped != emitted || c.Emitted != uint64(emitted) {
		t.Fatalf("seed %d: %d in, %d lost, %d held, but %d out: %+v", seed, in, dropped, held, emitted, c)
	}
	if (c.EventsFailed > 0) != (p.Err() != nil) {
		t.Fatalf("seed %d: %d events failed, Err %v", seed, c.EventsFailed, p.Err())
	}
}

func TestEveryPacketIsCounted(t *testing.T) {
	for seed := range uint64(300) {
		checkPipe(t, seed)
	}
}

func BenchmarkTransparent(b *testing.B) {
	p := specPipe(b, Spec{})
	d := datagram(make([]byte, 1024))
	var out []Outcome
	b.ReportAllocs()
	for b.Loop() {
		out = p.Apply(0, d, out[:0])
	}
}

func BenchmarkLossy(b *testing.B) {
	p := specPipe(b, Spec{LossPPM: 1000, DuplicatePPM: 1000, ReorderPPM: 1000, ReorderDelay: 1000, Jitter: 1000})
	d := datagram(make([]byte, 1024))
	var out []Outcome
	b.ReportAllocs()
	for b.Loop() {
		out = p.Apply(0, d, out[:0])
	}
}

// toy dissects packets of 7 bytes: flow, sequence number (4 bytes), a field, and their sum.
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

var (
	source      = netip.MustParseAddrPort("10.0.0.1:50000")
	destination = netip.MustParseAddrPort("10.0.0.2:4791")
)

func datagram(payload []byte) *link.Datagram {
	return &link.Datagram{Src: source, Dst: destination, TClass: link.ECT0, Payload: payload}
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
