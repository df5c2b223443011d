package mpi_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/verbs"
)

// withRankCounts runs a program with several numbers of ranks.
func withRankCounts(t *testing.T, program func(*mpi.World) error) {
	t.Helper()
	for _, size := range []int{1, 2, 3, 5, 8} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			for seed := range uint64(4) {
				o := configurations()[[]string{"rget polling", "rput background", "speculative polling", "speculative background"}[seed]]
				f := newFabric(t, size, seed, false)
				f.lacksCredits = seed == 3
				o.BruckLimit = []int{0, 64, -1, 8}[seed]
				f.succeed(o, program)
			}
		})
	}
}

func TestBcast(t *testing.T) {
	withRankCounts(t, func(w *mpi.World) error {
		for root := range w.Size() {
			for _, n := range []int{0, 5, 500} {
				buf := make([]byte, n)
				if w.Rank() == root {
					buf = testMessage(root, n)
				}
				must.Do(t, w.Bcast(buf, root))
				if !bytes.Equal(buf, testMessage(root, n)) {
					return fmt.Errorf("wrong data of %d bytes from rank %d", n, root)
				}
			}
		}
		return nil
	})
}

// Collectives take virtual time for their local copies and reductions, by the bytes that each rank
// copies or combines. No message is unexpected: all are large.
func TestCollectivesChargeLocalCopies(t *testing.T) {
	const small, large = 8, 4096
	allgather := func(n int) func(*mpi.World) error {
		return func(w *mpi.World) error { return w.Allgather(make([]byte, n), make([]byte, n*w.Size())) }
	}
	alltoall := func(n int) func(*mpi.World) error {
		return func(w *mpi.World) error { return w.Alltoall(make([]byte, n*w.Size()), make([]byte, n*w.Size())) }
	}
	for name, c := range map[string]struct {
		do   func(*mpi.World) error
		want []int // bytes by rank
	}{
		// Its own block, and all blocks to their places.
		"Bruck allgather": {allgather(small), []int{4 * small, 4 * small, 4 * small}},
		"ring allgather":  {allgather(large), []int{large, large, large}},
		// All blocks before and after the rounds; a round packs and unpacks a block.
		"Bruck alltoall":    {alltoall(small), []int{10 * small, 10 * small, 10 * small}},
		"pairwise alltoall": {alltoall(large), []int{large, large, large}},
		// Rank 0 sends to rank 1, which combines that and the buffer of rank 2.
		"allreduce": {func(w *mpi.World) error {
			return w.Allreduce(make([]byte, large), make([]byte, large), mpi.Int64, mpi.Sum)
		}, []int{0, 2 * large, large}},
		"allreduce in place": {func(w *mpi.World) error { return w.Allreduce(mpi.InPlace, make([]byte, large), mpi.Int64, mpi.Sum) }, []int{0, 2 * large, large}},
		"bcast":              {func(w *mpi.World) error { return w.Bcast(make([]byte, large), 0) }, []int{0, 0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			got := make([]int, len(c.want))
			f := newFabric(t, len(c.want), 1, false)
			f.onCopy = func(rank int, what verbs.Work, n int) {
				if what != verbs.WorkCopy {
					t.Errorf("rank %d: work of kind %v", rank, what)
				}
				got[rank] += n
			}
			o := mpi.Options{}
			o.P2P.EagerLimit = -1
			f.succeed(o, c.do)
			if !slices.Equal(got, c.want) {
				t.Errorf("ranks copy %v bytes, want %v", got, c.want)
			}
		})
	}
}

// element is the i-th test element of a rank.
func element(t mpi.Type, rank, i int) []byte {
	v := uint64((rank+1)*(i+3)%11 + 1)
	switch t {
	case mpi.Float32:
		return binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(v)/2))
	case mpi.Float64:
		return binary.LittleEndian.AppendUint64(nil, math.Float64bits(float64(v)/4-1))
	case mpi.Int32:
		return binary.LittleEndian.AppendUint32(nil, uint32(int32(v)-5))
	case mpi.Int64:
		return binary.LittleEndian.AppendUint64(nil, uint64(int64(v)-5))
	}
	return binary.LittleEndian.AppendUint64(nil, v)[:t.Size()]
}

func elements(t mpi.Type, rank, n int) (all []byte) {
	for i := range n {
		all = append(all, element(t, rank, i)...)
	}
	return all
}

// reduceReference is a straightforward implementation of the reduction operations.
func reduceReference(t mpi.Type, op mpi.Op, a, b []byte) []byte {
	le := binary.LittleEndian
	truth := func(v bool) float64 {
		if v {
			return 1
		}
		return 0
	}
	decode := func(x []byte) float64 {
		switch t {
		case mpi.Byte:
			return float64(x[0])
		case mpi.Int8:
			return float64(int8(x[0]))
		case mpi.Int16:
			return float64(int16(le.Uint16(x)))
		case mpi.Uint16:
			return float64(le.Uint16(x))
		case mpi.Int32:
			return float64(int32(le.Uint32(x)))
		case mpi.Uint32:
			return float64(le.Uint32(x))
		case mpi.Int64:
			return float64(int64(le.Uint64(x)))
		case mpi.Uint64:
			return float64(le.Uint64(x))
		case mpi.Float32:
			return float64(math.Float32frombits(le.Uint32(x)))
		}
		return math.Float64frombits(le.Uint64(x))
	}
	encode := func(v float64) []byte {
		switch t {
		case mpi.Byte, mpi.Int8:
			return []byte{byte(int64(v))}
		case mpi.Int16, mpi.Uint16:
			return le.AppendUint16(nil, uint16(int64(v)))
		case mpi.Int32:
			return le.AppendUint32(nil, uint32(int32(int64(v))))
		case mpi.Uint32:
			return le.AppendUint32(nil, uint32(int64(v)))
		case mpi.Int64, mpi.Uint64:
			return le.AppendUint64(nil, uint64(int64(v)))
		case mpi.Float32:
			return le.AppendUint32(nil, math.Float32bits(float32(v)))
		}
		return le.AppendUint64(nil, math.Float64bits(v))
	}
	x, y := decode(a), decode(b)
	switch op {
	case mpi.Sum:
		return encode(x + y)
	case mpi.Prod:
		return encode(x * y)
	case mpi.Min:
		return encode(math.Min(x, y))
	case mpi.Max:
		return encode(math.Max(x, y))
	case mpi.LAnd:
		return encode(truth(x != 0 && y != 0))
	case mpi.LOr:
		return encode(truth(x != 0 || y != 0))
	case mpi.LXor:
		return encode(truth((x != 0) != (y != 0)))
	case mpi.Replace:
		return b
	case mpi.NoOp:
		return a
	}
	out := make([]byte, len(a))
	for i := range a {
		switch op {
		case mpi.BAnd:
			out[i] = a[i] & b[i]
		case mpi.BOr:
			out[i] = a[i] | b[i]
		case mpi.BXor:
			out[i] = a[i] ^ b[i]
		}
	}
	return out
}

var allTypes = []mpi.Type{mpi.Byte, mpi.Int32, mpi.Uint32, mpi.Int64, mpi.Uint64, mpi.Float32, mpi.Float64, mpi.Int8, mpi.Int16, mpi.Uint16}

func TestAllreduce(t *testing.T) {
	withRankCounts(t, func(w *mpi.World) error {
		const n = 5
		for _, typ := range allTypes {
			for op := mpi.Sum; op < mpi.Replace; op++ {
				if !op.ValidFor(typ) {
					continue
				}
				want := elements(typ, 0, n)
				for r := 1; r < w.Size(); r++ {
					for i := range n {
						part := want[i*typ.Size() : (i+1)*typ.Size()]
						copy(part, reduceReference(typ, op, part, element(typ, r, i)))
					}
				}
				buf := elements(typ, w.Rank(), n)
				must.Do(t, w.Allreduce(mpi.InPlace, buf, typ, op))
				if !bytes.Equal(buf, want) {
					return fmt.Errorf("%v of %v with %d ranks: %x, want %x", op, typ, w.Size(), buf, want)
				}
			}
		}
		return nil
	})
}

// Floating-point sums are the same on all ranks, although addition is not associative.
func TestAllreduceIsBitIdenticalOnAllRanks(t *testing.T) {
	withRankCounts(t, func(w *mpi.World) error {
		buf := binary.LittleEndian.AppendUint64(nil, math.Float64bits(1/float64(3+w.Rank()*w.Rank())*math.Pow(10, float64(w.Rank()))))
		must.Do(t, w.Allreduce(mpi.InPlace, buf, mpi.Float64, mpi.Sum))
		all := make([]byte, 8*w.Size())
		must.Do(t, w.Allgather(buf, all))
		if !bytes.Equal(all, bytes.Repeat(buf, w.Size())) {
			return fmt.Errorf("%x", all)
		}
		return nil
	})
}

func TestAllgather(t *testing.T) {
	withRankCounts(t, func(w *mpi.World) error {
		for _, n := range []int{0, 3, 100, 4<<10 + 1} {
			all := make([]byte, n*w.Size())
			must.Do(t, w.Allgather(testMessage(w.Rank(), n), all))
			for r := range w.Size() {
				if !bytes.Equal(all[r*n:(r+1)*n], testMessage(r, n)) {
					return fmt.Errorf("wrong data of %d bytes from rank %d", n, r)
				}
			}
		}
		return nil
	})
}

func TestAlltoall(t *testing.T) {
	withRankCounts(t, func(w *mpi.World) error {
		for _, n := range []int{0, 1, 8, 64, 65, 300} {
			send, recv := make([]byte, 0, n*w.Size()), make([]byte, n*w.Size())
			for to := range w.Size() {
				send = append(send, testMessage(100*w.Rank()+to, n)...)
			}
			must.Do(t, w.Alltoall(send, recv))
			for from := range w.Size() {
				if !bytes.Equal(recv[from*n:(from+1)*n], testMessage(100*from+w.Rank(), n)) {
					return fmt.Errorf("wrong data of %d bytes from rank %d", n, from)
				}
			}
		}
		return nil
	})
}

func TestCollectiveRejectsUnequalSizes(t *testing.T) {
	f := newFabric(t, 2, 1, false)
	f.succeed(mpi.Options{}, func(w *mpi.World) error {
		n := 8 + 8*w.Rank()
		if err := w.Allreduce(mpi.InPlace, make([]byte, n), mpi.Int64, mpi.Sum); !errors.Is(err, mpi.ErrArg) && !errors.Is(err, mpi.ErrTruncate) {
			return fmt.Errorf("%d bytes: %v", n, err)
		}
		return nil
	})
}
