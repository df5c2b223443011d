package work

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/mpi"
)

// pingpong is the latency benchmark of Rashti 2010 §3.3: blocking sends and receives between two
// ranks. Half the round trip is the latency; bytes divided by it are the one-way bandwidth.
func pingpong(j *job) { measurePingpong(j, roundTrip, sameBuffers) }

// reuse is a ping-pong with nonblocking sends, always from the same buffer, as in Rashti 2010
// §5.5.1: the runtime copies the small messages of blocking sends even if it has registered their
// buffer.
func reuse(j *job) { measurePingpong(j, roundTripNonblocking, sameBuffers) }

// fresh is a ping-pong that sends and receives each message with buffers that were not used before,
// as in Rashti 2010 §3.5.2: compared with pingpong it shows what new buffers cost.
func fresh(j *job) { measurePingpong(j, roundTrip, freshBuffers) }

// buffers returns the buffers of a trip. Trip -1 is the first.
type buffers func(trip int) (send, recv []byte)

// sameBuffers returns the same buffers of n bytes for all trips.
func sameBuffers(n, _ int) buffers {
	send, recv := make([]byte, n), make([]byte, n)
	return func(int) ([]byte, []byte) { return send, recv }
}

// freshBuffers returns buffers of n bytes for a number of trips, each on pages of its own. All of
// them exist at the same time, so that no address is used twice.
func freshBuffers(n, trips int) buffers {
	memory := newPagedBuffers(2*(trips+1), n)
	return func(trip int) ([]byte, []byte) { return memory.at(2*trip + 2), memory.at(2*trip + 3) }
}

// measurePingpong measures all sizes with round trips of exchange, in the buffers that newBuffers
// returns for a size and a number of trips.
func measurePingpong(j *job, exchange func(j *job, send, recv []byte) mpi.Status, newBuffers func(n, trips int) buffers) {
	sizes := j.messageSizes(map[Class][]int{
		ClassT: {0, 8, 1 << 10, 16 << 10, 128 << 10},
		ClassS: {0, 8, 64, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10},
		ClassW: {0, 1, 8, 64, 512, 1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 1 << 20},
		ClassA: {0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20, 4 << 20},
	})
	trips := j.setIterations(map[Class]int{ClassT: 4, ClassS: 100, ClassW: 1000, ClassA: 10000}[j.p.Class])
	for _, n := range sizes {
		pingpongSize(j, n, trips, exchange, newBuffers(n, trips))
	}
}

// pingpongSize measures one size at rank 0. Contents differ on every trip; both ranks
// generate and compare them between trips.
func pingpongSize(j *job, n, trips int, exchange func(j *job, send, recv []byte) mpi.Status, of buffers) {
	me := j.Rank()
	j.start()
	var inCalls time.Duration
	for trip := -1; trip < trips && me < 2; trip++ { // the first trip is a warm-up
		send, recv := of(trip)
		fill(send, j.messageKey(me, 1-me, trip))
		began := j.Wtime()
		s := exchange(j, send, recv)
		if trip >= 0 {
			inCalls += j.Wtime() - began
		}
		j.checkReceived(recv, s, 1-me, 1, j.messageKey(1-me, me, trip))
	}
	j.stop()
	latency := j.bcastFromRoot(inCalls.Seconds() / float64(2*trips))
	j.addFigure(fmt.Sprintf("latency %d B", n), latency*1e6, "us")
	if n > 0 {
		j.addFigure(fmt.Sprintf("bandwidth %d B", n), float64(n)/latency/1e6, "MB/s")
	}
}

// roundTrip sends and then receives on rank 0, and receives and then sends on rank 1. It returns
// the status of the receive.
func roundTrip(j *job, send, recv []byte) mpi.Status {
	if j.Rank() == 0 {
		j.Send(send, 1, 1)
		return j.Recv(recv, 1, 1)
	}
	s := j.Recv(recv, 0, 1)
	j.Send(send, 0, 1)
	return s
}

// checkReceived checks the status of a receive, and its data: those of fill with the key k.
func (j *job) checkReceived(buf []byte, s mpi.Status, source, tag int, k uint64) {
	if want := (mpi.Status{Source: source, Tag: tag, Count: len(buf)}); s != want {
		j.failVerification(fmt.Sprintf("%+v", want), fmt.Sprintf("%+v", s), "status of a receive from rank %d with tag %d", source, tag)
	}
	j.checkContents(buf, k, "message from rank %d with tag %d", source, tag)
}

// bothway is the both-way bandwidth of Rashti 2010 §3.3: two ranks each start a window of sends
// and then one of receives, and wait for all. Receives follow the sends, therefore many
// messages are unexpected.
func bothway(j *job) {
	for _, n := range bandwidthSizes(j) {
		took := exchangePairs(j, 1, n)
		j.addFigure(fmt.Sprintf("bandwidth %d B", n), float64(2*n*window(n)*j.iterations)/took/1e6, "MB/s")
	}
}

// multipair is the multi-connection benchmark of Rashti 2010 §3.4.2: all pairs of a rank of the
// first half and the rank at its position in the second half have a ping-pong, and then exchange
// windows of messages in both directions, at the same time. It reports the normalized latency, half
// a round trip divided by the number of pairs, and the total bandwidth.
func multipair(j *job) {
	pairs := j.Size() / 2
	for _, n := range bandwidthSizes(j) {
		j.addFigure(fmt.Sprintf("normalized latency %d B", n), pingpongPairs(j, n)/float64(pairs)*1e6, "us")
		took := exchangePairs(j, pairs, n)
		j.addFigure(fmt.Sprintf("bandwidth %d B", n), float64(2*n*window(n)*j.iterations*pairs)/took/1e6, "MB/s")
	}
}

// pingpongPairs returns the mean of half a round trip of all pairs in seconds, after a round trip
// that does not count.
func pingpongPairs(j *job, n int) float64 {
	half, me := j.Size()/2, j.Rank()
	peer, first := (me+half)%j.Size(), me < half
	send, recv := make([]byte, n), make([]byte, n)
	took, trips := 0.0, 10*j.iterations
	j.start()
	for trip := range trips + 1 {
		fill(send, j.messageKey(me, peer, trip))
		began := j.Wtime()
		if first {
			j.Send(send, peer, trip)
		}
		j.Recv(recv, peer, trip)
		if !first {
			j.Send(send, peer, trip)
		} else if trip > 0 {
			took += (j.Wtime() - began).Seconds()
		}
		j.checkContents(recv, j.messageKey(peer, me, trip), "message %d from rank %d", trip, peer)
	}
	j.stop()
	return j.sumAll(took) / float64(2*trips*half)
}

// opposite is the bidirectional bandwidth of Rashti 2010 §6.6.1: pairs of ranks of two halves send
// windows of messages, every second pair in the opposite direction.
func opposite(j *job) {
	pairs := j.Size() / 2
	me := j.Rank()
	sends := (me < pairs) == (me%pairs%2 == 0)
	for _, n := range bandwidthSizes(j) {
		w := windowPair{j: j, peer: (me + pairs) % j.Size(), n: n, oneWay: true, sends: sends, send: make([]byte, window(n)*n), recv: make([]byte, window(n)*n)}
		j.start()
		took := w.exchangeWindows()
		j.stop()
		took = j.maxAll(took)
		j.addFigure(fmt.Sprintf("bandwidth %d B", n), float64(n*window(n)*j.iterations*pairs)/took/1e6, "MB/s")
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
		took = w.exchangeWindows()
	}
	j.stop()
	return j.maxAll(took)
}

// windowPair is the windows of a pair of ranks.
type windowPair struct {
	j             *job
	peer, n       int
	oneWay, sends bool // this rank sends only, or receives only
	send, recv    []byte
	requests      []*mpi.Request
}

// exchangeWindows exchanges the windows of all iterations, after one that does not count, and
// returns the time in seconds.
func (w *windowPair) exchangeWindows() (took float64) {
	for i := range w.j.iterations + 1 {
		t := w.exchange(i)
		if i > 0 {
			took += t.Seconds()
		}
	}
	return took
}

// slot returns message i of a window.
func (w *windowPair) slot(buf []byte, i int) []byte { return buf[i*w.n:][:w.n] }

// exchange sends a window, receives one, or both, and returns the time. Both ranks synchronize
// first, which keeps the generation and comparison of data out of the measurement. A one-way
// exchange ends when the receiver has answered.
func (w *windowPair) exchange(round int) time.Duration {
	j, messages := w.j, window(w.n)
	for i := range messages {
		fill(w.slot(w.send, i), j.messageKey(j.Rank(), w.peer, round*messages+i))
	}
	j.Sendrecv(nil, w.peer, nil, w.peer, tagReady)
	began := j.Wtime()
	w.requests = w.requests[:0]
	isSender, isReceiver := !w.oneWay || w.sends, !w.oneWay || !w.sends
	for i := 0; isSender && i < messages; i++ {
		w.requests = append(w.requests, j.Isend(w.slot(w.send, i), w.peer, i))
	}
	for i := 0; isReceiver && i < messages; i++ {
		w.requests = append(w.requests, j.Irecv(w.slot(w.recv, i), w.peer, i))
	}
	j.waitAll(w.requests...)
	if w.oneWay {
		j.Sendrecv(nil, w.peer, nil, w.peer, tagReady)
	}
	took := j.Wtime() - began
	for i := 0; isReceiver && i < messages; i++ {
		j.checkContents(w.slot(w.recv, i), j.messageKey(w.peer, j.Rank(), round*messages+i), "message %d of round %d from rank %d", i, round, w.peer)
	}
	return took
}

const tagReady = 904
