package work

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/mpi"
)

// bothway is the both-way bandwidth of Rashti 2010 §3.3: two ranks each start a window of sends
// and then one of receives, and wait for all. Receives follow the sends, therefore many
// messages are unexpected.
func bothway(j *job) {
	for _, n := range bandwidthSizes(j) {
		took := exchangePairs(j, 1, n)
		j.addFigure(fmt.Sprintf("bandwidth %d B", n), float64(2*n*window(n)*j.iterations)/took/1e6, "MB/s")
	}
}

// multipair is the multi-connection benchmark of Rashti 2010 §3.4.2: a growing number of pairs
// runs bothway concurrently. It reports their aggregate bandwidth, and the time of a
// message divided by the number of pairs.
func multipair(j *job) {
	sizes := bandwidthSizes(j)
	for pairs := 1; ; pairs = min(2*pairs, j.Size()/2) {
		for _, n := range sizes {
			took := exchangePairs(j, pairs, n)
			j.addFigure(fmt.Sprintf("%d pairs: bandwidth %d B", pairs, n), float64(2*n*window(n)*j.iterations*pairs)/took/1e6, "MB/s")
			j.addFigure(fmt.Sprintf("%d pairs: normalized time %d B", pairs, n), took/float64(window(n)*j.iterations*pairs)*1e6, "us")
		}
		if pairs == j.Size()/2 {
			return
		}
	}
}

// window is the number of outstanding messages of a size.
func window(n int) int { return min(64, max(4, 1<<20/n)) }

// bandwidthSizes sets the iterations of the class, and returns its message sizes.
func bandwidthSizes(j *job) []int {
	j.setIterations(map[Class]int{ClassT: 2, ClassS: 10, ClassW: 50, ClassA: 200}[j.p.Class])
	return j.messageSizes(map[Class][]int{
		ClassT: {64, 4 << 10, 64 << 10},
		ClassS: {64, 1 << 10, 8 << 10, 64 << 10, 256 << 10},
		ClassW: {1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20},
		ClassA: {1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20, 4 << 20},
	})
}

// exchangePairs exchanges windows of messages of n bytes, in pairs of a rank of the first half and
// the rank at its position in the second. It returns the time of the slowest pair in seconds.
func exchangePairs(j *job, pairs, n int) float64 {
	half := j.Size() / 2
	if pairs == 1 {
		half = 1 // as bothway, whose number of ranks may be odd
	}
	peer := -1
	if me := j.Rank(); me < pairs {
		peer = me + half
	} else if me >= half && me < half+pairs {
		peer = me - half
	}
	j.start()
	took := 0.0
	if peer >= 0 {
		w := windowPair{j: j, peer: peer, n: n, send: make([]byte, window(n)*n), recv: make([]byte, window(n)*n)}
		for i := range j.iterations + 1 { // the first iteration is a warm-up
			t := w.exchange(i)
			if i > 0 {
				took += t.Seconds()
			}
		}
	}
	j.stop()
	return j.maxAll(took)
}

// windowPair is the windows of a pair of ranks.
type windowPair struct {
	j          *job
	peer, n    int
	send, recv []byte
	requests   []*mpi.Request
}

// slot returns message i of a window.
func (w *windowPair) slot(buf []byte, i int) []byte { return buf[i*w.n:][:w.n] }

// exchange sends a window and receives one, and returns the time. Both ranks synchronize
// first, which keeps the generation and comparison of data out of the measurement.
func (w *windowPair) exchange(round int) time.Duration {
	j, many := w.j, window(w.n)
	for i := range many {
		fill(w.slot(w.send, i), j.messageKey(j.Rank(), w.peer, round*many+i))
	}
	j.Sendrecv(nil, w.peer, nil, w.peer, tagReady)
	began := j.Wtime()
	w.requests = w.requests[:0]
	for i := range many {
		w.requests = append(w.requests, j.Isend(w.slot(w.send, i), w.peer, i))
	}
	for i := range many {
		w.requests = append(w.requests, j.Irecv(w.slot(w.recv, i), w.peer, i))
	}
	j.waitAll(w.requests...)
	took := j.Wtime() - began
	for i := range many {
		j.checkContents(w.slot(w.recv, i), j.messageKey(w.peer, j.Rank(), round*many+i), "message %d of round %d from rank %d", i, round, w.peer)
	}
	return took
}

const tagReady = 904
