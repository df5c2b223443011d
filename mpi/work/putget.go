package work

import (
	"cmp"
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/mpi"
)

// putget measures one-sided operations between ranks 0 and 1, as Rashti 2010 §5.5.1 does: puts
// and gets of one size between fences, always from the same buffer.
func putget(j *job) {
	sizes := j.messageSizes(map[Class][]int{
		ClassT: {8, 1 << 10, 16 << 10},
		ClassS: {8, 128, 1 << 10, 4 << 10, 8 << 10, 64 << 10},
		ClassW: {8, 128, 512, 1 << 10, 2 << 10, 3 << 10, 4 << 10, 6 << 10, 8 << 10, 64 << 10, 1 << 20},
		ClassA: {8, 128, 512, 1 << 10, 2 << 10, 3 << 10, 4 << 10, 5 << 10, 6 << 10, 7 << 10, 8 << 10, 64 << 10, 1 << 20},
	})
	epochs := j.setIterations(map[Class]int{ClassT: 3, ClassS: 50, ClassW: 500, ClassA: 5000}[j.p.Class])
	for _, n := range sizes {
		o := newOneSided(j, n)
		buf := make([]byte, n)
		o.measureBoth(func(use func(buf []byte)) {
			for range epochs {
				use(buf)
			}
		})
	}
}

// putspectrum measures puts and gets between fences with many buffers, of which the i-th is used i
// times (Rashti 2010 §5.5.1, Fig. 5.8). Buffers do not share pages.
func putspectrum(j *job) {
	n := cmp.Or(j.p.Bytes, 2<<10)
	count := spectrumSize(j)
	newOneSided(j, n).measureBoth(func(use func(buf []byte)) {
		newPagedBuffers(count, n).eachOfSpectrum(use) // new buffers for puts and for gets
	})
}

// oneSided measures puts and gets of n bytes between a buffer of rank 0 and the window of rank 1.
type oneSided struct {
	j   *job
	win *mpi.Win
	n   int
}

// newOneSided allocates a window of n bytes, which measureBoth frees.
func newOneSided(j *job, n int) *oneSided { return &oneSided{j, must(j.world.WinAllocate(n)), n} }

// measureBoth measures puts from rank 0 to rank 1, and then gets from rank 1 to rank 0, and frees the
// window. For each it calls eachUse, which calls its argument once for every operation, with rank
// 0's buffer.
func (o *oneSided) measureBoth(eachUse func(use func(buf []byte))) {
	o.measure("put", 0, o.win.Put, eachUse)
	o.measure("get", 1, o.win.Get, eachUse)
	check(o.win.Free())
}

// measure runs epochs with a put or get by rank 0, and adds their mean time at rank 0 to the
// result. source is the rank whose data is moved. eachUse calls its argument once for each epoch,
// with rank 0's buffer.
func (o *oneSided) measure(what string, source int, start func(buf []byte, target, offset int) error, eachUse func(use func(buf []byte))) {
	defer annotateError("%s of %d bytes", what, o.n)
	j, me := o.j, o.j.Rank()
	j.start()
	var total time.Duration
	epochs := 0
	eachUse(func(data []byte) {
		if me == 1 {
			data = o.win.Memory()[:o.n]
		}
		contents := j.messageKey(source, 1-source, epochs)
		if me == source {
			fill(data, contents)
		}
		check(o.win.Fence(mpi.NoPrecede))
		began := j.Wtime()
		if me == 0 {
			check(start(data, 1, 0))
		}
		check(o.win.Fence(mpi.NoSucceed))
		total += j.Wtime() - began
		if me == 1-source {
			j.checkContents(data, contents, "data of %s %d of %d bytes", what, epochs, o.n)
		}
		epochs++
	})
	j.stop()
	mean := j.bcastFromRoot(total.Seconds() / float64(epochs))
	j.addFigure(fmt.Sprintf("%s %d B", what, o.n), mean*1e6, "us")
}
