package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/perf"
)

// collective is one rank's part of the measurement of a collective operation.
type collective struct {
	*mpi.World
	in, out []byte
	want    []byte // in out, after the operation
	inPlace bool   // in is copied to out before each operation
	run     func() error
	batches [collectiveBatches]float64 // mean seconds of an operation
}

// newCollective returns the benchmark of a collective operation. The time of an operation is that of
// the slowest rank, and the time of a rank is the median of the batches' means. A barrier, which is
// not part of the time, precedes each operation.
func newCollective(w *mpi.World, kind string, size int) (*benchmark, error) {
	c, err := prepareCollective(w, kind, size)
	if err != nil {
		return nil, err
	}
	return &benchmark{1, c.repeat, c.slowest, c.check}, nil
}

// prepareCollective returns a collective operation with its buffers. The size is that of a block of the
// operations that have blocks, and else that of the vector.
func prepareCollective(w *mpi.World, kind string, size int) (*collective, error) {
	n, me := w.Size(), w.Rank()
	c := &collective{World: w}
	sum := func(e int) (v float64) {
		for from := range n {
			v += contribution(from, e)
		}
		return v
	}
	switch kind {
	case allgather:
		c.in, c.out, c.want = block(me, 0, size), make([]byte, n*size), blocksOf(n, func(from int) []byte { return block(from, 0, size) })
		c.run = func() error { return c.Allgather(c.in, c.out) }
	case alltoall:
		c.in, c.out = blocksOf(n, func(to int) []byte { return block(me, to, size) }), make([]byte, n*size)
		c.want = blocksOf(n, func(from int) []byte { return block(from, me, size) })
		c.run = func() error { return c.Alltoall(c.in, c.out) }
	case allreduce:
		c.in, c.out, c.inPlace, c.want = vector(size, func(e int) float64 { return contribution(me, e) }), make([]byte, size), true, vector(size, sum)
		c.run = func() error { return c.Allreduce(mpi.InPlace, c.out, mpi.Float64, mpi.Sum) }
	case reduceScatter:
		c.in, c.out, c.want = vector(n*size, func(e int) float64 { return contribution(me, e) }), make([]byte, size), vector(n*size, sum)[me*size:][:size]
		c.run = func() error { return c.ReduceScatterBlock(c.in, c.out, mpi.Float64, mpi.Sum) }
	case bcast:
		c.out, c.inPlace, c.want = make([]byte, size), true, block(0, 0, size)
		if me == 0 {
			c.in = slices.Clone(c.want)
		}
		c.run = func() error { return c.Bcast(c.out, 0) }
	default:
		return nil, fmt.Errorf("unknown kind %q", kind)
	}
	return c, nil
}

// check runs the operation once more, from a cleared buffer, and checks the result.
func (c *collective) check() error {
	clear(c.out)
	if c.inPlace {
		copy(c.out, c.in)
	}
	if err := c.run(); err != nil {
		return err
	}
	if !bytes.Equal(c.out, c.want) {
		return fmt.Errorf("rank %d: wrong result", c.Rank())
	}
	return nil
}

// repeat runs batches of a number of operations.
func (c *collective) repeat(count int) error {
	for i := range c.batches {
		var sum time.Duration
		for range count {
			if c.inPlace {
				copy(c.out, c.in)
			}
			if err := c.Barrier(); err != nil {
				return err
			}
			began := c.Wtime()
			if err := c.run(); err != nil {
				return err
			}
			sum += c.Wtime() - began
		}
		c.batches[i] = sum.Seconds() / float64(count)
	}
	return nil
}

// slowest returns the time of the slowest rank.
func (c *collective) slowest(time.Duration, int) (float64, error) {
	b := binary.LittleEndian.AppendUint64(nil, math.Float64bits(perf.Median(c.batches[:])))
	err := c.Allreduce(mpi.InPlace, b, mpi.Float64, mpi.Max)
	return math.Float64frombits(binary.LittleEndian.Uint64(b)), err
}

// block returns a block that differs from those between other ranks.
func block(from, to, size int) []byte {
	b := pattern(size)
	for i := range b {
		b[i] += byte(101*from + 53*to)
	}
	return b
}

// blocksOf returns n blocks one behind the other.
func blocksOf(n int, block func(i int) []byte) (all []byte) {
	for i := range n {
		all = append(all, block(i)...)
	}
	return all
}

// contribution is element e of the vector that a rank contributes to a reduction: an integer, of which
// sums are exact.
func contribution(rank, e int) float64 { return float64(e%1024 + rank*(e%7+1)) }

// vector returns a vector of a size in bytes.
func vector(size int, element func(e int) float64) (b []byte) {
	for e := range size / 8 {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(element(e)))
	}
	return b
}
