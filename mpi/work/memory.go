package work

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/memory"
)

// Spread is the mean and the maximum of a number over ranks.
type Spread struct {
	Mean float64 `json:"mean"`
	Most float64 `json:"most"`
}

// Kind is the peak memory of one kind.
type Kind struct {
	Name  string `json:"name"`
	Bytes Spread `json:"bytes"`
}

// Memory is the peak communication memory of the ranks of a world, without that of the programs.
type Memory struct {
	Ranks int    `json:"ranks"`
	Kinds []Kind `json:"kinds"`
	// Bytes is the sum of the peaks of all kinds.
	Bytes Spread `json:"bytes"`
	// Connections is the largest number of connections of a rank, and Rings the number of
	// rings that peers write to.
	Connections Spread `json:"connections"`
	Rings       Spread `json:"rings"`
	// LowWatermarks is how often shared receives reached the low watermark.
	LowWatermarks Spread `json:"low_watermarks"`
	// Messages is the number of messages sent, and Unexpected the share of them that
	// arrived before their receives.
	Messages   uint64  `json:"messages"`
	Unexpected float64 `json:"unexpected"`
}

// MemoryOf returns the peak memory of the ranks of a world, or of rank 0 alone. It also returns
// their numbers of connections, receive rings and messages, and how often an SRQ reached its low
// watermark. Its own messages do not count. It is collective, and all ranks get the same result.
func MemoryOf(w *mpi.World, rank0Only bool) (Memory, error) {
	s := w.Stats()
	c, ok := s.Carrier.(carrier.Stats)
	if !ok {
		return Memory{}, fmt.Errorf("memory by kind: the carrier counts %T, not carrier.Stats", s.Carrier)
	}
	var row []uint64
	total := 0
	for _, n := range c.Memory.Max {
		row = append(row, uint64(n))
		total += n
	}
	sent := uint64(0)
	for _, protocol := range s.P2P.Sent {
		sent += protocol.Messages
	}
	row = append(row, uint64(total), uint64(c.MaxConnections), uint64(c.Rings), c.LowWatermark, sent, s.P2P.Unexpected)
	mine, err := binary.Append(nil, binary.LittleEndian, row)
	if err != nil {
		return Memory{}, err
	}
	var all []byte
	if rank0Only {
		all, err = mine, w.Bcast(mine, 0)
	} else {
		all = make([]byte, len(mine)*w.Size())
		err = w.Allgather(mine, all)
	}
	if err != nil {
		return Memory{}, err
	}
	m := combineMemory(all, len(row), len(c.Memory.Max))
	m.Ranks = w.Size()
	return m, nil
}

// combineMemory computes means and maximums over ranks. all has a row for each rank: a number for
// each kind of memory, and those that MemoryOf appends. columns is the length of a row.
func combineMemory(all []byte, columns, kinds int) Memory {
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
	m := Memory{}
	for k := range kinds {
		m.Kinds = append(m.Kinds, Kind{memory.Kind(k).String(), spreads[k]})
	}
	m.Bytes, m.Connections, m.Rings, m.LowWatermarks = spreads[kinds], spreads[kinds+1], spreads[kinds+2], spreads[kinds+3]
	m.Messages = sums[kinds+4]
	if m.Messages > 0 {
		m.Unexpected = float64(sums[kinds+5]) / float64(m.Messages)
	}
	return m
}

// MemoryPoint is the memory of a workload with a design and a number of ranks.
type MemoryPoint struct {
	Workload string         `json:"workload"`
	Design   carrier.Design `json:"design"`
	// Rank0Only means that the values are those of rank 0 alone.
	Rank0Only bool `json:"one,omitempty"`
	Memory
}

// MemoryPattern is a workload whose memory is measured.
type MemoryPattern struct {
	Workload string
	Params   Params
	// MaxRanks limits the number of ranks: connections between all ranks exceed one machine
	// long before those of one rank do. 0: no limit.
	MaxRanks int
	// Rank0Only measures rank 0 alone.
	Rank0Only bool
}

// maxAllToAllRanks is the largest number of ranks for all-to-all patterns, as published. Beyond,
// star shows the memory of one rank.
const maxAllToAllRanks = 64

// MemoryPatterns returns the communication patterns for which papers publish the memory per rank by
// the number of ranks: a constant number of partners (neighbours), a logarithmic one (cg), and all
// ranks, of every rank or, in star, of rank 0 alone.
func MemoryPatterns() []MemoryPattern {
	return []MemoryPattern{
		{Workload: "neighbours", Params: Params{Iterations: 20}},
		{Workload: "cg"},
		{Workload: "alltoall", Params: Params{Iterations: 20, Bytes: 1 << 10}, MaxRanks: maxAllToAllRanks}, // 1 KiB is too large for Bruck's algorithm: each rank sends to all
		{Workload: "radix", Params: Params{Class: ClassS, Iterations: 1}, MaxRanks: maxAllToAllRanks},
		{Workload: "smg", Params: Params{Iterations: 4}, MaxRanks: maxAllToAllRanks},
		{Workload: "star", Params: Params{Iterations: 20}, Rank0Only: true},
	}
}

// MemoryRun is one run of a measurement.
type MemoryRun struct {
	MemoryPattern
	Design carrier.Design
	Ranks  int
}

func (r *MemoryRun) String() string {
	return fmt.Sprintf("%s with %s on %d ranks", r.Workload, r.Design, r.Ranks)
}

// Measure runs the workload in a new world with the run's design (its transports between hosts),
// and returns the memory that its ranks have used. start runs a program as all ranks of a world
// until they have ended.
func (r *MemoryRun) Measure(start func(ranks int, o mpi.Options, program func(*mpi.World) error) error, o mpi.Options) (MemoryPoint, error) {
	point := MemoryPoint{Workload: r.Workload, Design: r.Design, Rank0Only: r.Rank0Only}
	wl, err := Find(r.Workload)
	if err != nil {
		return point, err
	}
	o.Carrier.Design = r.Design
	err = start(r.Ranks, o, func(w *mpi.World) error {
		if _, err := wl.Run(w, r.Params); err != nil {
			return err
		}
		m, err := MemoryOf(w, r.Rank0Only)
		if w.Rank() == 0 {
			point.Memory = m
		}
		return err
	})
	if err != nil {
		return point, fmt.Errorf("%v: %w", r, err)
	}
	return point, nil
}

// Configurations and experiments of published measurements, for comparison.

// RashtiMemory is that of Rashti 2010 §6.6.2: 95 receives of 8 KB per connection, about 800 KB.
func RashtiMemory() carrier.Config {
	return carrier.Config{PacketSize: 8 << 10, Receives: 95}
}

// SurMemory is the configuration of Sur 2006: a peer gets a ring of 64 packets of 8 KB, about
// 500 KB, and without SRQ a connection has 64 receives (§3.2). The receives of an SRQ and the
// packets from a peer before it gets a ring were not published, and are the defaults.
func SurMemory() carrier.Config {
	return carrier.Config{
		PacketSize: 8 << 10, Receives: 64,
		Ring: carrier.Ring{Slots: 64, SlotSize: 8 << 10, Peers: 1 << 10},
	}
}

// MemoryExperiment is a memory measurement.
type MemoryExperiment struct {
	Name     string
	Config   carrier.Config
	Patterns []MemoryPattern
	Designs  []carrier.Design
	Ranks    []int // published numbers of ranks; nil: any
}

// Names of the experiments.
const (
	MemoryByRanks  = "curves" // all designs against the number of ranks
	MemoryOfRashti = "thesis" // connections and datagrams (Rashti 2010 Table 6.1)
	MemoryOfSur    = "survey" // rings, and shared receives (Sur 2006 Table 1 and Fig. 4)
)

// MemoryExperiments returns the experiments: memory by the number of ranks, with the receives of
// RashtiMemory and the rings of SurMemory, and those published in Rashti 2010 and Sur 2006.
func MemoryExperiments() []MemoryExperiment {
	byRanks := SurMemory()
	byRanks.Receives = RashtiMemory().Receives
	return []MemoryExperiment{
		{Name: MemoryByRanks, Config: byRanks, Patterns: MemoryPatterns(), Designs: carrier.Designs()},
		{
			Name: MemoryOfRashti, Config: RashtiMemory(), Designs: []carrier.Design{carrier.SendRecv, carrier.UD}, Ranks: []int{4, 16, 64},
			Patterns: []MemoryPattern{
				{Workload: "cg"},
				{Workload: "mg"},
				{Workload: "lu"},
				{Workload: "smg", Params: Params{Iterations: 4}},
				{Workload: "radix", Params: Params{Class: ClassS, Iterations: 1}},
			},
		},
		{
			Name: MemoryOfSur, Config: SurMemory(), Designs: []carrier.Design{carrier.RingSendRecv, carrier.RingSRQ, carrier.SRQ}, Ranks: []int{64},
			Patterns: []MemoryPattern{
				{Workload: "is", Params: Params{Class: ClassS}},
				{Workload: "ft", Params: Params{Class: ClassS}},
				{Workload: "bt", Params: Params{Class: ClassW, Iterations: 4}},
				{Workload: "sp", Params: Params{Class: ClassW, Iterations: 4}},
				{Workload: "cg"},
				{Workload: "mg", Params: Params{Class: ClassS}},
				{Workload: "lu"},
				{Workload: "superlu", Params: Params{Class: ClassS}},
				{Workload: "hpl", Params: Params{Class: ClassS}},
			},
		},
	}
}

// Runs returns the runs of the experiment: each workload with each number in ranks and each design. It
// leaves out numbers of ranks that the workload does not permit or that exceed its MaxRanks. If e.Ranks
// is set, the numbers of a publication, it leaves out all others.
func (e *MemoryExperiment) Runs(ranks []int) (runs []MemoryRun, err error) {
	for _, p := range e.Patterns {
		wl, err := Find(p.Workload)
		if err != nil {
			return nil, err
		}
		for _, n := range ranks {
			if e.Ranks != nil && !slices.Contains(e.Ranks, n) || wl.Check(n, p.Params) != nil || p.MaxRanks > 0 && n > p.MaxRanks {
				continue
			}
			for _, d := range e.Designs {
				runs = append(runs, MemoryRun{p, d, n})
			}
		}
	}
	return runs, nil
}
