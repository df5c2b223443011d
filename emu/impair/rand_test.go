package impair

import (
	"slices"
	"testing"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/internal/must"
)

// The stream of a seed and a name never changes: recorded runs depend on it.
func TestNewRandIsStable(t *testing.T) {
	r := NewRand(7, "rail0/host0/rdma0/up/0/loss")
	if got := []uint64{r.Uint64(), r.Uint64()}; !slices.Equal(got, []uint64{0xf81d901fbc44f0ca, 0x3ebace2a64de36f7}) {
		t.Errorf("%#x", got)
	}
	if NewRand(7, "a").Uint64() == NewRand(8, "a").Uint64() || NewRand(7, "a").Uint64() == NewRand(7, "b").Uint64() {
		t.Error("seed and name both matter")
	}
	if got, want := RandSources(7, "rail0/host0/rdma0/up")("0/loss").Uint64(), NewRand(7, "rail0/host0/rdma0/up/0/loss").Uint64(); got != want {
		t.Errorf("Streams names them otherwise: %#x, not %#x", got, want)
	}
}

// lossesOf applies a Pipe to n packets and returns which were dropped.
func lossesOf(p *Pipe, n int) (lost []int) {
	for i := range n {
		if len(p.Apply(mono.Time(i), &link.Datagram{Payload: []byte{1, 2, 3}}, nil)) == 0 {
			lost = append(lost, i)
		}
	}
	return lost
}

// A Spec that is set again continues its random stream.
func TestSetSpecsContinuesStreams(t *testing.T) {
	spec := []Spec{{LossPPM: 300_000}}
	cfg := Config{Specs: spec, Events: []Event{{Match: Match{Nth: new(uint64(120))}, Action: Action{Kind: Truncate, Bytes: 1}}}}
	whole, _ := NewPipe(cfg, nil, RandSources(1, "x"))
	want := lossesOf(whole, 100)
	want2 := lossesOf(whole, 100)

	p := must.Get(NewPipe(cfg, nil, RandSources(1, "x")))(t)
	if got := lossesOf(p, 100); !slices.Equal(got, want) {
		t.Errorf("lost %v, want %v", got, want)
	}
	must.Do(t, p.SetSpecs(nil))
	if got := lossesOf(p, 50); len(got) != 0 || !slices.Equal(p.Fired(), []uint64{1}) {
		t.Errorf("lost %v of a pipe without loss; the event fired %v", got, p.Fired())
	}
	must.Do(t, p.SetSpecs(spec))
	if got := lossesOf(p, 100); !slices.Equal(got, want2) {
		t.Errorf("lost %v after it was put back, want %v", got, want2)
	}
	if c := p.Counters(); c.Lost != uint64(len(want)+len(want2)) || c.Offered != 250 {
		t.Errorf("%+v", c)
	}
	if err := p.SetSpecs([]Spec{{LossPPM: PPM + 1}}); err == nil {
		t.Error("nonsense was taken")
	}
}
