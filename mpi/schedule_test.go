package mpi_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/coll"
	"github.com/fabrictest/fabrictest/mpi/datatype"
)

// testCall is a collective call of one rank with its result.
type testCall struct {
	op       coll.Op
	name     string
	blocking func() error
	start    func() (*mpi.Request, error)
	prepare  func() (*mpi.Request, error)
	out      []byte
	reset    func() // restores the contents of out
	want     []byte // nil: out does not matter
}

// call fills in the functions of a testCall. start and prepare are passed as methods.
func newTestCall(op coll.Op, name string, out, want []byte, blocking func() error, start, prepare func() (*mpi.Request, error)) testCall {
	before := bytes.Clone(out)
	return testCall{op, name, blocking, start, prepare, out, func() { copy(out, before) }, want}
}

// joined returns a message of each rank, one after the other.
func joined(ranks int, message func(rank int) []byte) (all []byte) {
	for r := range ranks {
		all = append(all, message(r)...)
	}
	return all
}

// compose is a user operation that is not commutative: elements of two bytes are functions x → a·x + b.
func compose(in, inout []byte) {
	for i := 0; i+2 <= len(inout); i += 2 {
		a, b := inout[i], inout[i+1]
		inout[i], inout[i+1] = a*in[i], a*in[i+1]+b
	}
}

// addBytes is a user operation that is commutative.
func addBytes(in, inout []byte) {
	for i := range inout {
		inout[i] += in[i]
	}
}

// testOp is a user operation with its function.
type testOp struct {
	mpi.Op
	combine func(in, inout []byte)
}

// combined returns the messages of n bytes of the first ranks, combined.
func (o testOp) combined(ranks, n int) []byte {
	all := testMessage(0, n)
	for r := 1; r < ranks; r++ {
		next := testMessage(r, n)
		o.combine(all, next)
		all = next
	}
	return all
}

// onlyAt returns b at the root, and nil at other ranks.
func onlyAt(isRoot bool, b []byte) []byte {
	if !isRoot {
		return nil
	}
	return b
}

// blockCalls returns calls of all operations that move blocks of n bytes. Block i of those whose sizes
// differ has i more bytes.
func blockCalls(w *mpi.World, n, root int) []testCall {
	me, size := w.Rank(), w.Size()
	isRoot := me == root
	message := func(rank int) []byte { return testMessage(rank, n) }
	longer := func(rank int) []byte { return testMessage(rank, n+rank) }
	counts := make([]int, size)
	for i := range counts {
		counts[i] = n + i
	}
	all, allLonger := joined(size, message), joined(size, longer)
	buf := onlyAt(isRoot, testMessage(root, n))
	if !isRoot {
		buf = make([]byte, n)
	}
	one, oneLonger := make([]byte, n), make([]byte, n+me)
	many, manyLonger := make([]byte, n*size), make([]byte, len(allLonger))
	gathered, gatheredLonger := make([]byte, n*size), make([]byte, len(allLonger))
	inPlace := make([]byte, n*size)
	copy(inPlace[me*n:], message(me))
	send := joined(size, func(to int) []byte { return testMessage(100*me+to, n) })
	recv, recvv := make([]byte, len(send)), make([]byte, len(send))
	fromAll := joined(size, func(from int) []byte { return testMessage(100*from+me, n) })
	regular := make([]int, size)
	for i := range regular {
		regular[i] = n
	}
	exchanged, exchangedw := bytes.Clone(send), bytes.Clone(send)
	c := w.Comm
	// Blocks of an Alltoallw of odd ranks are every other byte, and those of even ranks are runs.
	apart := typedTestBuffer(send, n, me%2 == 1)
	into := typedTestBuffer(make([]byte, len(send)), n, me%3 > 0)
	inPlacew := typedTestBuffer(exchangedw, n, me%2 == 1)
	wantw, wantInPlacew := typedTestBuffer(fromAll, n, me%3 > 0).buf, typedTestBuffer(fromAll, n, me%2 == 1).buf
	return []testCall{
		newTestCall(coll.Barrier, "Barrier", nil, nil, c.Barrier, c.Ibarrier, c.BarrierInit),
		newTestCall(coll.Bcast, "Bcast", buf, message(root), func() error { return c.Bcast(buf, root) },
			func() (*mpi.Request, error) { return c.Ibcast(buf, root) }, func() (*mpi.Request, error) { return c.BcastInit(buf, root) }),
		newTestCall(coll.Scatter, "Scatter", one, message(me), func() error { return c.Scatter(onlyAt(isRoot, all), one, root) },
			func() (*mpi.Request, error) { return c.Iscatter(onlyAt(isRoot, all), one, root) }, func() (*mpi.Request, error) { return c.ScatterInit(onlyAt(isRoot, all), one, root) }),
		newTestCall(coll.Scatter, "Scatterv", oneLonger, longer(me), func() error { return c.Scatterv(onlyAt(isRoot, allLonger), counts, nil, oneLonger, root) },
			func() (*mpi.Request, error) {
				return c.Iscatterv(onlyAt(isRoot, allLonger), counts, nil, oneLonger, root)
			}, func() (*mpi.Request, error) {
				return c.ScattervInit(onlyAt(isRoot, allLonger), counts, nil, oneLonger, root)
			}),
		newTestCall(coll.Gather, "Gather", onlyAt(isRoot, gathered), onlyAt(isRoot, all), func() error { return c.Gather(message(me), gathered, root) },
			func() (*mpi.Request, error) { return c.Igather(message(me), gathered, root) }, func() (*mpi.Request, error) { return c.GatherInit(message(me), gathered, root) }),
		newTestCall(coll.Gather, "Gatherv", onlyAt(isRoot, gatheredLonger), onlyAt(isRoot, allLonger), func() error { return c.Gatherv(longer(me), gatheredLonger, counts, nil, root) },
			func() (*mpi.Request, error) { return c.Igatherv(longer(me), gatheredLonger, counts, nil, root) }, func() (*mpi.Request, error) { return c.GathervInit(longer(me), gatheredLonger, counts, nil, root) }),
		newTestCall(coll.Allgather, "Allgather", many, all, func() error { return c.Allgather(message(me), many) },
			func() (*mpi.Request, error) { return c.Iallgather(message(me), many) }, func() (*mpi.Request, error) { return c.AllgatherInit(message(me), many) }),
		newTestCall(coll.Allgather, "Allgather in place", inPlace, all, func() error { return c.Allgather(mpi.InPlace, inPlace) },
			func() (*mpi.Request, error) { return c.Iallgather(mpi.InPlace, inPlace) }, func() (*mpi.Request, error) { return c.AllgatherInit(mpi.InPlace, inPlace) }),
		newTestCall(coll.Allgather, "Allgatherv", manyLonger, allLonger, func() error { return c.Allgatherv(longer(me), manyLonger, counts, nil) },
			func() (*mpi.Request, error) { return c.Iallgatherv(longer(me), manyLonger, counts, nil) }, func() (*mpi.Request, error) { return c.AllgathervInit(longer(me), manyLonger, counts, nil) }),
		newTestCall(coll.Alltoall, "Alltoall", recv, fromAll, func() error { return c.Alltoall(send, recv) },
			func() (*mpi.Request, error) { return c.Ialltoall(send, recv) }, func() (*mpi.Request, error) { return c.AlltoallInit(send, recv) }),
		newTestCall(coll.Alltoall, "Alltoall in place", exchanged, fromAll, func() error { return c.Alltoall(mpi.InPlace, exchanged) },
			func() (*mpi.Request, error) { return c.Ialltoall(mpi.InPlace, exchanged) }, func() (*mpi.Request, error) { return c.AlltoallInit(mpi.InPlace, exchanged) }),
		newTestCall(coll.Alltoall, "Alltoallv", recvv, fromAll, func() error { return c.Alltoallv(send, regular, nil, recvv, regular, nil) },
			func() (*mpi.Request, error) { return c.Ialltoallv(send, regular, nil, recvv, regular, nil) }, func() (*mpi.Request, error) { return c.AlltoallvInit(send, regular, nil, recvv, regular, nil) }),
		typedTestCall(c, "Alltoallw", &apart, &into, wantw),
		typedTestCall(c, "Alltoallw in place", nil, &inPlacew, wantInPlacew),
	}
}

// reductionCalls returns calls of all reductions of n bytes, for each rank where they have blocks.
func reductionCalls(w *mpi.World, o testOp, n, root int) []testCall {
	combined, op := o.combined, o.Op
	me, size := w.Rank(), w.Size()
	isRoot := me == root
	in, all := testMessage(me, n), testMessage(me, n*size)
	counts, offset := make([]int, size), 0
	for i := range counts {
		counts[i] = n + 2*(i%2)
		if i < me {
			offset += counts[i]
		}
	}
	total := 0
	for _, k := range counts {
		total += k
	}
	vector := testMessage(me, total)
	result, everywhere, buf, inPlace := make([]byte, n), make([]byte, n), bytes.Clone(in), bytes.Clone(in)
	block, part := make([]byte, n), make([]byte, counts[me])
	scanned, exscan := make([]byte, n), make([]byte, n)
	wantExscan := make([]byte, n)
	if me > 0 {
		wantExscan = combined(me, n)
	}
	reduceIn, reduceOut := in, []byte(nil)
	if isRoot {
		reduceIn, reduceOut = mpi.InPlace, inPlace
	}
	c, t := w.Comm, mpi.Byte
	return []testCall{
		newTestCall(coll.Reduce, "Reduce", onlyAt(isRoot, result), onlyAt(isRoot, combined(size, n)), func() error { return c.Reduce(in, result, t, op, root) },
			func() (*mpi.Request, error) { return c.Ireduce(in, result, t, op, root) }, func() (*mpi.Request, error) { return c.ReduceInit(in, result, t, op, root) }),
		newTestCall(coll.Reduce, "Reduce in place", reduceOut, onlyAt(isRoot, combined(size, n)), func() error { return c.Reduce(reduceIn, reduceOut, t, op, root) },
			func() (*mpi.Request, error) { return c.Ireduce(reduceIn, reduceOut, t, op, root) }, func() (*mpi.Request, error) { return c.ReduceInit(reduceIn, reduceOut, t, op, root) }),
		newTestCall(coll.Allreduce, "Allreduce", everywhere, combined(size, n), func() error { return c.Allreduce(in, everywhere, t, op) },
			func() (*mpi.Request, error) { return c.Iallreduce(in, everywhere, t, op) }, func() (*mpi.Request, error) { return c.AllreduceInit(in, everywhere, t, op) }),
		newTestCall(coll.Allreduce, "Allreduce in place", buf, combined(size, n), func() error { return c.Allreduce(mpi.InPlace, buf, t, op) },
			func() (*mpi.Request, error) { return c.Iallreduce(mpi.InPlace, buf, t, op) }, func() (*mpi.Request, error) { return c.AllreduceInit(mpi.InPlace, buf, t, op) }),
		newTestCall(coll.ReduceScatter, "ReduceScatterBlock", block, combined(size, n*size)[me*n:][:n], func() error { return c.ReduceScatterBlock(all, block, t, op) },
			func() (*mpi.Request, error) { return c.IreduceScatterBlock(all, block, t, op) }, func() (*mpi.Request, error) { return c.ReduceScatterBlockInit(all, block, t, op) }),
		newTestCall(coll.ReduceScatter, "ReduceScatter", part, combined(size, total)[offset:][:counts[me]], func() error { return c.ReduceScatter(vector, part, counts, t, op) },
			func() (*mpi.Request, error) { return c.IreduceScatter(vector, part, counts, t, op) }, func() (*mpi.Request, error) { return c.ReduceScatterInit(vector, part, counts, t, op) }),
		newTestCall(coll.Scan, "Scan", scanned, combined(me+1, n), func() error { return c.Scan(in, scanned, t, op) },
			func() (*mpi.Request, error) { return c.Iscan(in, scanned, t, op) }, func() (*mpi.Request, error) { return c.ScanInit(in, scanned, t, op) }),
		newTestCall(coll.Exscan, "Exscan", exscan, wantExscan, func() error { return c.Exscan(in, exscan, t, op) },
			func() (*mpi.Request, error) { return c.Iexscan(in, exscan, t, op) }, func() (*mpi.Request, error) { return c.ExscanInit(in, exscan, t, op) }),
	}
}

// allCalls returns calls of all collective operations.
func allCalls(w *mpi.World, userOp testOp, n int) []testCall {
	root := w.Size() / 2
	return append(blockCalls(w, n, root), reductionCalls(w, userOp, n, root)...)
}

// check compares the result, and restores the buffer.
func (c *testCall) check(err error) error {
	defer c.reset()
	if err == nil && c.want != nil && !bytes.Equal(c.out, c.want) {
		err = fmt.Errorf("%.40x, want %.40x", c.out, c.want)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", c.name, err)
	}
	return err
}

// algorithmChoices returns choices that use every algorithm once, beside the defaults.
func algorithmChoices(t *testing.T) []coll.Choices {
	t.Helper()
	var all []coll.Choices
	for i := 0; ; i++ {
		var choices coll.Choices
		for op := range coll.NumOps {
			if list := coll.Algorithms(op); i < len(list) {
				choices[op] = list[i]
			}
		}
		all = append(all, choices)
		if choices == (coll.Choices{}) {
			return all
		}
	}
}

// Every collective operation, with every algorithm, blocking, nonblocking and persistent.
func TestCollectives(t *testing.T) {
	for i, choices := range algorithmChoices(t) {
		name := string(must.Get(choices.MarshalText())(t))
		sizes := []int{1, 2, 3, 4, 7, 8}
		if testing.Short() { // for the race detector
			sizes = sizes[i%len(sizes):][:1]
		}
		for _, size := range sizes {
			o := configurations()[[]string{"rget polling", "rput background", "speculative polling"}[size%3]]
			o.Collectives = choices
			f := newFabric(t, size, uint64(10*size+i), testing.Short())
			f.lacksCredits = size == 7
			f.perHost = size
			f.succeed(o, func(w *mpi.World) error {
				return everyCall(w, name, testOp{must.Get(w.CreateOp(compose, 2, false))(t), compose})
			})
			f = newFabric(t, size, uint64(10*size+i), testing.Short())
			f.hostOf = func(rank int) int { return rank * rank % 3 } // 0, 1, 1, 0, 1, 1, …
			f.succeed(o, func(w *mpi.World) error {
				return everyCall(w, name, testOp{must.Get(w.CreateOp(addBytes, 2, true))(t), addBytes})
			})
		}
	}
}

// everyCall makes all calls in all ways.
func everyCall(w *mpi.World, name string, op testOp) error {
	for _, n := range []int{0, 6, 300} {
		for _, c := range allCalls(w, op, n) {
			if err := c.check(c.blocking()); err != nil {
				return fmt.Errorf("%s, %d bytes: %w", name, n, err)
			}
		}
	}
	return startedCalls(w, op)
}

// startedCalls runs all nonblocking operations at once, and then all persistent ones twice.
func startedCalls(w *mpi.World, op testOp) error {
	const n = 6
	calls := allCalls(w, op, n)
	var requests, persistent []*mpi.Request
	for _, c := range calls {
		r, err := c.start()
		if err != nil {
			return err
		}
		requests = append(requests, r)
	}
	if _, err := mpi.WaitAll(requests); err != nil {
		return err
	}
	for _, c := range calls {
		if err := c.check(nil); err != nil {
			return fmt.Errorf("nonblocking %w", err)
		}
	}
	for _, c := range calls {
		r, err := c.prepare()
		if err != nil {
			return err
		}
		persistent = append(persistent, r)
	}
	for range 2 {
		for i, r := range persistent {
			if err := r.Start(); err != nil {
				return err
			}
			_, err := r.Wait()
			if err = calls[i].check(err); err != nil {
				return fmt.Errorf("persistent %w", err)
			}
		}
	}
	return nil
}

// A rank whose buffer has another size gets an error, and no rank waits for ever.
func TestCollectivesEndAfterUnequalSizes(t *testing.T) {
	for _, choices := range algorithmChoices(t) {
		f := newFabric(t, 5, 1, false)
		failed := make([]bool, 5)
		f.succeed(mpi.Options{Collectives: choices}, func(w *mpi.World) error {
			n := 8
			if w.Rank() == 3 {
				n = 16
			}
			err := w.Allreduce(mpi.InPlace, make([]byte, n), mpi.Int64, mpi.Sum)
			if err != nil && !errors.Is(err, mpi.ErrArg) && !errors.Is(err, mpi.ErrTruncate) {
				return err
			}
			failed[w.Rank()] = err != nil
			return w.Barrier()
		})
		if !failed[3] {
			t.Errorf("no error: %v", failed)
		}
	}
}

// Blocking collectives of one size, and of blocks with sizes or datatypes of their own, allocate nothing.
func TestCollectivesAllocateNothing(t *testing.T) {
	runSingleRank(t, func(w *mpi.World) error {
		for _, size := range []int{8, 4096} {
			buf, all := make([]byte, size), make([]byte, size)
			counts, offsets := []int{size}, []int{0}
			apart, into := typedTestBuffer(buf, size, true), typedTestBuffer(all, size, false)
			one := func(b *typedBuffer) ([]byte, []int, []int, []*datatype.Type) {
				return b.buf, b.counts[:1], b.offsets[:1], b.types[:1]
			}
			do := func() {
				must.Do(t, w.Alltoall(mpi.InPlace, buf))
				must.Do(t, w.Alltoallv(buf, counts, nil, all, counts, offsets))
				must.Do(t, w.Alltoallv(mpi.InPlace, nil, nil, all, counts, nil))
				sent, sentCounts, sentOffsets, sentTypes := one(&apart)
				recv, recvCounts, recvOffsets, recvTypes := one(&into)
				must.Do(t, w.Alltoallw(sent, sentCounts, sentOffsets, sentTypes, recv, recvCounts, recvOffsets, recvTypes))
				must.Do(t, w.Alltoallw(mpi.InPlace, nil, nil, nil, recv, recvCounts, recvOffsets, recvTypes))
				must.Do(t, w.Scatterv(buf, counts, nil, all, 0))
				must.Do(t, w.Gatherv(buf, all, counts, nil, 0))
				must.Do(t, w.Allgatherv(buf, all, counts, nil))
				must.Do(t, w.ReduceScatter(buf, all, counts, mpi.Int64, mpi.Sum))
				must.Do(t, w.Barrier())
				must.Do(t, w.Bcast(buf, 0))
				must.Do(t, w.Allreduce(mpi.InPlace, buf, mpi.Int64, mpi.Sum))
				must.Do(t, w.Allreduce(buf, all, mpi.Int64, mpi.Sum))
				must.Do(t, w.Allgather(buf, all))
				must.Do(t, w.Reduce(buf, all, mpi.Int64, mpi.Sum, 0))
			}
			do()
			if n := testing.AllocsPerRun(100, do); n > 0 {
				t.Errorf("%v allocations for %d bytes", n, size)
			}
		}
		return nil
	})
}
