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

// MemoryOf returns what the ranks of a world have used so far, or what rank 0 alone has.
// All of them call it, and get the same. What it needs itself is not in it.
func MemoryOf(w *mpi.World, one bool) (Memory, error) {
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
	var all []byte
	var err error
	if one {
		all, err = mine, w.Bcast(mine, 0)
	} else {
		all = make([]byte, len(mine)*w.Size())
		err = w.Allgather(mine, all)
	}
	if err != nil {
		return Memory{}, err
	}
	m := memoryOf(all, len(row), len(c.Memory.Max))
	m.Ranks = w.Size()
	return m, nil
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
	m := Memory{}
	for k := range kinds {
		m.Kinds = append(m.Kinds, Kind{carrier.MemoryKind(k).String(), spreads[k]})
	}
	m.Bytes, m.Connections, m.Rings, m.LowWatermarks = spreads[kinds], spreads[kinds+1], spreads[kinds+2], spreads[kinds+3]
	m.Messages = sums[kinds+4]
	if m.Messages > 0 {
		m.Unexpected = float64(sums[kinds+5]) / float64(m.Messages)
	}
	return m
}
