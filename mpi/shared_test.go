package mpi_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/mpi"
)

// Operations through memory of hosts follow each other without any other synchronization, in communicators
// of all ranks, of one host and of different hosts.
func TestCollectivesThroughSharedMemory(t *testing.T) {
	for i, choices := range algorithmChoices(t) {
		for placement, hostOf := range []func(rank int) int{
			func(rank int) int { return rank / 3 },
			func(rank int) int { return rank % 2 },
			func(rank int) int { return rank * rank % 3 },
		} {
			f := newFabric(t, 7, uint64(i+placement), false)
			f.hostOf = hostOf
			f.succeed(mpi.Options{Collectives: choices}, func(w *mpi.World) error {
				node := must.Get(w.SplitNode(0))(t)
				pairs := must.Get(w.Split(w.Rank()%3, 0))(t)
				for _, c := range []*mpi.Comm{w.Comm, node, pairs} {
					for _, n := range []int{1, 40, 5000} {
						if err := repeatedCalls(c, n); err != nil {
							return fmt.Errorf("%v, placement %d, %d bytes in %v: %w", choices, placement, n, c, err)
						}
					}
				}
				return nil
			})
		}
	}
}

// repeatedCalls calls each operation that can use shared memory several times, with blocks of n bytes.
func repeatedCalls(c *mpi.Comm, n int) error {
	me, size := c.Rank(), c.Size()
	var errs []error
	check := func(what string, err error, got, want []byte) {
		if err == nil && !bytes.Equal(got, want) {
			err = fmt.Errorf("%.20x, want %.20x", got, want)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", what, err))
		}
	}
	for round := range 5 {
		buf, root := make([]byte, n), round%size
		if me == root {
			buf = testMessage(round, n)
		}
		check("Bcast", c.Bcast(buf, root), buf, testMessage(round, n))
	}
	all := make([]byte, n*size)
	for round := range 5 {
		message := func(rank int) []byte { return testMessage(10*rank+round, n) }
		err := c.Gather(message(me), all, round%size)
		check("Gather", err, onlyAt(me == round%size, all), onlyAt(me == round%size, joined(size, message)))
	}
	for round := range 5 {
		message := func(rank int) []byte { return testMessage(10*rank+round, n) }
		check("Allgather", c.Allgather(message(me), all), all, joined(size, message))
	}
	for round := range 5 {
		send := joined(size, func(to int) []byte { return testMessage(100*me+10*to+round, n) })
		fromAll := joined(size, func(from int) []byte { return testMessage(100*from+10*me+round, n) })
		check("Alltoall", c.Alltoall(send, all), all, fromAll)
	}
	return errors.Join(errs...)
}
