package work

import (
	"encoding/binary"
	"fmt"

	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/memory"
)

// Spread is the mean and the maximum of a number over ranks.
type Spread struct {
	Mean float64 `json:"mean"`
	Most float64 `json:"most"`
}

// Kind is the largest size of a kind of memory.
type Kind struct {
	Name  string `json:"name"`
	Bytes Spread `json:"bytes"`
}

// Memory is the communication memory of the ranks of a world, without that of the programs.
type Memory struct {
	Ranks int    `json:"ranks"`
	Kinds []Kind `json:"kinds"`
	// Bytes is the sum of all kinds.
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

// MemoryOf returns the memory of the ranks of a world so far, or of rank 0 alone. All ranks
// call it and get the same; the memory that the call itself needs is not included.
func MemoryOf(w *mpi.World, rank0Only bool) (Memory, error) {
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

// combineMemory computes the means and maximums of the rows of ranks, which have a number for each
// kind of memory and those that MemoryOf appends.
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
