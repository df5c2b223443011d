package mpi_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/coll"
	"github.com/fabrictest/fabrictest/mpi/datatype"
	"github.com/fabrictest/fabrictest/verbs"
)

// typedBuffer has the arguments of one side of an Alltoallw.
type typedBuffer struct {
	buf             []byte
	counts, offsets []int
	types           []*datatype.Type
}

// everyOther is every other byte, of which the extent has both.
var everyOther, everyOtherErr = datatype.Resized(datatype.Of(mpi.Byte), 0, 2)

// typedTestBuffer returns a buffer with blocks of n bytes, one after the other. If they are apart, each byte is followed
// by one that does not belong to the block, and blocks alternate with others that are runs.
func typedTestBuffer(data []byte, n int, apart bool) (t typedBuffer) {
	for i := 0; n > 0 && i < len(data)/n || i < 8 && n == 0; i++ {
		typ, block := datatype.Of(mpi.Byte), data[min(i*n, len(data)):][:n]
		t.offsets = append(t.offsets, len(t.buf))
		if apart && i%3 != 1 {
			typ = everyOther
			for _, b := range block {
				t.buf = append(t.buf, b, 0xee)
			}
		} else {
			t.buf = append(t.buf, block...)
		}
		t.counts, t.types = append(t.counts, n), append(t.types, typ)
	}
	return t
}

// typedTestCall is an Alltoallw; with no send buffer it is in place.
func typedTestCall(c *mpi.Comm, name string, send, recv *typedBuffer, want []byte) testCall {
	s := typedBuffer{buf: mpi.InPlace}
	if send != nil {
		s = *send
		s.counts, s.offsets, s.types = s.counts[:c.Size()], s.offsets[:c.Size()], s.types[:c.Size()]
	}
	r := *recv
	r.counts, r.offsets, r.types = r.counts[:c.Size()], r.offsets[:c.Size()], r.types[:c.Size()]
	if send != nil {
		for i := range r.buf { // bytes beside the blocks
			r.buf[i] = 0xee
		}
	}
	return newTestCall(coll.Alltoall, name, r.buf, want, func() error {
		return c.Alltoallw(s.buf, s.counts, s.offsets, s.types, r.buf, r.counts, r.offsets, r.types)
	}, func() (*mpi.Request, error) {
		return c.Ialltoallw(s.buf, s.counts, s.offsets, s.types, r.buf, r.counts, r.offsets, r.types)
	}, func() (*mpi.Request, error) {
		return c.AlltoallwInit(s.buf, s.counts, s.offsets, s.types, r.buf, r.counts, r.offsets, r.types)
	})
}

// A matrix whose rows are distributed is transposed: rank i receives column blocks of all ranks.
func TestAlltoallwTransposesMatrix(t *testing.T) {
	must.Do(t, everyOtherErr)
	withRankCounts(t, func(w *mpi.World) error {
		const rows = 3 // of each rank
		n := rows * w.Size()
		element := datatype.Of(mpi.Int32)
		column := must.Get(datatype.Resized(must.Get(datatype.Vector(rows, 1, n, element))(t), 0, 4))(t)
		row := must.Get(datatype.Contiguous(rows, element))(t)
		block := must.Get(datatype.Resized(must.Get(datatype.Hvector(rows, 1, 4*n, row))(t), 0, 4*rows))(t)
		var s, r typedBuffer
		for i := range w.Size() {
			s.counts, s.offsets, s.types = append(s.counts, rows), append(s.offsets, 4*rows*i), append(s.types, column)
			r.counts, r.offsets, r.types = append(r.counts, 1), append(r.offsets, 4*rows*i), append(r.types, block)
		}
		value := func(row, column int) []byte { return []byte{byte(row), byte(column), 1, 2} }
		var want []byte
		for k := range rows * n {
			row, col := w.Rank()*rows+k/n, k%n
			s.buf, want = append(s.buf, value(row, col)...), append(want, value(col, row)...)
		}
		r.buf = make([]byte, len(want))
		if err := w.Alltoallw(s.buf, s.counts, s.offsets, s.types, r.buf, r.counts, r.offsets, r.types); err != nil {
			return err
		}
		if !bytes.Equal(r.buf, want) {
			return fmt.Errorf("%d ranks: %x, want %x", w.Size(), r.buf, want)
		}
		return nil
	})
}

// Blocks that are runs of bytes are sent from, and received in, the buffers of the program; others are copied
// once on each side. A block of a rank for itself is copied once, and twice if it is apart on both sides.
func TestAlltoallwCopiesOnlyBlocksThatAreApart(t *testing.T) {
	const ranks, n = 3, 40000
	for _, c := range []struct {
		sendApart, recvApart bool
		want                 int
	}{{false, false, n}, {true, false, 3 * n}, {false, true, 3 * n}, {true, true, 6 * n}} {
		got := make([]int, ranks)
		f := newFabric(t, ranks, 1, false)
		f.onCopy = func(rank int, _ verbs.Work, n int) { got[rank] += n }
		o := mpi.Options{}
		o.P2P.EagerLimit = -1
		f.succeed(o, func(w *mpi.World) error {
			side := func(apart bool) (t typedBuffer) {
				t.buf = make([]byte, 2*ranks*n)
				for i := range ranks {
					typ := datatype.Of(mpi.Byte)
					if apart {
						typ = everyOther
					}
					t.counts, t.offsets, t.types = append(t.counts, n), append(t.offsets, 2*i*n), append(t.types, typ)
				}
				return t
			}
			s, r := side(c.sendApart), side(c.recvApart)
			return w.Alltoallw(s.buf, s.counts, s.offsets, s.types, r.buf, r.counts, r.offsets, r.types)
		})
		if want := []int{c.want, c.want, c.want}; !slices.Equal(got, want) {
			t.Errorf("%+v: ranks copy %v bytes, want %v", c, got, want)
		}
	}
}

// A mistake is an error that names the argument.
func TestAlltoallwRejectsMistakes(t *testing.T) {
	runSingleRank(t, func(w *mpi.World) error {
		one, none := []*datatype.Type{datatype.Of(mpi.Int32)}, []int{0}
		overlapping := []*datatype.Type{must.Get(datatype.Resized(one[0], 0, -2))(t)}
		short, buf := make([]byte, 7), make([]byte, 8)
		two := []int{2}
		for _, c := range []struct {
			err   error
			class error
			want  string
		}{
			{w.Alltoallw(short, two, none, one, buf, two, none, one), mpi.ErrArg, "send buffer, block of rank 0"},
			{w.Alltoallw(buf, two, none, one, short, two, none, one), mpi.ErrArg, "recv buffer, block of rank 0"},
			{w.Alltoallw(buf, two, nil, one, buf, two, none, one), mpi.ErrArg, "0 sendOffsets"},
			{w.Alltoallw(buf, two, none, one, buf, two, none, nil), mpi.ErrArg, "0 recvTypes"},
			{w.Alltoallw(buf, two, none, []*datatype.Type{nil}, buf, two, none, one), mpi.ErrType, "sendTypes[0] is nil"},
			{w.Alltoallw(buf, []int{-1}, none, one, buf, two, none, one), mpi.ErrArg, "count is -1"},
			{w.Alltoallw(buf, []int{1}, none, one, buf, two, none, one), mpi.ErrArg, "4 bytes to itself and receives 8"},
			{w.Alltoallw(buf, two, none, one, buf, two, two, overlapping), mpi.ErrArg, "overlaps"},
			{w.Alltoallw(mpi.InPlace, nil, nil, nil, short, two, none, one), mpi.ErrArg, "recv buffer"},
		} {
			if !errors.Is(c.err, c.class) || !strings.Contains(c.err.Error(), c.want) {
				t.Errorf("%v, want %q", c.err, c.want)
			}
		}
		return w.Alltoallw(buf, two, two, overlapping, make([]byte, 8), two, none, one) // it may be sent
	})
}
