package work

import (
	"encoding/binary"
	"fmt"

	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/carrier"
)

// Spread is a number that ranks differ in.
type Spread struct {
	Mean float64 `json:"mean"`
	Most float64 `json:"most"`
}

// Kind is how much memory ranks had of a kind, at most.
type Kind struct {
	Name  string `json:"name"`
	Bytes Spread `json:"bytes"`
}

// Memory is the communication memory of the ranks of a world. What programs have is
// not in it.
type Memory struct {
	Ranks int    `json:"ranks"`
	Kinds []Kind `json:"kinds"`
	// Bytes are those of all kinds.
	Bytes Spread `json:"bytes"`
	// Connections are how many a rank had at once, and Rings how many peers could write
	// to it.
	Connections Spread `json:"connections"`
	Rings       Spread `json:"rings"`
	// LowWatermarks is how often shared receives ran low.
	LowWatermarks Spread `json:"low_watermarks"`
	// Messages is how many were sent in all, and Unexpected the share of them that came
	// before their receives.
	Messages   uint64  `json:"messages"`
	Unexpected float64 `json:"unexpected"`
}

// MemoryOf returns what the ranks of a world have used so far. All of them call it, and
// get the same. What it needs itself is not in it.
func MemoryOf(w *mpi.World) (Memory, error) {
	s := w.Stats()
	c, ok := s.Carrier.(carrier.Stats)
	if !ok {
		return Memory{}, fmt.Errorf("memory by kind: the carrier counts %T, not carrier.Stats", s.Carrier)
	}
	row := make([]uint64, 0, len(c.Memory.Max)+6)
	total := 0
	for _, n := range c.Memory.Max {
		row = append(row, uint64(n))
		total += n
	}
	sent := uint64(0)
	for _, way := range s.P2P.Sent {
		sent += way.Messages
	}
	row = append(row, uint64(total), uint64(c.MaxConnections), uint64(c.Rings), c.LowWatermark, sent, s.P2P.Unexpected)
	mine := make([]byte, 0, 8*len(row))
	for _, x := range row {
		mine = binary.LittleEndian.AppendUint64(mine, x)
	}
	all := make([]byte, len(mine)*w.Size())
	if err := w.Allgather(mine, all); err != nil {
		return Memory{}, err
	}
	return memoryOf(all, len(row), len(c.Memory.Max)), nil
}

// memoryOf is what rows of all ranks come to.
func memoryOf(all []byte, columns, kinds int) Memory {
	ranks := len(all) / (8 * columns)
	spreads, sums := make([]Spread, columns), make([]uint64, columns)
	for i := 0; i < len(all); i += 8 {
		x, column := binary.LittleEndian.Uint64(all[i:]), i/8%columns
		sums[column] += x
		spreads[column].Most = max(spreads[column].Most, float64(x))
	}
	for i := range spreads {
		spreads[i].Mean = float64(sums[i]) / float64(ranks)
	}
	m := Memory{Ranks: ranks}
	for k := range kinds {
		m.Kinds = append(m.Kinds, Kind{carrier.Memory(k).String(), spreads[k]})
	}
	m.Bytes, m.Connections, m.Rings, m.LowWatermarks = spreads[kinds], spreads[kinds+1], spreads[kinds+2], spreads[kinds+3]
	m.Messages = sums[kinds+4]
	if m.Messages > 0 {
		m.Unexpected = float64(sums[kinds+5]) / float64(m.Messages)
	}
	return m
}

// Start runs a program as all ranks of a world, and returns when they have ended. The
// program's results may be of any rank.
type Start func(ranks int, o mpi.Options, program func(*mpi.World) error) error

// MemoryPoint is what a workload needed with a design, and some ranks.
type MemoryPoint struct {
	Workload string         `json:"workload"`
	Design   carrier.Design `json:"design"`
	Memory
}

// MemoryPattern is a workload that memory is measured of.
type MemoryPattern struct {
	Workload string
	Params   Params
}

// MemoryPatterns are those whose curves are published: partners that are always the
// same, partners that grow with the logarithm of the ranks, and all ranks. With
// these come those of barriers and reductions, a logarithm of the ranks too.
func MemoryPatterns() []MemoryPattern {
	return []MemoryPattern{
		{"neighbours", Params{Iterations: 40}},
		{"cg", Params{}},
		{"alltoall", Params{Iterations: 20, Bytes: 1 << 10}}, // too large to go by way of others
		{"radix", Params{Class: ClassS, Iterations: 1}},
		{"smg", Params{Iterations: 4}},
	}
}

// MemoryCurves runs patterns with every design and number of ranks that they can have,
// each in a world of its own. Of the options, designs are replaced.
func MemoryCurves(start Start, o mpi.Options, patterns []MemoryPattern, designs []carrier.Design, ranks []int) ([]MemoryPoint, error) {
	var points []MemoryPoint
	for _, p := range patterns {
		wl, err := Find(p.Workload)
		if err != nil {
			return nil, err
		}
		for _, design := range designs {
			o.Carrier.Design = design
			for _, n := range ranks {
				if wl.Check(n, p.Params) != nil {
					continue
				}
				point := MemoryPoint{Workload: p.Workload, Design: design}
				err := start(n, o, func(w *mpi.World) error {
					if _, err := wl.Run(w, p.Params); err != nil {
						return err
					}
					m, err := MemoryOf(w)
					if w.Rank() == 0 {
						point.Memory = m
					}
					return err
				})
				if err != nil {
					return nil, fmt.Errorf("%s with %s on %d ranks: %w", p.Workload, design, n, err)
				}
				points = append(points, point)
			}
		}
	}
	return points, nil
}

// ThesisMemory is how a connection is equipped in Thesis §6.6.2: with 95 receives of 8 KB,
// about 800 KB.
func ThesisMemory() carrier.Config {
	return carrier.Config{Packet: 8 << 10, Receives: 95}
}

// SurveyMemory is how the designs of Survey are equipped: a ring of 64 packets of 8 KB, about
// 500 KB, for every peer that 16 packets have come from, 64 receives of connections that
// have their own, and as many shared ones as 5 MB have room for with everything else.
// Patterns run for long enough to have rings; with more than a hundred ranks that talk to
// all, a world needs less patience with an After of 2 and fewer iterations.
func SurveyMemory() carrier.Config {
	return carrier.Config{
		Packet: 8 << 10, Receives: 64, SharedReceives: 384,
		Ring: carrier.Ring{Slots: 64, Slot: 8 << 10, After: 16, Peers: 1 << 10},
	}
}
