package work_test

import (
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/mpi/work"
)

// profile is the messages of all ranks of a run, without empty ones.
type profile struct {
	sizes      [40]uint64 // of messages, by powers of two
	messages   uint64
	unexpected uint64
	partners   int // of the rank with most
}

// below is the share of messages smaller than a power of two.
func (p *profile) below(power int) float64 {
	n := uint64(0)
	for _, k := range p.sizes[1 : power+1] {
		n += k
	}
	return float64(n) / float64(p.messages)
}

func profileOf(t *testing.T, name string, class work.Class, ranks int) *profile {
	t.Helper()
	wl := must.Get(work.Find(name))(t)
	p := &profile{}
	o := mpi.Options{Carrier: carrier.Config{Design: carrier.SRQ}}
	o.OnFinalize = func(_ int, s mpi.Stats) {
		for _, protocol := range []p2p.SendProtocol{p2p.Eager, p2p.Rendezvous} {
			for power, n := range s.P2P.Sent[protocol].BySize {
				if power > 0 {
					p.sizes[power] += n
					p.messages += n
				}
			}
		}
		p.unexpected += s.P2P.Unexpected
		p.partners = max(p.partners, s.Carrier.(carrier.Stats).MaxConnections)
	}
	if _, _, err := inWorld(mpihost.Fabric{Ranks: ranks, Limit: time.Minute}, o, wl, work.Params{Class: class, Iterations: 2}); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return p
}

// Workloads have the message sizes, partners and unexpected messages that papers report of
// their models.
func TestCommunicationPatternsMatchPapers(t *testing.T) {
	const ranks = 16
	all := ranks - 1
	for _, c := range []struct {
		name  string
		class work.Class
		is    string
		holds func(p *profile) bool
	}{
		{"cg", work.ClassS, "most messages are of 8 bytes, and partners are less than two thirds", func(p *profile) bool {
			return float64(p.sizes[4])/float64(p.messages) > 0.5 && p.partners < all*2/3
		}},
		{"lu", work.ClassT, "nearly all messages are small edges, and many are unexpected", func(p *profile) bool {
			return p.below(8) > 0.8 && float64(p.unexpected)/float64(p.messages) > 0.1
		}},
		{"bt", work.ClassT, "messages are whole faces, and hardly any is unexpected", func(p *profile) bool {
			return p.below(7) < 0.2 && float64(p.unexpected)/float64(p.messages) < 0.05
		}},
		{"ft", work.ClassS, "nearly all messages are large", func(p *profile) bool { return p.below(14) < 0.1 && p.partners == all }},
		{"superlu", work.ClassS, "94 % and more are below 2 KB, but not all", func(p *profile) bool { return p.below(11) > 0.94 && p.below(11) < 1 }},
		{"radix", work.ClassT, "every rank has all others as partners", func(p *profile) bool { return p.partners == all }},
		{"smg", work.ClassT, "every rank has all others as partners", func(p *profile) bool { return p.partners == all }},
		{"sp", work.ClassT, "messages are whole faces, and hardly any is unexpected", func(p *profile) bool {
			return p.below(7) < 0.2 && float64(p.unexpected)/float64(p.messages) < 0.05
		}},
		{"mg", work.ClassT, "partners are neighbours on a torus and those of sums, and sizes of all levels occur", func(p *profile) bool {
			return p.partners <= 6+4 && p.below(7) > 0.1 && p.below(10) < 1 && p.sizes[8] > 0 && p.sizes[9] > 0
		}},
		{"is", work.ClassT, "every rank has all others as partners", func(p *profile) bool { return p.partners == all }},
		{"nbody", work.ClassT, "particles move along a ring: partners are two and those of sums", func(p *profile) bool { return p.partners <= 2+2*4 && p.below(8) < 0.4 }},
		{"hpl", work.ClassT, "partners are the row and the column, and more than half of all messages are small", func(p *profile) bool {
			return p.partners < all*2/3 && p.below(7) > 0.5
		}},
		{"amg", work.ClassT, "messages are between 8 bytes and 4 KB", func(p *profile) bool { return p.below(3) == 0 && p.below(12) == 1 }},
	} {
		if p := profileOf(t, c.name, c.class, ranks); !c.holds(p) {
			t.Errorf("%s: want that %s: %+v", c.name, c.is, p)
		}
	}
}
