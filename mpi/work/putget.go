package work

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/mpi"
)

// putget measures one-sided operations between ranks 0 and 1, as Thesis §5.5.1 does: puts
// and gets of one size between fences, always from the same buffer.
func putget(j *job) {
	sizes := j.messageSizes(map[Class][]int{
		ClassT: {8, 1 << 10, 16 << 10},
		ClassS: {8, 128, 1 << 10, 4 << 10, 8 << 10, 64 << 10},
		ClassW: {8, 128, 512, 1 << 10, 2 << 10, 3 << 10, 4 << 10, 6 << 10, 8 << 10, 64 << 10, 1 << 20},
		ClassA: {8, 128, 512, 1 << 10, 2 << 10, 3 << 10, 4 << 10, 5 << 10, 6 << 10, 7 << 10, 8 << 10, 64 << 10, 1 << 20},
	})
	j.setIterations(map[Class]int{ClassT: 3, ClassS: 50, ClassW: 500, ClassA: 5000}[j.p.Class])
	most := sizes[len(sizes)-1]
	win := must(j.world.WinAllocate(most))
	o := &oneSided{j: j, win: win, buf: make([]byte, most)}
	for _, n := range sizes {
		o.measure("put", n, o.put)
		o.measure("get", n, o.get)
	}
	check(win.Free())
}

// oneSided is the window of rank 1 and the buffer of rank 0.
type oneSided struct {
	j   *job
	win *mpi.Win
	buf []byte
}

// measure runs the epochs of once, a put or get of n bytes, and adds their mean time at rank 0 as
// a figure.
func (o *oneSided) measure(what string, n int, once func(n, number int) time.Duration) {
	defer annotate("%s of %d bytes", what, n)
	j := o.j
	j.start()
	var total time.Duration
	for i := range j.iterations {
		total += once(n, i)
	}
	j.stop()
	mean := j.bcastFromRoot(total.Seconds() / float64(j.iterations))
	j.addFigure(fmt.Sprintf("%s %d B", what, n), mean*1e6, "us")
}

// put writes from rank 0 to rank 1, which checks the data.
func (o *oneSided) put(n, number int) time.Duration {
	contents := o.j.messageKey(0, 1, number)
	if o.j.Rank() == 0 {
		fill(o.buf[:n], contents)
	}
	took := o.epoch(func() error { return o.win.Put(o.buf[:n], 1, 0) })
	if o.j.Rank() == 1 {
		o.j.checkContents(o.win.Memory()[:n], contents, "data of put %d of %d bytes", number, n)
	}
	return took
}

// get reads from rank 1 to rank 0, which checks the data.
func (o *oneSided) get(n, number int) time.Duration {
	contents := o.j.messageKey(1, 0, number)
	if o.j.Rank() == 1 {
		fill(o.win.Memory()[:n], contents)
	}
	took := o.epoch(func() error { return o.win.Get(o.buf[:n], 1, 0) })
	if o.j.Rank() == 0 {
		o.j.checkContents(o.buf[:n], contents, "data of get %d of %d bytes", number, n)
	}
	return took
}

// epoch runs an operation of rank 0 between two fences. It returns the time of the
// operation and the closing fence.
func (o *oneSided) epoch(operation func() error) time.Duration {
	check(o.win.Fence(mpi.NoPrecede))
	began := o.j.Wtime()
	if o.j.Rank() == 0 {
		check(operation())
	}
	check(o.win.Fence(mpi.NoSucceed))
	return o.j.Wtime() - began
}
